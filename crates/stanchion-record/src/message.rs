//! Messages of a WebSocket on their way between acceptor and worker: `kind │ length │ bytes`, one behind the other.

pub use stanchion_websocket::{
    Claim, Close, Codec, MessageForm, MessageKind, REASON_BYTES_MAX, Ration, code, is_sendable,
};

use super::BadRecord;

/// Bytes of the head that stands before the bytes of a message.
pub const MESSAGE_HEAD_BYTES: usize = 5;
/// The longest record of a close: its code, and its reason.
const CLOSE_BYTES_MAX: usize = 2 + REASON_BYTES_MAX;
/// In the kind of a message: it is compressed.
const DEFLATED: u8 = 0x80;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A message.
    Message(MessageForm),
    /// How the app, or the client, closes the WebSocket; nothing comes after it.
    Close,
    /// Its worker leaves, and sends nothing more. The counts of closed `WebSockets` go by this, and not by the code.
    Restart,
    /// How the worker closes it because its client has sent an invalid message; nothing comes after it.
    Fault,
}

/// The close of a WebSocket whose worker, or all of the server, leaves.
pub fn restart() -> Close {
    Close::new(code::RESTART, "the server restarts")
}

/// The head of a record of `len` bytes.
pub fn message_head(content: Content, len: u32) -> [u8; MESSAGE_HEAD_BYTES] {
    let kind = match content {
        Content::Message(MessageForm { kind, is_deflated }) => {
            let kind = match kind {
                MessageKind::Text => 1,
                MessageKind::Binary => 2,
            };
            if is_deflated { kind | DEFLATED } else { kind }
        }
        Content::Close => 3,
        Content::Restart => 4,
        Content::Fault => 5,
    };
    let [a, b, c, d] = len.to_le_bytes();
    [kind, a, b, c, d]
}

/// Reads the head of a record: its content, and its length.
pub fn read_message_head(
    [kind, a, b, c, d]: [u8; MESSAGE_HEAD_BYTES],
) -> Result<(Content, usize), BadRecord> {
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let is_deflated = kind & DEFLATED != 0;
    let message = |kind| Content::Message(MessageForm { kind, is_deflated });
    let is_close = (2..=CLOSE_BYTES_MAX).contains(&len);
    let content = match kind & !DEFLATED {
        1 => message(MessageKind::Text),
        2 => message(MessageKind::Binary),
        _ if is_deflated => return Err(BadRecord),
        3 if is_close => Content::Close,
        4 if len == 0 => Content::Restart,
        5 if is_close => Content::Fault,
        _ => return Err(BadRecord),
    };
    Ok((content, len))
}

/// The record of a close.
pub fn close_record(close: &Close) -> Vec<u8> {
    record_of(Content::Close, close)
}

/// The record of a close by the worker because of what the client has sent.
pub fn fault_record(close: &Close) -> Vec<u8> {
    record_of(Content::Fault, close)
}

fn record_of(content: Content, close: &Close) -> Vec<u8> {
    let len = 2 + close.reason.len();
    let mut record = message_head(content, len as u32).to_vec();
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

/// Reads a close by the worker because of what the client has sent: there are codes for that, and an app that wants another code is to close the
/// WebSocket itself.
pub fn read_fault(bytes: &[u8]) -> Result<Close, BadRecord> {
    let close = read_close(bytes)?;
    match close.code {
        code::BAD_PAYLOAD | code::TOO_BIG => Ok(close),
        _ => Err(BadRecord),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_message_comes_out_as_it_went_in() {
        for kind in [MessageKind::Text, MessageKind::Binary] {
            for is_deflated in [false, true] {
                for len in [0, 1, 70_000, u32::MAX] {
                    let content = Content::Message(MessageForm { kind, is_deflated });
                    let read = read_message_head(message_head(content, len));
                    assert_eq!(read, Ok((content, len as usize)));
                }
            }
        }
        let restart = message_head(Content::Restart, 0);
        assert_eq!(read_message_head(restart), Ok((Content::Restart, 0)));
        assert_eq!(read_message_head([4, 1, 0, 0, 0]), Err(BadRecord));
        for kind in [0, 6, DEFLATED, DEFLATED | 3, DEFLATED | 5, DEFLATED | 6] {
            let head = [kind, 2, 0, 0, 0];
            assert_eq!(read_message_head(head), Err(BadRecord), "{kind}");
        }
        assert_eq!(
            read_message_head([DEFLATED | 4, 0, 0, 0, 0]),
            Err(BadRecord)
        );
    }

    #[test]
    fn a_client_is_blamed_by_no_code_but_those_of_a_message_that_cannot_be_decompressed() {
        for code in 0..=u16::MAX {
            let close = Close::new(code, "why");
            let record = fault_record(&close);
            let is_one = [1007, 1009].contains(&code);
            let read = read_fault(&record[MESSAGE_HEAD_BYTES..]);
            assert_eq!(read, is_one.then_some(close).ok_or(BadRecord), "{code}");
        }
        assert_eq!(read_fault(b"\xef\x03\xff"), Err(BadRecord));
    }

    #[test]
    fn a_close_comes_out_as_it_went_in_and_none_is_too_long() {
        for reason in ["", "that is all", &"r".repeat(REASON_BYTES_MAX)] {
            let close = Close::new(4000, reason);
            for (content, record) in [
                (Content::Close, close_record(&close)),
                (Content::Fault, fault_record(&close)),
            ] {
                let (head, bytes) = record.split_first_chunk().expect("a head");
                assert_eq!(read_message_head(*head), Ok((content, bytes.len())));
                assert_eq!(read_close(bytes), Ok(close.clone()));
            }
        }
        for content in [Content::Close, Content::Fault] {
            for len in [0, 1, CLOSE_BYTES_MAX as u32 + 1] {
                let head = message_head(content, len);
                assert_eq!(read_message_head(head), Err(BadRecord));
            }
        }
        assert_eq!(read_close(b"\xe8\x03\xff"), Err(BadRecord));
        assert_eq!(read_close(b"\xe8"), Err(BadRecord));
    }
}
