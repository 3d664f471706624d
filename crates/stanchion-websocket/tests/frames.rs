//! A client's frames, in the groups of the Autobahn test suite: the frames of a session go in, and the tests check the
//! events and the bytes to send.

use stanchion_websocket::{
    Close, Event, MessageForm, MessageKind, Payload, Pieces, Socket, UnreadBytes, code, frame_head,
};

const SIZE_MAX: usize = 1 << 20;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const FIN: u8 = 0x80;
const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// RSV1 (RFC 7692 section 6).
const DEFLATED: u8 = 0x40;

/// A client's frame: its first byte and its payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ ..126 => bytes.push(0x80 + len as u8),
        len @ ..0x1_0000 => {
            bytes.push(0x80 + 126);
            bytes.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 + 127);
            bytes.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    bytes.extend(masked.map(|(byte, mask)| byte ^ mask));
    bytes
}

/// A control frame of the server.
fn control(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [&[FIN | opcode, payload.len() as u8], payload].concat()
}

fn closing(code: u16, reason: &str) -> Vec<u8> {
    control(CLOSE, &[&code.to_be_bytes(), reason.as_bytes()].concat())
}

/// The events when `bytes` come `step` at a time, and the bytes to send.
fn heard(bytes: &[u8], step: usize, deflates: bool) -> (Vec<Event<'static>>, Vec<u8>) {
    let mut socket = Socket::new(SIZE_MAX, deflates);
    let mut events = Vec::new();
    for came in bytes.to_vec().chunks_mut(step) {
        let mut came = UnreadBytes::new(came);
        while let Some(event) = socket.next(&mut came) {
            events.push(owned(event));
        }
    }
    let out = std::mem::take(socket.out());
    (events, out)
}

fn owned(event: Event<'_>) -> Event<'static> {
    match event {
        Event::Message(form, bytes) => {
            Event::Message(form, Payload::Whole(bytes.into_owned().into()))
        }
        Event::Pong => Event::Pong,
        Event::Closed(close) => Event::Closed(close),
        Event::Acknowledged => Event::Acknowledged,
        Event::Failed(close) => Event::Failed(close),
    }
}

/// The events and the bytes to send, which do not depend on the pieces.
fn of(frames: &[Vec<u8>]) -> (Vec<Event<'static>>, Vec<u8>) {
    of_either(frames, false)
}

/// As `of`, if messages may be compressed.
fn of_either(frames: &[Vec<u8>], deflates: bool) -> (Vec<Event<'static>>, Vec<u8>) {
    let bytes = frames.concat();
    let whole = heard(&bytes, bytes.len(), deflates);
    for step in [1, 2, 3, 7, 511, 65_536] {
        if step == 1 && bytes.len() > 100_000 {
            continue;
        }
        assert_eq!(
            heard(&bytes, step, deflates),
            whole,
            "{step} bytes at a time"
        );
    }
    whole
}

fn text(of: &str) -> Event<'static> {
    Event::Message(
        MessageKind::Text.into(),
        Payload::Whole(Pieces::from(Vec::from(of))),
    )
}

fn binary(of: &[u8]) -> Event<'static> {
    Event::Message(
        MessageKind::Binary.into(),
        Payload::Whole(Pieces::from(Vec::from(of))),
    )
}

/// A compressed message.
fn deflated(kind: MessageKind, of: &[u8]) -> Event<'static> {
    let is_deflated = true;
    Event::Message(
        MessageForm { kind, is_deflated },
        Payload::Whole(Pieces::from(Vec::from(of))),
    )
}

/// Checks that these frames break the protocol, and the code of the close frame for the client.
fn fails(frames: &[Vec<u8>], with: u16) {
    fails_either(frames, with, false);
}

