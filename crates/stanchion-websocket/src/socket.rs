//! A WebSocket after its handshake: it turns a client's frames into messages, and makes the frames that are not part of
//! a message (pongs, the closing handshake).

use crate::code;
use crate::frame::{CONTROL_BYTES_MAX, FrameHeader, HEADER_BYTES_MAX, Opcode, put_control, unmask};
use crate::message::{MessageForm, MessageKind};
use crate::payload::{Payload, unmask_text};
use crate::pieces::Pieces;

/// A close frame holds 125 bytes, two of them the code (RFC 6455 section 5.5).
pub const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// How a WebSocket is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// See [`code`].
    pub code: u16,
    /// A text for people, of at most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

impl Close {
    /// Makes a close with a code and a reason; cuts the reason if it is too long.
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

    /// Reads the payload of a client's close frame.
    fn read(payload: &[u8]) -> Result<Self, Violation> {
        let Some((code, reason)) = payload.split_first_chunk() else {
            return match payload {
                [] => Ok(Self::new(code::NONE, "")),
                _ => Err(Violation::Protocol("a close frame has half a code")),
            };
        };
        let reason = std::str::from_utf8(reason).map_err(|_| Violation::NotUtf8)?;
        let code = u16::from_be_bytes(*code);
        if !code::is_sendable(code) {
            return Err(Violation::Protocol(
                "a close frame has a code that must not be sent",
            ));
        }
        Ok(Self::new(code, reason))
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self.code {
            code::NONE => put_control(Opcode::Close, b"", out),
            code => {
                let payload = [&code.to_be_bytes(), self.reason.as_bytes()].concat();
                put_control(Opcode::Close, &payload, out);
            }
        }
    }
}

/// An event that comes from a client's bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'c> {
    /// A whole message, in the buffer where it arrived if it came in one piece.
    Message(MessageForm, Payload<'c>),
    /// The client has sent a pong.
    Pong,
    /// The client has closed; the answer is in [`Socket::out`]. No event comes after it.
    Closed(Close),
    /// The client has answered the server's close frame. No event comes after it.
    Acknowledged,
    /// The client has broken the protocol; a close frame for it is in [`Socket::out`]. No event comes after it.
    Failed(Close),
}

/// A rule that a client has broken.
#[derive(Debug)]
pub(crate) enum Violation {
    Protocol(&'static str),
    NotUtf8,
    NotDeflated,
    TooBig,
}

impl Violation {
    pub(crate) fn close(&self) -> Close {
        match self {
            Self::Protocol(what) => Close::new(code::PROTOCOL, what),
            Self::NotDeflated => Close::new(code::BAD_PAYLOAD, "a message is not well compressed"),
            Self::NotUtf8 => Close::new(code::BAD_PAYLOAD, "a text is not UTF-8"),
            Self::TooBig => Close::new(code::TOO_BIG, "a message is too long"),
        }
    }
}

/// The WebSocket of one client. While nothing is under way, it holds no memory besides this structure.
#[derive(Debug)]
pub struct Socket {
    size_max: usize,
    deflates: bool,
    /// The part of the next frame's header that has come, if the header is incomplete.
    head: [u8; HEADER_BYTES_MAX],
    head_len: usize,
    frame: Option<Frame>,
    message: Option<PartialMessage>,
    out: Vec<u8>,
    is_closing: bool,
    is_over: bool,
}

/// A frame whose payload is coming.
#[derive(Debug)]
struct Frame {
    opcode: Opcode,
    is_last: bool,
    /// How many bytes have not come yet.
    left: usize,
    /// The mask, rotated to the next of these bytes.
    mask: [u8; 4],
    /// The part of a control frame that has come.
    control: Vec<u8>,
}

/// A message that has begun.
#[derive(Debug)]
struct PartialMessage {
    form: MessageForm,
    bytes: Pieces,
    /// How many bytes of the last piece are whole characters, if the message is a text and not compressed.
    checked: usize,
}

impl MessageForm {
    /// Whether its bytes must be characters.
    fn is_readable(self) -> bool {
        self.kind == MessageKind::Text && !self.is_deflated
    }
}

impl PartialMessage {
    /// Adds a part of the message, which has `len_max` bytes at most in the end.
    fn add(&mut self, mut part: &[u8], len_max: usize) -> Result<(), Violation> {
        if !self.form.is_readable() {
            while !part.is_empty() {
                self.bytes.put_some(&mut part, 0, len_max);
            }
            return Ok(());
        }
        while !part.is_empty() {
            // No character may lie across two pieces.
            let before = self.bytes.last().len();
            let torn = before - self.checked;
            self.bytes.put_some(&mut part, torn, len_max);
            if self.bytes.last().len() <= before {
                self.checked = 0;
            }
            self.checked += whole_chars(&self.bytes.last()[self.checked..])?;
        }
        Ok(())
    }

