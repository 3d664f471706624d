//! One lane of the line: its entries in order, the gaps of entries that left, and the entries that are due.

use std::collections::VecDeque;

use crate::discipline::{Discipline, Shedding};
use crate::drain_rate::DrainRate;

/// The bounds of `Retry-After`, in seconds. Less than one would mean "at once", which the client has just tried; beyond
/// a minute an estimate is a guess, and most clients have given up.
const RETRY_AFTER_S_MIN: u64 = 1;
const RETRY_AFTER_S_MAX: u64 = 60;

/// The lane closes the gaps of entries that left from the middle once they outnumber the waiting entries by this many,
/// so memory stays in proportion to `waiting_max` however many come and go.
const GAPS_SPARE: usize = 32;

/// The rules for every lane of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRules {
    pub(crate) queue_timeout_us: u64,
    pub(crate) discipline: Discipline,
}

/// Why the line took an entry out before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It has waited as long as an entry may.
    TimedOut,
    /// The lane is over its target ([`Discipline::Adaptive`]), and it is the oldest.
    Shed,
}

/// The state of a lane, for people to look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneView {
    /// How many entries wait.
    pub waiting: usize,
    /// How long the oldest entry has waited, in microseconds; zero if none waits.
    pub oldest_wait_us: u64,
    /// How many requests leave the seats per second while a request waits.
    pub drain_per_s: f64,
    /// Whether the lane is over its target ([`Discipline::Adaptive`]).
    pub is_over_target: bool,
}

#[derive(Debug)]
pub(crate) struct LaneEntry<T> {
    pub(crate) number: u64,
    pub(crate) joined_us: u64,
    /// `None` is a gap: the entry left, and the entries behind it have not closed up yet.
    pub(crate) item: Option<T>,
}

#[derive(Debug)]
pub(crate) struct LaneQueue<T> {
    /// In order of `number`, and so in order of `joined_us`. Neither the front nor the back is a gap.
    entries: VecDeque<LaneEntry<T>>,
    /// Entries that were pulled before and came back, the oldest first, without gaps. They go first and are not shed.
    /// They have not waited here all the time, so they say nothing on whether the lane is over its target.
    returned: VecDeque<LaneEntry<T>>,
    waiting: usize,
    drain_rate: DrainRate,
    shedding: Option<Shedding>,
}

impl LaneRules {
    /// An entry is overdue at the deadline itself, so that a timer set to the deadline finds work.
    pub(crate) fn is_overdue(&self, joined_us: u64, now_us: u64) -> bool {
        self.queue_timeout_us > 0 && now_us.saturating_sub(joined_us) >= self.queue_timeout_us
    }
}

