//! Faults of clients that the operator can permit, and faults that stay refused.

mod connection;

use connection::ALL;
use stanchion_http::{Fault, Framing, Head, HeadReader, HeadRules, Permits};

const FOLDING: Permits = Permits {
    obsolete_folding: true,
    ..Permits::NONE
};

const SPACES: Permits = Permits {
    header_spaces: true,
    ..Permits::NONE
};

const LIMITS: HeadRules = HeadRules {
    line_bytes: 80,
    field_bytes: 40,
    fields: 3,
    head_bytes: 200,
    permits: Permits::NONE,
};

fn read(text: &str, permits: Permits) -> Result<Head, Fault> {
    let mut head = Head::default();
    let rules = HeadRules { permits, ..LIMITS };
    let len = HeadReader::default().read(text.as_bytes(), &rules, &mut head)?;
    assert_eq!(len, Some(text.len()), "{text:?}");
    // The reader gives the same result byte by byte.
    let (mut reader, mut again) = (HeadReader::default(), Head::default());
    let last = (1..=text.len()).map(|len| reader.read(&text.as_bytes()[..len], &rules, &mut again));
    assert_eq!(last.last(), Some(Ok(len)), "{text:?}");
    assert_eq!(again, head);
    Ok(head)
}

fn status(text: &str, permits: Permits) -> u16 {
    read(text, permits).map_or_else(Fault::status, |_| 200)
}

/// A request with this first line, read with these permits.
fn line(line: &str, permits: Permits) -> Result<Head, Fault> {
    read(&format!("{line}\r\nHost: a\r\n\r\n"), permits)
}

#[test]
fn methods() {
    let methods = Permits {
        unconventional_method: true,
        ..Permits::NONE
    };
    let casefold = Permits {
        casefold_method: true,
        ..methods
    };
    let alone = Permits {
        casefold_method: true,
        ..Permits::NONE
    };
    // (method; the method as read with each permit; None if it is refused)
    for (method, taken, folded) in [
        ("GET", Some("GET"), Some("GET")),
        ("get", Some("get"), Some("GET")),
        ("p", Some("p"), Some("P")),
        ("Foo#bar", Some("Foo#bar"), Some("FOO#BAR")),
        (
            "ABCDEFGHIJKLMNOPQRSTU",
            Some("ABCDEFGHIJKLMNOPQRSTU"),
            Some("ABCDEFGHIJKLMNOPQRSTU"),
        ),
        ("GE(T", None, None),
        ("", None, None),
    ] {
        let text = format!("{method} / HTTP/1.1");
        let read_as = |permits| {
            line(&text, permits)
                .ok()
                .map(|head| head.method().to_owned())
        };
        assert_eq!(read_as(methods).as_deref(), taken, "{method}");
        assert_eq!(read_as(casefold).as_deref(), folded, "{method}");
        let plain = read_as(Permits::NONE);
        assert_eq!(plain.is_some(), method == "GET", "{method}");
        assert_eq!(read_as(alone), plain, "as in gunicorn: {method}");
    }
    // With casefolding, a method has the meaning of its upper case.
    for (text, taken, folded) in [
        ("connect a:80 HTTP/1.1", 400, 501),
        ("options * HTTP/1.1", 400, 200),
        ("get * HTTP/1.1", 400, 400),
    ] {
        assert_eq!(
            line(text, methods).map_or_else(Fault::status, |_| 200),
            taken,
            "{text}"
        );
        assert_eq!(
            line(text, casefold).map_or_else(Fault::status, |_| 200),
            folded,
            "{text}"
        );
    }
}

