//! All lanes together: which requests join the line, and which one has the next turn.

use std::cmp::Reverse;

use crate::discipline::Discipline;
use crate::lane::{Expiry, LaneEntry, LaneQueue, LaneRules, LaneView};

/// How often the line may pass over a lane with waiting entries before that lane has the next turn: rare enough that an
/// overtaking lane overtakes, often enough that every lane moves.
const PASSED_OVER_MAX: u32 = 8;

/// The limits of the line, which the operator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineLimits {
    /// How many requests may wait at once. Every request passes through the line, even if a seat is free, so zero
    /// refuses every request.
    pub waiting_max: usize,
    /// How long a request may wait, in microseconds; zero for no limit.
    pub queue_timeout_us: u64,
    /// The order within a lane.
    pub discipline: Discipline,
}

/// The limits of one lane, which the operator chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLimits {
    /// The lane with the smaller number goes first. Lanes with the same number are served as one: the request that has
    /// waited longest goes first.
    pub priority: u32,
    /// How many requests may wait in this lane; they do not count for [`LineLimits::waiting_max`]. `None`: they do
    /// count, and the lane has the room that the other lanes leave.
    pub waiting_max: Option<usize>,
}

/// A lane, by its index in the list given to [`Line::with_lanes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u16);

/// The name of one waiting entry. No other entry of the same line ever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    lane: LaneId,
    number: u64,
}

/// The line refuses an entry: as many wait as may. Either the operator's limit is low, or there is more work than the
/// seats can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// When the client should come back: the value for `Retry-After` (RFC 9110 section 10.2.3), in seconds.
    pub retry_after_s: u64,
}

/// An entry that came out of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled<T> {
    /// The item given to [`Line::join`].
    pub item: T,
    /// The name it had in the line.
    pub place: Place,
    /// How long it waited, in microseconds.
    pub wait_us: u64,
}

/// A line of one or more lanes, bounded in length and in time.
///
/// Every item that joins comes out exactly once: of [`pull`](Self::pull), [`leave`](Self::leave),
/// [`expire`](Self::expire) or [`drain`](Self::drain). Methods take constant time, amortised, for each lane, with two
/// exceptions: `leave` finds its entry by binary search, and `pull` steps over overdue entries.
///
/// The line serves the lane with the smallest priority first, but never passes over a lane for ever: see
/// [`pull`](Self::pull).
///
/// `now_us` must come from one monotonic clock. If it steps back nothing breaks: the wait then counts as zero.
#[derive(Debug)]
pub struct Line<T> {
    waiting_max: usize,
    rules: LaneRules,
    /// The lanes, at least one.
    lanes: Vec<ScheduledLane<T>>,
    number_next: u64,
}

/// A lane among others.
#[derive(Debug)]
struct ScheduledLane<T> {
    lane: LaneQueue<T>,
    limits: LaneLimits,
    /// How many turns other lanes have had since this lane's last one, while an entry waited here that could have gone.
    passed_over: u32,
}

impl LaneId {
    /// The first lane, which is there in every line.
    pub const DEFAULT: Self = Self(0);

    /// The lane at this index.
    pub fn new(index: usize) -> Self {
        Self(index as u16)
    }

    /// Its index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Place {
    /// The lane of the entry.
    pub fn lane(self) -> LaneId {
        self.lane
    }
}

impl<T> Line<T> {
    /// An empty line of one lane.
    pub fn new(limits: LineLimits) -> Self {
        let only = LaneLimits {
            priority: 0,
            waiting_max: None,
        };
        Self::with_lanes(limits, &[only])
    }

