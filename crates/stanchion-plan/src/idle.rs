//! The seats that have no request, and which of them gets the next one.

use std::collections::VecDeque;

/// Idle seats. Threads get requests in the order in which they went to sleep, of event loops the one with the fewest.
#[derive(Debug)]
pub(crate) enum IdleSeats {
    Threads(VecDeque<u16>),
    /// By worker.
    Loops(Vec<Vec<u16>>),
}

impl IdleSeats {
    /// None, of so many workers.
    pub(crate) fn new(event_loops: bool, workers: u16, seats_each: usize) -> Self {
        let workers = usize::from(workers);
        if event_loops {
            Self::Loops(vec![Vec::with_capacity(seats_each); workers])
        } else {
            Self::Threads(VecDeque::with_capacity(workers * seats_each))
        }
    }

    /// A seat of this worker has become idle.
    pub(crate) fn put(&mut self, worker: usize, seat: u16) {
        match self {
            Self::Threads(seats) => seats.push_back(seat),
            Self::Loops(loops) => loops[worker].push(seat),
        }
    }

    /// A seat for a request.
    pub(crate) fn take(&mut self) -> Option<u16> {
        match self {
            Self::Threads(seats) => seats.pop_front(),
            Self::Loops(loops) => loops.iter_mut().max_by_key(|seats| seats.len())?.pop(),
        }
    }

    /// Takes all idle seats of a worker away, and gives how many there were.
    pub(crate) fn take_all_of(&mut self, worker: usize, is_its: impl Fn(u16) -> bool) -> usize {
        match self {
            Self::Threads(seats) => {
                let before = seats.len();
                seats.retain(|&seat| !is_its(seat));
                before - seats.len()
            }
            Self::Loops(loops) => std::mem::take(&mut loops[worker]).len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_seats(event_loops: bool) -> IdleSeats {
        let mut idle = IdleSeats::new(event_loops, 2, 2);
        for (worker, seat) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
            idle.put(worker, seat);
        }
        idle
    }

    fn taken(mut idle: IdleSeats) -> Vec<u16> {
        std::iter::from_fn(|| idle.take()).collect()
    }

    #[test]
    fn threads_have_turns_and_loops_have_equal_loads() {
        assert_eq!(taken(with_seats(false)), [0, 1, 2, 3]);
        assert_eq!(taken(with_seats(true)), [3, 1, 2, 0]);
    }

    #[test]
    fn seats_of_a_worker_that_leaves_get_nothing() {
        for event_loops in [false, true] {
            let mut idle = with_seats(event_loops);
            assert_eq!(idle.take_all_of(0, |seat| seat < 2), 2);
            let mut left = taken(idle);
            left.sort_unstable();
            assert_eq!(left, [2, 3]);
        }
    }
}