/// As `fails`, if messages may be compressed.
fn fails_either(frames: &[Vec<u8>], with: u16, deflates: bool) {
    let (events, out) = of_either(frames, deflates);
    let Some(Event::Failed(Close { code, .. })) = events.last() else {
        panic!("{frames:?}: {events:?}");
    };
    assert_eq!(*code, with, "{frames:?}");
    let close = control(CLOSE, &[]);
    let at = out.iter().rposition(|byte| *byte == close[0]);
    let sent = &out[at.expect("a close frame") + 2..][..2];
    assert_eq!(sent, with.to_be_bytes(), "{frames:?}");
}

#[test]
fn group_1_messages_of_all_lengths() {
    for len in [0, 1, 125, 126, 127, 128, 65_535, 65_536, SIZE_MAX] {
        let payload = vec![b'*'; len];
        let (events, out) = of(&[frame(FIN | TEXT, &payload), frame(FIN | BINARY, &payload)]);
        let said = String::from_utf8(payload.clone()).expect("ASCII");
        assert!(events == [text(&said), binary(&payload)], "{len}");
        assert_eq!(out, b"", "{len}");
    }
}

#[test]
fn group_2_pings_and_pongs() {
    for payload in [&b""[..], b"Hello", b"\x00\xff\xfe\xfd", &[0xfe; 125]] {
        let (events, out) = of(&[frame(FIN | PING, payload)]);
        assert_eq!((events, out), (vec![], control(PONG, payload)));
    }
    let pings = [frame(FIN | PING, b"1"), frame(FIN | PING, b"2")];
    assert_eq!(
        of(&pings).1,
        [control(PONG, b"1"), control(PONG, b"2")].concat()
    );
    let unasked = [frame(FIN | PONG, b"unasked"), frame(FIN | TEXT, b"then")];
    assert_eq!(of(&unasked).0, [Event::Pong, text("then")]);
    fails(&[frame(FIN | PING, &[0; 126])], code::PROTOCOL);
}

#[test]
fn groups_3_and_4_bits_and_opcodes_that_are_reserved() {
    for reserved in [0x40, 0x20, 0x10, 0x70] {
        fails(&[frame(FIN | reserved | TEXT, b"x")], code::PROTOCOL);
        fails(&[frame(FIN | reserved | PING, b"x")], code::PROTOCOL);
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        fails(&[frame(FIN | opcode, b"x")], code::PROTOCOL);
        let (events, _) = of(&[frame(FIN | TEXT, b"before"), frame(FIN | opcode, b"")]);
        assert_eq!(events[0], text("before"), "{opcode}");
    }
}

#[test]
fn group_5_fragments() {
    fails(
        &[frame(PING, b"a"), frame(FIN | CONTINUED, b"b")],
        code::PROTOCOL,
    );
    fails(&[frame(PONG, b"a")], code::PROTOCOL);
    fails(&[frame(FIN | CONTINUED, b"none before")], code::PROTOCOL);
    fails(&[frame(CONTINUED, b"none before")], code::PROTOCOL);
    fails(
        &[frame(TEXT, b"a"), frame(FIN | TEXT, b"b")],
        code::PROTOCOL,
    );
    fails(
        &[frame(TEXT, b"a"), frame(FIN | BINARY, b"b")],
        code::PROTOCOL,
    );
    let (events, out) = of(&[
        frame(TEXT, b"one "),
        frame(FIN | PING, b"p"),
        frame(CONTINUED, b""),
        frame(CONTINUED, b"message"),
        frame(FIN | CONTINUED, b""),
        frame(FIN | BINARY, b"two"),
    ]);
    assert_eq!(events, [text("one message"), binary(b"two")]);
    assert_eq!(out, control(PONG, b"p"));
}

