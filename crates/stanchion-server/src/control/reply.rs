//! Replies to clients of the control socket: one JSON object on one line.

use std::cmp::Reverse;

use serde::Serialize;
use stanchion_exchange::Exchange;
use stanchion_master::{ServerPhase, WorkerStage};

use stanchion_generation::named_counts::{EventCounts, RequestCounts};
use stanchion_generation::seat_status::{BUSY_SEATS_MAX, SeatDoes, SeatSnapshot};

/// The longest reply, in bytes: one with more, such as the stacks of a thousand workers, is
/// refused, as it would have to be kept for a client that does not read.
pub(super) const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CtlReply {
    /// Whether the request was carried out.
    pub(crate) ok: bool,
    /// The outcome, or why there is none; for people.
    pub(crate) message: String,
    /// The data that was asked for.
    pub(crate) data: Option<Data>,
}

/// The data that was asked for. It is written without its name: the request says which it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Data {
    /// The answer to [`super::CtlRequest::Status`].
    Status(Box<CtlStatus>),
    /// The answer to [`super::CtlRequest::Workers`].
    Workers(Vec<CtlWorker>),
    /// The answer to [`super::CtlRequest::Dump`].
    Stacks(Vec<WorkerStacks>),
}

/// The state of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CtlStatus {
    /// The version of stanchion.
    pub(crate) version: &'static str,
    /// The process id of the master.
    pub(crate) pid: i32,
    /// Seconds since this master was started.
    pub(crate) uptime_s: u64,
    /// Its phase.
    pub(crate) phase: ServerPhase,
    /// The generation of settings and code that serves.
    pub(crate) generation: u32,
    /// Earlier ones that still serve their clients.
    pub(crate) retiring: Vec<u32>,
    /// Where it listens.
    pub(crate) listeners: Vec<String>,
    /// Workers of the serving generation that there should be.
    pub(crate) workers_wanted: u16,
    /// Workers that take requests.
    pub(crate) workers_ready: u16,
    /// Seats of the serving generation.
    #[serde(flatten)]
    pub(crate) seats: SeatTotals,
    /// For how long the acceptor's loop has made no turn, in seconds, if that is too long.
    pub(crate) acceptor_still_s: Option<u64>,
    /// Templates, scribes and workers that a signal or a debugger has stopped, each with its pid.
    pub(crate) stopped: Vec<String>,
    /// The signals have the meanings of this server: gunicorn or Unicorn.
    pub(crate) signals: String,
    /// Counts of the requests of this master's time.
    pub(crate) requests: RequestCounts,
    /// Counts of other events.
    pub(crate) events: EventCounts,
}

/// The seats of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SeatTotals {
    pub(crate) seats_total: usize,
    pub(crate) seats_busy: usize,
    /// For how long the longest of their requests has run; null if none runs.
    pub(crate) running_longest_us: Option<u64>,
}

impl SeatTotals {
    pub(crate) fn of(workers: impl Iterator<Item = WorkerSeats>) -> Self {
        workers.fold(Self::default(), |sum, one| Self {
            seats_total: sum.seats_total + one.seats_total,
            seats_busy: sum.seats_busy + one.seats_busy,
            running_longest_us: one
                .seats
                .iter()
                .filter_map(|seat| seat.running_us)
                .chain(sum.running_longest_us)
                .max(),
        })
    }
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CtlWorker {
    /// Its number. Its successor takes the number over, and both have it as long as both live: their pids differ.
    #[serde(rename = "index")]
    pub(crate) number: u16,
    /// Its process, if there is one.
    pub(crate) pid: Option<i32>,
    /// Its generation.
    pub(crate) generation: u32,
    /// How far it is in its life.
    pub(crate) stage: WorkerStage,
    /// A signal or a debugger has stopped it.
    pub(crate) stopped: bool,
    /// Bytes of memory that it takes, if that is known.
    pub(crate) memory_bytes: Option<u64>,
    #[serde(flatten)]
    pub(crate) seats: WorkerSeats,
}

/// The seats of a worker and their counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WorkerSeats {
    /// How many requests it can run at once, how many it runs, and how many it has answered.
    pub(crate) seats_total: usize,
    pub(crate) seats_busy: usize,
    pub(crate) served: u64,
    /// Time it spent on these.
    pub(crate) busy_us: u64,
    /// One for each of its threads; of an event loop, which has so many, at most [`BUSY_SEATS_MAX`] that run one, the
    /// longest first.
    pub(crate) seats: Vec<SeatSnapshot>,
}

