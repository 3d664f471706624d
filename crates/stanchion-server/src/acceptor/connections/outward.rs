//! Messages on their way from a worker to the client of a WebSocket.

use stanchion_exchange::Corrupt;
use stanchion_websocket::{Close, frame_head};

use crate::record::{Content, MESSAGE_HEAD_BYTES, read_close, read_message_head};

/// Makes frames of what a worker has written, in whatever pieces it comes.
#[derive(Default)]
pub(super) struct Outward {
    head: Vec<u8>,
    inside: Inside,
}

/// What the next byte belongs to.
#[derive(Default)]
enum Inside {
    #[default]
    Head,
    /// A message, of which so much is to come.
    Message(usize),
    /// A close, of so many bytes.
    Close(usize, Vec<u8>),
}

impl Outward {
    /// Whether all of a message that has begun is there: only then another frame may come.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.inside, Inside::Head)
    }

    /// Appends what is for the client to `out`. Gives the close that ends it all, if it has come: nothing behind it
    /// counts.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Close>, Corrupt> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.inside {
                Inside::Head => {
                    let missing = MESSAGE_HEAD_BYTES - self.head.len();
                    self.head.extend_from_slice(split(&mut rest, missing));
                    if let Ok(head) = <[u8; MESSAGE_HEAD_BYTES]>::try_from(self.head.as_slice()) {
                        self.head.clear();
                        self.begin(head, out)?;
                    }
                }
                Inside::Message(left) => {
                    let part = split(&mut rest, *left);
                    *left -= part.len();
                    out.extend_from_slice(part);
                    if *left == 0 {
                        self.inside = Inside::Head;
                    }
                }
                Inside::Close(len, got) => {
                    let missing = *len - got.len();
                    got.extend_from_slice(split(&mut rest, missing));
                    if got.len() == *len {
                        let close = read_close(got).map_err(|_| NONSENSE)?;
                        self.inside = Inside::Head;
                        return Ok(Some(close));
                    }
                }
            }
        }
        Ok(None)
    }

    fn begin(&mut self, head: [u8; MESSAGE_HEAD_BYTES], out: &mut Vec<u8>) -> Result<(), Corrupt> {
        let (content, len) = read_message_head(head).map_err(|_| NONSENSE)?;
        self.inside = match content {
            Content::Close => Inside::Close(len, Vec::with_capacity(len)),
            Content::Message(kind) => {
                out.extend_from_slice(&frame_head(kind, len as u64));
                match len {
                    0 => Inside::Head,
                    len => Inside::Message(len),
                }
            }
        };
        Ok(())
    }
}

const NONSENSE: Corrupt = Corrupt("a message of a WebSocket makes no sense");

/// Takes up to `len` bytes off the front.
fn split<'b>(bytes: &mut &'b [u8], len: usize) -> &'b [u8] {
    let (part, rest) = bytes.split_at(len.min(bytes.len()));
    *bytes = rest;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, close_record, message_head};

    fn written() -> Vec<u8> {
        let text = Content::Message(Kind::Text);
        let binary = Content::Message(Kind::Binary);
        [
            &message_head(text, 5)[..],
            b"hello",
            &message_head(binary, 0),
            &message_head(binary, 3),
            b"abc",
            &close_record(&Close::new(4000, "over")),
            b"nothing counts",
        ]
        .concat()
    }

    #[test]
    fn messages_become_frames_in_whatever_pieces_they_come() {
        let written = written();
        for step in 1..=written.len() {
            let (mut outward, mut out, mut close) = (Outward::default(), Vec::new(), None);
            for piece in written.chunks(step) {
                close = outward.take(piece, &mut out).expect("it makes sense");
                if close.is_some() {
                    break;
                }
            }
            assert_eq!(out, b"\x81\x05hello\x82\x00\x82\x03abc", "{step}");
            assert_eq!(close, Some(Close::new(4000, "over")), "{step}");
        }
    }

    #[test]
    fn nothing_is_put_into_the_middle_of_a_message() {
        let mut outward = Outward::default();
        let mut out = Vec::new();
        let head = message_head(Content::Message(Kind::Text), 2);
        for (bytes, is_between) in [
            (&head[..4], true),
            (&head[4..], false),
            (b"a", false),
            (b"b", true),
        ] {
            assert_eq!(outward.take(bytes, &mut out), Ok(None));
            assert_eq!(outward.is_between(), is_between, "{bytes:?}");
        }
    }

    #[test]
    fn what_no_host_writes_is_refused() {
        for bytes in [
            &[0; MESSAGE_HEAD_BYTES][..],
            &[9, 1, 0, 0, 0],
            &[3, 1, 0, 0, 0],
            &[3, 255, 0, 0, 0],
            &[3, 3, 0, 0, 0, 0xe8, 0x03, 0xff],
        ] {
            let outcome = Outward::default().take(bytes, &mut Vec::new());
            assert_eq!(outcome, Err(NONSENSE), "{bytes:?}");
        }
    }
}