#[test]
fn group_6_text_is_utf_8() {
    let kosme = "κόσμε 𝄞 \u{10ffff}";
    let whole = of(&[frame(FIN | TEXT, kosme.as_bytes())]);
    assert_eq!(whole.0, [text(kosme)]);
    let mut frames: Vec<_> = kosme
        .bytes()
        .map(|byte| frame(CONTINUED, &[byte]))
        .collect();
    frames[0][0] |= TEXT;
    frames.push(frame(FIN | CONTINUED, b""));
    assert_eq!(of(&frames).0, [text(kosme)]);
    for bad in [
        &b"\xce\xba\xed\xa0\x80edited"[..],
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
        b"\xff",
        b"\x80",
        b"cut \xf0\x9d\x84",
    ] {
        fails(&[frame(FIN | TEXT, bad)], code::BAD_PAYLOAD);
        let (first, rest) = bad.split_at(bad.len() - 1);
        fails(
            &[frame(TEXT, first), frame(FIN | CONTINUED, rest)],
            code::BAD_PAYLOAD,
        );
        // Binary messages may hold any bytes.
        assert_eq!(of(&[frame(FIN | BINARY, bad)]).0, [binary(bad)]);
    }
}

#[test]
fn group_7_the_closing_handshake() {
    let close =
        |code: u16, reason: &[u8]| frame(FIN | CLOSE, &[&code.to_be_bytes(), reason].concat());
    let (events, out) = of(&[frame(FIN | CLOSE, b""), frame(FIN | TEXT, b"too late")]);
    assert_eq!(events, [Event::Closed(Close::new(code::NONE, ""))]);
    assert_eq!(out, control(CLOSE, b""));
    for code in [1000, 1014, 4999] {
        let reason = "r".repeat(123);
        let (events, out) = of(&[close(code, reason.as_bytes()), frame(FIN | PING, b"")]);
        assert_eq!(events, [Event::Closed(Close::new(code, &reason))]);
        assert_eq!(out, closing(code, &reason));
    }
    for code in [999, 1005, 5000] {
        fails(&[close(code, b"")], code::PROTOCOL);
    }
    fails(&[frame(FIN | CLOSE, b"\x03")], code::PROTOCOL);
    fails(&[close(1000, &[b'r'; 124])], code::PROTOCOL);
    fails(&[close(1000, b"\xce\xba\xed\xa0\x80")], code::BAD_PAYLOAD);
}

#[test]
fn group_9_a_message_that_is_too_long_is_refused_before_it_has_come() {
    let long = frame(FIN | BINARY, &vec![0; SIZE_MAX + 1]);
    fails(&[long[..14].to_vec()], code::TOO_BIG);
    // In pieces, each of which is short enough.
    let half = vec![0; SIZE_MAX / 2 + 1];
    fails(
        &[frame(BINARY, &half), frame(FIN | CONTINUED, &half)],
        code::TOO_BIG,
    );
    // The length in the header is enough to refuse it.
    let header = frame(FIN | CONTINUED, &half)[..14].to_vec();
    fails(&[frame(BINARY, &half), header], code::TOO_BIG);
    let huge = [&[FIN | BINARY, 0x80 + 127][..], &[0x7f; 8], &MASK].concat();
    fails(&[huge], code::TOO_BIG);
    let impossible = [&[FIN | BINARY, 0x80 + 127][..], &[0xff; 8], &MASK].concat();
    fails(&[impossible], code::PROTOCOL);
}

#[test]
fn groups_12_and_13_messages_are_compressed_if_that_was_agreed_on() {
    // The socket does not check yet whether a compressed text is UTF-8.
    let (events, out) = of_either(
        &[
            frame(FIN | DEFLATED | TEXT, b"\xff\xf2"),
            frame(FIN | TEXT, b"plain"),
            frame(FIN | DEFLATED | BINARY, b""),
            frame(DEFLATED | TEXT, b"\xff"),
            frame(FIN | PING, b"p"),
            frame(CONTINUED, b"\xfe"),
            frame(FIN | CONTINUED, b""),
            frame(BINARY, b"pl"),
            frame(FIN | CONTINUED, b"ain"),
        ],
        true,
    );
    let expected = [
        deflated(MessageKind::Text, b"\xff\xf2"),
        text("plain"),
        deflated(MessageKind::Binary, b""),
        deflated(MessageKind::Text, b"\xff\xfe"),
        binary(b"plain"),
    ];
    assert_eq!((&events[..], out), (&expected[..], control(PONG, b"p")));
    // A text that is not compressed is checked as usual.
    fails_either(&[frame(FIN | TEXT, b"\xff")], code::BAD_PAYLOAD, true);
    // The limit holds for the bytes that come.
    let long = frame(FIN | DEFLATED | BINARY, &vec![0; SIZE_MAX + 1]);
    fails_either(&[long[..14].to_vec()], code::TOO_BIG, true);
}

