//! What long requests and answers leave in their slots: it is wiped a little later, as the next long one writes over
//! most of it. The memory is kept for that one, and given back if none comes soon.

use super::AcceptorSide;
use super::slots::Known;

/// What is shorter is wiped as soon as its slot is free.
const BYTES_MIN: usize = 64 * 1024;
/// Slots whose memory is given back at once, since nobody is served while the kernel does it.
const GIVEN_BACK_MAX: usize = 32;

/// What was left in a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remains {
    /// How far it reaches in the response ring; 0 = nothing.
    bytes: usize,
    /// It has been there at the last [`AcceptorSide::wipe_remains`], with the slot in use.
    is_due: bool,
    /// The slot has much memory, which is zeroes by now.
    is_large: bool,
    /// Which turn the slot was in at the last [`AcceptorSide::wipe_remains`].
    turn: u32,
}

impl Remains {
    /// An answer has ended, which has reached so far into its ring: gives how much is to be wiped at once.
    pub(super) fn leave(&mut self, reached: usize) -> usize {
        let bytes = reached.max(self.bytes);
        self.is_large |= bytes >= BYTES_MIN;
        if bytes < BYTES_MIN || self.is_due {
            (self.bytes, self.is_due) = (0, false);
            return bytes;
        }
        self.bytes = bytes;
        0
    }

    /// Likewise of so many bytes of something else, which is wiped elsewhere.
    pub(super) fn leave_others(&mut self, bytes: usize) {
        self.is_large |= bytes >= BYTES_MIN;
    }
}

impl AcceptorSide<'_> {
    /// A request has ended: gives how much of it is to be wiped at once.
    pub(super) fn leave_request(&mut self, slot: u32) -> usize {
        let bytes = self.exchange.request_len(slot);
        if bytes < BYTES_MIN {
            return bytes;
        }
        self.slots[slot].request_left = bytes;
        0
    }

    /// Wipes what a long request has left behind one of `len` bytes that is in its place now. So in a slot that is used
    /// there is no request but its own.
    pub(super) fn wipe_request_behind(&mut self, slot: u32, len: usize) {
        let left = std::mem::take(&mut self.slots[slot].request_left);
        if len < left {
            self.exchange.wipe_request(slot, len..left);
        }
    }

    /// Wipes what long requests and answers have left in slots that are free. To be called now and then: what an answer
    /// has left in a slot that is used now will be wiped when that is free. Memory of one that has not been used since the
    /// last time is given back: of a thousand slow clients there would else be hundreds of megabytes for good. It takes
    /// the kernel some time, so that of the others waits until the next time.
    pub fn wipe_remains(&mut self) {
        let mut given_back = 0;
        for slot in self.slots.known() {
            if !self.slots[slot].is_used {
                self.wipe_request_behind(slot, 0);
            }
            let Known {
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
    use crate::taken::Ending;

    const LONG: Geometry = Geometry {
        request_bytes: 2 * BYTES_MIN,
        response_bytes: 2 * BYTES_MIN,
        ..GEOMETRY
    };

    /// Has an answer of so many bytes come and go.
    fn answer<'x>(exchange: &'x Exchange, side: &mut AcceptorSide<'x>, bytes: usize) -> u32 {
        let (slot, mut taken) = taken(exchange, side);
        taken.write(&vec![b'x'; bytes]).expect("room");
        taken.finish(Ending::Complete);
        side.release(slot);
        slot
    }

    /// Has a request of so many bytes come and go; gives its slot, and how much of it and of others was there meanwhile.
    fn request(exchange: &Exchange, side: &mut AcceptorSide<'_>, bytes: usize) -> (u32, usize) {
        let submitted = side.submit(0, |mut area| {
            area.put(0, &vec![b'x'; bytes]);
            Some(bytes)
        });
        let slot = submitted.expect("a free slot").slot;
        let there = request_left(exchange, slot);
        assert!(side.withdraw(slot));
        (slot, there)
    }

    /// How far answers reach that are in the ring of a slot.
    fn left(exchange: &Exchange, slot: u32) -> usize {
        reached(exchange.response_area(slot))
    }

    /// How far requests reach that are in a slot.
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
        // One that does not fit has written what there was room for.
        side.submit(0, |mut area| {
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
        // Also what a shorter one has not written over.
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
            std::iter::from_fn(|| side.submit(0, |_| Some(0)).map(|it| it.slot)).collect();
        for slot in used {
            assert!(side.withdraw(slot));
            side.slots[slot].remains.leave_others(BYTES_MIN);
        }
        // They have been used since the time before.
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
        taken.finish(Ending::Complete);
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
