//! The WebSocket protocol (RFC 6455), of the server's side, between bytes and messages: no I/O, no clock, no unsafe. The
//! frames of clients are read by tungstenite, which only this crate names.

#![forbid(unsafe_code)]

mod handshake;
mod socket;

pub use handshake::{Handshake, accept_value, handshake};
pub use socket::{Close, Event, Kind, REASON_BYTES_MAX, Socket, code, frame_head, is_sendable};