#[test]
fn the_bit_of_compression_stands_before_messages_alone() {
    for opcode in [CLOSE, PING, PONG] {
        fails_either(&[frame(FIN | DEFLATED | opcode, b"")], code::PROTOCOL, true);
    }
    let begun = frame(DEFLATED | TEXT, b"a");
    for first in [CONTINUED, FIN] {
        fails_either(
            &[begun.clone(), frame(first | DEFLATED, b"b")],
            code::PROTOCOL,
            true,
        );
        fails_either(
            &[frame(TEXT, b"a"), frame(first | DEFLATED, b"b")],
            code::PROTOCOL,
            true,
        );
    }
    for other in [0x20, 0x10, 0x30] {
        fails_either(
            &[frame(FIN | DEFLATED | other | TEXT, b"")],
            code::PROTOCOL,
            true,
        );
        fails_either(&[frame(FIN | other | TEXT, b"")], code::PROTOCOL, true);
    }
    fails_either(&[begun], code::PROTOCOL, false);
}

#[test]
fn the_first_frame_of_ours_says_whether_the_message_is_compressed() {
    for (kind, first) in [(MessageKind::Text, 0x41), (MessageKind::Binary, 0x42)] {
        let is_deflated = true;
        let form = Some(MessageForm { kind, is_deflated });
        assert_eq!(*frame_head(form, true, 3), [FIN | first, 3]);
        assert_eq!(*frame_head(form, false, 3), [first, 3]);
    }
    assert_eq!(*frame_head(None, true, 3), [FIN, 3]);
}

#[test]
fn frames_without_a_mask_are_refused() {
    fails(&[control(TEXT, b"x")], code::PROTOCOL);
    fails(&[control(PING, b"")], code::PROTOCOL);
}

#[test]
fn who_closes_first_hears_the_answer_and_nothing_else() {
    let mut socket = Socket::new(SIZE_MAX, false);
    socket.ping();
    socket.close(&Close::new(1012, "restarts"));
    socket.close(&Close::new(1000, "once only"));
    socket.ping();
    let expected = [control(PING, b""), closing(1012, "restarts")].concat();
    assert_eq!(std::mem::take(socket.out()), expected);
    assert!(socket.is_closing());
    let on_its_way = [
        frame(FIN | TEXT, b"on its way"),
        frame(FIN | PING, b"too"),
        frame(FIN | CLOSE, &1012_u16.to_be_bytes()),
    ];
    let mut came = on_its_way.concat();
    let mut came = UnreadBytes::new(&mut came);
    assert_eq!(socket.next(&mut came), Some(Event::Acknowledged));
    assert_eq!(socket.next(&mut came), None);
    assert_eq!(socket.out(), b"");
}

#[test]
fn what_nobody_may_send_is_not_sent() {
    for (given, sent) in [
        (1005, control(CLOSE, b"")),
        (1006, closing(1011, "")),
        (999, closing(1011, "")),
        (4000, closing(4000, "why")),
    ] {
        let mut socket = Socket::new(SIZE_MAX, false);
        socket.close(&Close::new(given, "why"));
        assert_eq!(*socket.out(), sent, "{given}");
    }
    let long = Close::new(1000, &"ä".repeat(100));
    assert_eq!(long.reason, "ä".repeat(61));
}

