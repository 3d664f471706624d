use pyo3::types::PyAnyMethods as _;
use stanchion_record::RequestFacts;

use super::rig::Turning;
use crate::tests::rig::{FACTS, PROXIED, assert_has, head, shown, with_python};

/// Keys of a scope, and their values as Python shows them.
type Entries<'r> = &'r [(&'r str, &'r str)];
/// A head, the facts that go with it, and entries of its scope.
type Row<'r> = (&'r [u8], RequestFacts<'r>, Entries<'r>);

const UNIX: RequestFacts<'static> = RequestFacts {
    peer_address: b"",
    peer_port: 0,
    server_name: b"/run/s",
    server_port: b"",
    ..FACTS
};

/// Calls an app with the rows one after the other, twice: some scopes are kept for the next request of the same head.
fn assert_scopes(settings: &str, rows: &[Row<'_>]) {
    with_python(|py| {
        let mut turning = Turning::new(py, settings);
        for _ in 0..2 {
            for (text, facts, expected) in rows {
                for _ in 0..2 {
                    let called = turning.call(&head(text), facts, b"");
                    assert_has(&called.scope, expected, &String::from_utf8_lossy(text));
                    turning.end(&called, None);
                }
            }
        }
    });
}

/// Calls an app with a GET for each of these targets.
fn assert_scopes_of_targets(settings: &str, rows: &[(&str, Entries<'_>)]) {
    let heads = rows
        .iter()
        .map(|(target, _)| format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
    let heads: Vec<_> = heads.collect();
    let rows = heads
        .iter()
        .zip(rows)
        .map(|(head, (_, expected))| (head.as_bytes(), FACTS, *expected));
    assert_scopes(settings, &rows.collect::<Vec<_>>());
}

#[test]
fn a_scope_is_what_asgi_says() {
    assert_scopes(
        "",
        &[
            (
                b"GET /scope/caf%C3%A9%2Fx?q=%20&r HTTP/1.1\r\nHost: test\r\nX-A: 1\r\nAccept: gr\xfc\xdf\r\nx-a: 2\r\nX_B: 3\r\n\r\n",
                FACTS,
                &[
                    ("type", "'http'"),
                    ("asgi", "{'version': '3.0', 'spec_version': '2.3'}"),
                    ("http_version", "'1.1'"),
                    ("method", "'GET'"),
                    ("scheme", "'http'"),
                    ("path", "'/scope/caf\u{e9}/x'"),
                    ("raw_path", "b'/scope/caf%C3%A9%2Fx'"),
                    ("query_string", "b'q=%20&r'"),
                    ("root_path", "''"),
                    (
                        "headers",
                        "[(b'host', b'test'), (b'x-a', b'1'), (b'accept', b'gr\\xfc\\xdf'), (b'x-a', b'2')]",
                    ),
                    ("client", "('10.0.0.1', 4711)"),
                    ("server", "('127.0.0.1', 8000)"),
                    ("extensions", "{}"),
                    ("state", "absent"),
                    ("subprotocols", "absent"),
                ],
            ),
            (
                b"OPTIONS * HTTP/1.0\r\n\r\n",
                RequestFacts {
                    is_https: true,
                    takes_hints: true,
                    ..FACTS
                },
                &[
                    ("http_version", "'1.0'"),
                    ("method", "'OPTIONS'"),
                    ("scheme", "'https'"),
                    ("path", "'*'"),
                    ("raw_path", "b'*'"),
                    ("headers", "[]"),
                    ("extensions", "{'http.response.early_hint': {}}"),
                ],
            ),
            (
                b"GET /started HTTP/1.1\r\nHost: test\r\n\r\n",
                RequestFacts {
                    request_start_us: Some(1_764_371_234_567_890),
                    ..FACTS
                },
                &[(
                    "headers",
                    "[(b'host', b'test'), (b'x-request-start', b't=1764371234567890')]",
                )],
            ),
            (
                b"GET /started HTTP/1.1\r\nHost: test\r\n\r\n",
                RequestFacts {
                    request_start_us: Some(1_764_371_234_567_891),
                    ..FACTS
                },
                &[(
                    "headers",
                    "[(b'host', b'test'), (b'x-request-start', b't=1764371234567891')]",
                )],
            ),
        ],
    );
}

#[test]
fn a_path_is_decoded_and_otherwise_as_it_was_sent() {
    let rows: [(&str, Entries<'_>); 6] = [
        (
            "/a//b/../c;d",
            &[
                ("path", "'/a//b/../c;d'"),
                ("raw_path", "b'/a//b/../c;d'"),
                ("query_string", "b''"),
            ],
        ),
        (
            "/a?",
            &[
                ("path", "'/a'"),
                ("raw_path", "b'/a'"),
                ("query_string", "b''"),
            ],
        ),
        ("/a?b?c", &[("path", "'/a'"), ("query_string", "b'b?c'")]),
        (
            "/%FFx",
            &[("path", "'/\u{fffd}x'"), ("raw_path", "b'/%FFx'")],
        ),
        ("/%2", &[("path", "'/%2'"), ("raw_path", "b'/%2'")]),
        (
            "http://test/a?b",
            &[
                ("path", "'/a'"),
                ("raw_path", "b'/a'"),
                ("query_string", "b'b'"),
            ],
        ),
    ];
    assert_scopes_of_targets("", &rows);
}

#[test]
fn the_path_begins_with_the_root_path() {
    let rows: [(&str, Entries<'_>); 4] = [
        (
            "/x",
            &[
                ("path", "'/api/x'"),
                ("raw_path", "b'/x'"),
                ("root_path", "'/api'"),
            ],
        ),
        (
            "/api/x",
            &[
                ("path", "'/api/x'"),
                ("raw_path", "b'/api/x'"),
                ("root_path", "'/api'"),
            ],
        ),
        (
            "/api",
            &[
                ("path", "'/api'"),
                ("raw_path", "b'/api'"),
                ("root_path", "'/api'"),
            ],
        ),
        (
            "/apiary",
            &[
                ("path", "'/api/apiary'"),
                ("raw_path", "b'/apiary'"),
                ("root_path", "'/api'"),
            ],
        ),
    ];
    assert_scopes_of_targets(r#", "root_path": "/api""#, &rows);
}

#[test]
fn a_trusted_proxy_says_who_the_client_is_and_no_other_peer_does() {
    let several =
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 10.1.2.3, 127.0.0.1\r\n\r\n";
    let over_ipv6 = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 2001:db8::1\r\n\r\n";
    let forwarded = b"GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=6.6.6.6, for=10.1.2.4\r\nX-Forwarded-For: 7.7.7.7\r\n\r\n";
    let peer: Entries<'_> = &[("client", "('10.0.0.1', 4711)")];
    assert_scopes(
        "",
        &[
            (several, PROXIED, &[("client", "('10.1.2.3', 0)")]),
            (several, FACTS, peer),
            (over_ipv6, PROXIED, &[("client", "('2001:db8::1', 0)")]),
            (forwarded, PROXIED, &[("client", "('7.7.7.7', 0)")]),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", PROXIED, peer),
            (several, UNIX, &[("client", "None")]),
            (
                several,
                RequestFacts {
                    trusted_peer: true,
                    ..UNIX
                },
                &[("client", "('10.1.2.3', 0)")],
            ),
        ],
    );
    assert_scopes(
        r#", "forwarded_header": "forwarded""#,
        &[
            (forwarded, PROXIED, &[("client", "('10.1.2.4', 0)")]),
            (several, PROXIED, peer),
        ],
    );
}

#[test]
fn the_server_is_the_listener() {
    let get = b"GET / HTTP/1.1\r\nHost: example.org:81\r\n\r\n";
    let over_ipv6 = RequestFacts {
        peer_address: b"2001:db8::1",
        server_name: b"::1",
        ..FACTS
    };
    assert_scopes(
        "",
        &[
            (get, FACTS, &[("server", "('127.0.0.1', 8000)")]),
            (
                get,
                over_ipv6,
                &[
                    ("server", "('::1', 8000)"),
                    ("client", "('2001:db8::1', 4711)"),
                ],
            ),
            (
                get,
                UNIX,
                &[("server", "('/run/s', None)"), ("client", "None")],
            ),
            (
                b"GET / HTTP/1.0\r\n\r\n",
                UNIX,
                &[("server", "('/run/s', None)")],
            ),
        ],
    );
}

#[test]
fn the_scope_of_a_websocket_has_no_method_and_names_subprotocols() {
    let text = b"GET /chat HTTP/1.1\r\nHost: test\r\nSec-WebSocket-Protocol: a, b\r\nsec-websocket-protocol:c\r\n\r\n";
    let plain = RequestFacts {
        is_websocket: true,
        takes_hints: true,
        ..FACTS
    };
    let secure = RequestFacts {
        is_https: true,
        ..plain
    };
    assert_scopes(
        r#", "pathsend": true"#,
        &[
            (
                text,
                plain,
                &[
                    ("type", "'websocket'"),
                    ("asgi", "{'version': '3.0', 'spec_version': '2.5'}"),
                    ("method", "absent"),
                    ("scheme", "'ws'"),
                    ("path", "'/chat'"),
                    ("subprotocols", "['a', 'b', 'c']"),
                    ("extensions", "{'websocket.http.response': {}}"),
                ],
            ),
            (text, secure, &[("scheme", "'wss'")]),
            (
                b"GET /chat HTTP/1.1\r\nHost: test\r\n\r\n",
                plain,
                &[("type", "'websocket'"), ("subprotocols", "[]")],
            ),
            (
                b"GET /chat HTTP/1.1\r\nHost: test\r\n\r\n",
                FACTS,
                &[
                    ("type", "'http'"),
                    ("subprotocols", "absent"),
                    ("method", "'GET'"),
                    ("extensions", "{'http.response.pathsend': {}}"),
                ],
            ),
        ],
    );
}

#[test]
fn what_an_app_does_to_its_scope_is_not_in_the_next() {
    with_python(|py| {
        let mut turning = Turning::new(py, r#", "pathsend": true"#);
        let state = turning.value("{'of': ['lifespan']}");
        let mut puller = turning.puller.get().lock(py);
        let reader = puller.reader.as_mut().expect("nothing is read now");
        reader.share(Some(state.cast_into().expect("a dict").unbind()), py.None());
        drop(puller);
        let spoil = turning.value(
            "lambda scope: [part.update(spoilt=1) for part in (scope['asgi'], scope['state'], scope['extensions'],\
             *scope['extensions'].values(), scope)] and scope['headers'].clear()",
        );
        for _ in 0..3 {
            let called = turning.call(&head("GET / HTTP/1.1\r\nHost: test\r\n\r\n"), &FACTS, b"");
            let expected = [
                ("asgi", "{'version': '3.0', 'spec_version': '2.3'}"),
                ("state", "{'of': ['lifespan']}"),
                (
                    "extensions",
                    "{'stanchion': {'leaving': None}, 'http.response.pathsend': {}}",
                ),
                ("headers", "[(b'host', b'test')]"),
                ("spoilt", "absent"),
            ];
            assert_has(&called.scope, &expected, "each request");
            spoil.call1((&called.scope,)).expect("spoilt");
            assert_eq!(shown(&called.scope, "headers"), "[]");
            turning.end(&called, None);
        }
    });
}
