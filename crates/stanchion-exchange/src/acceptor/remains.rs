//! What long answers leave in their rings: it is wiped a little later, as the next long answer writes over most of it.

use super::AcceptorSide;

/// What is shorter is wiped as soon as its slot is free.
const BYTES_MIN: usize = 64 * 1024;

/// What was left in the response ring of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remains {
    /// How far it reaches; 0 = nothing.
    bytes: usize,
    /// It has been there at the last [`AcceptorSide::wipe_remains`], with the slot in use.
    is_due: bool,
}

impl Remains {
    /// An answer has ended, which has reached so far into its ring: gives how much is to be wiped at once.
    pub(super) fn leave(&mut self, reached: usize) -> usize {
        let bytes = reached.max(self.bytes);
        if bytes < BYTES_MIN || self.is_due {
            *self = Self::default();
            return bytes;
        }
        self.bytes = bytes;
        0
    }
}

impl AcceptorSide<'_> {
    /// Wipes what long answers have left in slots that are free. To be called now and then: what is in a slot that is
    /// used now will be wiped when that is free.
    pub fn wipe_remains(&mut self) {
        for (slot, remains) in self.remains.iter_mut().enumerate() {
            if remains.bytes == 0 {
                continue;
            }
            if self.used[slot] {
                remains.is_due = true;
            } else {
                self.exchange.wipe_answer(slot as u32, remains.bytes);
                *remains = Remains::default();
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

    /// How far answers reach that are in the ring of a slot.
    fn left(exchange: &Exchange, slot: u32) -> usize {
        let mut found = vec![0; LONG.response_bytes];
        // SAFETY: the response area is of this size, and no seat writes to it meanwhile.
        unsafe {
            let area = exchange.response_area(slot);
            std::ptr::copy_nonoverlapping(area, found.as_mut_ptr(), found.len());
        }
        let last = found.iter().rposition(|&byte| byte == b'x');
        last.map_or(0, |last| last + 1)
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
