//! The recording of arrivals (`record_arrivals`): a record of each request that came to the line, once it is over, and of workers that come and go.
//! The records go to the log's threads, as lines do, so a slow disk loses records and delays no request.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;

use stanchion_arrivals::{
    ArrivalHeader, ArrivalRecord, RECORD_BYTES, Recorded, RecordedEvent, RecordedLane,
    RecordedRequest, RecordedSettings, RequestEnd, recorded_us,
};
use stanchion_dispatch::over::Over;
use stanchion_dispatch::storage::clients::Client;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally::Outcome;
use stanchion_log::{LogQueue, Of, Outlet, RecordingFiles};
use stanchion_settings::{Believed, QueueOrder, Seconds, Settings};
use stanchion_sys::random;

/// So many bytes of records go to the thread at once; fewer wait for the next tick. To wake a thread for each request would cost more than all
/// the rest of its record.
const BATCH_BYTES: usize = 2048 * RECORD_BYTES;

/// The writer of a recording.
pub(super) struct Recorder {
    queue: LogQueue,
    /// The number of the last record.
    number: u64,
    /// Records that the thread does not have yet.
    records: Vec<u8>,
    /// The key under which clients are hashed: random, and nowhere else.
    key: RandomState,
    /// Random for this writer: the keys of [`RandomState`] are those of the thread that was forked, if that had any.
    salt: [u8; 16],
    /// Proxies that the server believes about the client's address.
    believed: Believed,
}

/// Begins the files of a recording, if the settings ask for one. The error is the operator's: why the directory cannot be written.
pub fn open_recording(settings: &Settings, cores: u32) -> io::Result<Option<RecordingFiles>> {
    let Some(directory) = &settings.monitoring.record_arrivals else {
        return Ok(None);
    };
    let mut writer = [0; 8];
    random::fill(&mut writer)?;
    let header = ArrivalHeader {
        writer: u64::from_le_bytes(writer),
        // Each file has the time at which it was begun.
        begun_us: 0,
        settings: recorded_settings(settings, cores),
    };
    RecordingFiles::open(directory, header).map(Some)
}

impl Recorder {
    /// Starts the thread that writes to these files.
    pub(super) fn start(settings: &Settings, files: RecordingFiles) -> io::Result<Self> {
        let mut salt = [0; 16];
        random::fill(&mut salt)?;
        Ok(Self {
            salt,
            queue: LogQueue::start(Of::Recording, Arc::new(Outlet::Recording(files)))?,
            number: 0,
            records: Vec::new(),
            key: RandomState::new(),
            believed: settings.believed(),
        })
    }

    /// Adds a request that is over, if it had come to the line. `epoch_us` is when the monotonic clock was 0, in microseconds
    /// since 1970.
    pub(super) fn add(&mut self, over: &Over, epoch_us: u64) {
        let ticket = &over.ticket;
        if ticket.has_joined() {
            let request = self.request(ticket, over);
            let at_us = epoch_us.wrapping_add(ticket.request.arrived_us);
            self.push(at_us, Recorded::Request(request));
        }
    }

    /// Adds an event of workers, which happened at this moment since 1970.
    pub(super) fn happened(&mut self, event: RecordedEvent, at_us: u64) {
        self.push(at_us, Recorded::Event(event));
    }

