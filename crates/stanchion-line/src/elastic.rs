//! How many workers a server keeps that may keep more or fewer.
//!
//! A worker is added while requests wait for longer than it takes to have one, and one leaves that was not needed for a while. The
//! line decides within 10 ms, and knows what no process manager knows: how many requests wait, for how long, and whether more busy
//! seats bring more throughput ([`Curve`]).
//!
//! **Growth.** As many workers are wanted as serve the requests in the house so that none waits for longer than a worker takes to boot and
//! a step. The mean service time says how long that is; where no request leaves its seat, the wait of the oldest does. Eight bounds
//! hold that back, each with a name ([`HeldBack`]).
//!
//! **Shrinking** goes by rank. Idle times of workers say little, since each of them gets some request before its time is up. But the
//! ninth worker is needed only while there are more requests than eight serve in that time. If that was last so `keep_us` ago, eight
//! are enough, and the ninth leaves as soon as it has no request.
//!
//! **Forks** come out of a budget of one for each worker that may come and go in `keep_us`. So there are at most
//! `(max − min) · (1 + t / keep)` in any time t, whatever the load does. That holds for one acceptor: the next begins with
//! all of the budget. A reload or an upgrade, which has another acceptor, forks all workers again in any case, and an acceptor that is lost costs its clients
//! far more than some forks.

use crate::because::{Because, HeldBack};
use crate::curve::{Ceiling, Curve};
use crate::demand::Demand;
use crate::drain_rate::to_f64;
use crate::headroom::Headroom;

/// How often a line that stands is looked at. A request that waits for less is no reason for a worker.
const STEP_US: u64 = 10_000;
/// A worker that takes longer than this to boot takes a core for it, so only a few boot at once.
const SLOW_BOOT_US: u64 = 100_000;
/// A measured boot counts for at most so long.
const BOOT_US_MAX: u64 = 10_000_000;
/// With `--workers auto` there are no more workers than keep so many times the cores busy,
const CORES_GRANTED: f64 = 1.25;
/// or, until it is known how many do, than so many a core.
const UNKNOWN_PER_CORE: f64 = 4.0;
/// A worker that leaves for lack of memory has to end its requests first, and stalls are a mean over ten seconds: the next one waits for so long.
const RELIEF_EVERY_US: u64 = 10_000_000;
/// The mean service time is that of about so many requests.
const PACE_REQUESTS: f64 = 64.0;

/// How many workers there may be, and for how long one stays that is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElasticLimits {
    /// The fewest, at least 1.
    pub workers_min: u16,
    /// The most, at least as many.
    pub workers_max: u16,
    /// How many requests a worker runs at once, at least 1.
    pub seats_each: usize,
    /// How long a worker stays after it was last needed, in microseconds.
    pub keep_us: u64,
    /// How many workers may boot at once if that takes long, or if it is not known how long it takes: the cores.
    pub slow_boots_max: u16,
    /// The cores that bound the number, with `--workers auto`.
    pub auto_cores: Option<u16>,
}

/// The number of workers that is wanted, and why.
#[derive(Debug)]
pub struct Elastic {
    limits: ElasticLimits,
    wanted: u16,
    /// An operator has fixed the number.
    is_pinned: bool,
    /// Requests that wait or have seats.
    in_flight: usize,
    /// Workers at their seats.
    ready: u16,
    /// When the worker of each rank was last needed. The ranks that are needed now have older times.
    needed_us: Vec<u64>,
    service: MeanService,
    forks: ForkBudget,
    boot: BootTime,
    /// Workers that were at their seats when a request last left one.
    ready_at_departure: u16,
    /// When the line is looked at next, if requests wait.
    due_us: Option<u64>,
    held_back: Option<HeldBack>,
    /// When a worker was last given up for lack of memory.
    relieved_us: Option<u64>,
}

/// The facts for a decision, besides requests and workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// How long the oldest request has waited that has no seat, in microseconds.
    pub oldest_us: u64,
    /// The highest rank of a worker that has a request. A worker that leaves has to end its request in time, so those with a request stay.
    pub busy_rank: u16,
    /// The share of its time for which a request has a core if it waits for none, if that is known: for [`ElasticLimits::auto_cores`].
    pub cpu_share: Option<f64>,
    /// The headroom of late. Without it no worker is added ([`Elastic::wants_headroom`]).
    pub headroom: Option<Headroom>,
}

