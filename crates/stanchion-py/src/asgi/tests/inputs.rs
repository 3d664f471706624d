use stanchion_exchange::MaskedBytes;
use stanchion_record::{Close, MessageKind, close_record};

use super::rig::{Called, Turning};
use super::sockets::{call, record};
use crate::tests::rig::{FACTS, head, latin_1, with_python};

const CONNECT: &str = "{'type': 'websocket.connect'}";
const WAITS: &str = "waits";

/// A WebSocket whose app has accepted.
fn accepted<'py>(turning: &mut Turning<'py>) -> Called<'py> {
    let called = call(turning);
    assert_eq!(turning.receive(&called), CONNECT);
    let accept = turning.value("{'type': 'websocket.accept'}");
    assert_eq!(turning.send(&called, &accept), "None");
    assert_eq!(turning.receive(&called), WAITS);
    called
}

fn pour(turning: &mut Turning<'_>, called: &Called<'_>, bytes: &[u8]) {
    let poured = turning
        .rig
        .acceptor
        .pour(called.slot, &[MaskedBytes::from(bytes)]);
    assert_eq!(poured.expect("room"), bytes.len());
    turning.look(called);
}

fn disconnect(code: u16, reason: &str) -> String {
    format!("{{'type': 'websocket.disconnect', 'code': {code}, 'reason': '{reason}'}}")
}

#[test]
fn a_body_is_one_event_and_then_an_app_waits() {
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        for body in ["", "a\u{ff}"] {
            let bytes = latin_1(body);
            let text = format!(
                "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            let called = turning.call(&head(text), &FACTS, &bytes);
            let shown = if body.is_empty() { "b''" } else { "b'a\\xff'" };
            let event = format!("{{'type': 'http.request', 'body': {shown}, 'more_body': False}}");
            assert_eq!(turning.receive(&called), event);
            assert_eq!(turning.receive(&called), WAITS);
            // After the answer the client counts as gone.
            for message in ["start()", "body()"] {
                assert_eq!(turning.send(&called, &turning.value(message)), "None");
            }
            assert_eq!(turning.receive(&called), "{'type': 'http.disconnect'}");
            turning.end(&called, None);
        }
    });
}

#[test]
fn messages_come_whole_however_their_bytes_are_cut() {
    let text = record(MessageKind::Text, "h\u{e9}".as_bytes());
    let bytes = record(MessageKind::Binary, b"\x00\xff");
    let records = [
        &text[..],
        &bytes,
        &record(MessageKind::Text, b""),
        &record(MessageKind::Binary, b""),
    ]
    .concat();
    let events = [
        "{'type': 'websocket.receive', 'text': 'h\u{e9}'}",
        "{'type': 'websocket.receive', 'bytes': b'\\x00\\xff'}",
        "{'type': 'websocket.receive', 'text': ''}",
        "{'type': 'websocket.receive', 'bytes': b''}",
    ];
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        for len in 1..=records.len() {
            let called = accepted(&mut turning);
            let mut came = Vec::new();
            for piece in records.chunks(len) {
                pour(&mut turning, &called, piece);
                came.extend(std::iter::from_fn(|| {
                    Some(turning.receive(&called)).filter(|event| event != WAITS)
                }));
            }
            assert_eq!(came, events, "in pieces of {len}");
            turning.end(&called, None);
        }
    });
}

#[test]
fn a_close_is_the_last_event_and_stays_it() {
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        let called = accepted(&mut turning);
        let close = close_record(&Close::new(4001, "bye"));
        pour(&mut turning, &called, &close);
        for _ in 0..2 {
            assert_eq!(turning.receive(&called), disconnect(4001, "bye"));
        }
        let late = turning.value("{'type': 'websocket.send', 'text': 'late'}");
        assert_eq!(
            turning.send(&called, &late),
            "ClientGone: the client has gone"
        );
        turning.end(&called, None);
    });
}

#[test]
fn a_client_that_leaves_without_a_close_has_its_messages_heard_first() {
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        let called = accepted(&mut turning);
        let message = record(MessageKind::Text, b"last");
        // The next one has come in part.
        let bytes = [&message[..], &message[..7]].concat();
        let poured = turning
            .rig
            .acceptor
            .pour(called.slot, &[MaskedBytes::from(&bytes[..])]);
        assert_eq!(poured.expect("room"), bytes.len());
        turning.give_up(&called);
        let event = "{'type': 'websocket.receive', 'text': 'last'}";
        assert_eq!(turning.receive(&called), event);
        for _ in 0..2 {
            assert_eq!(turning.receive(&called), disconnect(1006, ""));
        }
        turning.end(&called, None);
    });
}

#[test]
fn what_makes_no_sense_ends_a_websocket_and_no_other() {
    let not_utf_8 = record(MessageKind::Text, b"\xff");
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        let other = accepted(&mut turning);
        for spoilt in [
            b"\x09\x00\x00\x00\x00" as &[u8],
            b"\x04\x00\x00\x00\x00",
            b"\x03\x03\x00\x00\x00\xe8\x03\xff",
            &not_utf_8,
        ] {
            let called = accepted(&mut turning);
            pour(&mut turning, &called, spoilt);
            for _ in 0..2 {
                assert_eq!(turning.receive(&called), disconnect(1006, ""), "{spoilt:?}");
            }
            turning.end(&called, None);
        }
        pour(&mut turning, &other, &record(MessageKind::Text, b"well"));
        let event = "{'type': 'websocket.receive', 'text': 'well'}";
        assert_eq!(turning.receive(&other), event);
        turning.end(&other, None);
    });
}
