//! Spans of requests for OpenTelemetry. The acceptor decides which requests have spans, and keeps facts about them when
//! they are over. A thread makes spans of these facts and sends them ([`exporter`]).
//!
//! Spans cost nothing unless `otlp_endpoint` is set. A request gets its place in a trace before it joins the line,
//! since the app gets the span of its run in `traceparent`. When the request is over, the acceptor copies the needed
//! facts into a queue with a limit. The thread sends them once a second, on a connection of its own. The acceptor never
//! forks, so it may have threads. OpenTelemetry's own crates are not used: the exporter does not report why and how
//! many spans were lost, it sleeps between attempts and cannot be woken to leave, and the messages alone bring in the
//! SDK, 17 crates in all.

mod exporter;
mod finished;
mod otlp;
mod post;
mod proto;
mod resource;

use std::cell::{Cell, RefCell};
use std::io;

use stanchion_http::Head;

use super::traceparent::{SAMPLED, TRACEPARENT, TRACESTATE, Traceparent, traceparent};
use exporter::Exporter;
use finished::Finished;
use stanchion_dispatch::over::Over;
use stanchion_dispatch::random::Random;
use stanchion_dispatch::trace::Trace;
use stanchion_generation::tally::Outcome;
use stanchion_settings::Settings;

/// Gives requests their place in a trace, and takes them when they are over.
pub(super) struct Spans {
    /// A trace that begins here is recorded if the number in its id is not above this.
    chosen_below: u64,
    random: RefCell<Random>,
    exporter: Exporter,
}

impl Spans {
    /// Starts the thread that sends spans, if the settings name a collector.
    pub(super) fn open(settings: &Settings) -> io::Result<Option<Self>> {
        let Some(collector) = &settings.monitoring.otlp_endpoint else {
            return Ok(None);
        };
        Ok(Some(Self {
            chosen_below: u64::MAX / u64::from(settings.monitoring.otlp_sample_one_in),
            random: RefCell::new(Random::new()?),
            exporter: Exporter::start(collector, settings)?,
        }))
    }

    /// Gives a request whose head has come its place in a trace, if it is traced. Writes into the head the span that
    /// the app's own spans are to be children of. If the sender has decided not to trace the request, the head stays as
    /// it is.
    pub(super) fn begin(&self, head: &mut Head, started_us: u64) -> Option<Box<Trace>> {
        let mut random = self.random.borrow_mut();
        let (trace_id, parent_id, flags) = match Traceparent::of(head) {
            Some(parent) if parent.flags & SAMPLED == 0 => return None,
            Some(parent) => (parent.trace_id(), Some(parent.span_id()), parent.flags),
            None => {
                // The field belongs to a trace that is not named (Trace Context section 4.3).
                head.remove(TRACESTATE);
                let id: [u8; 16] = random.take();
                let number = u128::from_be_bytes(id) as u64;
                let is_chosen = number <= self.chosen_below;
                (id, None, if is_chosen { SAMPLED } else { 0 })
            }
        };
        let trace = Trace {
            trace_id,
            parent_id,
            flags,
            server_id: random.take(),
            run_id: random.take(),
            started_us,
            answered_us: Cell::new(0),
        };
        head.set(TRACEPARENT, &traceparent(trace_id, trace.run_id, flags));
        (flags & SAMPLED != 0).then(|| Box::new(trace))
    }

    /// Hands a request that is over to the exporter. Probes leave no spans.
    pub(super) fn end(&self, over: &Over) {
        let ticket = &over.ticket;
        if let Some(trace) = &ticket.trace
            && over.outcome != Outcome::Probed
        {
            let has_waited = ticket.has_joined();
            let was_taken = ticket.taken_us() != 0;
            let parts = [
                has_waited,
                has_waited && was_taken,
                ticket.session.get().is_some(),
            ];
            let spans = 1 + parts.into_iter().map(u64::from).sum::<u64>();
            let finished = || Finished::new(trace, over, has_waited);
            self.exporter.push(spans, finished);
        }
    }

    /// Spans dropped since the last call, to be counted.
    pub(super) fn take_dropped(&self) -> u64 {
        self.exporter.take_dropped()
    }

    /// Sends what waits, within a bound, and ends.
    pub(super) fn finish(&self) {
        self.exporter.finish();
    }
}
