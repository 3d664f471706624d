//! What of the line and its requests goes to a statsd server: durations one by one, counts as what they have
//! grown by, gauges now and then. Nothing is sent at once: a server of that kind sums up seconds, and a datagram
//! costs as much as a small request.

use std::cell::{Cell, RefCell};
use std::io;

use crate::acceptor::dispatch::over::Over;
use crate::acceptor::storage::shortage::Shortage;
use crate::settings::Settings;
use crate::statsd::{self, Batch};
use crate::tally::{CloseCode, Counts, Event, Outcome, Tally};

/// Gauges are told at every so many ticks: once a second, as gunicorn has it.
const TICKS_PER_GAUGE: u32 = 4;

/// What the acceptor tells.
pub(super) struct Statsd {
    metrics: RefCell<Batch>,
    /// How often each status was answered since that was last told; there are few at a time.
    statuses: RefCell<Vec<(u16, u64)>>,
    /// The counts that were told last.
    told: Cell<Counts>,
    ticks: Cell<u32>,
    untold: Shortage,
}

/// What goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gauges {
    /// That sit.
    pub(crate) workers: usize,
    /// In the line.
    pub(crate) waiting: usize,
    /// In the kernel's queues, if that is to be told (`enable_backlog_metric`).
    pub(crate) queued: Option<u64>,
    /// If workers have event loops.
    pub(crate) loops: Option<Loops>,
}

/// Of all event loops together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loops {
    /// Sessions that they have; `None` under gevent, where there are none.
    pub(crate) sessions: Option<u64>,
    /// The largest lag of one of them.
    pub(crate) lag_us: u64,
}

/// What is told of sessions, by the names of their counts.
const SESSION_EVENTS: [(Event, &str); 7] = [
    (Event::SessionBegun, "begun"),
    (Event::SessionClosedByApp, "closed_by_app"),
    (Event::SessionClosedByClient, "closed_by_client"),
    (Event::SessionClosedByServer, "closed_by_server"),
    (Event::SessionCut, "cut"),
    (Event::SessionReceived, "messages_received"),
    (Event::SessionSent, "messages_sent"),
];

impl Statsd {
    /// Opens what the settings ask for, if anything.
    pub(super) fn open(settings: &Settings, tally: &Tally) -> io::Result<Option<Self>> {
        let metrics = statsd::Statsd::open(settings)?;
        Ok(metrics.map(|metrics| Self {
            metrics: RefCell::new(Batch::new(metrics)),
            statuses: RefCell::default(),
            told: Cell::new(tally.read()),
            ticks: Cell::new(0),
            untold: Shortage::of("metrics cannot be sent to statsd_host, and are dropped"),
        }))
    }

    /// A request is over.
    pub(super) fn add(&self, over: &Over) {
        let (ticket, status, now_us) = (&over.ticket, over.status, over.now_us);
        let took_us = now_us.saturating_sub(ticket.request.arrived_us);
        let mut metrics = self.metrics.borrow_mut();
        metrics.timer("gunicorn.request.duration", took_us);
        metrics.timer("stanchion.request.wait", ticket.wait_us(now_us));
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
        for (event, name) in SESSION_EVENTS {
            let grown = now.happened(event) - told.happened(event);
            metrics.count(format_args!("stanchion.sessions.{name}"), grown);
        }
        for &code in CloseCode::ALL {
            let grown = now.ended_by(code) - told.ended_by(code);
            let name = code.name();
            metrics.count(format_args!("stanchion.sessions.code.{name}"), grown);
        }
    }

    fn tell_gauges(&self, gauges: Gauges) {
        let mut metrics = self.metrics.borrow_mut();
        metrics.gauge("gunicorn.workers", gauges.workers);
        metrics.gauge("stanchion.line.waiting", gauges.waiting);
        if let Some(queued) = gauges.queued {
            metrics.histogram("gunicorn.backlog", queued);
        }
        if let Some(Loops { sessions, lag_us }) = gauges.loops {
            if let Some(sessions) = sessions {
                metrics.gauge("stanchion.sessions.open", sessions);
            }
            metrics.gauge("stanchion.loop.lag_ms", lag_us / 1_000);
        }
    }

    /// Sends what there is to tell; called four times a second.
    pub(super) fn tick(&self, tally: &Tally, now_us: u64, gauges: impl FnOnce() -> Option<Gauges>) {
        self.tell_counts(tally);
        let ticks = self.ticks.get();
        self.ticks.set((ticks + 1) % TICKS_PER_GAUGE);
        if ticks == 0
            && let Some(gauges) = gauges()
        {
            self.tell_gauges(gauges);
        }
        let mut metrics = self.metrics.borrow_mut();
        metrics.flush();
        if let Some(dropped) = metrics.take_dropped() {
            tally.happened_times(Event::MetricDropped, dropped.metrics);
            self.untold.failed(now_us, &dropped.why);
        }
        self.untold.settle(now_us);
    }

    /// The last thing of all.
    pub(super) fn finish(&self, tally: &Tally) {
        self.tell_counts(tally);
        self.metrics.borrow_mut().flush();
    }
}