/// Another number of workers is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// How many.
    pub workers: u16,
    /// Why.
    pub because: Because,
}

impl Elastic {
    /// The fewest workers are wanted.
    pub fn new(limits: ElasticLimits) -> Self {
        let forks_max = f64::from(limits.workers_max - limits.workers_min);
        Self {
            limits,
            wanted: limits.workers_min,
            is_pinned: false,
            in_flight: 0,
            ready: 0,
            needed_us: vec![0; usize::from(limits.workers_max)],
            service: MeanService::default(),
            forks: ForkBudget {
                left: forks_max,
                max: forks_max,
                keep_us: limits.keep_us.max(1),
                counted_to_us: 0,
            },
            boot: BootTime::default(),
            ready_at_departure: limits.workers_min,
            due_us: None,
            held_back: None,
            relieved_us: None,
        }
    }

    /// So many workers are wanted from now on, for a reason that lies elsewhere. If the number `is_pinned`, it does not change by itself.
    pub fn set(&mut self, now_us: u64, workers: u16, is_pinned: bool) {
        if (workers, is_pinned) == (self.wanted, self.is_pinned) {
            return;
        }
        (self.wanted, self.is_pinned) = (workers, is_pinned);
        self.held_back = None;
        self.boot.asked_us = None;
        let ranks = self.needed_us.len().min(usize::from(workers));
        self.needed_us[..ranks].fill(now_us);
    }

    /// Notes the requests in the house, those that wait and those that have seats, and the workers at their seats; to be called at each change of
    /// either.
    pub fn note(&mut self, now_us: u64, in_flight: usize, ready: u16) {
        let (rank, had_waiting) = (self.rank(), self.waiting() > 0);
        if ready > self.ready {
            self.boot.one_is_ready(now_us);
        }
        (self.in_flight, self.ready) = (in_flight, ready);
        self.were_needed(rank, now_us);
        match (had_waiting, self.waiting() > 0) {
            (false, true) => self.due_us = Some(now_us.saturating_add(STEP_US)),
            (true, false) => (self.due_us, self.held_back) = (None, None),
            _ => {}
        }
    }

    /// The ranks up to this one were needed until now; those above the present one are no longer.
    fn were_needed(&mut self, rank: u16, now_us: u64) {
        let no_longer = usize::from(self.rank())..usize::from(rank);
        if !no_longer.is_empty() {
            self.needed_us[no_longer].fill(now_us);
        }
    }

    /// Notes that a request left its seat, which it had for so long; to be called before [`Self::note`].
    pub fn served(&mut self, now_us: u64, service_us: u64) {
        let rank = self.rank();
        self.service.add(service_us);
        self.were_needed(rank, now_us);
        self.ready_at_departure = self.ready.max(1);
    }

    /// Decides whether another number of workers is wanted.
    pub fn step(&mut self, now_us: u64, seen: &Seen, curve: &mut Curve) -> Option<Wanted> {
        let waits = self.waiting() > 0;
        self.due_us = waits.then(|| now_us.saturating_add(STEP_US));
        self.forks.count_to(now_us);
        if self.is_pinned {
            return None;
        }
        let ceiling = curve.ceiling(now_us);
        let wanted = self
            .more(seen, ceiling)
            .or_else(|| self.fewer(now_us, seen, ceiling))?;
        self.forks
            .take(wanted.workers.saturating_sub(self.wanted), now_us);
        if wanted.workers > self.wanted {
            self.boot.asked_us = Some(now_us);
            self.needed_us[..usize::from(wanted.workers)].fill(now_us);
        } else {
            self.boot.asked_us = None;
        }
        if matches!(
            wanted.because,
            Because::Stalls { .. } | Because::Memory { .. }
        ) {
            self.relieved_us = Some(now_us);
        }
        self.wanted = wanted.workers;
        Some(wanted)
    }

