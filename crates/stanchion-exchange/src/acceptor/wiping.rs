//! Wiping of what long requests and answers leave in their slots ([`Remains`](super::remains::Remains)): a little later, because the
//! next long one overwrites most of it anyway. The slot's memory is kept for that next one, and given back to the
//! kernel if none comes soon.
//!
//! When a slot is freed, the acceptor overwrites the used parts of the request and its answer with zeroes, those of 64
//! KiB and more here. So a worker that looks around finds only the requests under way at that moment, and long requests
//! and answers of the last quarter of a second (of the last second, if no client is connected any more). A mapping for
//! each worker would not help, since any worker takes any request; memory protection keys are changed by an
//! unprivileged instruction, so native code undoes them.

use super::AcceptorSide;
use super::remains::BYTES_MIN;
use super::slots::SlotRecord;

/// How many slots give their memory back in one call. The acceptor serves no client while the kernel takes it.
const GIVEN_BACK_MAX: usize = 32;

impl AcceptorSide<'_> {
    /// Notes that a request has ended. Returns how many of its bytes to wipe at once.
    pub(super) fn leave_request(&mut self, slot: u32) -> usize {
        let bytes = self.exchange.request_len(slot);
        if bytes < BYTES_MIN {
            return bytes;
        }
        self.slots[slot].request_left = bytes;
        0
    }

    /// Wipes the rest of an earlier long request behind the `len` bytes of the request that now lies in its place. So a
    /// slot in use never holds two requests.
    pub(super) fn wipe_request_behind(&mut self, slot: u32, len: usize) {
        let left = std::mem::take(&mut self.slots[slot].request_left);
        if len < left {
            self.exchange.wipe_request(slot, len..left);
        }
    }

    /// Wipes what long requests and answers have left in free slots; the caller does this from time to time. In a slot
    /// that is in use, an answer's remains are wiped when that slot is freed. A slot that has not been used since the
    /// last call gives its memory back to the kernel: otherwise a thousand slow clients would occupy hundreds of
    /// megabytes for good. The kernel takes some time for this, so a call does it for at most `GIVEN_BACK_MAX` slots,
    /// and leaves the others to the next call.
    pub fn wipe_remains(&mut self) {
        let mut given_back = 0;
        for slot in self.slots.known() {
            if !self.slots[slot].is_used {
                self.wipe_request_behind(slot, 0);
            }
            let SlotRecord {
                is_used,
                turn,
                remains,
                ..
            } = &mut self.slots[slot];
            let turn_before = std::mem::replace(&mut remains.turn, *turn);
            if *is_used {
                remains.is_due = remains.bytes > 0;
            } else if remains.bytes > 0 {
                self.exchange.wipe_answer(slot, remains.bytes);
                remains.bytes = 0;
            } else if remains.is_large && remains.turn == turn_before && given_back < GIVEN_BACK_MAX
            {
                given_back += 1;
                self.exchange.give_all_back(slot);
                remains.is_large = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptor::rig::{GEOMETRY, taken};
    use crate::layout::Geometry;
    use crate::shared::Exchange;
    use crate::taken::AnswerEnd;

    const LONG: Geometry = Geometry {
        request_bytes: 2 * BYTES_MIN,
        response_bytes: 2 * BYTES_MIN,
        ..GEOMETRY
    };

    /// Writes an answer of so many bytes and ends it.
    fn answer<'x>(exchange: &'x Exchange, side: &mut AcceptorSide<'x>, bytes: usize) -> u32 {
        let (slot, mut taken) = taken(exchange, side);
        taken.write(&vec![b'x'; bytes]).expect("room");
        taken.finish(AnswerEnd::Complete);
        side.release(slot);
        slot
    }

    /// Submits a request of so many bytes and withdraws it; returns its slot, and how far bytes of any request reached
    /// in the slot meanwhile.
    fn request(exchange: &Exchange, side: &mut AcceptorSide<'_>, bytes: usize) -> (u32, usize) {
        let submitted = side.submit(None, 0, |mut area| {
            area.put(0, &vec![b'x'; bytes]);
            Some(bytes)
        });
        let slot = submitted.expect("a free slot").slot;
        let there = request_left(exchange, slot);
        assert!(side.withdraw(slot));
        (slot, there)
    }

    /// How far bytes of answers reach in the slot's response ring.
    fn left(exchange: &Exchange, slot: u32) -> usize {
        reached(exchange.response_area(slot))
    }

    /// How far bytes of requests reach in the slot's request area.
    fn request_left(exchange: &Exchange, slot: u32) -> usize {
        reached(exchange.request_area(slot))
    }

    fn reached(area: *const u8) -> usize {
        let mut found = vec![0; 2 * BYTES_MIN];
        // SAFETY: both areas of a slot are of this size, and no seat writes there meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(area, found.as_mut_ptr(), found.len()) };
        let last = found.iter().rposition(|&byte| byte == b'x');
        last.map_or(0, |last| last + 1)
    }

    #[test]
    fn a_short_request_is_wiped_at_once_and_a_long_one_soon() {
        let exchange = Exchange::create(LONG).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, _) = request(&exchange, &mut side, BYTES_MIN - 1);
        assert_eq!(request_left(&exchange, slot), 0);
        request(&exchange, &mut side, BYTES_MIN + 7);
        assert_eq!(request_left(&exchange, slot), BYTES_MIN + 7);
        side.wipe_remains();
        assert_eq!(request_left(&exchange, slot), 0);
    }

    #[test]
    fn beside_a_request_is_nothing_of_a_longer_one_before_it() {
        let exchange = Exchange::create(LONG).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        for (bytes, left) in [
            (BYTES_MIN + 7, BYTES_MIN + 7),
            (BYTES_MIN, BYTES_MIN),
            (BYTES_MIN + 9, BYTES_MIN + 9),
            (3, 0),
            (BYTES_MIN, BYTES_MIN),
        ] {
            let (slot, there) = request(&exchange, &mut side, bytes);
            assert_eq!((there, request_left(&exchange, slot)), (bytes, left));
        }
        // A request that does not fit has filled the whole area.
        side.submit(None, 0, |mut area| {
            area.put(0, &vec![b'x'; 2 * BYTES_MIN]);
            None
        });
        side.wipe_remains();
        assert_eq!(request_left(&exchange, 0), 0);
    }

    #[test]
    fn a_short_answer_is_wiped_at_once_and_a_long_one_soon() {
        let exchange = Exchange::create(LONG).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let slot = answer(&exchange, &mut side, BYTES_MIN - 1);
        assert_eq!(left(&exchange, slot), 0);
        answer(&exchange, &mut side, BYTES_MIN + 7);
        assert_eq!(left(&exchange, slot), BYTES_MIN + 7);
        // A shorter answer does not overwrite all of it; the rest is still there.
        answer(&exchange, &mut side, 1);
        assert_eq!(left(&exchange, slot), BYTES_MIN + 7);
        side.wipe_remains();
        assert_eq!(left(&exchange, slot), 0);
    }

    #[test]
    fn memory_of_many_slots_is_given_back_by_and_by() {
        let seats = GIVEN_BACK_MAX + 1;
        let exchange = Exchange::create(Geometry { seats, ..LONG }).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let used: Vec<_> =
            std::iter::from_fn(|| side.submit(None, 0, |_| Some(0)).map(|it| it.slot)).collect();
        for slot in used {
            assert!(side.withdraw(slot));
            side.slots[slot].remains.leave_others(BYTES_MIN);
        }
        // The slots were used before this first call, so it gives nothing back.
        side.wipe_remains();
        let large = |side: &AcceptorSide<'_>| {
            let known = side.slots.known();
            known
                .filter(|&slot| side.slots[slot].remains.is_large)
                .count()
        };
        let all = large(&side);
        side.wipe_remains();
        assert_eq!(large(&side), all - GIVEN_BACK_MAX);
        side.wipe_remains();
        assert_eq!(large(&side), 0);
    }

    #[test]
    fn what_is_left_where_the_next_one_is_answered_is_wiped_with_that() {
        let exchange = Exchange::create(LONG).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        answer(&exchange, &mut side, BYTES_MIN + 7);
        let (slot, taken) = taken(&exchange, &mut side);
        side.wipe_remains();
        assert_eq!(left(&exchange, slot), BYTES_MIN + 7);
        taken.finish(AnswerEnd::Complete);
        side.release(slot);
        assert_eq!(left(&exchange, slot), 0);
    }

    #[test]
    fn what_a_killed_acceptor_has_left_is_wiped_by_the_next_one() {
        let exchange = Exchange::create(LONG).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let slot = answer(&exchange, &mut side, BYTES_MIN + 7);
        AcceptorSide::take_over(&exchange);
        assert_eq!(left(&exchange, slot), 0);
    }
}
