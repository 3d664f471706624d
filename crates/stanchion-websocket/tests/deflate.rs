//! Compressed messages: the examples of RFC 7692, other messages that a client may send, and our own.

use proptest::prelude::*;
use stanchion_websocket::{Close, Codec, MessageKind, code};

const SIZE_MAX: usize = 1 << 20;

fn deflate(message: &[u8], window_bits: u8) -> Option<Vec<u8>> {
    Codec::default().deflate(message, window_bits)
}

fn inflate(kind: MessageKind, deflated: Vec<u8>, size_max: usize) -> Result<Vec<u8>, Close> {
    Codec::default().inflate(kind, deflated, size_max)
}

/// The decompressed message, or the code of the close frame for the client.
fn inflated(kind: MessageKind, deflated: &[u8], size_max: usize) -> Result<Vec<u8>, u16> {
    inflate(kind, deflated.to_vec(), size_max).map_err(|close| close.code)
}

/// "Hello", compressed in the ways of RFC 7692 section 7.2.3.
const HELLOS: [&[u8]; 4] = [
    b"\xf2\x48\xcd\xc9\xc9\x07\x00",
    // A block without compression.
    b"\x00\x05\x00\xfa\xffHello\x00",
    // A last block, and another one behind it.
    b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
    // Two blocks.
    b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
];

#[test]
fn the_examples_of_the_rfc() {
    for hello in HELLOS {
        let text = inflated(MessageKind::Text, hello, SIZE_MAX);
        assert_eq!(text.as_deref(), Ok(&b"Hello"[..]), "{hello:x?}");
    }
    assert_eq!(inflated(MessageKind::Text, b"\x00", 0), Ok(vec![]));
    // A second "Hello", which refers to the window of the first: by the handshake the client must keep none.
    let second = inflated(MessageKind::Text, b"\xf2\x00\x11\x00\x00", SIZE_MAX);
    assert_eq!(second, Err(code::BAD_PAYLOAD));
}

/// Python's zlib, and so websockets, makes an empty message of each; the tests of the whole server check that.
#[test]
fn an_empty_message_is_one_in_whatever_way_it_is_said() {
    for empty in [
        // No byte at all, which RFC 7692 section 7.2.3.6 does not allow.
        &b""[..],
        b"\x00",
        // A block with the fixed codes, and the header of the next one.
        b"\x02\x00",
        // Last blocks: one without compression, and one with the fixed codes.
        b"\x01",
        b"\x03\x00\x00",
        // Two blocks.
        b"\x00\x00\x00\xff\xff\x00",
    ] {
        for kind in [MessageKind::Text, MessageKind::Binary] {
            assert_eq!(inflated(kind, empty, 0), Ok(vec![]), "{empty:x?}");
        }
    }
}

#[test]
fn a_client_may_end_the_stream_within_a_message() {
    let last = &HELLOS[2][..7];
    let three = [last, last, last, b"\x00"].concat();
    let text = inflated(MessageKind::Text, &three, SIZE_MAX);
    assert_eq!(text.as_deref(), Ok(&b"HelloHelloHello"[..]));
    assert_eq!(inflated(MessageKind::Text, &three, 14), Err(code::TOO_BIG));
    let nothing = [&b"\x03\x00".repeat(10_000)[..], b"\x00"].concat();
    assert_eq!(inflated(MessageKind::Text, &nothing, SIZE_MAX), Ok(vec![]));
}

#[test]
fn a_message_of_which_nothing_comes_is_not_read_to_its_end() {
    // Blocks without content: stored ones, and last ones with the fixed codes (RFC 1951 section 3.2).
    for block in [&b"\x00\x00\x00\xff\xff"[..], b"\x03\x00"] {
        let few = [&block.repeat(10)[..], b"\x00"].concat();
        assert_eq!(
            inflated(MessageKind::Binary, &few, SIZE_MAX),
            Ok(vec![]),
            "{block:x?}"
        );
        let many = [&block.repeat(SIZE_MAX / block.len())[..], b"\x00"].concat();
        let outcome = inflated(MessageKind::Binary, &many, SIZE_MAX);
        assert_eq!(outcome, Err(code::BAD_PAYLOAD), "{block:x?}");
    }
    // A message that cannot be compressed grows by less than that.
    let unlike: Vec<u8> = (0..SIZE_MAX).map(|at| (at * at / 7 + at) as u8).collect();
    let stored = unlike.chunks(1000).flat_map(|part| {
        let len = part.len() as u16;
        [&[0][..], &len.to_le_bytes(), &(!len).to_le_bytes(), part].concat()
    });
    let stored: Vec<u8> = stored.chain([0]).collect();
    assert!(inflated(MessageKind::Binary, &stored, SIZE_MAX) == Ok(unlike));
}

#[test]
fn who_has_a_tiny_window_gets_messages_as_they_are() {
    let long = "what comes again ".repeat(100).into_bytes();
    for (bits, is_compressed) in [(9, false), (11, false), (12, true), (14, true), (15, true)] {
        assert_eq!(deflate(&long, bits).is_some(), is_compressed, "{bits}");
    }
}

#[test]
fn what_is_cut_is_not_taken_for_a_message() {
    // Not the other examples: a block without compression says how many bytes follow, whatever they are, and a message
    // may end where a block ends.
    for hello in [HELLOS[0], HELLOS[2]] {
        // A message of 0 bytes is an empty one.
        for len in 1..hello.len() {
            let cut = &hello[..len];
            let outcome = inflated(MessageKind::Binary, cut, SIZE_MAX);
            assert_eq!(outcome, Err(code::BAD_PAYLOAD), "{cut:x?}");
        }
    }
}