    fn end<'c>(self) -> Result<Event<'c>, Violation> {
        if self.form.is_readable() && self.checked < self.bytes.last().len() {
            return Err(Violation::NotUtf8);
        }
        Ok(Event::Message(self.form, Payload::Whole(self.bytes)))
    }
}

/// The payload of a message that came in one piece.
fn whole(form: MessageForm, bytes: &mut [u8], mask: [u8; 4]) -> Result<Payload<'_>, Violation> {
    if !form.is_readable() {
        return Ok(Payload::Masked(bytes, mask));
    }
    if unmask_text(bytes, mask, whole_chars)? < bytes.len() {
        return Err(Violation::NotUtf8);
    }
    Ok(Payload::Plain(bytes))
}

/// How many bytes of a text are whole characters; the rest is the start of a character.
fn whole_chars(bytes: &[u8]) -> Result<usize, Violation> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(error.valid_up_to()),
        Err(_) => Err(Violation::NotUtf8),
    }
}

/// Bytes that have come from a client, and that [`Socket::next`] has not read yet.
#[derive(Debug)]
pub struct UnreadBytes<'c> {
    bytes: &'c mut [u8],
    frames_left: usize,
}

impl<'c> UnreadBytes<'c> {
    /// All of these bytes. The WebSocket may change them.
    pub fn new(bytes: &'c mut [u8]) -> Self {
        Self::at_most(bytes, usize::MAX)
    }

    /// As [`Self::new`], but the WebSocket begins no more than so many frames. Then bytes may be left although no event
    /// comes from them.
    pub fn at_most(bytes: &'c mut [u8], frames_max: usize) -> Self {
        Self {
            bytes,
            frames_left: frames_max,
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes up to `len` bytes off the front.
    fn split(&mut self, len: usize) -> &'c mut [u8] {
        let len = len.min(self.len());
        let (part, rest) = std::mem::take(&mut self.bytes).split_at_mut(len);
        self.bytes = rest;
        part
    }
}

impl Socket {
    /// A WebSocket whose messages may have `size_max` bytes as they come, and be compressed if both sides agreed on
    /// that (`deflates`).
    pub fn new(size_max: usize, deflates: bool) -> Self {
        Self {
            size_max,
            deflates,
            head: [0; HEADER_BYTES_MAX],
            head_len: 0,
            frame: None,
            message: None,
            out: Vec::new(),
            is_closing: false,
            is_over: false,
        }
    }

