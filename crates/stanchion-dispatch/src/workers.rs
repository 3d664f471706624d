//! The workers at their seats, each with its worker number.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use stanchion_exchange::{BEAT_US, Exchange, LAG_BOUNDS_US, LoopLag, Tenant};
use stanchion_generation::messages::WorkerRef;
use stanchion_settings::Settings;

use crate::durations::Durations;
use crate::status::{Lags, LoopStatus, SeatCounts, SeatDoes};

/// The workers at their seats.
pub struct SeatedWorkers {
    exchange: &'static Exchange,
    /// By index.
    by_index: BTreeMap<u16, Sitting>,
    /// By worker number: how late the event loops of those workers were that are gone.
    lags_of_gone: BTreeMap<u16, LoopLag>,
    /// How many seats each worker has.
    seats_each: usize,
    /// Workers can have sessions.
    have_sessions: bool,
}

/// A worker at its seats.
#[derive(Clone, Copy)]
pub struct Sitting {
    pub(crate) epoch: u16,
    /// Its worker number. A successor takes the number of its predecessor, and both are at their seats as long as the
    /// predecessor has requests to answer: their pids tell them apart.
    pub number: u16,
    /// It is the n-th worker with this number.
    pub(crate) nth: u32,
    /// Its process.
    pub pid: i32,
    since_us: u64,
    /// How late the event loops of earlier workers at these seats were, which may have had other numbers.
    lag_before: LoopLag,
}

/// The state of an event loop at this moment.
#[derive(Debug)]
pub struct LoopNow {
    /// How many sessions it has, as it says itself; `None` under gevent, where there are none.
    pub sessions: Option<u32>,
    /// How late it is, or was the last time.
    pub lag_us: u64,
    lag: LoopLag,
}

/// All seats, at one moment. The histograms of [`crate::service_times`] have only requests that have ended.
#[derive(Debug, Default)]
pub struct RunningRequests {
    /// How many seats are busy, idle and empty.
    pub counts: SeatCounts,
    /// For how long each busy seat has run its request.
    pub ages: Durations,
    /// For how long no seat has taken a request, because all of them were busy; 0 if a seat is idle.
    pub stuck_us: u64,
}

impl SeatedWorkers {
    /// No worker is there yet.
    pub(crate) fn new(exchange: &'static Exchange, settings: &Settings) -> Self {
        Self {
            exchange,
            by_index: BTreeMap::new(),
            lags_of_gone: BTreeMap::new(),
            seats_each: settings.seats_per_worker(),
            have_sessions: settings.is_asgi(),
        }
    }

