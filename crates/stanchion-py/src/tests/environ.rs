use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_record::{RequestBuffer, RequestFacts};
use stanchion_server::{AnswerEnd, Seat};

use super::rig::{self, FACTS, PROXIED, Rig, assert_has, latin_1, shown, with_python};
use crate::environ::Environs;

/// A seat that only makes environs.
struct Maker {
    rig: Rig,
    seat: Seat<'static>,
    environs: Environs,
    buffer: RequestBuffer,
}

impl Maker {
    fn new(py: Python<'_>, settings: &str) -> Self {
        let rig = Rig::new(settings);
        Self {
            seat: rig.worker.seat(0),
            environs: Environs::new(py, rig.worker.settings()).expect("memory"),
            buffer: RequestBuffer::default(),
            rig,
        }
    }

    fn make<'py>(
        &mut self,
        py: Python<'py>,
        head: &[u8],
        facts: &RequestFacts<'_>,
        body: &[u8],
    ) -> Bound<'py, PyDict> {
        let slot = self.rig.submit(&rig::head(head), facts, body);
        let taken = self.seat.take().expect("it is ready");
        let request = self.buffer.read(&taken).expect("a request");
        let environ = self.environs.make(py, &request, &taken);
        taken.finish(AnswerEnd::Broken);
        self.rig.answered(slot);
        environ.expect("an environ")
    }
}

/// A head, the facts that go with it, and entries of its environ.
type Row<'r> = (&'r str, RequestFacts<'r>, &'r [(&'r str, &'r str)]);

