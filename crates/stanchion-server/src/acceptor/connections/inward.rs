//! Messages on their way from the client of a WebSocket to its worker.

use bytes::{Buf, Bytes};
use stanchion_websocket::Payload;

use crate::record::{Close, Content, Form, close_record, message_head};

/// Bytes, and the mask that is still to be taken away from them, if there is one.
pub(super) type Piece<'p> = (&'p [u8], Option<[u8; 4]>);

/// One message that has come and for which the worker has had no room yet, or how it all ends.
#[derive(Default)]
pub(super) struct Inward {
    /// A head, and what it is of.
    parts: [Bytes; 2],
    /// The memory in which that is: all that the message took, until the last of it has gone.
    held: usize,
    /// More may have come behind it than is here.
    pub(super) has_more_behind: bool,
}

impl Inward {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(Bytes::is_empty)
    }

    /// Memory that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held
    }

    fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// Where there is none yet: as much as `pour` has room for goes at once, and only the rest is kept.
    pub(super) fn put(
        &mut self,
        form: Form,
        message: Payload<'_>,
        pour: impl FnOnce([Piece<'_>; 2]) -> Option<usize>,
    ) {
        let head = message_head(Content::Message(form), message.len() as u32);
        let all = head.len() + message.len();
        let poured = pour([(&head, None), message.bytes()]).unwrap_or(all);
        if poured == all {
            return;
        }
        let of_head = poured.min(head.len());
        let of_message = poured - of_head;
        let (rest, held) = match message.into_plain() {
            Ok(message) => {
                let held = message.capacity();
                (Bytes::from(message).slice(of_message..), held)
            }
            Err(message) => {
                let rest = &message[of_message..];
                (Bytes::copy_from_slice(rest), rest.len())
            }
        };
        self.held = head.len() - of_head + held;
        self.parts = [Bytes::copy_from_slice(&head[of_head..]), rest];
    }

    /// The last that the worker hears, behind what it has not got yet of a message.
    pub(super) fn put_close(&mut self, close: &Close) {
        let record = close_record(close);
        let last = usize::from(!self.parts[1].is_empty());
        self.parts[last] = Bytes::from([&self.parts[last][..], &record].concat());
        // What was there of the message was copied.
        self.held = self.len();
    }

    /// Nobody takes it.
    pub(super) fn clear(&mut self) {
        self.parts = Default::default();
        self.held = 0;
    }

    /// Hands it to `pour`, which says how much of it has found room; or that nobody takes it.
    pub(super) fn pour(&mut self, pour: impl FnOnce([Piece<'_>; 2]) -> Option<usize>) {
        if self.is_empty() {
            return;
        }
        let pieces = self.parts.each_ref().map(|part| (&part[..], None));
        let mut poured = pour(pieces).unwrap_or(self.len());
        for part in &mut self.parts {
            let len = poured.min(part.len());
            part.advance(len);
            poured -= len;
            if part.is_empty() {
                // One that idles keeps no memory of its last message.
                *part = Bytes::new();
            }
        }
        if self.is_empty() {
            self.held = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Kind, MESSAGE_HEAD_BYTES};

    const MASK: [u8; 4] = [7, 13, 64, 255];

    fn plain((bytes, mask): Piece<'_>) -> Vec<u8> {
        let mask = mask.unwrap_or_default();
        let masked = bytes.iter().zip(mask.iter().cycle());
        masked.map(|(byte, mask)| byte ^ mask).collect()
    }

    #[test]
    fn what_is_poured_comes_in_order_however_little_room_there_is() {
        let close = Close::new(1012, "");
        let head = message_head(Content::Message(Kind::Binary.into()), 3);
        let whole = [&head[..], b"abc", &close_record(&close)].concat();
        for room in 1..=whole.len() {
            // A close comes behind what has not gone yet, of which there may be nothing.
            for closed_after in [0, 1, 4] {
                let (mut inward, mut poured) = (Inward::default(), Vec::new());
                let mut pour = |pieces: [Piece<'_>; 2]| {
                    let all = pieces.map(plain).concat();
                    let len = all.len().min(room);
                    poured.extend_from_slice(&all[..len]);
                    Some(len)
                };
                let mut masked = plain((b"abc", Some(MASK)));
                let payload = Payload::Masked(&mut masked, MASK);
                inward.put(Kind::Binary.into(), payload, &mut pour);
                for round in 0..whole.len() {
                    if round == closed_after {
                        inward.put_close(&close);
                    }
                    inward.pour(&mut pour);
                }
                assert!(inward.is_empty());
                assert_eq!(poured, whole, "{room} {closed_after}");
            }
        }
    }

    #[test]
    fn what_a_message_takes_is_held_until_the_last_of_it_has_gone() {
        let mut roomy = Vec::with_capacity(1_000);
        roomy.extend_from_slice(&[7; 500]);
        // One that is where it was read is copied, as far as it has to wait.
        for (message, held) in [
            (Payload::Whole(roomy), 1_000),
            (Payload::Plain(&[7; 500]), 400),
        ] {
            let mut inward = Inward::default();
            inward.put(Kind::Binary.into(), message, |_| {
                Some(MESSAGE_HEAD_BYTES + 100)
            });
            for _ in 0..4 {
                assert_eq!(inward.held_bytes(), held);
                inward.pour(|_| Some(100));
            }
            assert!(inward.is_empty());
            assert_eq!(inward.held_bytes(), 0);
            inward.put(Kind::Binary.into(), Payload::Plain(b"abc"), |_| {
                Some(MESSAGE_HEAD_BYTES)
            });
            inward.clear();
            assert_eq!(inward.held_bytes(), 0);
        }
    }
}