impl<T> LaneQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            returned: VecDeque::new(),
            waiting: 0,
            drain_rate: DrainRate::default(),
            shedding: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    pub(crate) fn join(&mut self, now_us: u64, entry: LaneEntry<T>) {
        self.enter(now_us);
        self.entries.push_back(entry);
    }

    /// Puts a pulled entry back. There are never more of these than were pulled, so this needs no bound of its own, and
    /// its searches are short.
    pub(crate) fn put_back(&mut self, now_us: u64, entry: LaneEntry<T>) {
        self.enter(now_us);
        let index = self
            .returned
            .partition_point(|other| other.joined_us <= entry.joined_us);
        self.returned.insert(index, entry);
    }

    fn enter(&mut self, now_us: u64) {
        if self.waiting == 0 {
            self.drain_rate.begin(now_us);
        }
        self.waiting += 1;
    }

    /// Whether [`Self::pull`] has an entry to give.
    pub(crate) fn can_pull(&self, now_us: u64, rules: &LaneRules) -> bool {
        // If even the newest entry is overdue, all are.
        let newest = self.entries.back().into_iter();
        newest
            .chain(&self.returned)
            .any(|entry| !rules.is_overdue(entry.joined_us, now_us))
    }

    pub(crate) fn pull(&mut self, now_us: u64, rules: &LaneRules) -> Option<LaneEntry<T>> {
        let may_wait = |entry: &LaneEntry<T>| !rules.is_overdue(entry.joined_us, now_us);
        if let Some(index) = self.returned.iter().position(may_wait) {
            return self.take_returned(index);
        }
        self.judge(now_us, rules);
        let index = if self.shedding.is_some() {
            let back = self.entries.len().checked_sub(1)?;
            Some(back).filter(|&back| may_wait(&self.entries[back]))
        } else {
            let waits = |entry: &LaneEntry<T>| entry.item.is_some() && may_wait(entry);
            self.entries.iter().position(waits)
        };
        index.map(|index| self.take(index))
    }

    pub(crate) fn leave(&mut self, number: u64) -> Option<T> {
        let index = self.returned.iter().position(|one| one.number == number);
        if let Some(index) = index {
            return self.take_returned(index)?.item;
        }
        let index = self
            .entries
            .binary_search_by_key(&number, |entry| entry.number)
            .ok()?;
        self.entries[index].item.as_ref()?;
        self.take(index).item
    }

    pub(crate) fn expire(
        &mut self,
        now_us: u64,
        rules: &LaneRules,
    ) -> Option<(Expiry, LaneEntry<T>)> {
        // The front of `returned` is its oldest.
        let returned = self.returned.front();
        if returned.is_some_and(|front| rules.is_overdue(front.joined_us, now_us)) {
            return Some((Expiry::TimedOut, self.take_returned(0)?));
        }
        if rules.is_overdue(self.entries.front()?.joined_us, now_us) {
            return Some((Expiry::TimedOut, self.take(0)));
        }
        self.judge(now_us, rules);
        let shedding = self.shedding.as_mut();
        shedding
            .filter(|shedding| shedding.next_us() <= now_us)?
            .shed();
        let shed = self.take(0);
        self.judge(now_us, rules);
        Some((Expiry::Shed, shed))
    }

    /// Checks whether the lane is over its target, when an entry is to come out by time or by turn. It does not check
    /// when an entry leaves, unless that was the last one.
    fn judge(&mut self, now_us: u64, rules: &LaneRules) {
        let Some(target_us) = rules.discipline.target_us() else {
            return;
        };
        let over_us = self
            .entries
            .front()
            .map(|front| front.joined_us.saturating_add(target_us))
            .filter(|&over_us| over_us <= now_us);
        self.shedding = over_us.map(|over_us| {
            self.shedding
                .unwrap_or_else(|| Shedding::begin(over_us, target_us))
        });
    }

    pub(crate) fn departure(&mut self, now_us: u64) {
        self.drain_rate.departure(now_us);
    }

    #[expect(clippy::cast_sign_loss)] // time is not negative
    pub(crate) fn retry_after_s(&self, now_us: u64) -> u64 {
        let time_us = self.drain_rate.time_for_us(self.waiting, now_us);
        let time_s = (time_us / 1e6).ceil() as u64;
        time_s.clamp(RETRY_AFTER_S_MIN, RETRY_AFTER_S_MAX)
    }

    /// When the entry joined that has waited longest.
    pub(crate) fn oldest_joined_us(&self) -> Option<u64> {
        let fronts = [self.returned.front(), self.entries.front()];
        fronts.into_iter().flatten().map(|one| one.joined_us).min()
    }

    /// The state of the lane.
    pub(crate) fn view(&self, now_us: u64) -> LaneView {
        let oldest_us = self.oldest_joined_us();
        LaneView {
            waiting: self.waiting,
            oldest_wait_us: oldest_us.map_or(0, |joined_us| now_us.saturating_sub(joined_us)),
            drain_per_s: self.drain_rate.per_second(now_us),
            is_over_target: self.shedding.is_some(),
        }
    }

    /// Takes all entries out, in order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = LaneEntry<T>> + use<T> {
        self.waiting = 0;
        self.shedding = None;
        self.drain_rate.rest();
        let returned = std::mem::take(&mut self.returned);
        let entries = std::mem::take(&mut self.entries);
        returned
            .into_iter()
            .chain(entries)
            .filter(|entry| entry.item.is_some())
    }

    fn take_returned(&mut self, index: usize) -> Option<LaneEntry<T>> {
        let taken = self.returned.remove(index)?;
        self.left();
        Some(taken)
    }

    fn take(&mut self, index: usize) -> LaneEntry<T> {
        let entry = &mut self.entries[index];
        let taken = LaneEntry {
            item: entry.item.take(),
            ..*entry
        };
        self.left();
        self.close_up();
        taken
    }

    fn left(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.drain_rate.rest();
        }
    }

    /// Closes up after an entry became a gap: removes gaps at both ends, and bounds the gaps between.
    fn close_up(&mut self) {
        let is_gap = |entry: Option<&LaneEntry<T>>| entry.is_some_and(|entry| entry.item.is_none());
        while is_gap(self.entries.front()) {
            self.entries.pop_front();
        }
        while is_gap(self.entries.back()) {
            self.entries.pop_back();
        }
        if self.entries.is_empty() {
            self.shedding = None;
        } else if self.entries.len() > 2 * self.waiting + GAPS_SPARE {
            self.entries.retain(|entry| entry.item.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay_in_proportion() {
        let rules = LaneRules {
            queue_timeout_us: 0,
            discipline: Discipline::Fifo,
        };
        let mut lane = LaneQueue::new();
        let join = |lane: &mut LaneQueue<u64>, number| {
            let item = Some(number);
            let joined_us = number;
            let entry = LaneEntry {
                number,
                joined_us,
                item,
            };
            lane.join(number, entry);
        };
        join(&mut lane, 0);
        for number in (1..10_000).step_by(2) {
            join(&mut lane, number);
            join(&mut lane, number + 1);
            lane.leave(number);
            assert!(lane.entries.len() <= 2 * lane.len() + GAPS_SPARE);
            if number % 4 == 1 {
                lane.leave(number + 1);
            }
            while lane.len() > 8 {
                lane.pull(0, &rules).unwrap();
            }
        }
        for number in 0..=10_000 {
            lane.leave(number);
        }
        assert_eq!((lane.len(), lane.entries.len()), (0, 0));
    }
}
