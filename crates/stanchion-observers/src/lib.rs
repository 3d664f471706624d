//! Observers keep records of requests: the access log, statsd, spans, recordings of arrivals, and the error log of refused requests. Each gets
//! one record of a request that is over ([`stanchion_dispatch::over::Over`]), at the end of the turn in which the
//! request ended, and nothing depends on what an observer does with the record.
//!
//! This crate may not change a request, an answer or a connection: it may not name the line or the exchange, fork, or
//! use unsafe code. Nor does it keep the loop waiting: lines go to the threads of the log, and a thread of its own
//! sends spans.

#![forbid(unsafe_code)]

pub(crate) mod access_log;
mod recorder;
mod repeats;
mod spans;
mod statsd;
#[cfg(test)]
mod tests;
mod traceparent;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use stanchion_arrivals::RecordedEvent;
use stanchion_http::Head;
use stanchion_log::RecordingFiles;
use stanchion_sys::channel::Channel;
use stanchion_sys::charge;

use access_log::AccessLog;
use recorder::Recorder;
pub use recorder::open_recording;
pub use repeats::Repeats;
use spans::Spans;
use stanchion_dispatch::over::Over;
use stanchion_dispatch::ticket::Ticket;
use stanchion_dispatch::trace::Trace;
use stanchion_generation::tally::{Event, Tally};
use stanchion_settings::Settings;
use statsd::StatsdObserver;
pub use statsd::{Gauges, Loops};

/// Checks the settings that only observers understand.
pub fn check(settings: &Settings) -> Result<(), String> {
    access_log::check(&settings.log.access_log_format)
}

/// Once so many requests are over, the observers get them before the turn of the event loop ends.
const OVER_MAX: usize = 64;

/// The observers that the settings ask for.
pub struct Observers {
    /// One for people, and one for the scribe (the log process).
    access_logs: Vec<AccessLog>,
    statsd: Option<StatsdObserver>,
    spans: Option<Spans>,
    recorder: Option<Recorder>,
    /// When the monotonic clock was 0, in microseconds since 1970, as of this turn of the event loop.
    epoch_us: u64,
    tally: Arc<Tally>,
    /// Requests that are over, until the observers get them.
    over: Vec<Over>,
}

impl Observers {
    /// Starts the threads of observers: to be called only in a process that does not fork any more. `scribe` is the
    /// channel to the scribe, if there is one.
    pub fn open(
        settings: &Settings,
        tally: &Arc<Tally>,
        scribe: Option<Channel>,
    ) -> io::Result<Self> {
        let access_log = AccessLog::open(settings, scribe.is_some())?;
        let records = scribe.map(|scribe| AccessLog::for_scribe(settings, scribe));
        let access_logs: Vec<_> = access_log.into_iter().chain(records.transpose()?).collect();
        Ok(Self {
            access_logs,
            statsd: StatsdObserver::open(settings, tally)?,
            spans: Spans::open(settings)?,
            recorder: None,
            epoch_us: 0,
            tally: Arc::clone(tally),
            over: Vec::new(),
        })
    }

    /// Has arrivals recorded in these files from now on, if there are some. It starts a thread, as [`Self::open`] does.
    pub fn record_arrivals(
        &mut self,
        settings: &Settings,
        files: Option<RecordingFiles>,
    ) -> io::Result<()> {
        let start = |files| Recorder::start(settings, files);
        self.recorder = files.map(start).transpose()?;
        Ok(())
    }

    /// Whether any observer records requests.
    pub fn wants(&self) -> bool {
        let has_logs = !self.access_logs.is_empty() || self.recorder.is_some();
        has_logs || self.statsd.is_some() || self.spans.is_some()
    }

    /// Begins a turn of the event loop. `epoch_us` is when the monotonic clock was 0, in microseconds since 1970.
    pub fn begin_turn(&mut self, epoch_us: u64) {
        self.epoch_us = epoch_us;
    }

    /// Has an event of workers recorded, if arrivals are.
    pub fn workers_changed(&mut self, event: RecordedEvent, now_us: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.happened(event, self.epoch_us.wrapping_add(now_us));
        }
    }

    /// Whether any observer reads [`Over::head`].
    pub fn wants_answer_head(&self) -> bool {
        self.access_logs.iter().any(|log| log.wants_answer_head)
    }

    /// Gives a request whose head has come its place in a trace, if it is traced, and writes the place into the head
    /// for the app.
    pub fn begin_trace(&self, head: &mut Head, started_us: u64) -> Option<Box<Trace>> {
        self.spans.as_ref()?.begin(head, started_us)
    }

    /// Keeps a request that is over until the next [`Self::tell`].
    pub fn over(&mut self, over: Over) {
        // The list is for all requests, so no single client pays for it.
        let _charged = charge::to_nobody();
        self.over.push(over);
        if self.over.len() == OVER_MAX {
            self.tell(drop);
        }
    }

    /// Hands all requests that are over to the observers, and gives away the tickets. To be called once per turn of the
    /// event loop, before it sleeps, and not for each answer: right after an answer has gone to the kernel, the core's
    /// caches do not have what writes a line.
    pub fn tell(&mut self, mut done: impl FnMut(Rc<Ticket>)) {
        for over in self.over.drain(..) {
            for log in &mut self.access_logs {
                log.add(&over, self.epoch_us);
            }
            if let Some(statsd) = &self.statsd {
                statsd.add(&over);
            }
            if let Some(spans) = &self.spans {
                spans.end(&over);
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.add(&over, self.epoch_us);
            }
            done(over.ticket);
        }
        self.access_logs.iter_mut().for_each(AccessLog::flush);
    }

    /// Passes records of arrivals on to the thread that writes them, four times a second.
    pub fn flush_recording(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    /// Has statsd send its metrics, and counts dropped spans, four times a second. `gauges` is called when it is time to
    /// send gauges; of two acceptors, only the one that accepts connections gives some.
    pub fn tick(&self, now_us: u64, gauges: impl FnOnce() -> Option<Gauges>) {
        if let Some(statsd) = &self.statsd {
            statsd.tick(&self.tally, now_us, gauges);
        }
        self.count_dropped_spans();
    }

    /// Opens the access log again, after it was renamed, and has a recording go on in another file.
    pub fn reopen(&mut self) {
        // Requests that are over belong to the old file.
        self.tell(drop);
        self.access_logs.iter().for_each(AccessLog::reopen);
        self.flush_recording();
        if let Some(recorder) = &self.recorder {
            recorder.reopen();
        }
    }

    /// Writes and sends what is left, each observer within a bound. To be called last of all.
    pub fn finish(&mut self) {
        self.tell(drop);
        if let Some(statsd) = &self.statsd {
            statsd.finish(&self.tally);
        }
        self.access_logs.iter().for_each(AccessLog::finish);
        self.flush_recording();
        if let Some(recorder) = &self.recorder {
            recorder.finish();
        }
        if let Some(spans) = &self.spans {
            spans.finish();
            self.count_dropped_spans();
        }
    }

    fn count_dropped_spans(&self) {
        let Some(spans) = &self.spans else { return };
        let dropped = spans.take_dropped();
        if dropped > 0 {
            self.tally.happened_times(Event::SpanDropped, dropped);
        }
    }
}
