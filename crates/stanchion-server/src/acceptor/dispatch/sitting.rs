//! The workers that sit at their seats, and which of the workers wanted each of them is.

use stanchion_exchange::{LAG_BOUNDS_US, LoopLag, Tenant};

use super::Dispatch;
use super::status::{Lags, LoopStatus};
use crate::messages::WorkerRef;

/// A worker that sits.
#[derive(Clone, Copy)]
pub(crate) struct Sitting {
    pub(super) tenure: u16,
    /// Which of the workers wanted it is. A successor has it from its predecessor, and both sit as long as that one has requests to answer:
    /// their processes tell them apart.
    pub(crate) number: u16,
    /// It is the n-th that has this number.
    pub(super) nth: u32,
    pub(crate) pid: i32,
    pub(super) since_us: u64,
    /// How late the loops of those were that sat here before, which may have had other numbers.
    lag_before: LoopLag,
}

impl Dispatch {
    /// Index and facts of every worker that sits.
    pub(crate) fn sitting(&self) -> impl Iterator<Item = (u16, &Sitting)> {
        self.workers
            .iter()
            .map(|(&index, sitting)| (index, sitting))
    }

    /// The one that has a seat, if that has not changed hands since.
    pub(super) fn sitting_at(&self, tenant: Tenant) -> Option<&Sitting> {
        let sitting = self.sitting_on(tenant.seat)?;
        (sitting.tenure == tenant.tenure).then_some(sitting)
    }

    /// The one that has a seat now.
    pub(super) fn sitting_on(&self, seat: u16) -> Option<&Sitting> {
        let index = self.exchange.geometry().worker_of(seat);
        self.workers.get(&index)
    }

    /// A worker has sat down: its number, how many have had that, and its process.
    pub(crate) fn worker_ready(
        &mut self,
        worker: WorkerRef,
        (number, nth, pid): (u16, u32, i32),
        now_us: u64,
    ) {
        let WorkerRef { index, tenure } = worker;
        let sitting = Sitting {
            tenure,
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

    /// A worker is gone, and sits no more.
    pub(super) fn gets_up(&mut self, worker: WorkerRef) {
        let WorkerRef { index, tenure } = worker;
        let Some(sitting) = self.workers.get(&index).copied() else {
            return;
        };
        if sitting.tenure == tenure {
            let lag = since(&self.lag(index), &sitting.lag_before);
            add(self.lags_of_gone.entry(sitting.number).or_default(), &lag);
            self.workers.remove(&index);
        }
    }

    fn lag(&self, index: u16) -> LoopLag {
        let inbox = self.exchange.inbox(index);
        inbox.map_or_else(LoopLag::default, |inbox| inbox.lag())
    }

    /// How late the loop of a worker was each time. The last to sit down of those that have one number has the times of those too that are
    /// gone, so that all of them together never have fewer than before: a scraper would take fewer for a server that has started again.
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

/// Subtracts what came before. Workers write these figures, so that the later ones may be the smaller.
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
    /// Both, of a worker and the one that takes its place, as if they were one: the later of the two is how late they are.
    pub(crate) fn and(&mut self, other: &Self) {
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
