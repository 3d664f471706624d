//! A thread makes spans of the requests that are over, and sends them.

use std::cell::Cell;
use std::env;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stanchion_sys::clock::{monotonic_us, wall_us};
use tracing::{info, warn};

use super::finished::Finished;
use super::otlp::{Clock, ResourceFacts};
use super::post::{ExportFailure, post};
use super::resource;
use stanchion_dispatch::random::Random;
use stanchion_log::panics;
use stanchion_settings::{Collector, Settings};

/// At most so many requests wait to be sent, as many as OpenTelemetry's own queues have room for; a request that ends
/// when the queue is full is dropped.
const WAITING_MAX: usize = 2048;
/// At most so many requests are sent at a time.
const BATCH_MAX: usize = 512;
/// How long the thread gathers requests, unless there are enough of them before.
const GATHERING: Duration = Duration::from_secs(1);
/// How long the thread leaves a collector alone that takes no spans: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the log says at most that a collector takes spans too slowly.
const SLOW_REPEAT: Duration = Duration::from_secs(60);
/// How long the thread may send what is left when the process ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// The end into which the acceptor puts requests.
pub(super) struct Exporter {
    shared: Arc<ExporterShared>,
    /// How many of the dropped spans the acceptor has counted.
    counted: Cell<u64>,
}

struct ExporterShared {
    state: Mutex<ExporterState>,
    changed: Condvar,
    /// Spans that were dropped so far.
    dropped: AtomicU64,
}

#[derive(Default)]
struct ExporterState {
    waiting: Vec<Finished>,
    /// The requests that the thread has taken and not sent yet, and the number of their spans.
    in_hand: usize,
    in_hand_spans: u64,
    /// The thread sleeps until something comes.
    asleep: bool,
    /// The thread is to send what there is, and to end.
    leaving: bool,
    finished: bool,
}

impl Exporter {
    /// Starts the thread. To be called only in a process that does not fork any more.
    pub(super) fn start(collector: &Collector, settings: &Settings) -> io::Result<Self> {
        let shared = Arc::new(ExporterShared {
            state: Mutex::default(),
            changed: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let variable = env::var_os("OTEL_RESOURCE_ATTRIBUTES");
        let service = settings.monitoring.otlp_service_name.as_deref();
        let (attributes, unusable) = resource::attributes(variable.as_deref(), service);
        if let Some(unusable) = unusable {
            warn!("OTEL_RESOURCE_ATTRIBUTES is ignored: {unusable}");
        }
        let lanes = settings.lanes().into_iter().map(|lane| lane.name).collect();
        let sender = Sender {
            shared: Arc::clone(&shared),
            collector: collector.clone(),
            origin: ResourceFacts::new(attributes, lanes),
            random: Random::new()?,
            pause: None,
            dropped_before: 0,
            slow_said: None,
        };
        let builder = thread::Builder::new().name("stanchion-otlp".to_owned());
        builder.spawn(move || panics::vital(|| sender.run()))?;
        Ok(Self {
            shared,
            counted: Cell::new(0),
        })
    }

    /// Adds a request that makes so many spans, or drops it if there is no room. Never waits for the collector.
    pub(super) fn push(&self, spans: u64, finished: impl FnOnce() -> Finished) {
        let mut state = self.shared.lock();
        if state.waiting.len() + state.in_hand >= WAITING_MAX {
            drop(state);
            self.shared.drop_spans(spans);
            return;
        }
        state.waiting.push(finished());
        if state.waiting.len() == BATCH_MAX || std::mem::take(&mut state.asleep) {
            self.shared.changed.notify_all();
        }
    }

    /// Spans dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        dropped - self.counted.replace(dropped)
    }

    /// Sends what is left and ends the thread, within a bound.
    pub(super) fn finish(&self) {
        let deadline = Instant::now() + FAREWELL;
        let mut state = self.shared.lock();
        state.leaving = true;
        self.shared.changed.notify_all();
        while !state.finished {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waiting: u64 = state.waiting.drain(..).map(|one| one.spans()).sum();
                let lost = waiting + std::mem::take(&mut state.in_hand_spans);
                drop(state);
                self.shared.drop_spans(lost);
                warn!("{lost} spans were not sent: the collector did not take them in time");
                return;
            }
            state = self.shared.wait(state, left);
        }
    }
}

impl ExporterShared {
    /// No code that holds the lock can panic halfway through a change.
    fn lock(&self) -> MutexGuard<'_, ExporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, for at most so long.
    fn wait<'s>(
        &'s self,
        state: MutexGuard<'s, ExporterState>,
        limit: Duration,
    ) -> MutexGuard<'s, ExporterState> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn drop_spans(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }
}