    fn more(&mut self, seen: &Seen, ceiling: Option<Ceiling>) -> Option<Wanted> {
        let oldest_us = seen.oldest_us;
        self.held_back = None;
        let waiting = self.waiting();
        // While workers are missing that there should be in any case, more of them do not come sooner.
        if waiting == 0 || self.ready < self.limits.workers_min {
            return None;
        }
        let mut needed = self.needed();
        if oldest_us > self.patience_us() {
            needed = needed.max(usize::from(self.ready) + 1);
        }
        let bounds = [
            (self.limits.workers_max, HeldBack::Max),
            (self.most_by(ceiling), HeldBack::Throughput),
            (self.most_by_cores(seen), HeldBack::Cores),
            (self.ready_at_departure.saturating_mul(2), HeldBack::Stall),
            (
                self.wanted.saturating_add(self.forks.whole()),
                HeldBack::Forks,
            ),
            (self.most_by_boots(seen), HeldBack::Boot),
            (
                seen.headroom
                    .map_or(self.wanted, |headroom| headroom.most_by_memory()),
                HeldBack::Memory,
            ),
            (
                seen.headroom
                    .map_or(u16::MAX, |headroom| headroom.most_by_tasks()),
                HeldBack::Pids,
            ),
        ];
        let (most, why) = bounds.into_iter().min_by_key(|(most, _)| *most)?;
        if usize::from(most) < needed {
            self.held_back = Some(why);
        }
        let workers = needed.min(usize::from(most)) as u16;
        let because = Because::Waiting {
            requests: waiting,
            oldest_us,
        };
        (workers > self.wanted).then_some(Wanted { workers, because })
    }

    fn fewer(&self, now_us: u64, seen: &Seen, ceiling: Option<Ceiling>) -> Option<Wanted> {
        let most = self.most_by(ceiling).max(self.limits.workers_min);
        // If more workers are busy than do any good, there may be none without a request for long.
        if let Some(ceiling) = ceiling.filter(|_| most < self.wanted) {
            return Some(Wanted {
                workers: most,
                because: Because::NoGain(ceiling),
            });
        }
        let is_early = |at_us: u64| now_us < at_us.saturating_add(RELIEF_EVERY_US);
        let may_relieve = self.waiting() > 0 && !self.relieved_us.is_some_and(is_early);
        let headroom = seen.headroom.filter(|_| may_relieve);
        if let Some(headroom) = headroom
            && let Some((fewer, because)) = headroom.relief()
            && fewer.max(self.limits.workers_min) < self.wanted
        {
            let workers = fewer.max(self.limits.workers_min);
            return Some(Wanted { workers, because });
        }
        let since_us = |rank: u16| match self.needed_us.get(usize::from(rank) - 1) {
            Some(_) if rank <= self.rank() => 0,
            Some(needed_us) => now_us.saturating_sub(*needed_us),
            None => self.limits.keep_us,
        };
        let stay = self.limits.workers_min.max(seen.busy_rank);
        // Each rank was needed whenever those above it were.
        let rank = (stay.saturating_add(1)..=self.wanted)
            .rev()
            .take_while(|&rank| since_us(rank) >= self.limits.keep_us)
            .last()?;
        Some(Wanted {
            workers: rank - 1,
            because: Because::Unneeded {
                rank,
                since_us: since_us(rank),
            },
        })
    }

    /// When [`Self::step`] is to be called at the latest, if requests wait. While none waits, once a second is enough.
    pub fn due_us(&self) -> Option<u64> {
        self.due_us
            .filter(|_| !self.is_pinned && self.wanted < self.limits.workers_max)
    }

    /// Whether the next decision takes the headroom. While no request waits, that does not matter.
    pub fn wants_headroom(&self) -> bool {
        !self.is_pinned && self.waiting() > 0
    }

    /// How many workers are wanted.
    pub fn wanted(&self) -> u16 {
        self.wanted
    }

