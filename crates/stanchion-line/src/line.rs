use std::collections::VecDeque;

use crate::drain_rate::DrainRate;

/// The bounds of `Retry-After`, in seconds. Less than one would be "at once", which is what the
/// client just did; beyond a minute an estimate is a guess, and a client has mostly given up.
const RETRY_AFTER_S_MIN: u64 = 1;
const RETRY_AFTER_S_MAX: u64 = 60;

/// Gaps left by those who left from the middle are closed once they outnumber the waiting by
/// this many, so memory stays in proportion to `waiting_max` however many come and go.
const GAPS_SPARE: usize = 32;

/// What the operator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineLimits {
    /// How many may wait at once. Everybody passes through the line, also when a seat is free, so
    /// zero refuses everybody.
    pub waiting_max: usize,
    /// How long one may wait, in microseconds; zero for as long as it takes.
    pub queue_timeout_us: u64,
}

/// The name of one waiting entry. Never given to another entry of the same line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// Why somebody was not let into the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many wait as may. The operator's limit, or more work than the seats can do.
    Full {
        /// When to come back: the value for `Retry-After` (RFC 9110 section 10.2.3), in seconds.
        retry_after_s: u64,
    },
}

/// An entry that came out of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled<T> {
    /// What was put in by [`Line::join`].
    pub item: T,
    /// The name it had in the line.
    pub place: Place,
    /// How long it waited, in microseconds.
    pub wait_us: u64,
}

#[derive(Debug)]
struct Entry<T> {
    place: Place,
    joined_us: u64,
    /// `None` is a gap: the entry left, and the ones behind have not closed up yet.
    item: Option<T>,
}

/// One line, first in first out, bounded in length and in time.
///
/// Every item that joins comes out exactly once: of [`pull`](Self::pull), [`leave`](Self::leave),
/// [`expire`](Self::expire) or [`drain`](Self::drain). Methods take constant time, amortised, with
/// two exceptions: `leave` finds its entry by binary search, and `pull` steps over the overdue.
///
/// `now_us` must come from one monotonic clock. If it steps back nothing breaks: a wait is then
/// counted as zero.
#[derive(Debug)]
pub struct Line<T> {
    limits: LineLimits,
    /// In order of `place`, and so in order of `joined_us`. The front is never a gap.
    entries: VecDeque<Entry<T>>,
    waiting: usize,
    place_next: Place,
    drain_rate: DrainRate,
}

impl<T> Line<T> {
    /// An empty line.
    pub fn new(limits: LineLimits) -> Self {
        Self {
            limits,
            entries: VecDeque::new(),
            waiting: 0,
            place_next: Place(0),
            drain_rate: DrainRate::default(),
        }
    }

    /// Puts `item` at the end of the line, or gives it back with the reason.
    ///
    /// Entries past their deadline keep their room until [`expire`](Self::expire) took them out,
    /// so let it do so first.
    pub fn join(&mut self, now_us: u64, item: T) -> Result<Place, (T, Refusal)> {
        if self.waiting >= self.limits.waiting_max {
            let retry_after_s = self.retry_after_s(now_us);
            return Err((item, Refusal::Full { retry_after_s }));
        }
        if self.waiting == 0 {
            self.drain_rate.begin(now_us);
        }
        let place = self.place_next;
        self.place_next = Place(place.0 + 1);
        self.entries.push_back(Entry {
            place,
            joined_us: now_us,
            item: Some(item),
        });
        self.waiting += 1;
        Ok(place)
    }

    /// Takes the head of the line, for a seat that is free.
    ///
    /// Never an entry past its deadline: those are passed over and come out of
    /// [`expire`](Self::expire).
    pub fn pull(&mut self, now_us: u64) -> Option<Pulled<T>> {
        let index = self
            .entries
            .iter()
            .position(|entry| entry.item.is_some() && !self.is_overdue(entry.joined_us, now_us))?;
        self.take(index, now_us)
    }

    /// Takes out one who will not wait any longer: the client is gone.
    ///
    /// `None` if that entry already came out in another way.
    pub fn leave(&mut self, place: Place) -> Option<T> {
        let index = self
            .entries
            .binary_search_by_key(&place, |entry| entry.place)
            .ok()?;
        let item = self.entries[index].item.take()?;
        self.close_up();
        Some(item)
    }

    /// Takes out one entry whose wait has reached the queue timeout, the oldest first.
    pub fn expire(&mut self, now_us: u64) -> Option<Pulled<T>> {
        let overdue = self.is_overdue(self.entries.front()?.joined_us, now_us);
        if overdue { self.take(0, now_us) } else { None }
    }

    /// The moment from which [`expire`](Self::expire) has an entry to give; `None` if nobody
    /// waits or everybody may wait for ever.
    pub fn next_expiry_us(&self) -> Option<u64> {
        let timeout_us = self.limits.queue_timeout_us;
        let head = self.entries.front().filter(|_| timeout_us > 0)?;
        Some(head.joined_us.saturating_add(timeout_us))
    }