/// Makes the environs of the rows one after the other: each some times in a row, as then a template is made for it and fits the whole
/// head, and all in turn.
fn assert_environs(settings: &str, rows: &[Row<'_>]) {
    with_python(|py| {
        let mut maker = Maker::new(py, settings);
        for times in [4, 1, 1] {
            for (head, facts, expected) in rows {
                for _ in 0..times {
                    let environ = maker.make(py, &latin_1(head), facts, b"");
                    assert_has(&environ, expected, head);
                }
            }
        }
    });
}

#[test]
fn a_request_is_described_as_pep_3333_says() {
    assert_environs(
        "{}",
        &[
            (
                "GET /a/path?x=1&y=%20 HTTP/1.1\r\nHost: test\r\n\r\n",
                FACTS,
                &[
                    ("REQUEST_METHOD", "'GET'"),
                    ("SCRIPT_NAME", "''"),
                    ("PATH_INFO", "'/a/path'"),
                    ("QUERY_STRING", "'x=1&y=%20'"),
                    ("RAW_URI", "'/a/path?x=1&y=%20'"),
                    ("SERVER_PROTOCOL", "'HTTP/1.1'"),
                    ("REMOTE_ADDR", "'10.0.0.1'"),
                    ("REMOTE_PORT", "'4711'"),
                    ("SERVER_NAME", "'127.0.0.1'"),
                    ("SERVER_PORT", "'8000'"),
                    ("HTTP_HOST", "'test'"),
                    ("CONTENT_LENGTH", "absent"),
                    ("CONTENT_TYPE", "absent"),
                    ("wsgi.version", "(1, 0)"),
                    ("wsgi.url_scheme", "'http'"),
                    ("wsgi.run_once", "False"),
                    ("wsgi.multithread", "False"),
                    ("wsgi.multiprocess", "False"),
                    ("wsgi.input_terminated", "True"),
                    ("stanchion.proxy_wait", "absent"),
                ],
            ),
            (
                "OPTIONS * HTTP/1.0\r\n\r\n",
                RequestFacts {
                    is_https: true,
                    proxy_us: Some(7_000),
                    ..FACTS
                },
                &[
                    ("REQUEST_METHOD", "'OPTIONS'"),
                    ("PATH_INFO", "'*'"),
                    ("QUERY_STRING", "''"),
                    ("RAW_URI", "'*'"),
                    ("SERVER_PROTOCOL", "'HTTP/1.0'"),
                    ("HTTP_HOST", "absent"),
                    ("SERVER_NAME", "'127.0.0.1'"),
                    ("wsgi.url_scheme", "'https'"),
                    ("stanchion.proxy_wait", "0.007"),
                ],
            ),
            (
                "GET /started HTTP/1.1\r\nHost: test\r\n\r\n",
                RequestFacts {
                    request_start_us: Some(1_764_371_234_567_890),
                    ..FACTS
                },
                &[("HTTP_X_REQUEST_START", "'t=1764371234567890'")],
            ),
            (
                "GET /started HTTP/1.1\r\nHost: test\r\n\r\n",
                RequestFacts {
                    request_start_us: Some(u64::MAX - 1),
                    ..FACTS
                },
                &[("HTTP_X_REQUEST_START", "'t=18446744073709551614'")],
            ),
            (
                "GET /started HTTP/1.1\r\nHost: test\r\nX-Request-Start: t=1.5\r\n\r\n",
                PROXIED,
                &[("HTTP_X_REQUEST_START", "'t=1.5'")],
            ),
            (
                "GET http://test:80/x?y HTTP/1.1\r\nHost: test:80\r\n\r\n",
                FACTS,
                &[
                    ("PATH_INFO", "'/x'"),
                    ("QUERY_STRING", "'y'"),
                    ("RAW_URI", "'http://test:80/x?y'"),
                    ("wsgi.url_scheme", "'http'"),
                ],
            ),
        ],
    );
    assert_environs(
        r#"{"threads": 2, "workers": 3}"#,
        &[(
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            FACTS,
            &[("wsgi.multithread", "True"), ("wsgi.multiprocess", "True")],
        )],
    );
}

#[test]
fn bytes_above_127_are_the_characters_of_their_numbers() {
    assert_environs(
        "{}",
        &[
            (
                "GET /caf%C3%A9/a%2Fb?q=%C3%A9 HTTP/1.1\r\nHost: test\r\nX-A: gr\u{fc}\u{df} \u{ff}\r\n\r\n",
                FACTS,
                &[
                    ("PATH_INFO", "'/caf\u{c3}\u{a9}/a/b'"),
                    ("QUERY_STRING", "'q=%C3%A9'"),
                    ("RAW_URI", "'/caf%C3%A9/a%2Fb?q=%C3%A9'"),
                    ("HTTP_X_A", "'gr\u{fc}\u{df} \u{ff}'"),
                ],
            ),
            (
                // Fields whose values are likely to come again have strings of their own.
                "GET / HTTP/1.1\r\nHost: test\r\nAccept: gr\u{fc}\u{df}\r\nUser-Agent: \u{ff}\r\n\r\n",
                FACTS,
                &[
                    ("HTTP_ACCEPT", "'gr\u{fc}\u{df}'"),
                    ("HTTP_USER_AGENT", "'\u{ff}'"),
                ],
            ),
        ],
    );
}

#[test]
fn a_field_is_a_key_and_fields_of_one_name_are_a_list() {
    assert_environs(
        "{}",
        &[
            (
                "GET / HTTP/1.1\r\nHost: test\r\nX-A: 1\r\nAccept: text/html\r\nX-A: 2, 3\r\nx-a: 4\r\n\r\n",
                FACTS,
                &[("HTTP_X_A", "'1,2, 3,4'"), ("HTTP_ACCEPT", "'text/html'")],
            ),
            (
                "GET / HTTP/1.1\r\nHost: test\r\ncOOkie: a=1\r\nCookie: b=2\r\nAccept: 1\r\naCCEPT: 2\r\n\r\n",
                FACTS,
                &[
                    ("HTTP_COOKIE", "'a=1; b=2'"),
                    ("HTTP_ACCEPT", "'1,2'"),
                    ("HTTP_X_A", "absent"),
                ],
            ),
            (
                "POST / HTTP/1.1\r\nHost: test\r\ncontent-TYPE: text/a\r\nContent-Type: text/b\r\nContent-Length: 0\r\n\r\n",
                FACTS,
                &[
                    ("CONTENT_TYPE", "'text/b'"),
                    ("CONTENT_LENGTH", "'0'"),
                    ("HTTP_CONTENT_TYPE", "absent"),
                    ("HTTP_CONTENT_LENGTH", "absent"),
                    ("HTTP_ACCEPT", "absent"),
                ],
            ),
            (
                "GET / HTTP/1.1\r\nHost: test\r\nX-Empty:\r\nX--B-: 1\r\n\r\n",
                FACTS,
                &[
                    ("HTTP_X_EMPTY", "''"),
                    ("HTTP_X__B_", "'1'"),
                    ("CONTENT_TYPE", "absent"),
                    ("CONTENT_LENGTH", "absent"),
                ],
            ),
            (
                "GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 10.0.0.9\r\nX_Forwarded_For: 6.6.6.6\r\nContent_Type: x\r\n\r\n",
                FACTS,
                &[
                    ("HTTP_X_FORWARDED_FOR", "'10.0.0.9'"),
                    ("HTTP_CONTENT_TYPE", "absent"),
                    ("CONTENT_TYPE", "absent"),
                ],
            ),
        ],
    );
    assert_environs(
        r#"{"header_map": "dangerous"}"#,
        &[(
            "GET / HTTP/1.1\r\nHost: test\r\nX_A: 1\r\nX-A: 2\r\n\r\n",
            FACTS,
            &[("HTTP_X_A", "'1,2'")],
        )],
    );
}

#[test]
fn names_beyond_what_is_remembered_are_still_names() {
    with_python(|py| {
        let mut maker = Maker::new(py, "{}");
        for start in [0, 150, 300, 0, 300] {
            let fields = (start..start + 150).map(|n| format!("X-{n}: a\r\nx-{n}: b\r\n"));
            let fields: String = fields.collect();
            let long = "y".repeat(70);
            let head = format!(
                "GET / HTTP/1.1\r\nHost: test\r\n{fields}{long}: 1\r\ncookie: a=1\r\nCOOKIE: b=2\r\n\r\n"
            );
            for _ in 0..2 {
                let environ = maker.make(py, head.as_bytes(), &FACTS, b"");
                for n in start..start + 150 {
                    assert_eq!(shown(&environ, &format!("HTTP_X_{n}")), "'a,b'");
                }
                let long = format!("HTTP_{}", long.to_uppercase());
                assert_has(
                    &environ,
                    &[(&long, "'1'"), ("HTTP_COOKIE", "'a=1; b=2'")],
                    &head,
                );
            }
        }
    });
}

#[test]
fn the_path_is_below_the_mount_of_the_settings_or_of_a_proxy() {
    let in_app = "GET /app/x HTTP/1.1\r\nHost: test\r\nSCRIPT_NAME: /app\r\n\r\n";
    assert_environs(
        "{}",
        &[
            (
                in_app,
                PROXIED,
                &[
                    ("SCRIPT_NAME", "'/app'"),
                    ("PATH_INFO", "'/x'"),
                    ("HTTP_SCRIPT_NAME", "'/app'"),
                    ("RAW_URI", "'/app/x'"),
                ],
            ),
            (
                in_app,
                FACTS,
                &[
                    ("SCRIPT_NAME", "''"),
                    ("PATH_INFO", "'/app/x'"),
                    ("HTTP_SCRIPT_NAME", "absent"),
                ],
            ),
            (
                "GET /%61pp/%78 HTTP/1.1\r\nHost: test\r\nScript_Name: /app\r\n\r\n",
                PROXIED,
                &[("SCRIPT_NAME", "'/app'"), ("PATH_INFO", "'/x'")],
            ),
            (
                "GET /other HTTP/1.1\r\nHost: test\r\nSCRIPT_NAME: /app\r\n\r\n",
                PROXIED,
                &[("SCRIPT_NAME", "'/app'"), ("PATH_INFO", "'/other'")],
            ),
            (
                "GET /app/x HTTP/1.1\r\nHost: test\r\n\r\n",
                PROXIED,
                &[("SCRIPT_NAME", "''"), ("PATH_INFO", "'/app/x'")],
            ),
        ],
    );
    assert_environs(
        r#"{"root_path": "/api"}"#,
        &[
            (
                "GET /api/x?y HTTP/1.1\r\nHost: test\r\n\r\n",
                FACTS,
                &[
                    ("SCRIPT_NAME", "'/api'"),
                    ("PATH_INFO", "'/x'"),
                    ("RAW_URI", "'/api/x?y'"),
                ],
            ),
            (
                "GET /api HTTP/1.1\r\nHost: test\r\n\r\n",
                FACTS,
                &[("SCRIPT_NAME", "'/api'"), ("PATH_INFO", "''")],
            ),
            (
                "GET /apiary HTTP/1.1\r\nHost: test\r\n\r\n",
                FACTS,
                &[("SCRIPT_NAME", "'/api'"), ("PATH_INFO", "'/apiary'")],
            ),
            (
                "GET /app/x HTTP/1.1\r\nHost: test\r\nSCRIPT_NAME: /app\r\n\r\n",
                PROXIED,
                &[("SCRIPT_NAME", "'/app'"), ("PATH_INFO", "'/x'")],
            ),
        ],
    );
}

#[test]
fn the_server_is_the_listener_or_over_a_unix_socket_the_host() {
    let unix = RequestFacts {
        peer_address: b"",
        peer_port: 0,
        server_name: b"/run/s",
        server_port: b"",
        ..FACTS
    };
    let secure = RequestFacts {
        is_https: true,
        ..unix
    };
    let over_ipv6 = RequestFacts {
        peer_address: b"2001:db8::1",
        server_name: b"::1",
        ..FACTS
    };
    let by_host = "GET / HTTP/1.1\r\nHost: example.org:8080\r\n\r\n";
    let without_host = "GET / HTTP/1.0\r\n\r\n";
    assert_environs(
        "{}",
        &[
            (
                by_host,
                over_ipv6,
                &[
                    ("SERVER_NAME", "'::1'"),
                    ("SERVER_PORT", "'8000'"),
                    ("REMOTE_ADDR", "'2001:db8::1'"),
                    ("REMOTE_PORT", "'4711'"),
                    ("HTTP_HOST", "'example.org:8080'"),
                ],
            ),
            (
                by_host,
                unix,
                &[
                    ("SERVER_NAME", "'example.org'"),
                    ("SERVER_PORT", "'8080'"),
                    ("REMOTE_ADDR", "''"),
                    ("REMOTE_PORT", "absent"),
                ],
            ),
            (
                "GET / HTTP/1.1\r\nHost: [::1]:81\r\n\r\n",
                unix,
                &[("SERVER_NAME", "'[::1]'"), ("SERVER_PORT", "'81'")],
            ),
            (
                "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n",
                unix,
                &[("SERVER_NAME", "'[::1]'"), ("SERVER_PORT", "'80'")],
            ),
            (
                "GET / HTTP/1.1\r\nHost: two.test\r\n\r\n",
                secure,
                &[("SERVER_NAME", "'two.test'"), ("SERVER_PORT", "'443'")],
            ),
            (
                without_host,
                unix,
                &[("SERVER_NAME", "'/run/s'"), ("SERVER_PORT", "'80'")],
            ),
            (
                without_host,
                secure,
                &[("SERVER_NAME", "'/run/s'"), ("SERVER_PORT", "'443'")],
            ),
            (
                without_host,
                FACTS,
                &[
                    ("SERVER_NAME", "'127.0.0.1'"),
                    ("SERVER_PORT", "'8000'"),
                    ("REMOTE_PORT", "'4711'"),
                ],
            ),
        ],
    );
}

#[test]
fn the_name_of_a_request_is_the_servers() {
    let named = RequestFacts {
        request_id: b"by-server",
        ..FACTS
    };
    let head =
        "GET / HTTP/1.1\r\nHost: test\r\nX-Request-Id: by-client\r\nX-Name: by-client\r\n\r\n";
    assert_environs(
        "{}",
        &[(
            head,
            named,
            &[
                ("HTTP_X_REQUEST_ID", "'by-server'"),
                ("HTTP_X_NAME", "'by-client'"),
                ("stanchion.request_id", "'by-server'"),
            ],
        )],
    );
    assert_environs(
        r#"{"request_id_header": "x-name"}"#,
        &[(
            head,
            named,
            &[
                ("HTTP_X_REQUEST_ID", "'by-client'"),
                ("HTTP_X_NAME", "'by-server'"),
                ("stanchion.request_id", "'by-server'"),
            ],
        )],
    );
}

#[test]
fn what_an_app_does_to_its_environ_and_its_input_is_not_in_the_next() {
    with_python(|py| {
        let mut maker = Maker::new(py, "{}");
        let read = |input: &Bound<'_, PyAny>| -> Vec<u8> {
            let came = input.call_method0("read").expect("it can be read");
            came.extract().expect("bytes")
        };
        for (method, body) in [
            ("GET", "" as &str),
            ("POST", "abc"),
            ("GET", ""),
            ("POST", ""),
            ("POST", "de"),
        ] {
            for _ in 0..3 {
                let head = match method {
                    "GET" => "GET /a HTTP/1.1\r\nHost: test\r\nAccept: x\r\n\r\n".to_owned(),
                    _ => format!(
                        "POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    ),
                };
                let environ = maker.make(py, head.as_bytes(), &FACTS, body.as_bytes());
                let method = format!("'{method}'");
                assert_has(
                    &environ,
                    &[
                        ("REQUEST_METHOD", &method),
                        ("PATH_INFO", "'/a'"),
                        ("spoilt", "absent"),
                    ],
                    &head,
                );
                let input = environ.as_any().get_item("wsgi.input").expect("an input");
                assert_eq!(read(&input), body.as_bytes());
                assert_eq!(read(&input), b"", "it is read");
                input.call_method1("write", (b"secret",)).expect("written");
                input.call_method1("seek", (0,)).expect("at its start");
                for key in ["REQUEST_METHOD", "PATH_INFO", "HTTP_ACCEPT", "spoilt"] {
                    environ.set_item(key, "spoilt").expect("a dict");
                }
                environ.del_item("wsgi.input").expect("a key");
            }
        }
    });
}
