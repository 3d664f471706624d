//! The WebSocket protocol (RFC 6455) for a server, between bytes and messages. A message that comes in one piece is not
//! copied.
//!
//! tungstenite, which only this crate names, computes the value of the handshake. The reader of frames is our own,
//! since tungstenite copies the bytes that it reads; in tests tungstenite is the oracle for frames, and `make autobahn`
//! tries the cases of Autobahn's test suite on the server. zlib-rs, which only this crate and the crate of compression
//! name, compresses messages.
//!
//! The acceptor negotiates compression and reads one bit of each frame; a compressed message crosses the exchange as it
//! came, and the worker decompresses it, so that no client spends the acceptor's time with it.
//!
//! This crate may not do I/O, read a clock, have threads or use unsafe code, and it names no other crate of ours.

#![forbid(unsafe_code)]

pub mod code;
mod deflate;
mod extension;
mod frame;
mod handshake;
mod message;
mod payload;
mod pieces;
mod ration;
mod socket;

pub use code::is_sendable;
pub use deflate::Codec;
pub use extension::Deflate;
pub use frame::{FrameHead, frame_head};
pub use handshake::{Handshake, accept_value, handshake};
pub use message::{MessageForm, MessageKind};
pub use payload::Payload;
pub use pieces::Pieces;
pub use ration::{Claim, Ration};
pub use socket::{Close, Event, REASON_BYTES_MAX, Socket, UnreadBytes};
