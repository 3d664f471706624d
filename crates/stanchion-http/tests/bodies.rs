//! Bodies, and the chunked coding section by section (RFC 9112 section 7.1).

use stanchion_http::{Decoded, Decoder, Fault, Framing};

/// A body and what follows it.
type Body<'b> = (Vec<u8>, &'b [u8]);

/// The body in `input`; `None` if it is incomplete.
fn decoded(framing: Framing, mut input: &[u8]) -> Result<Option<Body<'_>>, Fault> {
    let (mut decoder, mut body) = (Decoder::new(framing), Vec::new());
    loop {
        match decoder.decode(&mut input)? {
            Decoded::Data(data) => body.extend_from_slice(data),
            Decoded::More => return Ok(None),
            Decoded::End => return Ok(Some((body, input))),
        }
    }
}

#[test]
fn lengths() {
    let whole = |body: &[u8], rest: &'static [u8]| Ok(Some((body.to_vec(), rest)));
    assert_eq!(decoded(Framing::Empty, b"GET"), whole(b"", b"GET"));
    assert_eq!(decoded(Framing::Length(0), b"GET"), whole(b"", b"GET"));
    assert_eq!(
        decoded(Framing::Length(3), b"abcGET"),
        whole(b"abc", b"GET")
    );
    assert_eq!(decoded(Framing::Length(3), b"ab"), Ok(None));
}

#[test]
fn chunks() {
    let table: &[(&str, &str, Option<&str>)] = &[
        ("7.1", "0\r\n\r\n", Some("")),
        (
            "7.1",
            "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
            Some("hello world"),
        ),
        (
            "7.1",
            "00A\r\n0123456789\r\nb\r\nabcdefghijk\r\n000\r\n\r\n",
            Some("0123456789abcdefghijk"),
        ),
        ("7.1", "0000000000000001\r\na\r\n0\r\n\r\n", Some("a")),
        ("7.1", "00000000000000001\r\na\r\n0\r\n\r\n", None),
        ("7.1", "\r\n\r\n", None),
        ("7.1", "x\r\n\r\n", None),
        ("7.1", "0x1\r\na\r\n0\r\n\r\n", None),
        ("7.1", "+1\r\na\r\n0\r\n\r\n", None),
        ("7.1", "-1\r\na\r\n0\r\n\r\n", None),
        ("7.1", " 1\r\na\r\n0\r\n\r\n", None),
        ("7.1", "1 \r\na\r\n0\r\n\r\n", None),
        ("7.1", "1_0\r\na\r\n0\r\n\r\n", None),
        ("7.1", "1\na\r\n0\r\n\r\n", None),
        ("7.1", "1\ra\r\n0\r\n\r\n", None),
        ("7.1", "1\r\na\n0\r\n\r\n", None),
        ("7.1", "1\r\nab\r\n0\r\n\r\n", None),
        ("7.1", "1\r\na\r0\r\n\r\n", None),
        ("7.1", "1\r\na\r00\r\n\r\n", None),
        ("7.1", "0\r\n\n", None),
        ("7.1", "0\r\n\rx", None),
        ("7.1.1", "1;a\r\na\r\n0;b=c;d\r\n\r\n", Some("a")),
        ("7.1.1", "1 ; a = b\t; c\r\na\r\n0\r\n\r\n", Some("a")),
        (
            "7.1.1",
            "1;a=\"\";b=\"; \\\" \\\\\"\r\na\r\n0\r\n\r\n",
            Some("a"),
        ),
        ("7.1.1", "1;\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a;\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a=\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a \r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;=b\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1 a\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a b\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a\nb\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a=\"\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a=\"\n\"\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a=\"\\\r\n\"\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a=\"b\"c\r\na\r\n0\r\n\r\n", None),
        ("7.1.1", "1;a=b\"c\"\r\na\r\n0\r\n\r\n", None),
        ("7.1.2", "0\r\nX-Sum: 42\r\nY:\r\n\r\n", Some("")),
        ("7.1.2", "0\r\nbroken\r\n\r\n", None),
        ("7.1.2", "0\r\n: 1\r\n\r\n", None),
        ("7.1.2", "0\r\nX : 1\r\n\r\n", None),
        ("7.1.2", "0\r\nX: 1\r\n 2\r\n\r\n", None),
        ("7.1.2", "0\r\nX: 1\n\r\n", None),
        ("7.1.2", "0\r\nX: 1\ry\r\n\r\n", None),
        ("7.1.2", "0\r\nX: \u{0}\r\n\r\n", None),
    ];
    for (section, text, expected) in table {
        let input = format!("{text}GET");
        let got = decoded(Framing::Chunked, input.as_bytes());
        match expected {
            Some(body) => {
                let expected = (body.as_bytes().to_vec(), &b"GET"[..]);
                assert_eq!(got, Ok(Some(expected)), "RFC 9112 {section}: {text:?}");
            }
            None => {
                let status = got.clone().map_err(Fault::status);
                assert_eq!(status, Err(400), "RFC 9112 {section}: {text:?}");
            }
        }
    }
}