/// The end of the thread, which sends.
struct Sender {
    shared: Arc<ExporterShared>,
    collector: Collector,
    origin: ResourceFacts,
    random: Random,
    /// How long to leave the collector alone next time; `None` while it takes everything.
    pause: Option<Duration>,
    /// So many spans had been dropped when the collector last took some. A slow collector also costs the spans that are dropped while
    /// the thread waits for its answer.
    dropped_before: u64,
    /// When the log last said that the collector takes spans too slowly.
    slow_said: Option<Instant>,
}

impl Sender {
    fn run(mut self) {
        let mut batch = Vec::new();
        while self.next(&mut batch) {
            for part in batch.chunks(BATCH_MAX) {
                self.send(part);
                let spans: u64 = part.iter().map(Finished::spans).sum();
                let mut state = self.shared.lock();
                state.in_hand -= part.len();
                state.in_hand_spans = state.in_hand_spans.saturating_sub(spans);
            }
            batch.clear();
        }
        if self.pause.is_some() {
            let dropped = self.dropped();
            warn!(
                "{} took no spans until the server left; {dropped} were dropped",
                self.collector
            );
        }
        self.shared.lock().finished = true;
        self.shared.changed.notify_all();
    }

    /// Waits for requests, gathers some, and takes them; false if there will be none.
    fn next(&self, batch: &mut Vec<Finished>) -> bool {
        let shared = &self.shared;
        let mut gathered = None;
        let mut state = shared.lock();
        loop {
            if state.waiting.is_empty() {
                if state.leaving {
                    return false;
                }
                state.asleep = true;
                state = shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                state.asleep = false;
                continue;
            }
            let until = *gathered.get_or_insert_with(|| Instant::now() + GATHERING);
            let left = until.saturating_duration_since(Instant::now());
            if state.leaving || state.waiting.len() >= BATCH_MAX || left.is_zero() {
                std::mem::swap(batch, &mut state.waiting);
                state.in_hand = batch.len();
                state.in_hand_spans = batch.iter().map(Finished::spans).sum();
                return true;
            }
            state = shared.wait(state, left);
        }
    }

    /// Sends the spans of some requests, again and again while that may help.
    fn send(&mut self, part: &[Finished]) {
        let spans = part.iter().map(Finished::spans).sum();
        // The thread reads both clocks here, and not for each request: when the clock on the wall is set, the spans of
        // a request still fit together.
        let offset_us = wall_us().wrapping_sub(monotonic_us());
        let clock = Clock { offset_us };
        let message = self.origin.message(part, clock, &mut self.random);
        let message = serde_json::to_vec(&message).expect("texts and numbers are JSON");
        loop {
            match post(&self.collector, &message) {
                Ok(()) => return self.goes_well(),
                Err(ExportFailure::Refused { spans: some, why }) => {
                    self.goes_wrong(&why);
                    // A collector cannot have rejected more than it got.
                    let lost = some.map_or(spans, |some| some.min(spans));
                    self.shared.drop_spans(lost);
                    return;
                }
                Err(ExportFailure::Passing(why)) => {
                    self.goes_wrong(&why);
                    if !self.pause() {
                        self.shared.drop_spans(spans);
                        return;
                    }
                }
            }
        }
    }

    /// How many spans were dropped since the collector last took some.
    fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed) - self.dropped_before
    }

    fn goes_well(&mut self) {
        let dropped = self.dropped();
        if self.pause.take().is_some() {
            info!(
                "{} takes spans again; {dropped} were dropped",
                self.collector
            );
        } else if dropped > 0 {
            let is_said = |said: Instant| said.elapsed() < SLOW_REPEAT;
            if self.slow_said.is_some_and(is_said) {
                // The next line counts them.
                return;
            }
            self.slow_said = Some(Instant::now());
            warn!(
                "{} takes spans too slowly: {dropped} were dropped. Sample fewer requests (otlp_sample_one_in)",
                self.collector
            );
        }
        self.dropped_before += dropped;
    }

    /// Logs the trouble, unless the log has it already.
    fn goes_wrong(&mut self, why: &str) {
        if self.pause.is_none() {
            warn!("{} does not take spans: {why}", self.collector);
            self.pause = Some(PAUSE);
        }
    }

    /// Leaves the collector alone for a while; false if there is no time for that.
    fn pause(&mut self) -> bool {
        let pause = self.pause.get_or_insert(PAUSE);
        let until = Instant::now() + *pause;
        *pause = PAUSE_MAX.min(2 * *pause);
        let mut state = self.shared.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.leaving || left.is_zero() {
                return !state.leaving;
            }
            state = self.shared.wait(state, left);
        }
    }
}
