//! A station that its requests share: each has the same part of it, and none has more than one server.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cores, or the connections of a pool: so many servers, and any number of requests that use them in equal parts.
///
/// It keeps the work that each request has had since the beginning of time, which is the same for all that are there (virtual time), so an arrival
/// or an end costs one step of a heap however many are there.
#[derive(Debug)]
pub(crate) struct Station {
    servers: f64,
    /// Work that each request there has had, in microseconds, up to `counted_to_us`.
    had_us: f64,
    counted_to_us: u64,
    /// When the next request is done, to the nearest microsecond.
    due_us: u64,
    /// The work at which each is done, and its seat.
    there: BinaryHeap<Reverse<(StationWork, u16)>>,
}

/// A finite amount of work, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StationWork(f64);

impl Eq for StationWork {}

impl PartialOrd for StationWork {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StationWork {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Station {
    /// So many servers, for at most so many requests.
    pub(crate) fn new(servers: f64, requests_max: usize) -> Self {
        Self {
            servers,
            had_us: 0.0,
            counted_to_us: 0,
            due_us: u64::MAX,
            there: BinaryHeap::with_capacity(requests_max),
        }
    }

    /// The work of each in a unit of time.
    fn pace(&self) -> f64 {
        (self.servers / self.there.len().max(1) as f64).min(1.0)
    }

    fn count_to(&mut self, now_us: u64) {
        self.had_us += (now_us - self.counted_to_us) as f64 * self.pace();
        self.counted_to_us = now_us;
        if self.there.is_empty() {
            self.had_us = 0.0;
        }
    }

    /// A request comes with so much work.
    pub(crate) fn enter(&mut self, now_us: u64, seat: u16, work_us: u64) {
        self.count_to(now_us);
        let done = StationWork(self.had_us + work_us as f64);
        self.there.push(Reverse((done, seat)));
        self.due_us = self.next_us();
    }

    fn next_us(&self) -> u64 {
        let Some(Reverse((StationWork(done_us), _))) = self.there.peek() else {
            return u64::MAX;
        };
        let left_us = (done_us - self.had_us).max(0.0) / self.pace();
        // To the nearest one: `f64::round` is a call on older processors.
        self.counted_to_us.saturating_add((left_us + 0.5) as u64)
    }

    /// When the next request is done, to the nearest microsecond; never, if there is none.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// A request that is done leaves.
    pub(crate) fn leave(&mut self, now_us: u64) -> Option<u16> {
        if self.due_us > now_us {
            return None;
        }
        self.count_to(now_us);
        let Reverse((_, seat)) = self.there.pop()?;
        self.due_us = self.next_us();
        Some(seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each is done: (when it comes, its work).
    fn done_us(servers: f64, requests: &[(u64, u64)]) -> Vec<u64> {
        let mut station = Station::new(servers, requests.len());
        let mut done_us = vec![0; requests.len()];
        let mut coming = (0..).zip(requests).peekable();
        loop {
            let arrival_us = coming.peek().map_or(u64::MAX, |(_, (at_us, _))| *at_us);
            let due_us = station.due_us();
            if due_us.min(arrival_us) == u64::MAX {
                return done_us;
            }
            if due_us <= arrival_us {
                let seat = station.leave(due_us).unwrap();
                done_us[usize::from(seat)] = due_us;
            } else if let Some((seat, (at_us, work_us))) = coming.next() {
                station.enter(*at_us, seat, *work_us);
            }
        }
    }

    #[test]
    fn requests_have_equal_parts_of_what_there_is() {
        // (servers, requests, when each is done)
        type Row<'a> = (f64, &'a [(u64, u64)], &'a [u64]);
        let table: [Row<'_>; 6] = [
            (1.0, &[(0, 100)], &[100]),
            (2.0, &[(0, 100), (0, 50)], &[100, 50]),
            (1.0, &[(0, 100), (0, 100)], &[200, 200]),
            // The second has half of it from 50 to 150, and the rest then.
            (1.0, &[(0, 100), (50, 100)], &[150, 200]),
            (0.5, &[(0, 100)], &[200]),
            (1.5, &[(0, 100), (0, 100), (1_000, 10)], &[133, 133, 1_010]),
        ];
        for (servers, requests, expected) in table {
            assert_eq!(
                done_us(servers, requests),
                expected,
                "{servers} {requests:?}"
            );
        }
    }

    #[test]
    fn a_request_without_work_is_done_at_once() {
        assert_eq!(done_us(1.0, &[(5, 0), (5, 10)]), [5, 15]);
    }

    #[test]
    fn none_leaves_before_it_is_done() {
        let mut station = Station::new(1.0, 1);
        station.enter(0, 3, 10);
        assert_eq!((station.leave(9), station.leave(10)), (None, Some(3)));
    }
}