    /// Reads bytes that have come until there is an event; `None` if no bytes are left, or no more frames may begin. It
    /// unmasks the bytes in place, or returns them with their mask.
    pub fn next<'c>(&mut self, came: &mut UnreadBytes<'c>) -> Option<Event<'c>> {
        while !self.is_over {
            match self.step(came) {
                Ok(ParseStep::Starved) => return None,
                Ok(ParseStep::On) => {}
                Ok(ParseStep::Event(event)) => return Some(event),
                Err(fault) => {
                    let close = fault.close();
                    self.close(&close);
                    self.end();
                    return Some(Event::Failed(close));
                }
            }
        }
        None
    }

    fn step<'c>(&mut self, came: &mut UnreadBytes<'c>) -> Result<ParseStep<'c>, Violation> {
        let Some(frame) = &mut self.frame else {
            if came.frames_left == 0 {
                return Ok(ParseStep::Starved);
            }
            let Some(header) = self.header(came).map_err(Violation::Protocol)? else {
                return Ok(ParseStep::Starved);
            };
            came.frames_left -= 1;
            return self.begin(header).map(|()| ParseStep::On);
        };
        if came.is_empty() && frame.left > 0 {
            return Ok(ParseStep::Starved);
        }
        let part = came.split(frame.left);
        frame.left -= part.len();
        if frame.opcode.is_control() {
            unmask(part, &mut frame.mask);
            frame.control.extend_from_slice(part);
            return match self.frame.take_if(|frame| frame.left == 0) {
                Some(frame) => self.control(frame.opcode, &frame.control),
                None => Ok(ParseStep::Starved),
            };
        }
        self.data(part)
    }

    /// Reads the header of the next frame, once all of it has come.
    fn header(&mut self, came: &mut UnreadBytes<'_>) -> Result<Option<FrameHeader>, &'static str> {
        if self.head_len == 0
            && let Some((header, len)) = FrameHeader::read(came.bytes, self.deflates)?
        {
            came.split(len);
            return Ok(Some(header));
        }
        while let [byte] = came.split(1) {
            self.head[self.head_len] = *byte;
            self.head_len += 1;
            if let Some((header, _)) =
                FrameHeader::read(&self.head[..self.head_len], self.deflates)?
            {
                self.head_len = 0;
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    fn begin(&mut self, header: FrameHeader) -> Result<(), Violation> {
        match (header.opcode, &self.message) {
            (Opcode::Data(_), Some(_)) => {
                return Err(Violation::Protocol("a message begins within another"));
            }
            (Opcode::Continuation, None) => {
                return Err(Violation::Protocol("a message goes on that has not begun"));
            }
            (Opcode::Data(kind), None) => {
                self.message = Some(PartialMessage {
                    form: MessageForm {
                        kind,
                        is_deflated: header.is_deflated,
                    },
                    bytes: Pieces::default(),
                    checked: 0,
                });
            }
            _ => {}
        }
        let room = if header.opcode.is_control() {
            CONTROL_BYTES_MAX
        } else {
            self.size_max.saturating_sub(self.unfinished_bytes())
        };
        let left = usize::try_from(header.len).ok();
        self.frame = Some(Frame {
            opcode: header.opcode,
            is_last: header.is_last,
            left: left.filter(|left| *left <= room).ok_or(Violation::TooBig)?,
            mask: header.mask,
            control: Vec::new(),
        });
        Ok(())
    }

    /// Handles a part of a message.
    fn data<'c>(&mut self, part: &'c mut [u8]) -> Result<ParseStep<'c>, Violation> {
        let (Some(frame), Some(message)) = (&mut self.frame, &mut self.message) else {
            return Ok(ParseStep::On);
        };
        let (mut mask, left, size_max) = (frame.mask, frame.left, self.size_max);
        // Keep the mask for the next part.
        frame.mask.rotate_left(part.len() % 4);
        // If more fragments follow, their number is unknown: room for them is made once the second one has come.
        let is_known = frame.is_last || matches!(frame.opcode, Opcode::Data(_));
        let is_whole = frame.is_last && left == 0;
        if left == 0 {
            self.frame = None;
        }
        if self.is_closing {
            // The message was under way when the server closed.
            self.message.take_if(|_| is_whole);
            return Ok(ParseStep::On);
        }
        if is_whole && message.bytes.is_empty() {
            let form = message.form;
            self.message = None;
            let payload = whole(form, part, mask)?;
            return Ok(ParseStep::Event(Event::Message(form, payload)));
        }
        let len_max = if is_known {
            message.bytes.len() + part.len() + left
        } else {
            size_max
        };
        unmask(part, &mut mask);
        message.add(part, len_max)?;
        match self.message.take_if(|_| is_whole) {
            Some(message) => message.end().map(ParseStep::Event),
            None => Ok(ParseStep::On),
        }
    }

    /// Handles a control frame.
    fn control<'c>(&mut self, opcode: Opcode, payload: &[u8]) -> Result<ParseStep<'c>, Violation> {
        match opcode {
            Opcode::Pong => return Ok(ParseStep::Event(Event::Pong)),
            Opcode::Close => {}
            _ => {
                if !self.is_closing {
                    put_control(Opcode::Pong, payload, &mut self.out);
                }
                return Ok(ParseStep::On);
            }
        }
        let close = Close::read(payload)?;
        self.end();
        if self.is_closing {
            return Ok(ParseStep::Event(Event::Acknowledged));
        }
        close.put(&mut self.out);
        Ok(ParseStep::Event(Event::Closed(close)))
    }

    /// Ends the WebSocket: it reads no more bytes from the client.
    fn end(&mut self) {
        self.is_over = true;
        (self.frame, self.message) = (None, None);
    }

    /// Asks the client to show that it is alive.
    pub fn ping(&mut self) {
        // After a close frame the server sends no ping.
        if !self.is_closing() {
            put_control(Opcode::Ping, b"", &mut self.out);
        }
    }

    /// Begins the closing handshake, unless it has begun. In place of a code that must not be sent, this sends
    /// [`code::FAILED`].
    pub fn close(&mut self, close: &Close) {
        if std::mem::replace(&mut self.is_closing, true) || self.is_over {
            return;
        }
        // Drop the part of a message that has come: its rest does not matter any more.
        if let Some(message) = &mut self.message {
            (message.bytes, message.checked) = (Pieces::default(), 0);
        }
        match close.code {
            code::NONE => Close::new(code::NONE, "").put(&mut self.out),
            code if code::is_sendable(code) => close.put(&mut self.out),
            _ => Close::new(code::FAILED, "").put(&mut self.out),
        }
    }

    /// Whether a close frame was sent, or the WebSocket has ended.
    pub fn is_closing(&self) -> bool {
        self.is_closing || self.is_over
    }

    /// How many bytes of an incomplete message have come.
    pub fn unfinished_bytes(&self) -> usize {
        let message = self.message.as_ref();
        message.map_or(0, |message| message.bytes.len())
    }

    /// How much memory those bytes take, with the room for more of them.
    pub fn held_bytes(&self) -> usize {
        let message = self.message.as_ref();
        message.map_or(0, |message| message.bytes.room())
    }

    /// Frames to send, between those of messages.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

/// The result of a step.
enum ParseStep<'c> {
    Event(Event<'c>),
    On,
    /// More bytes must come, or more frames be allowed.
    Starved,
}
