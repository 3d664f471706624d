//! Heads, section by section of RFC 9112 and RFC 9110.

use stanchion_http::rules::is_field_text;
use stanchion_http::{Fault, Framing, Head, HeadReader, HeadRules, Permits, split_target};

const NO_LIMITS: HeadRules = HeadRules {
    line_bytes: usize::MAX,
    field_bytes: usize::MAX,
    fields: usize::MAX,
    head_bytes: usize::MAX,
    permits: Permits::NONE,
};

fn read_within(bytes: &[u8], limits: &HeadRules) -> Result<(Head, usize), Fault> {
    let mut head = Head::default();
    let read = HeadReader::default().read(bytes, limits, &mut head)?;
    Ok((head, read.expect("the whole head")))
}

fn read(text: &str) -> Result<Head, Fault> {
    let (head, len) = read_within(text.as_bytes(), &NO_LIMITS)?;
    assert_eq!(len, text.len(), "{text:?}");
    Ok(head)
}

/// The status that a head earns, 200 if it is understood.
fn status(text: &str) -> u16 {
    read(text).map_or_else(Fault::status, |_| 200)
}

fn assert_statuses(table: &[(&str, &str, u16)]) {
    for (section, text, expected) in table {
        assert_eq!(status(text), *expected, "RFC {section}: {text:?}");
    }
}

#[test]
fn request_lines() {
    let table: &[(&str, &str, u16)] = &[
        ("9112 3", "GET / HTTP/1.1", 200),
        ("9112 3", "GET  / HTTP/1.1", 400),
        ("9112 3", "GET /  HTTP/1.1", 400),
        ("9112 3", "GET / HTTP/1.1 ", 400),
        ("9112 3", "GET\t/ HTTP/1.1", 400),
        ("9112 3", "GET /", 400),
        ("9112 3", "GET", 400),
        ("9112 3", "GET ", 400),
        ("9112 3", " / HTTP/1.1", 400),
        ("9112 3", "GET HTTP/1.1", 400),
        ("9112 3.1", "get / HTTP/1.1", 400),
        ("9112 3.1", "PU / HTTP/1.1", 400),
        ("9112 3.1", "PUT# / HTTP/1.1", 400),
        ("9112 3.1", "ABCDEFGHIJKLMNOPQRST / HTTP/1.1", 200),
        ("9112 3.1", "ABCDEFGHIJKLMNOPQRSTU / HTTP/1.1", 400),
        ("9110 9.1", "M-SEARCH / HTTP/1.1", 200),
        ("9110 9.1", "GE(T / HTTP/1.1", 400),
        ("9110 9.1", "G\u{e9}T / HTTP/1.1", 400),
        ("9112 2.3", "GET / HTTP/1.0", 200),
        ("9112 2.3", "GET / http/1.1", 400),
        ("9112 2.3", "GET / HTTP/1.10", 400),
        ("9112 2.3", "GET / HTTP/01.1", 400),
        ("9112 2.3", "GET / HTTP/1", 400),
        ("9112 2.3", "GET / FTP/1.1", 400),
        ("9110 15.6.6", "GET / HTTP/0.9", 505),
        ("9110 15.6.6", "GET / HTTP/2.0", 505),
        ("9110 15.6.6", "GET / HTTP/1.2", 505),
        ("9113 3.4", "PRI * HTTP/2.0", 505),
        ("9110 9.3.6", "CONNECT a:80 HTTP/1.1", 501),
        ("9110 9.3.6", "CONNECT / HTTP/1.1", 501),
    ];
    for (section, line, expected) in table {
        let text = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(status(&text), *expected, "RFC {section}: {text:?}");
    }
}

