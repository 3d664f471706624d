//! The interpreter's lock of each worker, for which its seats wait in the order in which they came.

use std::collections::VecDeque;

/// The locks of all workers.
#[derive(Debug)]
pub(crate) struct Locks {
    of: Vec<WorkerLock>,
}

#[derive(Clone, Debug, Default)]
struct WorkerLock {
    is_held: bool,
    waiting: VecDeque<u16>,
}

impl Locks {
    /// The free locks of so many workers, each with so many seats.
    pub(crate) fn new(workers: u16, seats_each: usize) -> Self {
        let one = || WorkerLock {
            is_held: false,
            waiting: VecDeque::with_capacity(seats_each),
        };
        Self {
            of: (0..workers).map(|_| one()).collect(),
        }
    }

    /// Whether the seat has the lock now; else it gets the lock in its turn.
    pub(crate) fn take(&mut self, worker: usize, seat: u16) -> bool {
        let lock = &mut self.of[worker];
        let is_free = !lock.is_held;
        if is_free {
            lock.is_held = true;
        } else {
            lock.waiting.push_back(seat);
        }
        is_free
    }

    /// Whether another seat waits.
    pub(crate) fn is_wanted(&self, worker: usize) -> bool {
        !self.of[worker].waiting.is_empty()
    }

    /// The seat that has the lock gives it back. Gives the seat that has it now.
    pub(crate) fn pass_on(&mut self, worker: usize) -> Option<u16> {
        let lock = &mut self.of[worker];
        let next = lock.waiting.pop_front();
        lock.is_held = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_from_seat_to_seat_in_order_and_is_one_of_a_worker() {
        let mut locks = Locks::new(2, 3);
        assert_eq!(
            [1, 2, 3].map(|seat| locks.take(0, seat)),
            [true, false, false]
        );
        assert!(locks.take(1, 9) && locks.is_wanted(0) && !locks.is_wanted(1));
        assert_eq!([(); 3].map(|()| locks.pass_on(0)), [Some(2), Some(3), None]);
        assert!(locks.take(0, 1));
    }
}
