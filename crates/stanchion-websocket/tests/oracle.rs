//! Our messages and endings, compared with tungstenite's.

use std::io::{self, Cursor, Read, Write};

use proptest::prelude::*;
use stanchion_websocket::{Event, MessageKind, Socket, UnreadBytes, code};
use tungstenite::Message;
use tungstenite::error::Error;
use tungstenite::protocol::{Role, WebSocket, WebSocketConfig};

const SIZE_MAX: usize = 300;

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It goes on.
    Open,
    /// The client closes it with this code.
    Closed(u16),
    /// The server closes it with this code, for a fault of the client.
    Failed(u16),
}

type Outcome = (Vec<(MessageKind, Vec<u8>)>, End);

/// The messages and the ending when `bytes` come `step` at a time.
fn ours(mut bytes: Vec<u8>, step: usize) -> Outcome {
    let mut socket = Socket::new(SIZE_MAX, false);
    let mut messages = Vec::new();
    for came in bytes.chunks_mut(step) {
        let mut came = UnreadBytes::new(came);
        while let Some(event) = socket.next(&mut came) {
            match event {
                Event::Message(form, payload) => messages.push((form.kind, payload.into_owned())),
                Event::Pong => {}
                Event::Closed(close) => return (messages, End::Closed(close.code)),
                Event::Failed(close) => return (messages, End::Failed(close.code)),
                Event::Acknowledged => panic!("nothing was asked"),
            }
        }
    }
    (messages, End::Open)
}

fn theirs(bytes: Vec<u8>) -> Outcome {
    let config = WebSocketConfig::default()
        .max_frame_size(Some(SIZE_MAX))
        .max_message_size(Some(SIZE_MAX));
    let ends = Ends(Cursor::new(bytes));
    let mut socket = WebSocket::from_raw_socket(ends, Role::Server, Some(config));
    let mut messages = Vec::new();
    let end = loop {
        match socket.read() {
            Ok(Message::Text(text)) => messages.push((MessageKind::Text, text.as_bytes().to_vec())),
            Ok(Message::Binary(bytes)) => messages.push((MessageKind::Binary, bytes.to_vec())),
            Ok(Message::Close(None)) => break End::Closed(code::NONE),
            Ok(Message::Close(Some(close))) => break End::Closed(close.code.into()),
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(Error::Io(_)) => break End::Open,
            Err(Error::Utf8(_)) => break End::Failed(code::BAD_PAYLOAD),
            Err(Error::Capacity(_)) => break End::Failed(code::TOO_BIG),
            Err(_) => break End::Failed(code::PROTOCOL),
        }
    };
    (messages, end)
}

/// The bytes of a client, and a sink for the bytes to it.
struct Ends(Cursor<Vec<u8>>);

impl Read for Ends {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            len => Ok(len),
        }
    }
}

impl Write for Ends {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A payload, mostly one that suits some frame.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let close = (995..1020_u16, "[a-z]{0,3}");
    prop_oneof![
        4 => "[a-zäß€😀]{0,20}".prop_map(String::into_bytes),
        2 => prop::collection::vec(any::<u8>(), 0..6),
        1 => prop::collection::vec(any::<u8>(), 120..130),
        1 => close.prop_map(|(code, reason)| [&code.to_be_bytes(), reason.as_bytes()].concat()),
        1 => (200..400_usize).prop_map(|len| vec![b'x'; len]),
    ]
}

/// A whole frame, which may be wrong in any way.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        12 => prop::sample::select(vec![0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a]),
        2 => Just(0x88),
        1 => any::<u8>(),
    ];
    let mask = prop::option::weighted(0.98, any::<[u8; 4]>());
    (first, payload(), mask).prop_map(|(first, payload, mask)| {
        let bit = if mask.is_some() { 0x80 } else { 0 };
        let mut bytes = vec![first];
        match u8::try_from(payload.len()) {
            Ok(len @ ..126) => bytes.push(bit | len),
            _ => {
                bytes.push(bit + 126);
                bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            }
        }
        bytes.extend(mask.iter().flatten());
        let mask = mask.unwrap_or_default();
        bytes.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, key)| byte ^ key),
        );
        bytes
    })
}

/// tungstenite answers a code that must not be sent as it answers any other, with a close frame of its own, and
/// considers 1014 such a code. Our code follows IANA's registry, and treats such a client as one that breaks the
/// protocol. If a frame has several faults, one of them its length, the two may find different faults first.
fn is_known_difference(ours: End, theirs: End) -> bool {
    match (ours, theirs) {
        (End::Failed(code::PROTOCOL) | End::Closed(1014), End::Closed(code::PROTOCOL)) => true,
        (End::Failed(ours), End::Failed(theirs)) => [ours, theirs].contains(&code::TOO_BIG),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2048,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn frames_come_to_what_they_come_to_elsewhere(
        frames in prop::collection::vec(frame(), 1..8),
        step in 1..64_usize,
    ) {
        let bytes = frames.concat();
        let (messages, end) = ours(bytes.clone(), step);
        let (expected, expected_end) = theirs(bytes);
        prop_assert_eq!(messages, expected);
        if !is_known_difference(end, expected_end) {
            prop_assert_eq!(end, expected_end);
        }
    }
}