#[test]
fn a_message_that_came_in_one_piece_is_not_copied() {
    let (text, binary) = (frame(FIN | TEXT, b"one"), frame(FIN | BINARY, b"two"));
    let mut came = [text, binary, frame(BINARY, b"three")].concat();
    let at = came.as_ptr_range();
    let mut socket = Socket::new(SIZE_MAX, false);
    let mut left = UnreadBytes::new(&mut came);
    for (kind, bytes) in [(MessageKind::Text, b"one"), (MessageKind::Binary, b"two")] {
        let Some(Event::Message(form, payload)) = socket.next(&mut left) else {
            panic!("it is whole");
        };
        assert_eq!(form, kind.into());
        let Err(plain) = payload.into_plain() else {
            panic!("it was copied");
        };
        assert!(plain == bytes && at.contains(&plain.as_ptr()));
        assert_eq!(socket.held_bytes(), 0);
    }
    assert_eq!(socket.next(&mut left), None);
    assert_eq!(socket.held_bytes(), 5, "of the third");
}

/// Passes the payload of a message that came in one piece to `act`.
fn in_one_piece(kind: u8, bytes: &[u8], act: impl FnOnce(Payload<'_>)) {
    let mut came = frame(FIN | kind, bytes);
    let mut socket = Socket::new(SIZE_MAX, false);
    match socket.next(&mut UnreadBytes::new(&mut came)) {
        Some(Event::Message(_, payload)) => act(payload),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_text_is_looked_at_whatever_stands_across_its_blocks() {
    // Characters of three bytes lie across every place where a text could be cut, sooner or later.
    for start in ["", "a", "ab"] {
        let text = [start, &"\u{20ac}".repeat(10_000)].concat();
        in_one_piece(TEXT, text.as_bytes(), |payload| {
            assert_eq!(payload.into_owned(), text.as_bytes());
        });
        let whole = text.as_bytes();
        fails(
            &[frame(FIN | TEXT, &whole[..whole.len() - 1])],
            code::BAD_PAYLOAD,
        );
        let wrong = [whole, b"\xff", whole].concat();
        fails(&[frame(FIN | TEXT, &wrong)], code::BAD_PAYLOAD);
    }
}

/// How many bytes of a message have come, and the memory that it holds, after each piece of `bytes`; and the memory of
/// the whole message, after `last` has come too.
fn memory(bytes: &[u8], step: usize, last: &[u8]) -> (Vec<(usize, usize)>, usize) {
    let mut socket = Socket::new(SIZE_MAX, false);
    let mut held = Vec::new();
    for came in bytes.to_vec().chunks_mut(step) {
        assert_eq!(socket.next(&mut UnreadBytes::new(came)), None);
        held.push((socket.unfinished_bytes(), socket.held_bytes()));
    }
    match socket.next(&mut UnreadBytes::new(&mut last.to_vec())) {
        Some(Event::Message(_, Payload::Whole(message))) => (held, message.room()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_memory_that_is_told_is_what_a_message_takes_and_at_most_twice_what_has_come() {
    const LEN: usize = 100_000;
    let bytes = vec![7; LEN];
    let whole = frame(FIN | BINARY, &bytes);
    let (most, last) = whole.split_at(whole.len() - 1);
    let continued = frame(CONTINUED, &bytes[..LEN / 5]);
    let fragments = [frame(BINARY, &bytes[..LEN / 5]), continued.repeat(4)].concat();
    let end = frame(FIN | CONTINUED, b"");
    for step in [1_448, 4_096, 49_999, 50_001, 69_632, 99_999] {
        let (held, taken) = memory(most, step, last);
        assert_eq!(taken, LEN, "no more than is announced");
        for (came, held) in held {
            assert!(came <= held && held <= LEN.min(2 * came), "{came} {held}");
        }
        let (held, taken) = memory(&fragments, step, &end);
        assert_eq!(held.last(), Some(&(LEN, taken)));
        for (came, held) in held {
            assert!(came <= held && held <= 2 * came, "{came} {held}");
        }
    }
}

#[test]
fn a_message_of_many_fragments_is_copied_a_few_times() {
    let many = [
        frame(BINARY, &[7; 10]),
        frame(CONTINUED, &[7; 10]).repeat(10_000),
    ];
    let (held, _) = memory(&many.concat(), 16, &frame(FIN | CONTINUED, b""));
    let mut sizes: Vec<_> = held.into_iter().map(|(_, held)| held).collect();
    sizes.dedup();
    assert!(sizes.len() < 20, "{}", sizes.len());
}

#[test]
fn a_text_is_looked_at_whatever_stands_across_its_pieces() {
    for start in ["", "a", "ab", "abc"] {
        for letter in ["\u{e9}", "\u{20ac}", "\u{1f980}"] {
            let text = [start, &letter.repeat(100_000 / letter.len())].concat();
            for step in [7, 1_448, 65_537] {
                let fragments = |text: &[u8]| {
                    let parts = text.chunks(step).map(|part| frame(CONTINUED, part));
                    let parts = parts.collect::<Vec<_>>().concat();
                    [frame(TEXT, b""), parts, frame(FIN | CONTINUED, b"")].concat()
                };
                let mut socket = Socket::new(SIZE_MAX, false);
                let mut came = fragments(text.as_bytes());
                match socket.next(&mut UnreadBytes::new(&mut came)) {
                    Some(Event::Message(_, payload)) => {
                        assert!(payload.into_owned() == text.as_bytes());
                    }
                    other => panic!("{other:?}"),
                }
                let wrong = [text.as_bytes(), b"\xff"].concat();
                fails(&[fragments(&wrong)], code::BAD_PAYLOAD);
                let cut = &text.as_bytes()[..text.len() - 1];
                fails(&[fragments(cut)], code::BAD_PAYLOAD);
            }
        }
    }
}

#[test]
fn no_more_frames_are_begun_at_a_time_than_are_wanted() {
    const FRAMES: usize = 10;
    let first = frame(TEXT, b"a");
    let mut came = [first, frame(CONTINUED, b"b").repeat(25)].concat();
    let mut socket = Socket::new(SIZE_MAX, false);
    let (mut rest, mut seen) = (&mut came[..], Vec::new());
    while !rest.is_empty() {
        let mut some = UnreadBytes::at_most(rest, FRAMES);
        assert_eq!(socket.next(&mut some), None);
        let left = some.len();
        let len = rest.len();
        rest = &mut rest[len - left..];
        seen.push(socket.unfinished_bytes());
    }
    assert_eq!(seen, [10, 20, 26]);
}

#[test]
fn what_has_come_of_a_message_is_forgotten_once_nobody_waits_for_the_rest() {
    let begun = || {
        let mut socket = Socket::new(SIZE_MAX, false);
        let mut came = frame(BINARY, &[0; 1000]);
        assert_eq!(socket.next(&mut UnreadBytes::new(&mut came)), None);
        assert_eq!(socket.held_bytes(), 1000);
        socket
    };
    let mut closed = begun();
    closed.close(&Close::new(1012, ""));
    assert_eq!(closed.held_bytes(), 0);
    let mut more = [frame(CONTINUED, &[0; 1000]), frame(FIN | CONTINUED, b"")].concat();
    assert_eq!(closed.next(&mut UnreadBytes::new(&mut more)), None);
    assert_eq!(closed.held_bytes(), 0);
    let mut failed = begun();
    let mut unknown = frame(FIN | 3, b"");
    let event = failed.next(&mut UnreadBytes::new(&mut unknown));
    assert!(matches!(event, Some(Event::Failed(_))));
    assert_eq!(failed.held_bytes(), 0);
}
