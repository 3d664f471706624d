//! Messages on their way from the client of a WebSocket to its worker.

use bytes::{Buf, Bytes};

use crate::record::{Close, Content, Kind, close_record, message_head};

/// One message that has come and for which the worker has had no room yet, or how it all ends.
#[derive(Default)]
pub(super) struct Inward {
    /// A head, and what it is of.
    parts: [Bytes; 2],
    /// More may have come behind it than is here.
    pub(super) has_more_behind: bool,
}

impl Inward {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(Bytes::is_empty)
    }

    /// Where there is none yet.
    pub(super) fn put(&mut self, kind: Kind, message: Bytes) {
        let head = message_head(Content::Message(kind), message.len() as u32);
        self.parts = [Bytes::copy_from_slice(&head), message];
    }

    /// The last that the worker hears, behind what it has not got yet of a message.
    pub(super) fn put_close(&mut self, close: &Close) {
        let record = close_record(close);
        let last = usize::from(!self.parts[1].is_empty());
        self.parts[last] = Bytes::from([&self.parts[last][..], &record].concat());
    }

    /// Nobody takes it.
    pub(super) fn clear(&mut self) {
        self.parts = Default::default();
    }

    /// Hands it to `pour`, which says how much of it has found room.
    pub(super) fn pour(&mut self, mut pour: impl FnMut(&[u8]) -> usize) {
        for part in &mut self.parts {
            if !part.is_empty() {
                part.advance(pour(part));
            }
            if !part.is_empty() {
                return;
            }
            // One that idles keeps no memory of its last message.
            *part = Bytes::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_poured_comes_in_order_however_little_room_there_is() {
        let close = Close::new(1012, "");
        let head = message_head(Content::Message(Kind::Binary), 3);
        let whole = [&head[..], b"abc", &close_record(&close)].concat();
        for room in 1..=whole.len() {
            for closed_after in [0, 1, 4] {
                let (mut inward, mut poured) = (Inward::default(), Vec::new());
                inward.put(Kind::Binary, Bytes::from_static(b"abc"));
                for round in 0..whole.len() {
                    if round == closed_after {
                        inward.put_close(&close);
                    }
                    let mut left = room;
                    inward.pour(|bytes| {
                        let len = bytes.len().min(left);
                        left -= len;
                        poured.extend_from_slice(&bytes[..len]);
                        len
                    });
                }
                assert!(inward.is_empty());
                assert_eq!(poured, whole, "{room} {closed_after}");
            }
        }
    }
}