    /// An empty line of these lanes.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn with_lanes(limits: LineLimits, lanes: &[LaneLimits]) -> Self {
        assert!(!lanes.is_empty(), "a line has a lane");
        let lanes = lanes.iter().map(|&limits| ScheduledLane {
            lane: LaneQueue::new(),
            limits,
            passed_over: 0,
        });
        Self {
            waiting_max: limits.waiting_max,
            rules: LaneRules {
                queue_timeout_us: limits.queue_timeout_us,
                discipline: limits.discipline,
            },
            lanes: lanes.collect(),
            number_next: 0,
        }
    }

    /// Whether one more may join `lane`, if `elsewhere` more entries wait outside this line that count for the same
    /// [`LineLimits::waiting_max`].
    pub fn has_room(&self, lane: LaneId, elsewhere: usize) -> bool {
        let turns = &self.lanes[lane.index()];
        match turns.limits.waiting_max {
            Some(own_max) => turns.lane.len() < own_max,
            None => self.sharing() + elsewhere < self.waiting_max,
        }
    }

    /// How many waiting entries count for [`LineLimits::waiting_max`].
    fn sharing(&self) -> usize {
        let sharing = self
            .lanes
            .iter()
            .filter(|turns| turns.limits.waiting_max.is_none());
        sharing.map(|turns| turns.lane.len()).sum()
    }

    /// Puts `item` at the end of `lane`, or returns it with the reason.
    ///
    /// Entries past their deadline keep their room until [`expire`](Self::expire) has taken them out, so call that
    /// first.
    pub fn join(&mut self, now_us: u64, lane: LaneId, item: T) -> Result<Place, (T, Full)> {
        if !self.has_room(lane, 0) {
            let retry_after_s = self.retry_after_s(now_us, lane);
            return Err((item, Full { retry_after_s }));
        }
        let (place, entry) = self.entry(lane, now_us, item);
        self.lanes[lane.index()].lane.join(now_us, entry);
        Ok(place)
    }

    /// Puts back a request that was pulled and must be served again. It joined at `joined_us`, and is the next to be
    /// pulled from `lane`, before every entry that was never pulled.
    ///
    /// The line never refuses it: it has waited its time, and no more requests come back than were pulled. It counts as
    /// waiting, and is overdue when it would have been; it is not shed.
    pub fn put_back(&mut self, now_us: u64, lane: LaneId, joined_us: u64, item: T) -> Place {
        let (place, entry) = self.entry(lane, joined_us, item);
        self.lanes[lane.index()].lane.put_back(now_us, entry);
        place
    }

    fn entry(&mut self, lane: LaneId, joined_us: u64, item: T) -> (Place, LaneEntry<T>) {
        let number = self.number_next;
        self.number_next += 1;
        let item = Some(item);
        let entry = LaneEntry {
            number,
            joined_us,
            item,
        };
        (Place { lane, number }, entry)
    }

    /// Takes out the next entry, for a seat that is free.
    ///
    /// It comes from the lane with the smallest priority; among several such lanes, from the one in which an entry has
    /// waited longest. But a lane that was passed over 8 times has the next turn, so of `8 + lanes` turns each lane
    /// gets at least one as long as an entry waits in it.
    ///
    /// It is never an entry past its deadline: `pull` steps over those, and [`expire`](Self::expire) takes them out.
    pub fn pull(&mut self, now_us: u64) -> Option<Pulled<T>> {
        self.pull_if(now_us, |_| true)
    }

    /// As [`pull`](Self::pull), but only from lanes that `may` have the seat. For the other lanes this does not count
    /// as being passed over.
    pub fn pull_if(&mut self, now_us: u64, may: impl Fn(LaneId) -> bool) -> Option<Pulled<T>> {
        let lane = if self.lanes.len() == 1 {
            Some(LaneId::DEFAULT).filter(|&only| may(only))
        } else {
            self.next_lane(now_us, may)
        }?;
        let entry = self.lanes[lane.index()].lane.pull(now_us, &self.rules)?;
        entry.into_pulled(lane, now_us)
    }

    fn next_lane(&mut self, now_us: u64, may: impl Fn(LaneId) -> bool) -> Option<LaneId> {
        let rules = self.rules;
        let can_go = |index: usize, turns: &ScheduledLane<T>| {
            turns.lane.can_pull(now_us, &rules) && may(LaneId::new(index))
        };
        let waiting = (0..).zip(&self.lanes);
        let (chosen, _) = waiting
            .filter(|&(index, turns)| can_go(index, turns))
            .min_by_key(|&(index, turns)| turns.rank(index))?;
        for (index, turns) in (0..).zip(&mut self.lanes) {
            if index == chosen || turns.lane.len() == 0 {
                turns.passed_over = 0;
            } else if can_go(index, turns) {
                turns.passed_over += 1;
            }
        }
        Some(LaneId::new(chosen))
    }

    /// Takes out an entry that will not wait any longer: its client is gone.
    pub fn leave(&mut self, place: Place) -> Option<T> {
        self.lanes[place.lane.index()].lane.leave(place.number)
    }

    /// Takes out one entry that may not wait any longer, the oldest of a lane first. Call it until it returns `None`.
    pub fn expire(&mut self, now_us: u64) -> Option<(Expiry, Pulled<T>)> {
        let rules = self.rules;
        let mut lanes = (0..).map(LaneId).zip(&mut self.lanes);
        let (lane, (expiry, entry)) =
            lanes.find_map(|(id, turns)| Some((id, turns.lane.expire(now_us, &rules)?)))?;
        Some((expiry, entry.into_pulled(lane, now_us)?))
    }

    /// Counts a request of `lane` that left its seat, whatever its answer was.
    ///
    /// The estimate of how fast the lane moves depends on it. Call it before pulling the next request for that seat: a
    /// departure counts only while a request waits.
    pub fn drained(&mut self, now_us: u64, lane: LaneId) {
        self.lanes[lane.index()].lane.departure(now_us);
    }

    /// In how many seconds every entry that waits now in `lane` should be out of it, at the present drain rate: between
    /// 1 and 60.
    ///
    /// Each lane has a rate of its own. The lane gets a share of the seats, by priorities, turns and reserved seats,
    /// and a client that comes back will get the same share.
    pub fn retry_after_s(&self, now_us: u64, lane: LaneId) -> u64 {
        self.lanes[lane.index()].lane.retry_after_s(now_us)
    }

    /// How many entries wait, those past their deadline included.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|turns| turns.lane.len()).sum()
    }

    /// The state of `lane`.
    pub fn view(&self, now_us: u64, lane: LaneId) -> LaneView {
        self.lanes[lane.index()].lane.view(now_us)
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long the oldest entry has waited, in microseconds; zero if none waits.
    pub fn oldest_wait_us(&self, now_us: u64) -> u64 {
        let lanes = self.lanes.iter();
        lanes
            .filter_map(|turns| turns.lane.oldest_joined_us())
            .min()
            .map_or(0, |joined_us| now_us.saturating_sub(joined_us))
    }

    /// Takes all entries out, each lane in order: the server closes and must answer them.
    ///
    /// The line is empty afterwards, even if the iterator is dropped half-way.
    pub fn drain(&mut self, now_us: u64) -> impl Iterator<Item = Pulled<T>> + use<T> {
        let lanes = (0..).map(LaneId).zip(&mut self.lanes);
        let drained: Vec<_> = lanes
            .map(|(lane, turns)| (lane, turns.lane.drain()))
            .collect();
        drained.into_iter().flat_map(move |(lane, entries)| {
            entries.filter_map(move |entry| entry.into_pulled(lane, now_us))
        })
    }

    /// Whether an entry that joined then has waited too long; also for a request that was handed out ahead and that no
    /// seat has taken.
    pub fn is_overdue(&self, joined_us: u64, now_us: u64) -> bool {
        self.rules.is_overdue(joined_us, now_us)
    }
}

impl<T> ScheduledLane<T> {
    /// The lane with the smallest rank goes first.
    fn rank(&self, index: usize) -> impl Ord + use<T> {
        let turns_owed = if self.passed_over >= PASSED_OVER_MAX {
            self.passed_over
        } else {
            0
        };
        (
            Reverse(turns_owed),
            self.limits.priority,
            self.lane.oldest_joined_us(),
            index,
        )
    }
}

impl<T> LaneEntry<T> {
    fn into_pulled(self, lane: LaneId, now_us: u64) -> Option<Pulled<T>> {
        Some(Pulled {
            item: self.item?,
            place: Place {
                lane,
                number: self.number,
            },
            wait_us: now_us.saturating_sub(self.joined_us),
        })
    }
}

#[cfg(test)]
mod tests;
