//! Frames (RFC 6455 section 5.2): headers from a client, and headers from the server.

use std::ops::Deref;

use crate::message::{MessageForm, MessageKind};

/// How many bytes a control frame may hold, whatever the limit of messages (section 5.5).
pub(crate) const CONTROL_BYTES_MAX: usize = 125;
/// The longest header of a client's frame: two bytes, a length of eight, and a mask.
pub(crate) const HEADER_BYTES_MAX: usize = 14;

const FIN: u8 = 0x80;
/// RSV1: the message that the frame begins is compressed (RFC 7692 section 6).
const DEFLATED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
/// The length follows, in two bytes or in eight.
const IN_TWO: u8 = 126;
const IN_EIGHT: u8 = 127;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    /// A later part of a message.
    Continuation,
    /// The first frame of a message.
    Data(MessageKind),
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Data(MessageKind::Text),
            2 => Self::Data(MessageKind::Binary),
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Data(MessageKind::Text) => 1,
            Self::Data(MessageKind::Binary) => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The header of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) opcode: Opcode,
    pub(crate) is_last: bool,
    pub(crate) is_deflated: bool,
    /// How many bytes the payload has.
    pub(crate) len: u64,
    pub(crate) mask: [u8; 4],
}

impl FrameHeader {
    /// Reads the header at the start of `bytes` and returns it with its own length; `None` if more bytes must come.
    /// Messages may be compressed if both sides agreed on that (`deflates`).
    ///
    /// # Errors
    /// The rule that the client has broken.
    pub(crate) fn read(
        bytes: &[u8],
        deflates: bool,
    ) -> Result<Option<(Self, usize)>, &'static str> {
        let [first, second, rest @ ..] = bytes else {
            return Ok(None);
        };
        let Some(opcode) = Opcode::of(first & OPCODE) else {
            return Err("a frame has an unknown opcode");
        };
        let (is_last, short_len) = (first & FIN != 0, second & !MASKED);
        let is_deflated = first & DEFLATED != 0;
        let may_be_deflated = deflates && matches!(opcode, Opcode::Data(_));
        if first & RESERVED != 0 || (is_deflated && !may_be_deflated) {
            return Err("a frame has reserved bits set");
        }
        if second & MASKED == 0 {
            return Err("a frame is not masked");
        }
        if opcode.is_control() && !is_last {
            return Err("a control frame is fragmented");
        }
        if opcode.is_control() && usize::from(short_len) > CONTROL_BYTES_MAX {
            return Err("a control frame is too long");
        }
        let (len, rest) = match short_len {
            IN_TWO => match rest.split_first_chunk() {
                Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest),
                None => return Ok(None),
            },
            IN_EIGHT => match rest.split_first_chunk() {
                Some((len, rest)) => (u64::from_be_bytes(*len), rest),
                None => return Ok(None),
            },
            len => (u64::from(len), rest),
        };
        if len > i64::MAX as u64 {
            return Err("the length of a frame has its first bit set");
        }
        let Some((&mask, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let header = Self {
            opcode,
            is_last,
            is_deflated,
            len,
            mask,
        };
        Ok(Some((header, bytes.len() - rest.len())))
    }
}

/// The header of a frame from the server, which is not masked.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead {
    bytes: [u8; 10],
    len: u8,
}

impl Deref for FrameHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The header before `len` bytes of a message to a client: the first frame of the message if it has a `form`, otherwise
/// a later one (RFC 6455 section 5.4).
pub fn frame_head(form: Option<MessageForm>, is_last: bool, len: u64) -> FrameHead {
    let opcode = form.map_or(Opcode::Continuation, |form| Opcode::Data(form.kind));
    let mut head = head_of(opcode, is_last, len);
    if form.is_some_and(|form| form.is_deflated) {
        head.bytes[0] |= DEFLATED;
    }
    head
}

fn head_of(opcode: Opcode, is_last: bool, payload_len: u64) -> FrameHead {
    let mut bytes = [0; 10];
    bytes[0] = if is_last { FIN } else { 0 } | opcode.bits();
    let len = if let Ok(short @ ..IN_TWO) = u8::try_from(payload_len) {
        bytes[1] = short;
        2
    } else if let Ok(len) = u16::try_from(payload_len) {
        bytes[1] = IN_TWO;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        4
    } else {
        bytes[1] = IN_EIGHT;
        bytes[2..].copy_from_slice(&payload_len.to_be_bytes());
        10
    };
    FrameHead { bytes, len }
}

/// Appends a control frame, whose payload may have [`CONTROL_BYTES_MAX`] bytes.
pub(crate) fn put_control(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&head_of(opcode, true, payload.len() as u64));
    out.extend_from_slice(payload);
}

/// Removes a client's mask from bytes of its payload, and rotates the mask to where the next bytes begin (section 5.3).
pub(crate) fn unmask(payload: &mut [u8], mask: &mut [u8; 4]) {
    const WORD: usize = size_of::<u128>();
    let word = u128::from_ne_bytes(std::array::from_fn(|at| mask[at % 4]));
    let (words, rest) = payload.as_chunks_mut::<WORD>();
    for bytes in words {
        *bytes = (u128::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    mask.rotate_left(payload.len() % 4);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_taken_away_whatever_the_pieces() {
        let plain: Vec<u8> = (0..100).collect();
        let key = [1, 2, 4, 8];
        let masked = plain.iter().zip(key.iter().cycle());
        let masked: Vec<u8> = masked.map(|(byte, key)| byte ^ key).collect();
        for step in 1..=plain.len() {
            let (mut bytes, mut mask) = (masked.clone(), key);
            for piece in bytes.chunks_mut(step) {
                unmask(piece, &mut mask);
            }
            assert_eq!(bytes, plain, "{step} bytes at a time");
        }
    }

    #[test]
    fn a_header_is_read_once_all_of_it_is_there() {
        let mask = [9; 4];
        for (len, head) in [
            (0, vec![0x82, 0x80]),
            (125, vec![0x82, 0x80 + 125]),
            (126, vec![0x82, 0x80 + 126, 0, 126]),
            (65_535, vec![0x82, 0x80 + 126, 0xff, 0xff]),
            (65_536, vec![0x82, 0x80 + 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let whole = [&head[..], &mask].concat();
            let header = FrameHeader {
                opcode: Opcode::Data(MessageKind::Binary),
                is_last: true,
                is_deflated: false,
                len,
                mask,
            };
            for shorter in 0..whole.len() {
                assert_eq!(
                    FrameHeader::read(&whole[..shorter], false),
                    Ok(None),
                    "{len}"
                );
            }
            let behind = [&whole[..], b"payload"].concat();
            assert_eq!(
                FrameHeader::read(&behind, false),
                Ok(Some((header, whole.len())))
            );
            let mut ours = head.clone();
            ours[1] &= !MASKED;
            assert_eq!(
                *frame_head(Some(MessageKind::Binary.into()), true, len),
                ours[..]
            );
        }
        let longest = [&[0x82, 0x80 + 127, 0x80][..], &[0; 7], &mask].concat();
        FrameHeader::read(&longest, false).expect_err("the first bit of the length is set");
    }
}