#[test]
fn versions() {
    let versions = Permits {
        unconventional_version: true,
        ..Permits::NONE
    };
    for (version, minor) in [
        ("HTTP/0.9", Some(0)),
        ("HTTP/0.0", Some(0)),
        ("HTTP/1.0", Some(0)),
        ("HTTP/1.1", Some(1)),
        ("HTTP/1.9", Some(1)),
        ("HTTP/2.0", Some(1)),
        ("HTTP/3.7", Some(1)),
        ("HTTP/10.1", None),
        ("HTTP/1", None),
        ("http/2.0", None),
        ("HTTP/2.x", None),
        ("ICY/2.0", None),
    ] {
        let head = line(&format!("GET / {version}"), versions);
        let told = head
            .as_ref()
            .ok()
            .map(|head| (head.protocol(), head.minor_version()));
        assert_eq!(told, minor.map(|minor| (version, minor)), "{version}");
    }
    // Framing and keep-alive follow the version as which the request is read.
    let chunked = |version: &str| {
        format!("POST / {version}\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    };
    assert_eq!(status(&chunked("HTTP/0.9"), versions), 400);
    let head = read(&chunked("HTTP/2.0"), versions).unwrap();
    assert_eq!(
        (head.framing(), head.keeps_alive()),
        (Framing::Chunked, true)
    );
    assert!(!line("GET / HTTP/0.9", versions).unwrap().keeps_alive());
    assert_eq!(status("GET / HTTP/2.0\r\n\r\n", versions), 400, "no Host");
    assert_eq!(line("GET /", versions).err().map(Fault::status), Some(400));
}

fn value_of(field: &str, permits: Permits) -> Result<String, u16> {
    let head = read(
        &format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\nZ: z\r\n\r\n"),
        permits,
    );
    let head = head.map_err(Fault::status)?;
    assert_eq!(head.first("z"), Some(&b"z"[..]), "{field:?}");
    let value = head.first("x").expect("the field");
    Ok(String::from_utf8(value.to_vec()).expect("text"))
}

#[test]
fn folded_values() {
    for (field, value) in [
        ("X: a\r\n b", Ok("a b")),
        ("X: a\r\n\tb", Ok("a b")),
        ("X: a \t\r\n \t b \r\n c", Ok("a b c")),
        ("X: a b\r\n c\td", Ok("a b c\td")),
        ("X: a\n b", Ok("a b")),
        ("X:\r\n a", Ok("a")),
        ("X: \r\n \r\n a\r\n ", Ok("a")),
        ("X: a\r\n \r\n b", Ok("a b")),
        ("X: a\r\n Content-Length: 5", Ok("a Content-Length: 5")),
        (
            "X: a\r\n Transfer-Encoding: chunked",
            Ok("a Transfer-Encoding: chunked"),
        ),
        ("X: a\r\n b\x01", Err(400)),
        ("X: a\r\n b\rc", Err(400)),
        ("X : a\r\n b", Err(400)),
        // Name, value and the whitespace between count against the limit of a field.
        (
            "X: 345678901\r\n 5678901234567890123456789",
            Ok("345678901 5678901234567890123456789"),
        ),
        ("X: 345678901\r\n 56789012345678901234567890", Err(431)),
    ] {
        assert_eq!(
            value_of(field, FOLDING),
            value.map(str::to_owned),
            "{field:?}"
        );
        assert!(value_of(field, Permits::NONE).is_err(), "{field:?}");
    }
    let head = read("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", FOLDING).unwrap();
    assert_eq!(head.framing(), Framing::Empty);
}

#[test]
fn what_a_server_must_understand_is_in_one_line() {
    for (fields, expected) in [
        ("Content-Length: 5\r\n ", 400),
        ("Content-Length:\r\n 5", 400),
        ("Content-Length: 5\r\n 5", 400),
        // The second Content-Length is dropped, so the fold would continue X.
        ("Content-Length: 5\r\nX: 1\r\nContent-Length: 5\r\n 5", 400),
        ("Content-Length: 5\r\nX: 1\r\n 5", 200),
        ("Transfer-Encoding: chunked\r\n ", 400),
        ("Transfer-Encoding:\r\n chunked", 400),
        ("Transfer-Encoding: chunked\r\n , identity", 400),
        ("Connection: close\r\n , x", 400),
        ("Connection:\r\n close", 400),
        ("Expect: 100-continue\r\n ", 400),
        ("host: a\r\n b", 400),
        // No field comes before the first, so nothing can be continued.
        (" X: 1", 400),
        ("\tX: 1", 400),
    ] {
        // The Host comes last, so that no line in the table follows another field.
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\nHost: a\r\n\r\n");
        assert_eq!(status(&text, ALL), expected, "{text:?}");
    }
}

#[test]
fn spaces_before_a_colon() {
    for (field, value) in [
        ("X : a", Ok("a")),
        ("X \t : a ", Ok("a")),
        ("X :", Ok("")),
        ("X Y: a", Err(400)),
        ("X Y : a", Err(400)),
        ("X ", Err(400)),
        ("X \x01: a", Err(400)),
    ] {
        assert_eq!(
            value_of(field, SPACES),
            value.map(str::to_owned),
            "{field:?}"
        );
    }
    for (field, expected) in [
        ("Content-Length : 0", 400),
        ("content-length\t: 0", 400),
        ("Transfer-Encoding : chunked", 400),
        ("Connection : close", 200),
        (" : a", 400),
    ] {
        let text = format!("GET / HTTP/1.1\r\n{field}\r\nHost : a\r\n\r\n");
        assert_eq!(status(&text, SPACES), expected, "{text:?}");
        assert_eq!(status(&text, ALL), expected, "{text:?}");
    }
    let head = read(
        "GET / HTTP/1.1\r\nHost : a\r\nConnection : close\r\n\r\n",
        SPACES,
    )
    .unwrap();
    assert_eq!((head.host(), head.keeps_alive()), (Some(&b"a"[..]), false));
}

#[test]
fn nothing_else_is_permitted() {
    for fields in [
        "X Y: a",
        "X",
        ": a",
        "X: a\x00b",
        "X: a\rb",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: +1",
        "Host: b",
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        assert_eq!(status(&text, ALL), 400, "{text:?}");
    }
    let text = "GET / HTTP/1.1\r\nHost: a\r\nA:\r\nB:\r\n b\r\nC:\r\n\r\n";
    assert_eq!(status(text, ALL), 431, "a fourth field");
    let text = "GET / HTTP/1.1\r\nHost: a\r\nA:\r\nB:\r\n b\r\n c\r\n\r\n";
    assert_eq!(status(text, ALL), 200, "lines are no fields");
}