/// The stacks of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WorkerStacks {
    /// Its number.
    #[serde(rename = "index")]
    pub(crate) number: u16,
    /// Its process.
    pub(crate) pid: i32,
    /// Its generation.
    pub(crate) generation: u32,
    /// Its text.
    pub(crate) stacks: String,
}

impl CtlReply {
    /// The request was carried out.
    pub(crate) fn done(message: impl Into<String>) -> Self {
        Self {
            ok: true,
            message: message.into(),
            data: None,
        }
    }

    /// The request was not carried out, and why.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self {
            ok: false,
            message: message.into(),
            data: None,
        }
    }

    /// A reply with data.
    pub(crate) fn with(data: Data) -> Self {
        Self {
            ok: true,
            message: String::new(),
            data: Some(data),
        }
    }

    /// The outcome of a command.
    pub(crate) fn of(outcome: Result<String, String>) -> Self {
        match outcome {
            Ok(message) => Self::done(message),
            Err(message) => Self::refused(message),
        }
    }

    /// The line that is sent.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        if line.is_empty() || line.len() >= REPLY_BYTES_MAX {
            let why = format!(
                "the answer of {} bytes is over the limit of {REPLY_BYTES_MAX}",
                line.len()
            );
            line = serde_json::to_vec(&Self::refused(why)).unwrap_or_default();
        }
        line.push(b'\n');
        line
    }
}

impl WorkerSeats {
    /// Reads the seats of the worker with this index in `exchange`. The worker shares that memory and may write anything there, so nothing here
    /// depends on it.
    pub(crate) fn of(exchange: &Exchange, worker: u16, now_us: u64) -> Self {
        let seats = exchange.geometry().seats_of(worker);
        let seats = seats.map(|index| SeatSnapshot::of(exchange, index, now_us));
        let mut seats: Vec<_> = seats.collect();
        let is_busy = |seat: &SeatSnapshot| seat.state == SeatDoes::Busy;
        let sum = |of: fn(&SeatSnapshot) -> u64| seats.iter().map(of).fold(0, u64::wrapping_add);
        let (served, busy_us) = (sum(|seat| seat.served), sum(|seat| seat.busy_us));
        let seats_total = seats.len();
        let seats_busy = seats.iter().filter(|seat| is_busy(seat)).count();
        if exchange.geometry().event_loops {
            seats.retain(is_busy);
            seats.sort_by_key(|seat| Reverse(seat.running_us));
            seats.truncate(BUSY_SEATS_MAX);
        }
        Self {
            seats_total,
            seats_busy,
            served,
            busy_us,
            seats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_line_whatever_it_says() {
        let line = CtlReply::refused("one\ntwo\u{2028}").line();
        assert_eq!(
            line,
            "{\"ok\":false,\"message\":\"one\\ntwo\u{2028}\",\"data\":null}\n".as_bytes()
        );
    }

    #[test]
    fn too_long_a_reply_is_a_refusal() {
        let stacks = WorkerStacks {
            number: 0,
            pid: 7,
            generation: 1,
            stacks: "x".repeat(REPLY_BYTES_MAX),
        };
        let line = CtlReply::with(Data::Stacks(vec![stacks])).line();
        let text = String::from_utf8(line).expect("text");
        assert!(text.starts_with(r#"{"ok":false,"message":"the answer of 4194"#));
    }

    #[test]
    fn what_clients_see() {
        let worker = CtlWorker {
            number: 0,
            pid: Some(7),
            generation: 2,
            stage: WorkerStage::Ready,
            stopped: false,
            memory_bytes: None,
            seats: WorkerSeats {
                seats_total: 1,
                seats_busy: 1,
                served: 5,
                busy_us: 900,
                seats: vec![SeatSnapshot {
                    state: SeatDoes::Busy,
                    served: 5,
                    busy_us: 900,
                    running_us: Some(3),
                }],
            },
        };
        let line = CtlReply::with(Data::Workers(vec![worker])).line();
        assert_eq!(
            String::from_utf8(line).expect("text"),
            concat!(
                r#"{"ok":true,"message":"","data":[{"index":0,"pid":7,"generation":2,"stage":"ready","#,
                r#""stopped":false,"memory_bytes":null,"seats_total":1,"seats_busy":1,"served":5,"busy_us":900,"#,
                r#""seats":[{"state":"busy","served":5,"busy_us":900,"running_us":3}]}]}"#,
                "\n"
            )
        );
    }
}
