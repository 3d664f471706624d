//! Heads of answers: reading gives what was written, and a head that no worker may send is refused.

use proptest::prelude::*;
use stanchion_http::{
    AnswerFacts, BodyLength, CHUNK_END, Decoded, Decoder, Framing, LAST_CHUNK, canonical_reason,
    check, check_hints, chunk_head, fields, put_field, put_status,
};

type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

fn wire(status: u16, fields: Fields<'_>) -> Vec<u8> {
    let mut wire = Vec::new();
    put_status(&mut wire, status, b"");
    for (name, value) in fields {
        put_field(&mut wire, name, value);
    }
    wire
}

#[test]
fn how_it_is_written() {
    let mut head = wire(404, &[(b"Content-Type", b"text/plain"), (b"X-eMpty", b"")]);
    assert_eq!(
        head,
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nX-eMpty: \r\n"
    );
    head.clear();
    put_status(&mut head, 200, b"Fine");
    assert_eq!(head, b"HTTP/1.1 200 Fine\r\n");
    head.clear();
    put_status(&mut head, 799, b"");
    assert_eq!(head, b"HTTP/1.1 799 \r\n");
}

#[test]
fn what_a_body_is_promised_to_be() {
    // (answers HEAD, status, fields, expected)
    let table: [(bool, u16, Fields<'_>, BodyLength); 8] = [
        (false, 200, &[], BodyLength::Unknown),
        (
            false,
            200,
            &[(b"content-length", b"7")],
            BodyLength::Bytes(7),
        ),
        (
            false,
            200,
            &[(b"Content-Length", b"007")],
            BodyLength::Bytes(7),
        ),
        (true, 200, &[(b"content-length", b"7")], BodyLength::Nothing),
        (true, 200, &[], BodyLength::Nothing),
        (false, 204, &[], BodyLength::Nothing),
        (
            false,
            304,
            &[(b"content-length", b"7")],
            BodyLength::Nothing,
        ),
        (
            false,
            999,
            &[(b"content-length", b"0")],
            BodyLength::Bytes(0),
        ),
    ];
    for (is_head, status, fields, expected) in table {
        let wire = wire(status, fields);
        let length = check(&wire, is_head).map(|facts| facts.length);
        assert_eq!(length, Ok(expected), "{is_head} {status} {fields:?}");
    }
}

#[test]
fn whether_it_tells_its_date_and_server() {
    for (fields, has_server, has_date) in [
        (&[][..], false, false),
        (&[(&b"SERVER"[..], &b"x"[..]), (b"Dates", b"")], true, false),
        (&[(b"Servers", b"x"), (b"date", b"x")], false, true),
    ] {
        let facts = check(&wire(200, fields), false);
        let expected = AnswerFacts {
            status: 200,
            length: BodyLength::Unknown,
            has_server,
            has_date,
        };
        assert_eq!(facts, Ok(expected), "{fields:?}");
    }
}

#[test]
fn hints_are_a_103_with_fields_that_may_be_the_apps() {
    let link: Fields<'_> = &[(b"link", b"</a>"), (b"x", b"")];
    assert_eq!(check_hints(&wire(103, link)), Ok(()));
    assert_eq!(check_hints(&wire(103, &[])), Ok(()));
    for status in [0, 100, 101, 102, 104, 200, 503] {
        assert!(check_hints(&wire(status, link)).is_err(), "{status}");
    }
    let fields: [Fields<'_>; 6] = [
        &[(b"connection", b"close")],
        &[(b"transfer-encoding", b"chunked")],
        &[(b"content-length", b"7")],
        &[(b"a", b"x\r\n\r\nHTTP/1.1 200 OK")],
        &[(b"a b", b"x")],
        &[(b"a", b"x\0")],
    ];
    for fields in fields {
        assert!(check_hints(&wire(103, fields)).is_err(), "{fields:?}");
    }
    for wire in [
        &b""[..],
        b"HTTP/1.1 103 Early Hints",
        b"HTTP/1.1 103 x\r\n\r\n",
    ] {
        assert!(check_hints(wire).is_err(), "{wire:?}");
    }
}

#[test]
fn what_no_worker_may_say_is_refused() {
    let statuses = [0, 99, 100, 101, 103, 199];
    for status in statuses {
        assert!(check(&wire(status, &[]), false).is_err(), "{status}");
    }
    assert!(check(&wire(204, &[(b"content-length", b"0")]), false).is_err());
    let fields: [Fields<'_>; 23] = [
        &[(b"connection", b"close")],
        &[(b"Connection", b"keep-alive")],
        &[(b"keep-alive", b"timeout=5")],
        &[(b"proxy-authenticate", b"Basic")],
        &[(b"proxy-authorization", b"x")],
        &[(b"proxy-connection", b"keep-alive")],
        &[(b"te", b"trailers")],
        &[(b"trailer", b"x")],
        &[(b"transfer-encoding", b"chunked")],
        &[(b"Transfer-Encoding", b"identity")],
        &[(b"upgrade", b"h2c")],
        &[(b"content-length", b"")],
        &[(b"content-length", b"+7")],
        &[(b"content-length", b"7, 7")],
        &[(b"content-length", b"0x7")],
        &[(b"content-length", b"7"), (b"Content-Length", b"8")],
        &[(b"content-length", b"7"), (b"Content-Length", b"7")],
        &[(b"", b"x")],
        &[(b"a b", b"x")],
        &[(b"a\xe9", b"x")],
        &[(b" a", b"x")],
        &[(b"a", b"x\r\n")],
        &[(b"a", b"x\0")],
    ];
    for fields in fields {
        assert!(check(&wire(200, fields), false).is_err(), "{fields:?}");
    }
    for wire in [
        &b""[..],
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b",
        b"HTTP/1.1 200 OK\r\na: b\n",
        b"HTTP/1.1 200 OK\r\na: b\rc\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n",
        b"HTTP/1.1 200 OK\r\na : b\r\n",
        b"HTTP/1.1 200 OK\r\na\r\n",
        b"HTTP/1.1 200\r\n",
        b"HTTP/1.1  200 OK\r\n",
        b"HTTP/1.1 2000 OK\r\n",
        b"HTTP/1.1 20 OK\r\n",
        b"HTTP/1.1 +20 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"http/1.1 200 OK\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 O\rK\r\n",
        b"HTTP/1.1 200 O\x7fK\r\n",
        b"HTTP/1.1 200 O\0K\r\n",
    ] {
        assert!(check(wire, false).is_err(), "{wire:?}");
    }
    assert!(check(b"HTTP/1.1 200 \r\na:b\r\nc:\t d \r\n", false).is_ok());
}

#[test]
fn the_reasons_of_the_registry() {
    for (status, reason) in [
        (200, "OK"),
        (204, "No Content"),
        (404, "Not Found"),
        (503, "Service Unavailable"),
        (299, ""),
        (599, ""),
        (999, ""),
    ] {
        assert_eq!(canonical_reason(status), reason);
    }
}

#[test]
fn sizes_of_chunks() {
    for (len, expected) in [
        (1, &b"1\r\n"[..]),
        (26, b"1a\r\n"),
        (0x1_0000, b"10000\r\n"),
        (usize::MAX, b"ffffffffffffffff\r\n"),
    ] {
        assert_eq!(&chunk_head(len)[..], expected);
    }
}

fn token() -> impl Strategy<Value = Vec<u8>> {
    "x-[a-zA-Z0-9!#$%&'*+.^_`|~-]{0,12}".prop_map(String::into_bytes)
}

/// Text without whitespace at its ends.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'\t'), 0x20..0x7f_u8, 0x80..=0xff_u8];
    proptest::collection::vec(byte, 0..24).prop_map(|bytes| bytes.trim_ascii().to_vec())
}

