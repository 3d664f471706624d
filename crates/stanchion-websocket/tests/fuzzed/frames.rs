//! A WebSocket reads the same messages however the client's bytes are cut, and holds no more memory than a message may
//! have, compressed or not.

use stanchion_websocket::{Codec, Event, MessageForm, MessageKind, Socket, UnreadBytes};

/// The limit is small, so that inputs reach it.
const SIZE_MAX: usize = 200;

/// The messages that came, and the bytes to send.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    messages: Vec<(MessageForm, Vec<u8>)>,
    pongs: usize,
    end: Option<(u16, String)>,
    sent: Vec<u8>,
}

pub(crate) fn look(bytes: &[u8]) {
    for deflates in [false, true] {
        let whole = read_all(bytes, bytes.len().max(1), deflates);
        for piece in [1, 2, 7] {
            let pieces = read_all(bytes, piece, deflates);
            assert_eq!(pieces, whole, "in pieces of {piece}");
        }
        let mut codec = Codec::default();
        for (form, payload) in whole.messages {
            assert!(payload.len() <= SIZE_MAX);
            assert!(deflates || !form.is_deflated);
            let message = if form.is_deflated {
                codec.inflate(form.kind, payload, SIZE_MAX)
            } else {
                Ok(payload)
            };
            if let Ok(message) = message {
                assert!(message.len() <= SIZE_MAX);
                assert!(form.kind == MessageKind::Binary || std::str::from_utf8(&message).is_ok());
            }
        }
    }
}

fn read_all(bytes: &[u8], piece: usize, deflates: bool) -> Outcome {
    let mut socket = Socket::new(SIZE_MAX, deflates);
    let mut outcome = Outcome::default();
    for piece in bytes.to_vec().chunks_mut(piece) {
        let mut came = UnreadBytes::new(piece);
        while let Some(event) = socket.next(&mut came) {
            assert_eq!(outcome.end, None, "nothing comes after the end");
            match event {
                Event::Message(form, payload) => {
                    outcome.messages.push((form, payload.into_owned()));
                }
                Event::Pong => outcome.pongs += 1,
                Event::Closed(close) | Event::Failed(close) => {
                    outcome.end = Some((close.code, close.reason));
                }
                Event::Acknowledged => panic!("nothing was asked"),
            }
        }
        assert!(socket.held_bytes() <= SIZE_MAX);
    }
    outcome.sent = std::mem::take(socket.out());
    outcome
}
