//! Messages on their way from the client of a WebSocket to its worker.
//!
//! A binary message that comes whole in one read is copied once, into the inflow, and unmasked on the way. A text is
//! unmasked where it was read, since it must be checked first. For all other messages all clients together may use
//! `max_ws_memory` in the acceptor, beyond 16 KiB of each.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use stanchion_websocket::Payload;

use stanchion_record::{Close, Content, MessageForm, close_record, message_head};

/// Bytes, and the mask to take off them, if there is one.
pub(super) type MaskedPiece<'p> = (&'p [u8], Option<[u8; 4]>);

/// A message for which the worker has had no room yet, or the end of the session.
#[derive(Default)]
pub(super) struct Inward {
    /// The head of a message, and the pieces of its payload, none of them empty.
    parts: VecDeque<QueuedBytes>,
    /// More messages may have come behind the one that is here.
    pub(super) has_more_behind: bool,
    /// The last time there was room for all bytes that were offered, so there may be room for more.
    goes_on: bool,
}

struct QueuedBytes {
    bytes: Bytes,
    /// The memory that holds the bytes, until the last of them has gone.
    held: usize,
}

impl QueuedBytes {
    fn copied(bytes: &[u8]) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(bytes),
            held: bytes.len(),
        }
    }

    fn of(piece: Vec<u8>) -> Self {
        Self {
            held: piece.capacity(),
            bytes: Bytes::from(piece),
        }
    }
}

