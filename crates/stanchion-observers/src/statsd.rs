//! The acceptor sends metrics of the line and its requests to a statsd server: durations one by one, counts as what
//! they have grown by, gauges now and then. It gathers them first: a server of that kind sums up seconds, and a
//! datagram costs as much as a small request.
//!
//! It gathers for a quarter of a second. Each generation's acceptor sends the growth of its own counts.

use std::cell::{Cell, RefCell};
use std::io;

use stanchion_dispatch::over::Over;
use stanchion_dispatch::storage::shortage::Shortage;
use stanchion_generation::tally::{CloseCode, Counts, Event, Outcome, Tally};
use stanchion_log::statsd::{self, Batch};
use stanchion_settings::Settings;

/// The acceptor sends gauges every so many ticks: once a second, as gunicorn does.
const TICKS_PER_GAUGE: u32 = 4;

/// The metrics of the acceptor.
pub(super) struct StatsdObserver {
    metrics: RefCell<Batch>,
    /// How often each status was answered since these numbers were last sent; there are few statuses at a time.
    statuses: RefCell<Vec<(u16, u64)>>,
    /// The counts that were sent last.
    told: Cell<Counts>,
    ticks: Cell<u32>,
    untold: Shortage,
}

/// Figures that go up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Workers at their seats.
    pub workers: usize,
    /// Requests in the line.
    pub waiting: usize,
    /// Connections in the kernel's queues, if the settings ask for that (`enable_backlog_metric`).
    pub queued: Option<u64>,
    /// The figures of event loops, if workers have them.
    pub loops: Option<Loops>,
}

/// The figures of all event loops together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loops {
    /// Sessions that they have; `None` under gevent, where there are none.
    pub sessions: Option<u64>,
    /// The largest lag of any event loop.
    pub lag_us: u64,
}

/// The counts of sessions that are sent, with the names of their metrics.
const SESSION_EVENTS: [(Event, &str); 7] = [
    (Event::SessionBegun, "begun"),
    (Event::SessionClosedByApp, "closed_by_app"),
    (Event::SessionClosedByClient, "closed_by_client"),
    (Event::SessionClosedByServer, "closed_by_server"),
    (Event::SessionCut, "cut"),
    (Event::SessionReceived, "messages_received"),
    (Event::SessionSent, "messages_sent"),
];

impl StatsdObserver {
    /// Opens the way to a statsd server, if the settings name one.
    pub(super) fn open(settings: &Settings, tally: &Tally) -> io::Result<Option<Self>> {
        let metrics = statsd::StatsdClient::open(settings)?;
        Ok(metrics.map(|metrics| Self {
            metrics: RefCell::new(Batch::new(metrics)),
            statuses: RefCell::default(),
            told: Cell::new(tally.read()),
            ticks: Cell::new(0),
            untold: Shortage::of("metrics cannot be sent to statsd_host, and are dropped"),
        }))
    }

    /// Adds a request that is over.
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

    /// Adds what counts have grown by.
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

    /// Sends the metrics there are; called four times a second.
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

    /// Sends the last counts. To be called last of all.
    pub(super) fn finish(&self, tally: &Tally) {
        self.tell_counts(tally);
        self.metrics.borrow_mut().flush();
    }
}