    fn push(&mut self, at_us: u64, what: Recorded) {
        self.number += 1;
        let record = ArrivalRecord {
            number: self.number,
            at_us,
            what,
        };
        self.records.extend_from_slice(&record.encode());
        if self.records.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    fn request(&self, ticket: &Ticket, over: &Over) -> RecordedRequest {
        let request = &ticket.request;
        // As for `max_waiting_per_client`: a proxy that names no client is one.
        let said = request.peer.said(&request.head);
        let client = self.believed.client(request.peer.ip, said).map(Client::at);
        let was_seated = ticket.taken_us() != 0;
        let session = ticket.session.get();
        let service_us = match session {
            // The session gave its seat back when it began.
            Some(session) => Some(session.begun_us.saturating_sub(ticket.taken_us())),
            None => ticket.service_us(over.now_us),
        };
        let measured = ticket.measured();
        RecordedRequest {
            front_us: recorded_us(request.proxy_us.unwrap_or_default()),
            wait_us: recorded_us(ticket.wait_us(over.now_us)),
            service_us: recorded_us(service_us.unwrap_or_default()),
            cpu_us: measured.cpu_us.map(recorded_us),
            core_us: measured.core_us.map(recorded_us),
            gil_us: measured.gil_us.map(recorded_us),
            // 0 is the unknown client.
            client: client.map_or(0, |client| {
                (self.key.hash_one((self.salt, client)) as u32).max(1)
            }),
            busy: if was_seated { ticket.busy.get() } else { 0 },
            waiting: ticket.waiting.get(),
            worker: ticket.worker_number(),
            status: over.status,
            lane: u8::try_from(ticket.lane.get().index()).unwrap_or(u8::MAX),
            end: end_of(over.outcome, was_seated),
            left_seat: session.is_some(),
        }
    }

    /// Passes what has been added on to the thread that writes.
    pub(super) fn flush(&mut self) {
        if !self.records.is_empty() {
            self.queue.push(&self.records);
            self.records.clear();
        }
    }

    /// Begins another file.
    pub(super) fn reopen(&self) {
        self.queue.reopen();
    }

    /// Writes all there is, within a bound, and ends.
    pub(super) fn finish(&self) {
        self.queue.finish();
    }
}

/// The end of a request as the recording has it.
fn end_of(outcome: Outcome, was_seated: bool) -> RequestEnd {
    match outcome {
        Outcome::Answered | Outcome::Probed | Outcome::Redirected | Outcome::Static => {
            RequestEnd::Served
        }
        Outcome::LineFull => RequestEnd::LineFull,
        Outcome::WaitedTooLong => RequestEnd::TimedOut,
        Outcome::Shed => RequestEnd::Shed,
        Outcome::TooManyOfClient => RequestEnd::ClientFull,
        Outcome::AbandonedReading
        | Outcome::AbandonedWaiting
        | Outcome::AbandonedHandedOut
        | Outcome::AbandonedRunning
        | Outcome::AbandonedAnswering => {
            if was_seated {
                RequestEnd::LeftSeated
            } else {
                RequestEnd::LeftWaiting
            }
        }
        Outcome::BrokenOff
        | Outcome::CutAtShutdown
        | Outcome::Lost
        | Outcome::WorkerDied
        | Outcome::WorkerTimedOut
        | Outcome::NoAnswer => RequestEnd::Failed,
        _ => RequestEnd::Refused,
    }
}

/// The settings as the recording has them.
fn recorded_settings(settings: &Settings, cores: u32) -> RecordedSettings {
    let us = |seconds: Seconds| {
        let duration = seconds.as_duration();
        duration.map_or(0, |duration| duration.as_micros() as u64)
    };
    let (line, workers) = (&settings.line, &settings.workers);
    let lanes = settings.lanes();
    let lanes = lanes.iter().map(|lane| RecordedLane {
        name: lane.name.clone(),
        priority: lane.priority,
        seats: lane.seats as u32,
        seats_max: lane.seats_max.map(|seats| seats as u32),
        waiting_max: lane.waiting.map(|waiting| waiting as u32),
        is_for_all: settings.is_for_all(lane),
    });
    RecordedSettings {
        server: env!("CARGO_PKG_VERSION").to_owned(),
        workers_min: workers.workers.min,
        workers_max: workers.workers.max,
        workers_keep_us: us(workers.workers_keep),
        seats_per_worker: settings.seats_per_worker() as u32,
        event_loop: settings.is_event_loop(),
        cores,
        waiting_max: line.max_waiting,
        waiting_max_per_client: line.max_waiting_per_client,
        queue_timeout_us: us(line.queue_timeout),
        queue_target_us: match line.queue_order {
            QueueOrder::Fifo => None,
            QueueOrder::Adaptive => Some(us(line.queue_target)),
        },
        timeout_us: us(workers.timeout),
        lanes: lanes.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_an_end_and_who_leaves_has_waited_or_had_a_seat() {
        for (outcome, was_seated, end) in [
            (Outcome::Answered, true, RequestEnd::Served),
            (Outcome::LineFull, false, RequestEnd::LineFull),
            (Outcome::WaitedTooLong, false, RequestEnd::TimedOut),
            (Outcome::Shed, false, RequestEnd::Shed),
            (Outcome::TooManyOfClient, false, RequestEnd::ClientFull),
            (Outcome::AbandonedWaiting, false, RequestEnd::LeftWaiting),
            (Outcome::AbandonedReading, false, RequestEnd::LeftWaiting),
            (Outcome::AbandonedReading, true, RequestEnd::LeftSeated),
            (Outcome::AbandonedAnswering, true, RequestEnd::LeftSeated),
            (Outcome::WorkerDied, true, RequestEnd::Failed),
            (Outcome::BrokenOff, true, RequestEnd::Failed),
            (Outcome::ShuttingDown, false, RequestEnd::Refused),
            (Outcome::SessionsFull, false, RequestEnd::Refused),
            (Outcome::BodyTimeout, true, RequestEnd::Refused),
        ] {
            assert_eq!(end_of(outcome, was_seated), end, "{outcome:?}");
        }
    }

    #[test]
    fn the_settings_are_those_that_decide_how_requests_wait() {
        let settings = r#"{"workers": "2..8", "threads": 4, "max_waiting": 100, "queue_order": "adaptive",
            "queue_target": 0.5, "queue_timeout": 0, "timeout": 7, "max_waiting_per_client": 3,
            "lane": ["slow=/s priority=20 seats_max=2", "live=/- seats=1 waiting=9"]}"#;
        let settings = Settings::from_json(settings).expect("settings");
        let recorded = recorded_settings(&settings, 2);
        let lanes = [
            ("default", 10, 0, None, None, false),
            ("slow", 20, 0, Some(2), Some(100), false),
            ("live", 10, 1, None, Some(9), true),
        ];
        let lane =
            |(name, priority, seats, seats_max, waiting_max, is_for_all): (&str, _, _, _, _, _)| {
                RecordedLane {
                    name: name.to_owned(),
                    priority,
                    seats,
                    seats_max,
                    waiting_max,
                    is_for_all,
                }
            };
        assert_eq!(recorded.lanes, lanes.map(lane));
        assert_eq!((recorded.workers_min, recorded.workers_max), (2, 8));
        assert_eq!(recorded.workers_keep_us, 60_000_000);
        assert_eq!((recorded.seats_per_worker, recorded.event_loop), (4, false));
        assert_eq!(
            (recorded.waiting_max, recorded.waiting_max_per_client),
            (100, 3)
        );
        assert_eq!(
            (recorded.queue_timeout_us, recorded.timeout_us),
            (0, 7_000_000)
        );
        assert_eq!(recorded.queue_target_us, Some(500_000));
    }
}
