//! Messages of a WebSocket on their way between acceptor and worker: `kind │ length │ bytes`, one behind the other.

pub use stanchion_websocket::{Close, Kind, REASON_BYTES_MAX, code, is_sendable};

use super::BadRecord;

/// What stands before the bytes of a message.
pub const MESSAGE_HEAD_BYTES: usize = 5;
/// The longest record of a close: its code, and its reason.
const CLOSE_BYTES_MAX: usize = 2 + REASON_BYTES_MAX;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A message.
    Message(Kind),
    /// How the app, or the client, closes the WebSocket; nothing comes after it.
    Close,
    /// Its worker leaves, and says nothing more. Who closes it is counted by that, and not by the code.
    Restart,
}

/// How a WebSocket is closed whose worker, or all of the server, leaves.
pub fn restart() -> Close {
    Close::new(code::RESTART, "the server restarts")
}

/// What stands before the `len` bytes of a record.
pub fn message_head(content: Content, len: u32) -> [u8; MESSAGE_HEAD_BYTES] {
    let kind = match content {
        Content::Message(Kind::Text) => 1,
        Content::Message(Kind::Binary) => 2,
        Content::Close => 3,
        Content::Restart => 4,
    };
    let [a, b, c, d] = len.to_le_bytes();
    [kind, a, b, c, d]
}

/// Reads what stands before a record: what it is, and its length.
pub fn read_message_head(
    [kind, a, b, c, d]: [u8; MESSAGE_HEAD_BYTES],
) -> Result<(Content, usize), BadRecord> {
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let content = match kind {
        1 => Content::Message(Kind::Text),
        2 => Content::Message(Kind::Binary),
        3 if (2..=CLOSE_BYTES_MAX).contains(&len) => Content::Close,
        4 if len == 0 => Content::Restart,
        _ => return Err(BadRecord),
    };
    Ok((content, len))
}

/// The record of a close.
pub fn close_record(close: &Close) -> Vec<u8> {
    let len = 2 + close.reason.len();
    let mut record = message_head(Content::Close, len as u32).to_vec();
    record.extend_from_slice(&close.code.to_le_bytes());
    record.extend_from_slice(close.reason.as_bytes());
    record
}

/// Reads the bytes of a close.
pub fn read_close(bytes: &[u8]) -> Result<Close, BadRecord> {
    let (code, reason) = bytes.split_first_chunk().ok_or(BadRecord)?;
    let reason = std::str::from_utf8(reason).map_err(|_| BadRecord)?;
    Ok(Close::new(u16::from_le_bytes(*code), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_message_comes_out_as_it_went_in() {
        for kind in [Kind::Text, Kind::Binary] {
            for len in [0, 1, 70_000, u32::MAX] {
                let content = Content::Message(kind);
                let read = read_message_head(message_head(content, len));
                assert_eq!(read, Ok((content, len as usize)));
            }
        }
        assert_eq!(read_message_head([0, 0, 0, 0, 0]), Err(BadRecord));
        let restart = message_head(Content::Restart, 0);
        assert_eq!(read_message_head(restart), Ok((Content::Restart, 0)));
        assert_eq!(read_message_head([4, 1, 0, 0, 0]), Err(BadRecord));
        assert_eq!(read_message_head([5, 0, 0, 0, 0]), Err(BadRecord));
    }

    #[test]
    fn a_close_comes_out_as_it_went_in_and_none_is_too_long() {
        for reason in ["", "that is all", &"r".repeat(REASON_BYTES_MAX)] {
            let close = Close::new(4000, reason);
            let record = close_record(&close);
            let (head, bytes) = record.split_first_chunk().expect("a head");
            assert_eq!(read_message_head(*head), Ok((Content::Close, bytes.len())));
            assert_eq!(read_close(bytes), Ok(close));
        }
        for len in [0, 1, CLOSE_BYTES_MAX as u32 + 1] {
            let head = message_head(Content::Close, len);
            assert_eq!(read_message_head(head), Err(BadRecord));
        }
        assert_eq!(read_close(b"\xe8\x03\xff"), Err(BadRecord));
        assert_eq!(read_close(b"\xe8"), Err(BadRecord));
    }
}
