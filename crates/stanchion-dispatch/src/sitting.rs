//! The workers at their seats, each with its worker number.

use stanchion_exchange::{LAG_BOUNDS_US, LoopLag, Tenant};

use super::Dispatch;
use super::status::{Lags, LoopStatus};
use stanchion_generation::messages::WorkerRef;

/// A worker at its seats.
#[derive(Clone, Copy)]
pub struct Sitting {
    pub(super) epoch: u16,
    /// Its worker number. A successor takes the number of its predecessor, and both are at their seats as long as the
    /// predecessor has requests to answer: their pids tell them apart.
    pub number: u16,
    /// It is the n-th worker with this number.
    pub(super) nth: u32,
    pub pid: i32,
    pub(super) since_us: u64,
    /// How late the event loops of earlier workers at these seats were, which may have had other numbers.
    lag_before: LoopLag,
}

impl Dispatch {
    /// Index and facts of every worker at its seats.
    pub fn sitting(&self) -> impl Iterator<Item = (u16, &Sitting)> {
        self.workers
            .iter()
            .map(|(&index, sitting)| (index, sitting))
    }

    /// The worker that has a seat, if the seat has not changed hands since.
    pub(super) fn sitting_at(&self, tenant: Tenant) -> Option<&Sitting> {
        let sitting = self.sitting_on(tenant.seat)?;
        (sitting.epoch == tenant.epoch).then_some(sitting)
    }

    /// The worker that has a seat now.
    pub(super) fn sitting_on(&self, seat: u16) -> Option<&Sitting> {
        let index = self.exchange.geometry().worker_of(seat);
        self.workers.get(&index)
    }

    /// Notes that a worker is ready: its number, how many workers have had that number, and its process.
    pub fn worker_ready(
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
        self.workers.insert(index, sitting);
        self.pass_ports_on(now_us);
        self.fill(now_us);
    }

    /// Removes a worker that is gone.
    pub(super) fn gets_up(&mut self, worker: WorkerRef) {
        let WorkerRef { index, epoch } = worker;
        let Some(sitting) = self.workers.get(&index).copied() else {
            return;
        };
        if sitting.epoch == epoch {
            let lag = since(&self.lag(index), &sitting.lag_before);
            add(self.lags_of_gone.entry(sitting.number).or_default(), &lag);
            self.workers.remove(&index);
        }
    }

    fn lag(&self, index: u16) -> LoopLag {
        let inbox = self.exchange.inbox(index);
        inbox.map_or_else(LoopLag::default, |inbox| inbox.lag())
    }

    /// The times that the event loop of a worker was late, by how late it was. Of the workers with one number, the
    /// newest has the times of those that are gone too. So the sum of a number never falls: a scraper would take a fall
    /// for a restart of the server.
    pub(super) fn lags(&self, index: u16, now: &LoopLag) -> Lags {
        let Some(sitting) = self.workers.get(&index) else {
            return shown(&LoopLag::default());
        };
        let mut lag = since(now, &sitting.lag_before);
        let same = self
            .sitting()
            .filter(|(_, one)| one.number == sitting.number);
        let last = same.max_by_key(|(index, one)| (one.since_us, *index));
        if last.is_some_and(|(last, _)| last == index)
            && let Some(gone) = self.lags_of_gone.get(&sitting.number)
        {
            add(&mut lag, gone);
        }
        shown(&lag)
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

impl LoopStatus {
    /// Adds up the event loops of a worker and of its successor, as if they were one. The later of the two is how late
    /// they are.
    pub fn and(&mut self, other: &Self) {
        self.sessions = match (self.sessions, other.sessions) {
            (Some(one), Some(two)) => Some(one.saturating_add(two)),
            (one, two) => one.or(two),
        };
        self.lag_us = self.lag_us.max(other.lag_us);
        self.lag_max_us = self.lag_max_us.max(other.lag_max_us);
        let (lags, more) = (&mut self.lags, &other.lags);
        lags.count = lags.count.saturating_add(more.count);
        lags.sum_us = lags.sum_us.saturating_add(more.sum_us);
        for ((_, count), (_, more)) in lags.buckets.iter_mut().zip(&more.buckets) {
            *count = count.saturating_add(*more);
        }
    }
}
