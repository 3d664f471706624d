//! What a client sends over a WebSocket: the same comes of it however the bytes were cut, and no more memory is held than
//! a message may have.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stanchion_websocket::{Came, Event, Kind, Socket};

/// Small, so that it is reached.
const SIZE_MAX: usize = 200;

/// What has come of it, and what is sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    messages: Vec<(Kind, Vec<u8>)>,
    pongs: usize,
    end: Option<(u16, String)>,
    sent: Vec<u8>,
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read_all(bytes, bytes.len().max(1));
    for piece in [1, 2, 7] {
        assert_eq!(read_all(bytes, piece), whole, "in pieces of {piece}");
    }
    for (kind, payload) in &whole.messages {
        assert!(payload.len() <= SIZE_MAX);
        assert!(*kind == Kind::Binary || std::str::from_utf8(payload).is_ok());
    }
});

fn read_all(bytes: &[u8], piece: usize) -> Outcome {
    let mut socket = Socket::new(SIZE_MAX);
    let mut outcome = Outcome::default();
    for piece in bytes.to_vec().chunks_mut(piece) {
        let mut came = Came::new(piece);
        while let Some(event) = socket.next(&mut came) {
            assert_eq!(outcome.end, None, "nothing comes after the end");
            match event {
                Event::Message(kind, payload) => {
                    outcome.messages.push((kind, payload.into_owned()));
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