#[test]
fn targets() {
    // (section, method, target, path, query; no path if the target is refused)
    type Row = (
        &'static str,
        &'static str,
        &'static str,
        Option<(&'static str, &'static str)>,
    );
    let table: &[Row] = &[
        ("9112 3.2.1", "GET", "/", Some(("/", ""))),
        ("9112 3.2.1", "GET", "/a/b?c=d?e", Some(("/a/b", "c=d?e"))),
        ("9112 3.2.1", "GET", "/?", Some(("/", ""))),
        ("9112 3.2.1", "GET", "//a/../b//", Some(("//a/../b//", ""))),
        ("9112 3.2.1", "GET", "here", None),
        ("9112 3.2.1", "GET", "?a", None),
        ("9112 3.2.1", "GET", "#a", None),
        ("9112 3.2.2", "GET", "http://h/a?b", Some(("/a", "b"))),
        ("9112 3.2.2", "GET", "HTTPS://h:1/a", Some(("/a", ""))),
        ("9110 4.2.3", "GET", "http://h", Some(("/", ""))),
        ("9110 4.2.3", "GET", "http://h?b", Some(("/", "b"))),
        ("9110 4.2.1", "GET", "http://", None),
        ("9110 4.2.1", "GET", "http:///a", None),
        ("9110 4.2.1", "GET", "http://:80/", None),
        ("9110 4.2.4", "GET", "http://u@h/", None),
        ("9110 4.2.4", "GET", "http://u:80@h/", None),
        ("3986 3.2.3", "GET", "http://h:65535/", Some(("/", ""))),
        ("3986 3.2.3", "GET", "http://h:65536/", None),
        ("3986 3.2.3", "GET", "http://h:x/", None),
        ("3986 3.1", "GET", "1http://h/", None),
        ("3986 3.1", "GET", "ht_tp://h/", None),
        ("9112 3.2.3", "GET", "h:80", None),
        ("9112 3.2.3", "GET", "mailto:a@b", None),
        ("9112 3.2.4", "OPTIONS", "*", Some(("*", ""))),
        ("9112 3.2.4", "GET", "*", None),
        ("9112 3.2.4", "OPTIONS", "*a", None),
        ("3986 2", "GET", "/a b", None),
        ("3986 2", "GET", "/?a b", None),
        ("3986 2", "GET", "/a#b c", None),
        (
            "3986 2",
            "GET",
            "/\"<>\\^`{|}?\"<>\\^`{|}",
            Some(("/\"<>\\^`{|}", "\"<>\\^`{|}")),
        ),
        ("3986 2", "GET", "/a\u{1}b", None),
        ("3986 2", "GET", "/a\u{7f}b", None),
        ("3986 2.1", "GET", "/100%/%zz", Some(("/100%/%zz", ""))),
        ("3986 3.5", "GET", "/a#b", Some(("/a", ""))),
        ("3986 3.5", "GET", "/a?b#c?d", Some(("/a", "b"))),
        ("3987 3.1", "GET", "/caf\u{e9}", Some(("/caf\u{e9}", ""))),
    ];
    for (section, method, target, expected) in table {
        let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let read = read(&text);
        let parts = read.as_ref().ok().map(|head| (head.path(), head.query()));
        let expected = expected.map(|(path, query)| (path.as_bytes(), query.as_bytes()));
        assert_eq!(parts, expected, "RFC {section}: {text:?} {read:?}");
    }
    let fault = read("GET http://u@h/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap_err();
    assert_eq!(fault.reason(), "the target has user information");
}

/// A target may hold each byte that ends neither a word nor a line. A refusal names any other byte.
#[test]
fn every_byte_in_the_path_and_in_the_query() {
    for byte in 0..=u8::MAX {
        for (before, after) in [
            ("/a", "b"),
            ("/", ""),
            ("/?a", "b"),
            ("/?", ""),
            ("http://h/", ""),
        ] {
            let target = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            let text = [b"GET ", &target[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            let read = read_within(&text, &NO_LIMITS).map(|(head, _)| head);
            match byte {
                // Ends the line, or the target, whose rest is no version then.
                b'\r' | b'\n' => assert_eq!(read.map_err(Fault::status).err(), Some(400)),
                b'#' => assert_eq!(read.unwrap().target(), before.as_bytes()),
                b'!'..=b'~' | 0x80.. => {
                    let head = read.unwrap_or_else(|fault| panic!("{byte:#x} {fault:?}"));
                    assert_eq!(head.target(), target);
                    let parts = split_target(&target);
                    assert_eq!((head.path(), head.query()), parts, "{byte:#x}");
                }
                _ => {
                    let reason = read.unwrap_err().reason();
                    let how = format!("write it as %{byte:02X}");
                    assert!(reason.ends_with(&how), "{byte:#x}: {reason}");
                }
            }
        }
    }
}

#[test]
fn hosts() {
    let table = [
        ("a", 200),
        ("", 200),
        ("example.org:8080", 200),
        ("a:", 200),
        ("a:0", 200),
        ("a:65535", 200),
        ("a:65536", 400),
        ("a:00080", 200),
        ("a:18446744073709551696", 400),
        ("a:-1", 400),
        ("a:b", 400),
        ("a:1:2", 400),
        ("u@a", 400),
        ("a b", 400),
        ("a/b", 400),
        ("a?b", 400),
        ("a#b", 400),
        ("a\\b", 400),
        ("a%41", 400),
        ("a,b", 200),
        ("under_score", 200),
        ("caf\u{e9}", 400),
        ("[::1]", 200),
        ("[::1]:80", 200),
        ("[::ffff:192.0.2.1]", 200),
        ("[::1", 400),
        ("::1", 400),
        ("[]", 400),
        ("[a]", 400),
        ("[::1]a", 400),
        ("[::1%25eth0]", 400),
        ("[v1.a:b]", 200),
        ("[v1.]", 400),
        ("[v.a]", 400),
    ];
    for (host, expected) in table {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(status(&text), expected, "RFC 9112 3.2: {text:?}");
    }
    assert_statuses(&[
        ("9112 3.2", "GET / HTTP/1.1\r\n\r\n", 400),
        ("9112 3.2", "GET / HTTP/1.0\r\n\r\n", 200),
        ("9112 3.2", "GET http://a/ HTTP/1.1\r\n\r\n", 400),
        (
            "9112 3.2",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            400,
        ),
        (
            "9112 3.2",
            "GET / HTTP/1.0\r\nHost: a\r\nhost: a\r\n\r\n",
            400,
        ),
    ]);
}

#[test]
fn the_host_of_a_whole_uri_replaces_the_field() {
    let head = read("GET http://b:8080/ HTTP/1.1\r\nX: 1\r\nHost: a\r\nY: 2\r\n\r\n").unwrap();
    assert_eq!(head.host(), Some(&b"b:8080"[..]));
    let fields: Vec<_> = head.fields().collect();
    let expected: [(&[u8], &[u8]); 3] = [(b"X", b"1"), (b"Host", b"b:8080"), (b"Y", b"2")];
    assert_eq!(fields, expected);
    let head = read("GET http://b/ HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(head.host(), Some(&b"b"[..]));
}

#[test]
fn field_lines() {
    let table: &[(&str, &str, u16)] = &[
        ("9112 5", "X-A: 1\r\n", 200),
        ("9112 5", "X-A:\r\n", 200),
        ("9112 5", "X-A: \t  spaced out \t\r\n", 200),
        ("9112 5", "X-A\r\n", 400),
        ("9112 5.1", "X-A : 1\r\n", 400),
        ("9112 5.1", "X-A\t: 1\r\n", 400),
        ("9110 5.1", ": 1\r\n", 400),
        ("9110 5.1", "X[A]: 1\r\n", 400),
        ("9110 5.1", "X A: 1\r\n", 400),
        ("9110 5.1", "X\u{1}A: 1\r\n", 400),
        ("9110 5.1", "X\u{e9}: 1\r\n", 400),
        ("9110 5.5", "X-A: caf\u{e9}\r\n", 200),
        ("9110 5.5", "X-A: 1\u{0}2\r\n", 400),
        ("9110 5.5", "X-A: 1\u{b}2\r\n", 400),
        ("9110 5.5", "X-A: 1\u{7f}2\r\n", 400),
        ("9112 5.2", "X-A: 1\r\n 2\r\n", 400),
        ("9112 5.2", "X-A: 1\r\n\t2\r\n", 400),
        ("9112 2.2", " X-A: 1\r\n", 400),
        ("9112 2.2", "X-A: 1\r2\r\n", 400),
        ("9112 2.2", "X-A: 1\r\r\n", 400),
        ("9112 2.2", "X-A: 1\n", 200),
    ];
    for (section, line, expected) in table {
        let text = format!("GET / HTTP/1.1\r\n{line}Host: a\r\n\r\n");
        assert_eq!(status(&text), *expected, "RFC {section}: {text:?}");
    }
    let fault = read("GET / HTTP/1.1\r\nHost : a\r\n\r\n").unwrap_err();
    assert_eq!(fault.reason(), "whitespace after the name of a field");
    let head = read("GET / HTTP/1.1\r\nHost:a\r\nX-A: \t b  c \t\r\nx-a:\r\n\r\n").unwrap();
    assert_eq!(head.first("host"), Some(&b"a"[..]));
    let values: Vec<_> = head.all("x-a").collect();
    assert_eq!(values, [&b"b  c"[..], b""]);
    assert_eq!(
        (head.only("x-a"), head.only("host")),
        (None, Some(&b"a"[..]))
    );
}

/// RFC 9110 section 5.5, beside any other bytes: the reader checks values eight bytes at a time.
#[test]
fn every_byte_at_every_place_of_a_value() {
    for (byte, around) in
        (0..=255_u8).flat_map(|byte| [b'a', b'~', 0x80, 0xff].map(|around| (byte, around)))
    {
        let allowed = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        for at in 0..20 {
            let mut value = [around; 20];
            value[at] = byte;
            assert_eq!(is_field_text(&value), allowed, "{value:?}");
            let head = [b"GET / HTTP/1.0\r\nX-A: ", &value[..], b"\r\n\r\n"].concat();
            let read = read_within(&head, &NO_LIMITS);
            // A lone LF ends a line.
            assert_eq!(
                read.is_ok(),
                allowed || (byte == b'\n' && at == 19),
                "{value:?}"
            );
        }
    }
}

#[test]
fn lines() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let after = |before: &str| format!("{before}{get}");
    for (section, text, expected) in [
        ("9112 2.2", after("\r\n"), 200),
        ("9112 2.2", after("\n"), 200),
        ("9112 2.2", after("\r\n\r\n\r\n\r\n"), 200),
        ("9112 2.2", after("\r\n\r\n\r\n\r\n\r\n"), 400),
        ("9112 2.2", after("\r\r\n"), 400),
        ("9112 2.2", after(" \r\n"), 400),
        ("9112 2.2", get.replace("\r\n", "\n"), 200),
        ("9112 2.2", get.replace("\r\n", "\r\r\n"), 400),
    ] {
        assert_eq!(status(&text), expected, "RFC {section}: {text:?}");
    }
}

#[test]
fn framings() {
    let length = |length| Ok(Framing::Length(length));
    let table: &[(&str, &str, Result<Framing, u16>)] = &[
        ("9112 6.3", "", Ok(Framing::Empty)),
        ("9110 8.6", "Content-Length: 0", Ok(Framing::Empty)),
        ("9110 8.6", "content-LENGTH: 42", length(42)),
        ("9110 8.6", "Content-Length: 0042", length(42)),
        (
            "9110 8.6",
            "Content-Length: 18446744073709551615",
            length(u64::MAX),
        ),
        ("9110 8.6", "Content-Length: 18446744073709551616", Err(400)),
        ("9110 8.6", "Content-Length:", Err(400)),
        ("9110 8.6", "Content-Length: +5", Err(400)),
        ("9110 8.6", "Content-Length: -1", Err(400)),
        ("9110 8.6", "Content-Length: 0x5", Err(400)),
        ("9110 8.6", "Content-Length: 1 0", Err(400)),
        ("9110 8.6", "Content-Length: 5, 5", Err(400)),
        (
            "9112 6.3",
            "Content-Length: 5\r\nContent-Length: 5",
            length(5),
        ),
        (
            "9112 6.3",
            "Content-Length: 5\r\nContent-Length: 6",
            Err(400),
        ),
        (
            "9112 7.1",
            "Transfer-Encoding: chunked",
            Ok(Framing::Chunked),
        ),
        ("9112 7", "transfer-encoding: ChUnKeD", Ok(Framing::Chunked)),
        ("9112 6.1", "Transfer-Encoding: gzip", Err(501)),
        ("9112 6.1", "Transfer-Encoding: gzip, chunked", Err(501)),
        ("9112 6.1", "Transfer-Encoding: chunked, chunked", Err(501)),
        (
            "9112 6.1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            Err(501),
        ),
        ("9112 7", "Transfer-Encoding: identity", Err(501)),
        ("9112 7", "Transfer-Encoding:", Err(501)),
        ("9112 7", "Transfer-Encoding: chunked;a=b", Err(501)),
        (
            "9112 6.1",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            Err(400),
        ),
        (
            "9112 6.1",
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            Err(400),
        ),
        (
            "9112 6.1",
            "Content-Length: 0\r\nTransfer-Encoding: chunked",
            Err(400),
        ),
    ];
    for (section, field, expected) in table {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n")
            .replace("\r\n\r\n\r\n", "\r\n\r\n");
        let framing = read(&text)
            .map(|head| head.framing())
            .map_err(Fault::status);
        assert_eq!(framing, *expected, "RFC {section}: {text:?}");
    }
    assert_statuses(&[
        (
            "9112 6.1",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            "9112 6.1",
            "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\n",
            200,
        ),
    ]);
}

#[test]
fn a_length_that_was_told_twice_is_kept_once() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\n";
    let head = read(text).unwrap();
    assert_eq!(head.only("content-length"), Some(&b"5"[..]));
}

#[test]
fn expectations() {
    let asks = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\n";
    assert!(read(asks).unwrap().expects_continue());
    assert!(
        !read(&asks.replace("/1.1", "/1.0"))
            .unwrap()
            .expects_continue()
    );
    assert!(
        !read("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap()
            .expects_continue()
    );
    assert_statuses(&[("9110 10.1.1", &asks.replace("100-C", "200-c"), 417)]);
}

#[test]
fn who_may_send_another_request() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "close", false),
        ("1.1", "CLOSE", false),
        ("1.1", "upgrade , close", false),
        ("1.1", "keep-alive, close", false),
        ("1.1", "closed", true),
        ("1.1", "x\r\nConnection: close", false),
        ("1.0", "", false),
        ("1.0", "keep-alive", true),
        ("1.0", "Keep-Alive,x", true),
        ("1.0", "keep-alive, close", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
        let keeps_alive = read(&text).unwrap().keeps_alive();
        assert_eq!(keeps_alive, expected, "RFC 9112 9.3: {text:?}");
    }
}

#[test]
fn every_limit_has_its_fault() {
    let text = b"GET /23456 HTTP/1.1\r\nHost: a\r\nX: 3456\r\n\r\n";
    let (line, field, whole) = (19, 7, 39);
    let fits = HeadRules {
        line_bytes: line,
        field_bytes: field,
        fields: 2,
        head_bytes: whole,
        permits: Permits::NONE,
    };
    assert!(read_within(text, &fits).is_ok());
    let head_bytes = whole - 1;
    let too_large = read_within(text, &HeadRules { head_bytes, ..fits });
    assert_eq!(too_large.err(), Some(Fault::HeadTooLarge));
    for (limits, fault) in [
        (
            HeadRules {
                line_bytes: line - 1,
                ..fits
            },
            Fault::LineTooLong,
        ),
        (
            HeadRules {
                field_bytes: field - 1,
                ..fits
            },
            Fault::FieldTooLarge,
        ),
        (HeadRules { fields: 1, ..fits }, Fault::HeadTooLarge),
        (
            HeadRules {
                head_bytes: whole - 3,
                ..fits
            },
            Fault::HeadTooLarge,
        ),
    ] {
        assert_eq!(read_within(text, &limits).err(), Some(fault), "{limits:?}");
        // The fault is the same in pieces.
        let (mut reader, mut head) = (HeadReader::default(), Head::default());
        let fault_at = (0..=text.len()).find_map(|len| {
            let read = reader.read(&text[..len], &limits, &mut head);
            Some((len, read.err()?))
        });
        assert_eq!(fault_at.map(|(_, fault)| fault), Some(fault), "{limits:?}");
    }
}

/// The access log should show whose request was refused, so the reader goes on after a fault. It refuses a malformed line at once.
#[test]
fn a_head_with_a_flaw_is_read_to_its_end() {
    let limits = HeadRules {
        line_bytes: 30,
        field_bytes: 20,
        ..NO_LIMITS
    };
    let long = "a".repeat(40);
    for (text, fault, is_whole) in [
        (
            format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
            Fault::LineTooLong,
            true,
        ),
        (
            format!("GET / HTTP/1.1\r\na:{long}\r\nHost: a\r\n\r\n"),
            Fault::FieldTooLarge,
            true,
        ),
        // The first one counts.
        (
            format!("GET /{long} HTTP/1.1\r\na:{long}\r\n\r\n"),
            Fault::LineTooLong,
            true,
        ),
        (
            "GET / HTTP/1.1\r\nExpect: x\r\nHost: a\r\n\r\n".to_owned(),
            Fault::UnknownExpectation,
            true,
        ),
        (
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            Fault::BadRequest("HTTP/1.1 without a Host field"),
            true,
        ),
        (format!("GET /{long}\u{1}\r\n\r\n"), IN_LINE, false),
        (
            format!("GET / HTTP/1.1\r\nExpect: x\r\na:\u{1}{long}\r\n\r\n"),
            CONTROL,
            false,
        ),
        (
            format!("GET / HTTP/1.1\r\na:\r{long}\r\n\r\n"),
            CONTROL,
            false,
        ),
    ] {
        let (mut reader, mut head) = (HeadReader::default(), Head::default());
        let read = reader.read(text.as_bytes(), &limits, &mut head);
        assert_eq!(
            (read.err(), reader.is_whole()),
            (Some(fault), is_whole),
            "{text:?}"
        );
        if is_whole {
            assert_eq!((head.method(), head.framing()), ("GET", Framing::Empty));
        }
        let (mut reader, mut head) = (HeadReader::default(), Head::default());
        let mut reads =
            (0..=text.len()).map(|len| reader.read(&text.as_bytes()[..len], &limits, &mut head));
        assert_eq!(reads.find_map(Result::err), Some(fault), "{text:?}");
    }
}

const CONTROL: Fault = Fault::BadRequest("a control character in the head");
const IN_LINE: Fault =
    Fault::BadRequest("a request line cannot have the byte 0x01: in a target, write it as %01");

#[test]
fn garbage_is_found_at_its_first_byte() {
    for garbage in [
        &b"\x16"[..],
        b"GET /\x01",
        b"GET / HTTP/1.1\r\n ",
        b"G\r\x01",
        b"\r\r",
    ] {
        let mut reader = HeadReader::default();
        let read = reader.read(garbage, &NO_LIMITS, &mut Head::default());
        assert_eq!(read.map_err(Fault::status), Err(400), "{garbage:?}");
        let before = &garbage[..garbage.len() - 1];
        let read = HeadReader::default().read(before, &NO_LIMITS, &mut Head::default());
        assert_eq!(read, Ok(None), "{before:?}");
    }
}

#[test]
fn a_head_has_begun_with_the_first_byte_that_is_no_empty_line() {
    for (bytes, begun) in [
        (&b""[..], false),
        (b"\r", false),
        (b"\r\n", false),
        (b"\r\n\r\nG", true),
        (b"G", true),
        (b"GET / HTTP/1.1\r\n", true),
    ] {
        let mut reader = HeadReader::default();
        reader
            .read(bytes, &NO_LIMITS, &mut Head::default())
            .unwrap();
        assert_eq!(reader.has_begun(), begun, "{bytes:?}");
    }
}

#[test]
fn the_next_head_follows_the_first() {
    let text = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.0\r\n\r\n";
    let (mut reader, mut head) = (HeadReader::default(), Head::default());
    let first = reader.read(text, &NO_LIMITS, &mut head).unwrap().unwrap();
    assert_eq!((head.path(), head.fields().count()), (&b"/1"[..], 1));
    reader.reset();
    let second = reader.read(&text[first..], &NO_LIMITS, &mut head);
    assert_eq!(second, Ok(Some(text.len() - first)));
    assert_eq!((head.path(), head.fields().count()), (&b"/2"[..], 0));
    assert_eq!((head.minor_version(), head.host()), (0, None));
}

#[test]
fn the_request_line_is_given_in_one_piece_if_nothing_of_it_is_left_out() {
    let line = |text: &str| {
        let head = read(&format!("\r\n{text}\r\nHost: x\r\n\r\n")).expect("a head");
        head.request_line().map(<[u8]>::to_vec)
    };
    for text in [
        "GET / HTTP/1.1",
        "POST /a?b=c HTTP/1.0",
        "OPTIONS * HTTP/1.1",
        "GET http://x HTTP/1.1",
    ] {
        assert_eq!(line(text).as_deref(), Some(text.as_bytes()));
    }
    assert_eq!(line("GET /a#b HTTP/1.1"), None, "a fragment");
    let mut other = Head::of("GET", "/", &[]);
    other.set_protocol("HTTP/2");
    assert_eq!(other.request_line(), None, "HTTP/2");
}

#[test]
fn fields_are_set_and_taken_out() {
    let mut head = Head::of(
        "GET",
        "/",
        &[("A", "1"), ("B", "2"), ("a", "3"), ("C", "4")],
    );
    head.set("a", b"five");
    head.set("d", b"6");
    head.remove("c");
    let fields: Vec<_> = head.fields().collect();
    let expected: [(&[u8], &[u8]); 3] = [(b"A", b"five"), (b"B", b"2"), (b"d", b"6")];
    assert_eq!(fields, expected);
    let spans = head.spans().iter();
    let again: Vec<_> = spans
        .map(|field| &head.bytes()[field.value.at as usize..][..field.value.len as usize])
        .collect();
    assert_eq!(again, [&b"five"[..], b"2", b"6"]);
    head.clear();
    assert_eq!((head.fields().count(), head.bytes().len()), (0, 0));
}