    /// Whether an operator has fixed the number.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// The bound that keeps the number from growing, if requests wait.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.held_back
    }

    /// How many workers there may be, and for how long one stays.
    pub fn limits(&self) -> ElasticLimits {
        self.limits
    }

    /// Requests for which there is no seat.
    fn waiting(&self) -> usize {
        let seats = usize::from(self.ready) * self.limits.seats_each;
        self.in_flight.saturating_sub(seats)
    }

    /// How long a request may wait before a worker is added for it: it would wait that long for the worker.
    fn patience_us(&self) -> u64 {
        self.boot.us() + STEP_US
    }

    /// Workers by which no request waits for longer than that. While `f` requests are in the house and `n` of them have seats, one leaves each
    /// `S / n`, so the last of the others waits for `(f − n) · S / n`.
    fn needed(&self) -> usize {
        let seats = to_f64(self.in_flight as u64) * self.service.part_beyond(self.patience_us());
        (seats.ceil() as usize).div_ceil(self.limits.seats_each.max(1))
    }

    /// The highest rank that is needed now.
    fn rank(&self) -> u16 {
        self.needed().min(self.needed_us.len()) as u16
    }

    fn most_by(&self, ceiling: Option<Ceiling>) -> u16 {
        ceiling.map_or(u16::MAX, |ceiling| {
            let workers = ceiling.busy.div_ceil(self.limits.seats_each.max(1));
            u16::try_from(workers).unwrap_or(u16::MAX)
        })
    }

    /// Workers that keep all cores busy, and a quarter more. A worker with several threads has one core at most: its threads share Python's lock.
    fn most_by_cores(&self, seen: &Seen) -> u16 {
        let Some(cores) = self.limits.auto_cores else {
            return u16::MAX;
        };
        let per_core = seen.cpu_share.map_or(UNKNOWN_PER_CORE, |share| {
            let each = share * to_f64(self.limits.seats_each as u64);
            CORES_GRANTED / each.clamp(f64::MIN_POSITIVE, 1.0)
        });
        let most = (f64::from(cores) * per_core).ceil() as u16;
        most.max(self.limits.workers_min)
    }

    fn most_by_boots(&self, seen: &Seen) -> u16 {
        let most = seen
            .headroom
            .map_or(u16::MAX, |headroom| headroom.most_by_failures());
        if self.boot.is_slow() {
            most.min(self.ready.saturating_add(self.limits.slow_boots_max))
        } else {
            most
        }
    }
}

/// The mean service time.
#[derive(Debug, Default)]
struct MeanService {
    requests: f64,
    mean_us: f64,
}

impl MeanService {
    fn add(&mut self, service_us: u64) {
        self.requests = (self.requests + 1.0).min(PACE_REQUESTS);
        let service_us = to_f64(service_us.min(Demand::HELD_US));
        self.mean_us += (service_us - self.mean_us) / self.requests;
    }

    /// `S / (S + patience)`; all, if S is not known.
    fn part_beyond(&self, patience_us: u64) -> f64 {
        if self.requests > 0.0 {
            self.mean_us / (self.mean_us + to_f64(patience_us))
        } else {
            1.0
        }
    }
}

/// How many workers may be added yet.
#[derive(Debug)]
struct ForkBudget {
    left: f64,
    max: f64,
    keep_us: u64,
    counted_to_us: u64,
}

impl ForkBudget {
    fn count_to(&mut self, now_us: u64) {
        let elapsed_us = now_us.saturating_sub(self.counted_to_us);
        self.counted_to_us = now_us.max(self.counted_to_us);
        let more = self.max * to_f64(elapsed_us) / to_f64(self.keep_us);
        self.left = (self.left + more).min(self.max);
    }

    fn take(&mut self, forks: u16, now_us: u64) {
        self.count_to(now_us);
        self.left -= f64::from(forks);
    }

    fn whole(&self) -> u16 {
        self.left as u16
    }
}

/// How long it takes from the decision until a worker is at its seats.
#[derive(Debug, Default)]
struct BootTime {
    /// The mean; `None` before one was measured.
    mean_us: Option<u64>,
    asked_us: Option<u64>,
}

impl BootTime {
    /// The first one of those that were asked for together says how long it takes: the others may have waited for its fork.
    fn one_is_ready(&mut self, now_us: u64) {
        let Some(asked_us) = self.asked_us.take() else {
            return;
        };
        // A boot that failed, or that waited for a service, says nothing of the next one.
        let took_us = now_us.saturating_sub(asked_us).min(BOOT_US_MAX);
        self.mean_us = Some(match self.mean_us {
            Some(mean_us) => (3 * mean_us + took_us) / 4,
            None => took_us,
        });
    }

    fn us(&self) -> u64 {
        self.mean_us.unwrap_or(0)
    }

    fn is_slow(&self) -> bool {
        self.mean_us.is_none_or(|mean_us| mean_us > SLOW_BOOT_US)
    }
}

#[cfg(test)]
mod tests;