impl Inward {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The memory that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.held).sum()
    }

    /// Whether the worker may have room for the rest.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on && !self.is_empty()
    }

    /// Takes a message, when there is none yet: as much of its first piece as `pour` has room for goes at once, and only the
    /// rest is kept.
    pub(super) fn put(
        &mut self,
        form: MessageForm,
        message: Payload<'_>,
        pour: impl FnOnce([MaskedPiece<'_>; 2]) -> Option<usize>,
    ) {
        let head = message_head(Content::Message(form), message.len() as u32);
        let first = message.first();
        let offered = head.len() + first.0.len();
        let Some(poured) = pour([(&head, None), first]) else {
            return;
        };
        self.goes_on = poured == offered;
        if poured == head.len() + message.len() {
            return;
        }
        if let Some(rest) = head.get(poured..).filter(|rest| !rest.is_empty()) {
            self.parts.push_back(QueuedBytes::copied(rest));
        }
        let of_message = poured.saturating_sub(head.len());
        match message.into_plain() {
            Ok(pieces) => {
                self.parts.extend(pieces.into_pieces().map(QueuedBytes::of));
                // If some of the payload has gone, all of the head has.
                self.skip(of_message);
            }
            Err([]) => {}
            Err(message) => self
                .parts
                .push_back(QueuedBytes::copied(&message[of_message..])),
        }
    }

    /// Drops so many bytes, which have gone.
    fn skip(&mut self, mut len: usize) {
        while let Some(part) = self.parts.front_mut() {
            if len < part.bytes.len() {
                part.bytes.advance(len);
                return;
            }
            len -= part.bytes.len();
            self.parts.pop_front();
        }
        // An idle connection keeps no memory of its last message.
        self.parts = VecDeque::new();
    }

    /// Queues the last record for the worker, behind the rest of a message.
    pub(super) fn put_close(&mut self, close: &Close) {
        self.parts
            .push_back(QueuedBytes::copied(&close_record(close)));
    }

    /// Drops all, because the worker takes nothing more.
    pub(super) fn clear(&mut self) {
        self.parts = VecDeque::new();
    }

    /// Hands bytes to `pour`, which says how many found room, or that the worker takes nothing more. Gives how many went:
    /// two pieces at most, so that no turn of a connection copies all of a long message.
    pub(super) fn pour(
        &mut self,
        pour: impl FnOnce([MaskedPiece<'_>; 2]) -> Option<usize>,
    ) -> usize {
        if self.is_empty() {
            return 0;
        }
        let piece = |at: usize| -> MaskedPiece<'_> {
            let part = self.parts.get(at);
            (part.map_or(&[], |part| &part.bytes[..]), None)
        };
        let pieces = [piece(0), piece(1)];
        let offered = pieces[0].0.len() + pieces[1].0.len();
        let Some(poured) = pour(pieces) else {
            self.clear();
            return 0;
        };
        self.goes_on = poured == offered;
        self.skip(poured);
        poured
    }
}

#[cfg(test)]
mod tests {
    use stanchion_websocket::{Event, Socket, UnreadBytes};

    use super::*;
    use stanchion_record::{MESSAGE_HEAD_BYTES, MessageKind};

    const MASK: [u8; 4] = [7, 13, 64, 255];

    fn plain((bytes, mask): MaskedPiece<'_>) -> Vec<u8> {
        let mask = mask.unwrap_or_default();
        let masked = bytes.iter().zip(mask.iter().cycle());
        masked.map(|(byte, mask)| byte ^ mask).collect()
    }

    #[test]
    fn what_is_poured_comes_in_order_however_little_room_there_is() {
        let close = Close::new(1012, "");
        let head = message_head(Content::Message(MessageKind::Binary.into()), 3);
        let whole = [&head[..], b"abc", &close_record(&close)].concat();
        for room in 1..=whole.len() {
            // A close comes behind the bytes that have not gone yet, if there are any.
            for closed_after in [0, 1, 4] {
                let (mut inward, mut poured) = (Inward::default(), Vec::new());
                let mut pour = |pieces: [MaskedPiece<'_>; 2]| {
                    let all = pieces.map(plain).concat();
                    let len = all.len().min(room);
                    poured.extend_from_slice(&all[..len]);
                    Some(len)
                };
                let mut masked = plain((b"abc", Some(MASK)));
                let payload = Payload::Masked(&mut masked, MASK);
                inward.put(MessageKind::Binary.into(), payload, &mut pour);
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
        // A message that stands where it was read is copied, as far as it has to wait.
        for (message, held) in [
            (Payload::Whole(roomy.into()), 1_000),
            (Payload::Plain(&[7; 500]), 400),
        ] {
            let mut inward = Inward::default();
            inward.put(MessageKind::Binary.into(), message, |_| {
                Some(MESSAGE_HEAD_BYTES + 100)
            });
            for _ in 0..4 {
                assert_eq!(inward.held_bytes(), held);
                inward.pour(|_| Some(100));
            }
            assert!(inward.is_empty());
            assert_eq!(inward.held_bytes(), 0);
            inward.put(MessageKind::Binary.into(), Payload::Plain(b"abc"), |_| {
                Some(MESSAGE_HEAD_BYTES)
            });
            inward.clear();
            assert_eq!(inward.held_bytes(), 0);
        }
    }

    #[test]
    fn a_long_message_goes_piece_by_piece_while_there_is_room() {
        let bytes: Vec<u8> = (0..1_000_000).map(|at: u32| (at % 251) as u8).collect();
        let mut fragments = vec![];
        for (at, part) in bytes.chunks(60_000).enumerate() {
            fragments.extend_from_slice(&[u8::from(at == 0) * 2, 0x80 + 126]);
            fragments.extend_from_slice(&u16::try_from(part.len()).unwrap().to_be_bytes());
            fragments.extend_from_slice(&[0; 4]);
            fragments.extend_from_slice(part);
        }
        fragments.extend_from_slice(&[0x80, 0x80, 0, 0, 0, 0]);
        let mut socket = Socket::new(bytes.len(), false);
        let Some(Event::Message(form, message)) =
            socket.next(&mut UnreadBytes::new(&mut fragments))
        else {
            panic!("it is whole");
        };
        let (mut inward, mut poured, mut most) = (Inward::default(), Vec::new(), 0);
        let mut pour = |pieces: [MaskedPiece<'_>; 2]| {
            let all = pieces.map(plain).concat();
            most = most.max(all.len());
            poured.extend_from_slice(&all);
            Some(all.len())
        };
        inward.put(form, message, &mut pour);
        let (mut pours, mut held) = (1, vec![inward.held_bytes()]);
        while inward.goes_on() {
            assert!(inward.pour(&mut pour) > 0);
            held.push(inward.held_bytes());
            pours += 1;
        }
        assert!(inward.is_empty() && held.is_sorted_by(|one, next| one > next));
        assert_eq!(held.last(), Some(&0));
        assert!(most <= 2 * 65_536 && pours < 20, "{most} {pours}");
        assert!(poured[MESSAGE_HEAD_BYTES..] == bytes);
        // The connection waits for a worker without room.
        inward.put(MessageKind::Binary.into(), Payload::Plain(b"abc"), |_| {
            Some(2)
        });
        assert!(!inward.is_empty() && !inward.goes_on());
    }
}