    /// Tells the line that a request left its seat, whatever its answer was.
    ///
    /// Feeds the estimate of how fast the line moves. Say it before pulling the next request
    /// for that seat: a departure counts only while somebody waits.
    pub fn drained(&mut self, now_us: u64) {
        self.drain_rate.departure(now_us);
    }

    /// In how many seconds everybody who waits now should be out of the line, at the present
    /// drain rate: between 1 and 60.
    #[expect(clippy::cast_sign_loss)] // time is not negative
    pub fn retry_after_s(&self, now_us: u64) -> u64 {
        let time_us = self.drain_rate.time_for_us(self.waiting, now_us);
        let time_s = (time_us / 1e6).ceil() as u64;
        time_s.clamp(RETRY_AFTER_S_MIN, RETRY_AFTER_S_MAX)
    }

    /// How many wait, those past their deadline included.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// How long the head of the line has waited, in microseconds; zero if nobody waits.
    pub fn oldest_wait_us(&self, now_us: u64) -> u64 {
        self.entries
            .front()
            .map_or(0, |head| now_us.saturating_sub(head.joined_us))
    }

    /// Takes everybody out, in order: the server closes and they must be told.
    ///
    /// The line is empty afterwards, even if the iterator is dropped half-way.
    pub fn drain(&mut self, now_us: u64) -> impl Iterator<Item = Pulled<T>> {
        self.waiting = 0;
        self.drain_rate.rest();
        self.entries
            .drain(..)
            .filter_map(move |entry| entry.into_pulled(now_us))
    }

    /// Whether one who joined then has waited too long; also for those who were handed out ahead
    /// and whom no seat has taken. At the deadline itself: a timer set to it must find its work.
    pub fn is_overdue(&self, joined_us: u64, now_us: u64) -> bool {
        let timeout_us = self.limits.queue_timeout_us;
        timeout_us > 0 && now_us.saturating_sub(joined_us) >= timeout_us
    }

    fn take(&mut self, index: usize, now_us: u64) -> Option<Pulled<T>> {
        let entry = &mut self.entries[index];
        let taken = Entry {
            item: entry.item.take(),
            ..*entry
        };
        self.close_up();
        taken.into_pulled(now_us)
    }