    /// Index and facts of every worker at its seats.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &Sitting)> {
        self.by_index
            .iter()
            .map(|(&index, sitting)| (index, sitting))
    }

    /// Index and number of every worker at its seats, the newest last.
    pub(crate) fn by_age(&self) -> Vec<(u16, u16)> {
        let mut sitting: Vec<_> = self.iter().collect();
        sitting.sort_by_key(|(_, one)| one.since_us);
        let sitting = sitting.iter().map(|(index, one)| (*index, one.number));
        sitting.collect()
    }

    /// How many workers are at their seats.
    pub fn len(&self) -> usize {
        self.by_index.len()
    }

    /// Whether no worker is at its seats.
    pub fn is_empty(&self) -> bool {
        self.by_index.is_empty()
    }

    /// How many seats each worker has.
    pub(crate) fn seats_each(&self) -> usize {
        self.seats_each
    }

    /// The worker with this index.
    pub(crate) fn get(&self, index: u16) -> Option<&Sitting> {
        self.by_index.get(&index)
    }

    /// The worker number of a worker that is at its seats.
    pub fn number_of(&self, worker: WorkerRef) -> Option<u16> {
        let sitting = self.get(worker.index)?;
        (sitting.epoch == worker.epoch).then_some(sitting.number)
    }

    /// The worker that has a seat, if the seat has not changed hands since.
    pub(crate) fn at(&self, tenant: Tenant) -> Option<&Sitting> {
        let sitting = self.on(tenant.seat)?;
        (sitting.epoch == tenant.epoch).then_some(sitting)
    }

    /// The worker that has a seat now.
    pub(crate) fn on(&self, seat: u16) -> Option<&Sitting> {
        self.get(self.exchange.geometry().worker_of(seat))
    }

    /// The same worker, as messages to the master name it.
    pub(crate) fn named_on(&self, seat: u16) -> Option<WorkerRef> {
        let index = self.exchange.geometry().worker_of(seat);
        let &Sitting { epoch, .. } = self.get(index)?;
        Some(WorkerRef { index, epoch })
    }

    /// Whether a slot with this tenant is with this worker.
    pub(crate) fn is_of(&self, tenant: Tenant, worker: WorkerRef) -> bool {
        let seats = self.exchange.geometry().seats_of(worker.index);
        seats.contains(&tenant.seat) && tenant.epoch == worker.epoch
    }

    /// The workers that may have a slot of which no seat says so. The master empties the seats of dead workers before
    /// it announces their death. If there are workers with emptied seats, it is one of these; else it may be any
    /// worker.
    pub(crate) fn possible_owners(&self) -> Vec<WorkerRef> {
        let first_of = |worker: u16| self.exchange.geometry().seats_of(worker).start;
        let pid_of = |worker: u16| self.exchange.pid_at(first_of(worker));
        let (sitting, dead): (Vec<_>, Vec<_>) = self
            .iter()
            .partition(|(worker, sitting)| pid_of(*worker) == Some(sitting.pid.cast_unsigned()));
        let some = if dead.is_empty() { sitting } else { dead };
        let some = some.into_iter();
        some.map(|(index, &Sitting { epoch, .. })| WorkerRef { index, epoch })
            .collect()
    }

    /// Notes that a worker is ready: its number, how many workers have had that number, and its process.
    pub(crate) fn sit_down(
        &mut self,
        worker: WorkerRef,
        (number, nth, pid): (u16, u32, i32),
        now_us: u64,
    ) {
        let WorkerRef { index, epoch } = worker;
        let sitting = Sitting {
            epoch,
            number,
            nth,
            pid,
            since_us: now_us,
            lag_before: self.lag(index),
        };
        self.by_index.insert(index, sitting);
    }

    /// Removes a worker that is gone.
    pub(crate) fn get_up(&mut self, worker: WorkerRef) {
        let WorkerRef { index, epoch } = worker;
        let Some(sitting) = self.get(index).copied() else {
            return;
        };
        if sitting.epoch == epoch {
            let lag = since(&self.lag(index), &sitting.lag_before);
            add(self.lags_of_gone.entry(sitting.number).or_default(), &lag);
            self.by_index.remove(&index);
        }
    }

    fn lag(&self, index: u16) -> LoopLag {
        let inbox = self.exchange.inbox(index);
        inbox.map_or_else(LoopLag::default, |inbox| inbox.lag())
    }

    /// The times that the event loop of a worker was late, by how late it was. Of the workers with one number, the
    /// newest has the times of those that are gone too. So the sum of a number never falls: a scraper would take a fall
    /// for a restart of the server.
    fn lags(&self, index: u16, now: &LoopLag) -> Lags {
        let Some(sitting) = self.get(index) else {
            return shown(&LoopLag::default());
        };
        let mut lag = since(now, &sitting.lag_before);
        let same = self.iter().filter(|(_, one)| one.number == sitting.number);
        let last = same.max_by_key(|(index, one)| (one.since_us, *index));
        if last.is_some_and(|(last, _)| last == index)
            && let Some(gone) = self.lags_of_gone.get(&sitting.number)
        {
            add(&mut lag, gone);
        }
        shown(&lag)
    }

    /// The state of the event loop of the worker with this index; `None` if it has none.
    pub fn loop_status(&self, worker: u16, now_us: u64) -> Option<LoopStatus> {
        let now = self.loop_now(worker, now_us)?;
        Some(LoopStatus {
            sessions: now.sessions,
            lag_us: now.lag_us,
            lag_max_us: now.lag.max_us.max(now.lag_us),
            lags: self.lags(worker, &now.lag),
        })
    }

    /// The same, without the times that the loop was late before.
    pub fn loop_now(&self, worker: u16, now_us: u64) -> Option<LoopNow> {
        let inbox = self.exchange.inbox(worker)?;
        let lag = inbox.lag();
        // The loop says how late it is when it turns, which may be a while ago.
        let silent_us = match inbox.beat_us() {
            0 => 0,
            beat_us => now_us.saturating_sub(beat_us),
        };
        Some(LoopNow {
            sessions: self.have_sessions.then(|| inbox.sessions()),
            lag_us: lag.last_us.max(silent_us.saturating_sub(BEAT_US)),
            lag,
        })
    }

    /// How many seats the worker of this index has, and how many of them are busy.
    pub fn seats_of(&self, worker: u16) -> (usize, usize) {
        let seats = self.exchange.geometry().seats_of(worker);
        let busy = seats
            .clone()
            .filter(|seat| self.does(*seat) == SeatDoes::Busy);
        (seats.len(), busy.count())
    }

    /// How many seats workers have, as `/status` counts the busy and the idle ones.
    pub fn seats_there(&self) -> usize {
        self.seats().count()
    }

    /// The seats that workers have.
    pub(crate) fn seats(&self) -> impl Iterator<Item = u16> {
        let seats = 0..self.exchange.geometry().seats as u16;
        seats.filter(|seat| self.does(*seat) != SeatDoes::Empty)
    }

    pub(crate) fn does(&self, seat: u16) -> SeatDoes {
        SeatDoes::of(self.exchange, seat)
    }

    /// How many seats the first `workers` lack. A worker that leaves keeps the seats that it still works at beside
    /// those of its successor: then their number lacks none.
    fn empty_seats(&self, workers: usize) -> usize {
        let mut taken = vec![0; workers];
        for seat in self.seats() {
            let number = self.on(seat).map(|sitting| sitting.number);
            if let Some(of) = number.and_then(|number| taken.get_mut(usize::from(number))) {
                *of += 1;
            }
        }
        let lacks = |taken: usize| self.seats_each.saturating_sub(taken);
        taken.into_iter().map(lacks).sum()
    }

    /// How many seats have had their request for longer than this.
    pub(crate) fn busy_for(&self, long_us: u64, now_us: u64) -> usize {
        let started_us = |seat| self.exchange.seat(seat).started_us.load(Relaxed);
        let busy = self
            .seats()
            .filter(|seat| self.does(*seat) == SeatDoes::Busy);
        busy.filter(|seat| now_us.saturating_sub(started_us(*seat)) > long_us)
            .count()
    }

    /// Looks at every seat that a worker has, or that one of the first `workers` should have.
    pub fn running(&self, workers: usize, now_us: u64) -> RunningRequests {
        let mut running = RunningRequests::default();
        let mut youngest_us = None;
        running.counts.empty = self.empty_seats(workers);
        for seat in self.seats() {
            match self.does(seat) {
                SeatDoes::Idle => running.counts.idle += 1,
                // Its worker left the seat in this moment.
                SeatDoes::Empty => {}
                SeatDoes::Busy => {
                    let seat = self.exchange.seat(seat);
                    let age_us = now_us.saturating_sub(seat.started_us.load(Relaxed));
                    running.counts.busy += 1;
                    running.ages.add(age_us);
                    youngest_us = Some(youngest_us.unwrap_or(age_us).min(age_us));
                }
            }
        }
        if running.counts.idle == 0 {
            running.stuck_us = youngest_us.unwrap_or(0);
        }
        running
    }
}

/// Subtracts the figures from `before`. Workers write them, so the later figure may be the smaller one.
fn since(now: &LoopLag, before: &LoopLag) -> LoopLag {
    let mut since = *now;
    since.sum_us = now.sum_us.saturating_sub(before.sum_us);
    for (count, before) in since.counts.iter_mut().zip(before.counts) {
        *count = count.saturating_sub(before);
    }
    since
}

fn add(sum: &mut LoopLag, more: &LoopLag) {
    sum.sum_us = sum.sum_us.saturating_add(more.sum_us);
    for (count, more) in sum.counts.iter_mut().zip(more.counts) {
        *count = count.saturating_add(more);
    }
}

fn shown(lag: &LoopLag) -> Lags {
    let mut count = 0_u64;
    let buckets = LAG_BOUNDS_US.iter().zip(lag.counts).map(|(&bound_us, of)| {
        count = count.saturating_add(of);
        (bound_us, count)
    });
    let buckets = buckets.collect();
    let over = lag.counts.last().copied().unwrap_or_default();
    Lags {
        count: count.saturating_add(over),
        sum_us: lag.sum_us,
        buckets,
    }
}