proptest! {
    #[test]
    fn what_was_put_is_what_is_read(
        status in 200..=999_u16,
        reason in text(),
        given in proptest::collection::vec((token(), text()), 0..6),
        length in proptest::option::of(any::<u64>()),
    ) {
        let mut wire = Vec::new();
        put_status(&mut wire, status, &reason);
        for (name, value) in &given {
            put_field(&mut wire, name, value);
        }
        let length = length.filter(|_| status != 204);
        if let Some(length) = length {
            put_field(&mut wire, b"Content-Length", length.to_string().as_bytes());
        }
        let facts = check(&wire, false).expect("a head");
        prop_assert_eq!(facts.status, status);
        let expected = match (status, length) {
            (204 | 304, _) => BodyLength::Nothing,
            (_, Some(length)) => BodyLength::Bytes(length),
            (_, None) => BodyLength::Unknown,
        };
        prop_assert_eq!(facts.length, expected);
        let read: Vec<_> = fields(&wire).take(given.len()).collect();
        let given: Vec<_> = given.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        prop_assert_eq!(&read, &given);
        prop_assert_eq!(fields(&wire).count(), given.len() + usize::from(length.is_some()));
    }

    #[test]
    fn chunks_that_were_written_are_read(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6)) {
        let mut sent = Vec::new();
        for chunk in &chunks {
            sent.extend_from_slice(&chunk_head(chunk.len()));
            sent.extend_from_slice(chunk);
            sent.extend_from_slice(CHUNK_END);
        }
        sent.extend_from_slice(LAST_CHUNK);
        let (mut decoder, mut input, mut body) = (Decoder::new(Framing::Chunked), &sent[..], Vec::new());
        while let Decoded::Data(data) = decoder.decode(&mut input).expect("chunks") {
            body.extend_from_slice(data);
        }
        prop_assert!(decoder.is_over() && input.is_empty());
        prop_assert_eq!(body, chunks.concat());
    }
}
