//! The WebSocket protocol (RFC 6455) for a server, between bytes and messages: no I/O, no clock, no unsafe. A message
//! that comes in one piece is not copied. tungstenite, which only this crate names, computes the value of the
//! handshake; in tests it is the oracle for frames. zlib-rs, which only this crate names too, compresses messages.

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
pub use message::{Form, Kind};
pub use payload::Payload;
pub use pieces::Pieces;
pub use ration::{Claim, Ration};
pub use socket::{Came, Close, Event, REASON_BYTES_MAX, Socket};
