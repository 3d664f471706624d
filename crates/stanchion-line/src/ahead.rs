//! How many requests are handed out ahead of the seats depends on how long requests take, and on how long their answers
//! are.
//!
//! For each seat it is one while requests take half a millisecond or more, and up to 31 while they are so short that
//! all of these are taken within a millisecond; one long request sets it back to one. With acceptor and worker on one
//! core, each hand-over is a switch between two processes, and a batch of requests needs only one. The answers of those
//! ahead come to 3 MiB at most, by the mean of late: each goes through a ring of its own, and more rings do not stay in
//! a core's caches. If the line has lanes, or another order than first come first served, it is at most seven. All
//! seats take from the same ring, so requests stay in order, and no seat is idle while a request is in the ring. A
//! request that was handed out and not taken is withdrawn when its client leaves or its time in the line is over.

/// How much work may be handed out ahead of the seats, in microseconds of a seat's time. A request that is handed out
/// has left the line's order; if a seat takes it within this time, no client notices.
const AHEAD_US: u64 = 1_000;
/// How many bytes of answers may come from requests handed out ahead of a seat. Each answer goes through memory of its
/// own, and with more bytes than this an answer's memory is no longer in the core's caches when its turn comes.
const AHEAD_BYTES: u64 = 3 << 20;
/// The estimates forget the past at this rate: a sixteenth of the difference each time.
const FORGETTING: u64 = 16;

/// How many requests to hand out ahead of each seat.
///
/// Usually one, so that a seat finds its next request without waiting for it. More only while requests are so short
/// that seats take all of them within a millisecond: then handing over costs as much as serving, and is cheaper in
/// batches. One long request among short ones is enough to go back to one: the estimate rises at once and falls slowly.
/// For the length of answers the mean counts.
#[derive(Debug)]
pub struct Ahead {
    /// An estimate of the longest recent service, in microseconds.
    service_us: u64,
    /// The mean length of recent answers, in bytes.
    answer_bytes: u64,
    per_seat_max: usize,
}

impl Ahead {
    /// The most ahead of a seat while requests are short: a turn of the acceptor's loop has them taken by one hand-over.
    pub const PER_SEAT_MAX: usize = 31;
    /// The most ahead of a seat if arrival is not the only order of the line (`queue_order`, lanes): no request can overtake another one in the exchange.
    pub const IN_ORDER_MAX: usize = 7;
    /// How many are ahead of an event loop all of whose seats are taken: it finds the next one when it is through with one, without waiting for it.
    pub const PER_LOOP: usize = 8;

    /// Starts with one request ahead, until services were measured.
    pub fn new(per_seat_max: usize) -> Self {
        Self {
            service_us: AHEAD_US,
            answer_bytes: 0,
            per_seat_max: per_seat_max.max(1),
        }
    }

    /// Notes that a seat had a request for so long, and that its answer took so many bytes of memory.
    pub fn served(&mut self, service_us: u64, answer_bytes: u64) {
        self.service_us = if service_us >= self.service_us {
            service_us
        } else {
            towards(self.service_us, service_us)
        };
        self.answer_bytes = towards(self.answer_bytes, answer_bytes);
    }

    /// How many requests to hand out for each seat beyond the one that it serves; at least one.
    pub fn per_seat(&self) -> usize {
        let in_time = AHEAD_US / self.service_us.max(1);
        let in_cache = AHEAD_BYTES / self.answer_bytes.max(1);
        let fit = usize::try_from(in_time.min(in_cache));
        fit.map_or(self.per_seat_max, |fit| fit.clamp(1, self.per_seat_max))
    }
}

/// The estimate `before` moves towards a new value. The step is rounded up, so that the estimate arrives there.
fn towards(before: u64, now: u64) -> u64 {
    let step = before.abs_diff(now).div_ceil(FORGETTING);
    if now < before {
        before - step
    } else {
        before + step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(services_us: impl IntoIterator<Item = u64>) -> usize {
        let mut ahead = Ahead::new(7);
        for service_us in services_us {
            ahead.served(service_us, 100);
        }
        ahead.per_seat()
    }

    #[test]
    fn one_until_requests_are_known_to_be_short() {
        // (how long each of a hundred requests took, how many are handed out ahead)
        let table = [
            (0, 7),
            (10, 7),
            (100, 7),
            (200, 5),
            (400, 2),
            (600, 1),
            (1_000, 1),
            (50_000, 1),
            (u64::MAX, 1),
        ];
        assert_eq!(after([]), 1);
        for (service_us, expected) in table {
            assert_eq!(after([service_us; 100]), expected, "{service_us} us each");
        }
    }

    #[test]
    fn one_long_request_among_short_ones_is_enough() {
        assert_eq!(after([10; 100].into_iter().chain([2_000])), 1);
        // And it takes many short ones to forget it.
        assert_eq!(after([200_000].into_iter().chain([10; 60])), 1);
        assert_eq!(after([200_000].into_iter().chain([10; 200])), 7);
    }

    #[test]
    fn long_answers_are_not_handed_out_ahead_in_numbers() {
        // (how long the answers are, how many are handed out ahead)
        let table = [
            (0, 7),
            (64 << 10, 7),
            (512 << 10, 6),
            (1 << 20, 3),
            (1_100_000, 2),
            (100 << 20, 1),
            (u64::MAX, 1),
        ];
        for (answer_bytes, expected) in table {
            let mut ahead = Ahead::new(7);
            for _ in 0..100 {
                ahead.served(10, answer_bytes);
            }
            assert_eq!(ahead.per_seat(), expected, "{answer_bytes} bytes each");
        }
    }

    #[test]
    fn a_long_answer_among_short_ones_changes_nothing() {
        let mut ahead = Ahead::new(31);
        (0..100).for_each(|_| ahead.served(10, 100));
        for _ in 0..100 {
            ahead.served(10, 1 << 20);
            assert_eq!(ahead.per_seat(), 31);
            (0..20).for_each(|_| ahead.served(10, 100));
        }
    }

    #[test]
    fn at_least_one_whatever_the_limit() {
        assert_eq!(Ahead::new(0).per_seat(), 1);
    }
}
