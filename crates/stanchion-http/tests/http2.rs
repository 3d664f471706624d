//! Heads of HTTP/2 have to keep the rules of HTTP/1.1 and those of HTTP/2.

use stanchion_http::{
    Decoded, Decoder, Fault, Framing, HTTP2_PREFACE, Head, HeadRules, Permits, PrefaceStart,
    StreamHead, preface_start,
};

const RULES: HeadRules = HeadRules {
    line_bytes: 100,
    field_bytes: 100,
    fields: 5,
    head_bytes: 300,
    permits: Permits::NONE,
};

/// More bytes than the rules permit in a head.
const LIST_BYTES_MAX: usize = 400;

const GET: StreamHead<'_> = StreamHead {
    method: b"GET",
    path: Some(b"/a?b"),
    authority: Some(b"shop:81"),
    is_all: true,
    is_websocket: false,
};

type Fields<'a> = &'a [(&'a str, &'a str)];

fn read(stream_head: &StreamHead<'_>, fields: Fields<'_>) -> Result<Head, Fault> {
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let mut head = Head::default();
    stream_head.read(
        &fields.collect::<Vec<_>>(),
        LIST_BYTES_MAX,
        &RULES,
        &mut head,
    )?;
    Ok(head)
}

#[test]
fn it_becomes_a_head_whose_host_is_the_authority() {
    let head = read(&GET, &[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]).unwrap();
    assert_eq!(
        (head.method(), head.path(), head.query(), head.protocol()),
        ("GET", &b"/a"[..], &b"b"[..], "HTTP/2.0")
    );
    let fields: Vec<_> = head.fields().collect();
    let expected: [(&[u8], &[u8]); 3] = [
        (b"host", b"shop:81"),
        (b"cookie", b"a=1; b=2"),
        (b"x", b"y"),
    ];
    assert_eq!(fields, expected);
    assert_eq!(head.framing(), Framing::Empty);
    assert!(!head.keeps_alive());
    assert_eq!(head.minor_version(), 1);
}

#[test]
fn a_host_is_the_authority_or_stands_for_it() {
    let without = StreamHead {
        authority: None,
        ..GET
    };
    assert_eq!(
        read(&without, &[("host", "a")]).unwrap().host(),
        Some(&b"a"[..])
    );
    assert_eq!(read(&without, &[]).unwrap_err().status(), 400);
    let same = read(&GET, &[("host", "SHOP:81")]).unwrap();
    assert_eq!(same.all("host").collect::<Vec<_>>(), [b"shop:81"]);
    assert_eq!(read(&GET, &[("host", "other")]).unwrap_err().status(), 400);
}

#[test]
fn a_list_is_measured_before_its_crumbs_are_one() {
    let crumbs = [("cookie", "a"); 7];
    assert!(read(&GET, &crumbs[..6]).is_ok());
    assert_eq!(read(&GET, &crumbs).unwrap_err(), Fault::HeadTooLarge);
}

#[test]
fn what_is_malformed_is_refused() {
    for fields in [
        &[("connection", "x")][..],
        &[("keep-alive", "x")],
        &[("proxy-connection", "x")],
        &[("transfer-encoding", "chunked")],
        &[("upgrade", "x")],
        &[("te", "gzip")],
        &[("X-Upper", "x")],
        &[("x", "a\r\nb: c")],
        &[("x y", "z")],
        &[(":path", "/")],
        &[("content-length", "1")],
        &[("content-length", "+1")],
    ] {
        assert_eq!(read(&GET, fields).unwrap_err().status(), 400, "{fields:?}");
    }
    for path in ["", "x", "/ HTTP/1.1\r\nX: y", "/a b"] {
        let one = StreamHead {
            path: Some(path.as_bytes()),
            ..GET
        };
        assert_eq!(read(&one, &[]).unwrap_err().status(), 400, "{path:?}");
    }
    assert!(read(&GET, &[("te", "trailers"), ("trailer", "x")]).is_ok());
}

#[test]
fn a_body_without_a_length_ends_with_its_stream() {
    let post = StreamHead {
        method: b"POST",
        is_all: false,
        ..GET
    };
    for (fields, framing) in [
        (&[][..], Framing::ToEnd),
        (&[("content-length", "2")], Framing::Length(2)),
        (&[("content-length", "0")], Framing::Empty),
    ] {
        assert_eq!(read(&post, fields).unwrap().framing(), framing);
    }
    let mut decoder = Decoder::new(Framing::ToEnd);
    for _ in 0..2 {
        let mut came = &b"abc"[..];
        assert_eq!(decoder.decode(&mut came), Ok(Decoded::Data(b"abc")));
        assert_eq!(decoder.decode(&mut came), Ok(Decoded::More));
    }
    assert!(!decoder.is_over());
    assert!(decoder.end() && decoder.is_over());
    assert_eq!(decoder.decode(&mut &b""[..]), Ok(Decoded::End));
    for cut_short in [Framing::Length(1), Framing::Chunked] {
        assert!(!Decoder::new(cut_short).end());
    }
}

#[test]
fn a_websocket_is_asked_for_as_over_http_1_1_until_that_is_forgotten() {
    let connect = StreamHead {
        method: b"CONNECT",
        is_all: false,
        is_websocket: true,
        ..GET
    };
    let version = ("sec-websocket-version", "13");
    let mut head = read(&connect, &[version]).unwrap();
    assert_eq!((head.method(), head.framing()), ("GET", Framing::Empty));
    assert_eq!(head.first("upgrade"), Some(&b"websocket"[..]));
    head.remove_handshake();
    let left: Vec<_> = head.fields().collect();
    let expected: [(&[u8], &[u8]); 2] = [(b"host", b"shop:81"), (b"sec-websocket-version", b"13")];
    assert_eq!(left, expected);
    let mut of_text = Head::of("GET", "/", &[("Upgrade", "websocket")]);
    of_text.remove_handshake();
    assert_eq!(of_text.fields().count(), 1);
}

#[test]
fn the_preface_is_known_by_its_first_byte_or_as_a_whole() {
    for len in 0..HTTP2_PREFACE.len() {
        assert_eq!(preface_start(&HTTP2_PREFACE[..len]), PrefaceStart::Part);
        let other = [&HTTP2_PREFACE[..len], b"x"].concat();
        assert_eq!(preface_start(&other), PrefaceStart::Absent);
    }
    let more = [HTTP2_PREFACE, b"more"].concat();
    assert_eq!(preface_start(&more), PrefaceStart::Whole);
}
