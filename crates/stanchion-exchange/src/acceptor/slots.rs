//! The acceptor's own record of each slot. It starts from what the exchange holds when the acceptor begins; after that,
//! nothing that a worker writes can change it.

use std::ops::{Index, IndexMut, Range};

use super::inflow::Poured;
use super::remains::Remains;
use crate::protocol::Unwanted;

/// The record of one slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotRecord {
    /// The slot is in use.
    pub(super) is_used: bool,
    /// Which use of the slot this is, or the last one was.
    pub(super) turn: u32,
    /// The ring and position at which it was last handed over.
    pub(super) handed_over: RingPlace,
    /// Bytes of its answer that the acceptor has read.
    pub(super) consumed: u64,
    /// How far into its ring the answer has reached, as far as the acceptor has read it.
    pub(super) reached: usize,
    /// Why the acceptor gave up its answer, if it did.
    pub(super) unwanted: Option<Unwanted>,
    /// The bytes poured into its inflow.
    pub(super) poured: Poured,
    /// How many bytes of a long request are left in the free slot.
    pub(super) request_left: usize,
    /// The bytes that earlier answers have left in it.
    pub(super) remains: Remains,
}

/// The ring into which a request was put, and its position there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingPlace {
    /// The worker's own ring; `None` = the shared ring.
    pub(super) worker: Option<u16>,
    pub(super) position: u64,
}

/// The records of all slots. There are far more slots than requests at a time, usually: a slot that was never used
/// takes no memory, and is used last.
#[derive(Debug)]
pub(super) struct Slots {
    known: Vec<SlotRecord>,
    /// The record of every slot that was never used.
    never_used: SlotRecord,
    /// The known slots that are free. The slot freed last is used next, while it is warm in the cache.
    free: Vec<u32>,
    /// How many slots there are, with those never used.
    count: usize,
}

impl Slots {
    /// Makes records of `count` slots. The first `used_once` count as used until the caller frees them.
    pub(super) fn new(count: usize, used_once: usize) -> Self {
        let used = SlotRecord {
            is_used: true,
            ..SlotRecord::default()
        };
        Self {
            known: vec![used; used_once],
            never_used: SlotRecord::default(),
            free: Vec::new(),
            count,
        }
    }

    /// Takes a free slot into use.
    pub(super) fn take(&mut self) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.known.len() < self.count => {
                self.known.push(SlotRecord::default());
                self.known.len() as u32 - 1
            }
            None => return None,
        };
        self[slot].is_used = true;
        Some(slot)
    }

    /// # Panics
    /// If the slot was never used; in debug builds also if it is free.
    pub(super) fn free(&mut self, slot: u32) {
        debug_assert!(self[slot].is_used, "slot {slot} was freed twice");
        self[slot].is_used = false;
        self.free.push(slot);
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len() + self.count - self.known.len()
    }

    /// The slots that were ever used, now used or free. All slots behind them were never used.
    pub(super) fn known(&self) -> Range<u32> {
        0..self.known.len() as u32
    }

    /// The slots in use.
    pub(super) fn used(&self) -> impl Iterator<Item = u32> {
        self.known().filter(|&slot| self[slot].is_used)
    }
}

impl Index<u32> for Slots {
    type Output = SlotRecord;

    fn index(&self, slot: u32) -> &SlotRecord {
        self.known.get(slot as usize).unwrap_or(&self.never_used)
    }
}

/// # Panics
/// If the slot was never used.
impl IndexMut<u32> for Slots {
    fn index_mut(&mut self, slot: u32) -> &mut SlotRecord {
        &mut self.known[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_used_before_are_used_first_and_the_last_of_them_before_the_others() {
        let mut slots = Slots::new(4, 0);
        assert!(!slots[3].is_used, "this is known also of one never used");
        assert_eq!([slots.take(), slots.take()], [Some(0), Some(1)]);
        slots.free(0);
        slots.free(1);
        assert_eq!(slots.free_count(), 4);
        let all: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        assert_eq!(all, [1, 0, 2, 3]);
        assert_eq!(slots.free_count(), 0);
    }

    #[test]
    fn those_of_an_acceptor_before_us_are_used_until_they_are_freed() {
        let mut slots = Slots::new(4, 2);
        assert_eq!(slots.used().collect::<Vec<_>>(), [0, 1]);
        slots.free(1);
        slots.free(0);
        assert_eq!(slots.free_count(), 4);
        assert_eq!(
            [slots.take(), slots.take(), slots.take()],
            [0, 1, 2].map(Some)
        );
        assert_eq!(slots.known().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