    /// One entry became a gap: restores "the front is no gap" and bounds the gaps behind it.
    fn close_up(&mut self) {
        self.waiting -= 1;
        while self.entries.front().is_some_and(|head| head.item.is_none()) {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.waiting + GAPS_SPARE {
            self.entries.retain(|entry| entry.item.is_some());
        }
        if self.waiting == 0 {
            self.drain_rate.rest();
        }
    }
}

impl<T> Entry<T> {
    fn into_pulled(self, now_us: u64) -> Option<Pulled<T>> {
        Some(Pulled {
            item: self.item?,
            place: self.place,
            wait_us: now_us.saturating_sub(self.joined_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn line(waiting_max: usize, queue_timeout_us: u64) -> Line<char> {
        Line::new(LineLimits {
            waiting_max,
            queue_timeout_us,
        })
    }

    fn retry_after_s(refused: Result<Place, (char, Refusal)>) -> u64 {
        let (_, Refusal::Full { retry_after_s }) = refused.unwrap_err();
        retry_after_s
    }

    fn items(line: &mut Line<char>, now_us: u64) -> String {
        std::iter::from_fn(|| line.pull(now_us))
            .map(|pulled| pulled.item)
            .collect()
    }

    #[test]
    fn first_in_first_out() {
        let mut line = line(10, 0);
        for (now_us, item) in (0..).zip("abc".chars()) {
            line.join(now_us, item).unwrap();
        }
        let waits: Vec<_> = std::iter::from_fn(|| line.pull(10))
            .map(|pulled| (pulled.item, pulled.wait_us))
            .collect();
        assert_eq!(waits, [('a', 10), ('b', 9), ('c', 8)]);
    }

    #[test]
    fn full_line_gives_the_item_back() {
        let mut line = line(1, 0);
        line.join(0, 'a').unwrap();
        assert_eq!(
            line.join(0, 'b'),
            Err(('b', Refusal::Full { retry_after_s: 1 }))
        );
        line.pull(0).unwrap();
        assert!(line.join(0, 'b').is_ok());
    }

    #[test]
    fn zero_places_refuse_everybody() {
        assert!(line(0, 0).join(0, 'a').is_err());
    }

    #[test]
    fn leaving_makes_room_and_keeps_the_order() {
        let mut line = line(3, 0);
        let places: Vec<_> = "abc"
            .chars()
            .map(|item| line.join(0, item).unwrap())
            .collect();
        assert_eq!(line.leave(places[1]), Some('b'));
        assert_eq!(line.leave(places[1]), None, "a place is left once");
        assert_eq!(line.len(), 2);
        let place = line.join(0, 'd').unwrap();
        assert!(!places.contains(&place), "a place is never reused");
        assert_eq!(items(&mut line, 0), "acd");
        assert_eq!(line.leave(places[0]), None, "pulled before");
    }

    #[test]
    fn deadline() {
        // (now, what expire gives, what pull gives) for a timeout of 100 and joins at 0 and 50.
        let table = [
            (99, None, Some('a')),
            (100, Some('a'), Some('b')),
            (149, Some('a'), Some('b')),
            (150, Some('a'), None),
            (u64::MAX, Some('a'), None),
        ];
        for (now_us, expired, pulled) in table {
            let filled = || {
                let mut line = line(10, 100);
                line.join(0, 'a').unwrap();
                line.join(50, 'b').unwrap();
                line
            };
            let item = filled().expire(now_us).map(|pulled| pulled.item);
            assert_eq!(item, expired, "expire at {now_us}");
            let item = filled().pull(now_us).map(|pulled| pulled.item);
            assert_eq!(item, pulled, "pull at {now_us}");
        }
    }

    #[test]
    fn pull_passes_over_the_overdue_and_expire_finds_them() {
        let mut line = line(10, 100);
        for (now_us, item) in [(0, 'a'), (10, 'b'), (50, 'c'), (60, 'd')] {
            line.join(now_us, item).unwrap();
        }
        assert_eq!(items(&mut line, 110), "cd");
        assert_eq!(line.expire(110).unwrap().wait_us, 110);
        assert_eq!(line.expire(110).unwrap().item, 'b');
        assert_eq!(line.expire(110), None);
        assert!(line.is_empty());
    }

    #[test]
    fn next_expiry_is_the_heads() {
        let mut line = line(10, 100);
        assert_eq!(line.next_expiry_us(), None);
        let place = line.join(7, 'a').unwrap();
        line.join(9, 'b').unwrap();
        assert_eq!(line.next_expiry_us(), Some(107));
        line.leave(place);
        assert_eq!(line.next_expiry_us(), Some(109));
        assert_eq!(line.oldest_wait_us(10), 1);
    }

    #[test]
    fn without_a_timeout_nobody_expires() {
        let mut line = line(10, 0);
        line.join(0, 'a').unwrap();
        assert_eq!(line.next_expiry_us(), None);
        assert_eq!(line.expire(u64::MAX), None);
        assert_eq!(line.oldest_wait_us(u64::MAX), u64::MAX);
        assert_eq!(items(&mut line, u64::MAX), "a");
    }

    #[test]
    fn drain_empties_even_if_dropped() {
        let mut line = line(3, 100);
        let place = line.join(0, 'a').unwrap();
        line.join(0, 'b').unwrap();
        line.join(0, 'c').unwrap();
        line.leave(place);
        assert_eq!(line.drain(500).next().unwrap().item, 'b');
        assert_eq!((line.len(), line.next_expiry_us()), (0, None));
        assert!(line.join(500, 'd').is_ok());
    }

    #[test]
    fn gaps_stay_in_proportion() {
        let mut line = line(8, 0);
        line.join(0, 'a').unwrap();
        for now_us in 0..10_000 {
            let place = line.join(now_us, 'x').unwrap();
            line.leave(place);
            assert!(line.entries.len() <= 2 * line.len() + GAPS_SPARE);
        }
        assert_eq!(items(&mut line, 10_000), "a");
    }

    #[test]
    fn retry_after_follows_the_drain_rate() {
        // 100 wait. Gaps between departures -> seconds until they are out.
        for (gap_us, expected_s) in [(1_000, 1), (25_000, 3), (100_000, 10), (SECOND_US, 60)] {
            let mut line = line(100, 0);
            while line.join(0, 'x').is_ok() {}
            let mut now_us = 0;
            while now_us < 30 * SECOND_US {
                now_us += gap_us;
                line.drained(now_us);
                line.pull(now_us).unwrap();
                line.join(now_us, 'x').unwrap();
            }
            let actual_s = retry_after_s(line.join(now_us, 'y'));
            assert!(
                actual_s.abs_diff(expected_s) <= 1,
                "gap {gap_us}: {actual_s} s, not {expected_s}"
            );
        }
    }

    #[test]
    fn retry_after_survives_idle_hours_and_grows_in_a_stall() {
        let mut line = line(100, 0);
        line.join(0, 'x').unwrap();
        for now_us in (0..30 * SECOND_US).step_by(25_000) {
            line.join(now_us, 'x').unwrap();
            line.drained(now_us);
            line.pull(now_us).unwrap();
        }
        items(&mut line, 30 * SECOND_US);

        let now_us = 9_000 * SECOND_US;
        while line.join(now_us, 'x').is_ok() {}
        assert!((2..=4).contains(&line.retry_after_s(now_us)));
        assert!((5..=30).contains(&line.retry_after_s(now_us + 12 * SECOND_US)));
        assert_eq!(line.retry_after_s(now_us + 60 * SECOND_US), 60);
    }

    #[test]
    fn clock_that_steps_back_counts_as_no_wait() {
        let mut line = line(2, 100);
        line.join(1_000, 'a').unwrap();
        assert_eq!(line.oldest_wait_us(10), 0);
        assert_eq!(line.expire(10), None);
        assert_eq!(line.pull(10).unwrap().wait_us, 0);
    }
}