#[test]
fn a_chunk_may_have_all_that_64_bits_can_tell() {
    let mut decoder = Decoder::new(Framing::Chunked);
    let mut input = &b"ffffffffffffffff\r\n"[..];
    assert_eq!(decoder.decode(&mut input), Ok(Decoded::More));
    assert_eq!((decoder.plain_left(), decoder.is_over()), (u64::MAX, false));
    for over in [
        "10000000000000001",
        "0ffffffffffffffff",
        "fffffffffffffffff",
    ] {
        let text = format!("{over}\r\na\r\n0\r\n\r\n");
        let got = decoded(Framing::Chunked, text.as_bytes());
        assert_eq!(got, Err(Fault::ChunkTooLarge), "{over}");
    }
}

#[test]
fn what_a_body_still_announces_is_known_before_it_comes() {
    // (framing, the bytes that have come, the bytes still announced)
    for (framing, came, announced) in [
        (Framing::Empty, "", 0),
        (Framing::Length(5), "he", 3),
        (Framing::Chunked, "5", 0),
        (Framing::Chunked, "5\r\n", 5),
        (Framing::Chunked, "5\r\nhe", 3),
        (Framing::Chunked, "5\r\nhello\r\n", 0),
        (Framing::Chunked, "8000000000000000\r\n", 1 << 63),
        (Framing::ToEnd, "hello", 0),
    ] {
        let mut decoder = Decoder::new(framing);
        let mut input = came.as_bytes();
        while let Ok(Decoded::Data(_)) = decoder.decode(&mut input) {}
        assert_eq!(decoder.announced(), announced, "{framing:?} {came:?}");
    }
}

#[test]
fn what_surrounds_the_data_is_bounded() {
    const BYTES_MAX: usize = 16 << 10;
    // Over all chunks of a body: 3 bytes in each of 4.
    let chunks = "1;a\r\nx\r\n".repeat(4);
    for (name, body) in [
        ("extensions", |len: usize| {
            format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(len - 2))
        }),
        ("trailers", |len: usize| {
            format!("0\r\na:{}\r\n\r\n", "b".repeat(len - 6))
        }),
    ] as [(&str, fn(usize) -> String); 2]
    {
        let fits = body(BYTES_MAX);
        let read = decoded(Framing::Chunked, fits.as_bytes());
        assert!(matches!(read, Ok(Some(_))), "{name}");
        let more = body(BYTES_MAX + 1);
        let read = decoded(Framing::Chunked, more.as_bytes()).map_err(Fault::status);
        assert_eq!(read, Err(400), "{name}");
    }
    let rest = "a".repeat(BYTES_MAX - 12 - 2);
    let fits = format!("{chunks}1;{rest}\r\nx\r\n0\r\n\r\n");
    assert!(matches!(
        decoded(Framing::Chunked, fits.as_bytes()),
        Ok(Some(_))
    ));
    let more = format!("{chunks}1;{rest}a\r\nx\r\n0\r\n\r\n");
    assert!(decoded(Framing::Chunked, more.as_bytes()).is_err());
}

#[test]
fn what_was_read_past_the_decoder_is_no_more_expected() {
    for (framing, mut before, mut after) in [
        (Framing::Length(5), &b""[..], &b""[..]),
        (Framing::Chunked, b"5\r\n", b"\r\n0\r\n\r\n"),
    ] {
        let mut decoder = Decoder::new(framing);
        assert_eq!(decoder.decode(&mut before), Ok(Decoded::More));
        assert_eq!(decoder.plain_left(), 5);
        decoder.took(2);
        assert_eq!((decoder.plain_left(), decoder.is_over()), (3, false));
        decoder.took(3);
        assert_eq!(decoder.plain_left(), 0);
        assert_eq!(decoder.decode(&mut after), Ok(Decoded::End));
        assert!(decoder.is_over());
    }
}
