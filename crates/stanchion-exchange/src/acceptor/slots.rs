//! What the acceptor knows of each slot by itself. It begins with what stands in the exchange; from then on, nothing
//! that a worker writes can change it.

use std::ops::{Index, IndexMut, Range};

use super::inflow::Poured;
use super::remains::Remains;
use crate::protocol::Unwanted;

/// What it knows of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Not free.
    pub(super) is_used: bool,
    /// Which use of it this is, or was.
    pub(super) turn: u32,
    /// Where it was handed over last.
    pub(super) handed_over: HandedOver,
    /// Bytes of its answer that we have read.
    pub(super) consumed: u64,
    /// How far into its ring its answer has reached, as far as we have read it.
    pub(super) reached: usize,
    /// Why nobody wants its answer any more.
    pub(super) unwanted: Option<Unwanted>,
    /// What was poured into its inflow.
    pub(super) poured: Poured,
    /// How many bytes a long request has left there, while it is free.
    pub(super) request_left: usize,
    /// What answers before have left there.
    pub(super) remains: Remains,
}

/// In whose ring a request was put, and where.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HandedOver {
    /// One worker's, or everybody's.
    pub(super) worker: Option<u16>,
    pub(super) position: u64,
}

/// All of them. There is room for far more requests than come at once, mostly: what was never used takes no memory, and
/// comes last.
#[derive(Debug)]
pub(super) struct Slots {
    known: Vec<Known>,
    /// What is known of the others.
    never_used: Known,
    /// Those of them that are free; the last used is used next, while it is warm in the cache.
    free: Vec<u32>,
    /// With those that were never used.
    count: usize,
}

impl Slots {
    /// So many, of which the first `used_once` are taken for used until they are freed.
    pub(super) fn new(count: usize, used_once: usize) -> Self {
        let used = Known {
            is_used: true,
            ..Known::default()
        };
        Self {
            known: vec![used; used_once],
            never_used: Known::default(),
            free: Vec::new(),
            count,
        }
    }

    /// Uses a free one.
    pub(super) fn take(&mut self) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.known.len() < self.count => {
                self.known.push(Known::default());
                self.known.len() as u32 - 1
            }
            None => return None,
        };
        self[slot].is_used = true;
        Some(slot)
    }

    /// # Panics
    /// If it was never used; in debug builds also if it is free.
    pub(super) fn free(&mut self, slot: u32) {
        debug_assert!(self[slot].is_used, "slot {slot} was freed twice");
        self[slot].is_used = false;
        self.free.push(slot);
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len() + self.count - self.known.len()
    }

    /// Those of which something is known: used or free, and behind them none that ever was used.
    pub(super) fn known(&self) -> Range<u32> {
        0..self.known.len() as u32
    }

    /// Those that are used.
    pub(super) fn used(&self) -> impl Iterator<Item = u32> {
        self.known().filter(|&slot| self[slot].is_used)
    }
}

impl Index<u32> for Slots {
    type Output = Known;

    fn index(&self, slot: u32) -> &Known {
        self.known.get(slot as usize).unwrap_or(&self.never_used)
    }
}

/// # Panics
/// If it was never used.
impl IndexMut<u32> for Slots {
    fn index_mut(&mut self, slot: u32) -> &mut Known {
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
