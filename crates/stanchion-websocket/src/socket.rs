//! A WebSocket after its handshake: frames of the client become messages, and what is to be said beside messages
//! (pongs, the closing handshake) becomes frames.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tungstenite::error::Error;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, FrameHeader, Utf8Bytes};
use tungstenite::protocol::{Message, Role, WebSocketConfig, WebSocketContext};

/// A close frame holds 125 bytes, two of them the code (RFC 6455 section 5.5).
pub const REASON_BYTES_MAX: usize = 123;
/// What is allocated for each client, and read at a time of a longer message.
const READ_BUFFER_BYTES: usize = 512;

/// Codes of close frames (RFC 6455 section 7.4.1, and IANA's registry).
pub mod code {
    /// All is said.
    pub const NORMAL: u16 = 1000;
    /// The client has broken the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// A close frame without a code; never sent.
    pub const NONE: u16 = 1005;
    /// The connection ended without a close frame; never sent.
    pub const ABNORMAL: u16 = 1006;
    /// A text is not UTF-8.
    pub const NOT_UTF8: u16 = 1007;
    /// A message is longer than allowed.
    pub const TOO_BIG: u16 = 1009;
    /// The server, or its app, has failed.
    pub const FAILED: u16 = 1011;
    /// The server restarts: the client may come again.
    pub const RESTART: u16 = 1012;
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}

/// How a WebSocket is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// See [`code`].
    pub code: u16,
    /// For people; at most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

impl Close {
    /// With a code, and a reason, which is cut if it is too long.
    pub fn new(code: u16, reason: &str) -> Self {
        let mut len = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(len) {
            len -= 1;
        }
        Self {
            code,
            reason: reason[..len].to_owned(),
        }
    }
}

/// What the bytes of a client come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole message.
    Message(Kind, Bytes),
    /// The answer to a ping.
    Pong,
    /// The client has closed; the answer to that is among what is to be sent. Nothing comes after it.
    Closed(Close),
    /// The client has answered our close frame. Nothing comes after it.
    Acknowledged,
    /// The client has broken the protocol, which it is told by a close frame. Nothing comes after it.
    Failed(Close),
}

/// A WebSocket of one client.
#[derive(Debug)]
pub struct Socket {
    context: WebSocketContext,
    out: Vec<u8>,
    is_closing: bool,
    is_over: bool,
}

/// The bytes of the client that are there, and what is to be sent.
struct Ends<'a, 'b> {
    came: &'a mut &'b [u8],
    out: &'a mut Vec<u8>,
}

impl Read for Ends<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.came.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.came.read(into)
    }
}

impl Write for Ends<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How much a control frame may hold.
const CONTROL_BYTES_MAX: usize = 125;

impl Socket {
    /// One whose messages may have `size_max` bytes.
    pub fn new(size_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            // A control frame may have so much, whatever messages may (RFC 6455 section 5.5).
            .max_frame_size(Some(size_max.max(CONTROL_BYTES_MAX)))
            .max_message_size(Some(size_max));
        Self {
            context: WebSocketContext::new(Role::Server, Some(config)),
            out: Vec::new(),
            is_closing: false,
            is_over: false,
        }
    }

    /// Goes through bytes that have come, until something comes of them or there are none left: then `None`.
    pub fn next(&mut self, came: &mut &[u8]) -> Option<Event> {
        while !self.is_over {
            let out = &mut self.out;
            match self.context.read(&mut Ends { came, out }) {
                Ok(Message::Ping(_) | Message::Frame(_)) => {}
                Ok(Message::Pong(_)) => return Some(Event::Pong),
                // What was under way when we closed.
                Ok(Message::Text(_) | Message::Binary(_)) if self.is_closing => {}
                Ok(Message::Text(text)) => {
                    return Some(Event::Message(Kind::Text, Bytes::from(text)));
                }
                Ok(Message::Binary(bytes)) => return Some(Event::Message(Kind::Binary, bytes)),
                Ok(Message::Close(close)) => return Some(self.closed(close)),
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => return Some(self.failed(&error)),
            }
        }
        None
    }

    fn closed(&mut self, close: Option<CloseFrame>) -> Event {
        self.is_over = true;
        if self.is_closing {
            return Event::Acknowledged;
        }
        // It writes the answer to the close frame, and then has no more to do.
        let out = &mut self.out;
        let _ = self.context.flush(&mut Ends {
            came: &mut &[][..],
            out,
        });
        Event::Closed(match close {
            Some(frame) => Close::new(frame.code.into(), &frame.reason),
            None => Close::new(code::NONE, ""),
        })
    }

    fn failed(&mut self, error: &Error) -> Event {
        let fault = match error {
            Error::Utf8(_) => Close::new(code::NOT_UTF8, "a text is not UTF-8"),
            Error::Capacity(_) => Close::new(code::TOO_BIG, "a message is too long"),
            other => Close::new(code::PROTOCOL, &other.to_string()),
        };
        self.close(&fault);
        self.is_over = true;
        Event::Failed(fault)
    }

    /// Asks the client to show that it is there.
    pub fn ping(&mut self) {
        let out = &mut self.out;
        let ping = Message::Ping(Bytes::new());
        // After a close frame there is nothing to ask.
        let _ = self.context.write(
            &mut Ends {
                came: &mut &[][..],
                out,
            },
            ping,
        );
    }

    /// Begins the closing handshake, unless it has begun. Of a code that none may send, nothing is sent but that we
    /// have failed.
    pub fn close(&mut self, close: &Close) {
        if std::mem::replace(&mut self.is_closing, true) || self.is_over {
            return;
        }
        let frame = match close.code {
            code::NONE => None,
            code if is_sendable(code) => Some(frame(code, &close.reason)),
            _ => Some(frame(code::FAILED, "")),
        };
        let out = &mut self.out;
        // Nothing here can fail: what it writes to takes all.
        let _ = self.context.close(
            &mut Ends {
                came: &mut &[][..],
                out,
            },
            frame,
        );
    }

    /// Whether a close frame was sent, or there is nothing more to say.
    pub fn is_closing(&self) -> bool {
        self.is_closing || self.is_over
    }

    /// Frames that are to be sent, between those of messages.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

fn frame(code: u16, reason: &str) -> CloseFrame {
    let Close { code, reason } = Close::new(code, reason);
    CloseFrame {
        code: code.into(),
        reason: Utf8Bytes::from(reason),
    }
}

/// Whether a close frame may have this code (section 7.4.2).
pub fn is_sendable(code: u16) -> bool {
    CloseCode::from(code).is_allowed()
}

/// What stands before `len` bytes of a message on its way to a client: the first of it, if they are of a `kind`, or more
/// of it (RFC 6455 section 5.4).
pub fn frame_head(kind: Option<Kind>, is_last: bool, len: u64) -> Vec<u8> {
    let data = match kind {
        Some(Kind::Text) => Data::Text,
        Some(Kind::Binary) => Data::Binary,
        None => Data::Continue,
    };
    let header = FrameHeader {
        is_final: is_last,
        opcode: OpCode::Data(data),
        ..FrameHeader::default()
    };
    let mut head = Vec::with_capacity(header.len(len));
    // A Vec takes all.
    let _ = header.format(len, &mut head);
    head
}
