//! What of the line and its requests goes to a statsd server: durations one by one, counts as what they have
//! grown by, gauges now and then. Nothing is sent at once: a server of that kind sums up seconds, and a datagram
//! costs as much as a small request.

use std::cell::{Cell, RefCell};
use std::io;

use stanchion_sys::clock::monotonic_us;

use super::Shared;
use super::access_log::Entry;
use super::room::Shortage;
use crate::settings::Settings;
use crate::statsd::{self, Batch};
use crate::tally::{Counts, Event, Outcome, Tally};

/// Gauges are told at every so many looks of the watch: once a second, as gunicorn has it.
const LOOKS_PER_GAUGE: u32 = 4;

/// What the acceptor tells.
pub(super) struct Statsd {
    metrics: RefCell<Batch>,
    /// How often each status was answered since that was last told; there are few at a time.
    statuses: RefCell<Vec<(u16, u64)>>,
    /// The counts that were told last.
    told: Cell<Counts>,
    looks: Cell<u32>,
    pub(super) untold: Shortage,
}

impl Statsd {
    /// Opens what the settings ask for, if anything.
    pub(super) fn open(settings: &Settings, tally: &Tally) -> io::Result<Option<Self>> {
        let metrics = statsd::Statsd::open(settings)?;
        Ok(metrics.map(|metrics| Self {
            metrics: RefCell::new(Batch::new(metrics)),
            statuses: RefCell::default(),
            told: Cell::new(tally.read()),
            looks: Cell::new(0),
            untold: Shortage::of("metrics cannot be sent to statsd_host, and are dropped"),
        }))
    }

    /// A request is over.
    pub(super) fn add(&self, entry: &Entry) {
        let now_us = monotonic_us();
        let ticket = &entry.ticket;
        let took_us = now_us.saturating_sub(ticket.request.arrived_us);
        let mut metrics = self.metrics.borrow_mut();
        metrics.timer("gunicorn.request.duration", took_us);
        metrics.timer("stanchion.request.wait", ticket.wait_us(now_us));
        let status = entry.status.as_u16();
        let mut statuses = self.statuses.borrow_mut();
        match statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => statuses.push((status, 1)),
        }
    }

    /// Tells what has grown.
    fn tell_counts(&self, tally: &Tally) {
        let mut metrics = self.metrics.borrow_mut();
        let statuses = self.statuses.take();
        let requests = statuses.iter().map(|(_, count)| count).sum();
        metrics.count("gunicorn.requests", requests);
        for (status, count) in statuses {
            metrics.count(format_args!("gunicorn.request.status.{status}"), count);
        }
        let now = tally.read();
        let told = self.told.replace(now);
        for &outcome in Outcome::ALL {
            let grown = now.ended(outcome) - told.ended(outcome);
            let name = outcome.name();
            metrics.count(format_args!("stanchion.request.outcome.{name}"), grown);
        }
    }

    /// The last thing of all.
    pub(super) fn finish(&self, tally: &Tally) {
        self.tell_counts(tally);
        self.metrics.borrow_mut().flush();
    }
}

impl Shared {
    /// Sends what there is to tell; called four times a second.
    pub(super) fn tell_statsd(&self, now_us: u64) {
        let Some(statsd) = &self.statsd else { return };
        let tally = &self.common.tally;
        statsd.tell_counts(tally);
        let looks = statsd.looks.get();
        statsd.looks.set((looks + 1) % LOOKS_PER_GAUGE);
        // Of two acceptors the one tells that has the door.
        if looks == 0 && self.open.get() && !self.retiring.get() {
            self.tell_gauges(statsd);
        }
        let mut metrics = statsd.metrics.borrow_mut();
        metrics.flush();
        let dropped = metrics.take_dropped();
        drop(metrics);
        if let Some(dropped) = dropped {
            tally.happened_times(Event::MetricDropped, dropped.metrics);
            statsd.untold.failed(now_us, &dropped.why);
        }
        statsd.untold.settle(now_us);
    }

    fn tell_gauges(&self, statsd: &Statsd) {
        let dispatch = self.dispatch.borrow();
        let mut metrics = statsd.metrics.borrow_mut();
        metrics.gauge("gunicorn.workers", dispatch.sitting().count());
        metrics.gauge("stanchion.line.waiting", dispatch.waiting());
        if self.common.settings.enable_backlog_metric {
            let queued = self.listener_statuses().into_iter();
            let queued = queued.filter_map(|listener| listener.queued.map(u64::from));
            metrics.histogram("gunicorn.backlog", queued.sum());
        }
    }
}