#[test]
fn what_is_not_compressed_is_refused() {
    for bytes in [
        &b"Hello"[..],
        b"\xff",
        // A length that does not match its complement.
        b"\x00\x05\x00\x00\x00Hello\x00",
        // A distance to before the start.
        b"\x4b\x04\x61\x00",
        // The tail that the sender must remove.
        b"\xf2\x48\xcd\xc9\xc9\x07\x00\x00\x00\xff\xff\x00\x00",
    ] {
        let outcome = inflated(MessageKind::Binary, bytes, SIZE_MAX);
        assert_eq!(outcome, Err(code::BAD_PAYLOAD), "{bytes:x?}");
    }
}

#[test]
fn a_text_is_utf_8() {
    let bytes = "ä".repeat(100).into_bytes();
    let deflated = deflate(&bytes, 15).expect("it is shorter");
    assert_eq!(inflated(MessageKind::Text, &deflated, SIZE_MAX), Ok(bytes));
    let bad = [&[b'a'; 100][..], b"\xff"].concat();
    let deflated = deflate(&bad, 15).expect("it is shorter");
    let outcome = inflated(MessageKind::Text, &deflated, SIZE_MAX);
    assert_eq!(outcome, Err(code::BAD_PAYLOAD));
    assert_eq!(inflated(MessageKind::Binary, &deflated, SIZE_MAX), Ok(bad));
}

#[test]
fn a_message_is_no_longer_than_allowed() {
    let zeros = vec![0; 4 << 20];
    let bomb = deflate(&zeros, 15).expect("it is shorter");
    assert!(bomb.len() < zeros.len() / 200);
    for size_max in [0, 1, 1000, SIZE_MAX, zeros.len() - 1] {
        let outcome = inflated(MessageKind::Binary, &bomb, size_max);
        assert_eq!(outcome, Err(code::TOO_BIG), "{size_max}");
    }
    assert!(inflated(MessageKind::Binary, &bomb, zeros.len()) == Ok(zeros));
}

#[test]
fn what_does_not_become_shorter_is_not_compressed() {
    let unlike: Vec<u8> = (0..=255).collect();
    for message in [&b""[..], b"a", b"abcde", &unlike] {
        assert_eq!(deflate(message, 15), None, "{message:x?}");
    }
}

#[test]
fn a_message_knows_nothing_of_those_before_it() {
    let long = "what comes again ".repeat(100).into_bytes();
    let alone = deflate(&long, 15).expect("it is shorter");
    let mut codec = Codec::default();
    for bits in [15, 15, 12, 14, 15] {
        let deflated = codec.deflate(&long, bits).expect("it is shorter");
        assert!(bits != 15 || deflated == alone);
        assert_eq!(
            inflate(MessageKind::Text, deflated, long.len()),
            Ok(long.clone())
        );
        // An earlier message that was not read to its end has no effect either.
        for (bad, size_max) in [
            (alone.clone(), 3),
            (alone[..9].to_vec(), SIZE_MAX),
            (vec![0xff], SIZE_MAX),
        ] {
            codec.inflate(MessageKind::Text, bad, size_max).unwrap_err();
            let whole = codec.inflate(MessageKind::Text, alone.clone(), long.len());
            assert_eq!(whole, Ok(long.clone()));
        }
    }
}

/// A message with repetitions, near and far.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::collection::vec(any::<u8>(), 0..200);
    let parts = prop::collection::vec((part, 1..200_usize), 0..6);
    parts.prop_map(|parts| {
        let parts = parts.iter().map(|(part, times)| part.repeat(*times));
        parts.collect::<Vec<_>>().concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_message_comes_out_as_it_went_in(message in message(), bits in 9..=15_u8) {
        if let Some(deflated) = deflate(&message, bits) {
            prop_assert!(deflated.len() < message.len());
            let inflated = inflate(MessageKind::Binary, deflated.clone(), message.len());
            prop_assert_eq!(inflated.as_deref(), Ok(&message[..]));
            let outcome = inflate(MessageKind::Binary, deflated, message.len() - 1);
            prop_assert_eq!(outcome.map_err(|close| close.code), Err(code::TOO_BIG));
        }
    }

    #[test]
    fn garbage_is_refused_or_no_longer_than_allowed(bytes: Vec<u8>, size_max in 0..2000_usize) {
        if let Ok(message) = inflate(MessageKind::Binary, bytes, size_max) {
            prop_assert!(message.len() <= size_max);
        }
    }

    /// Garbage that is almost a message gets further.
    #[test]
    fn a_spoilt_message_is_refused_or_no_longer_than_allowed(
        message in message(),
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        kept: prop::sample::Index,
    ) {
        if let Some(mut deflated) = deflate(&message, 15) {
            for (at, byte) in spoilt {
                *at.get_mut(&mut deflated) = byte;
            }
            deflated.truncate(kept.index(deflated.len() + 1));
            if let Ok(inflated) = inflate(MessageKind::Text, deflated, message.len()) {
                prop_assert!(inflated.len() <= message.len());
                prop_assert!(std::str::from_utf8(&inflated).is_ok());
            }
        }
    }
}
