//! The state of the line and of the seats, as `/status` and `/metrics` show it.
//!
//! Keys are stable; programs that read them ignore keys that they do not know.

use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(crate) struct LineStatus {
    pub waiting: usize,
    /// Without the lanes that have a limit of their own.
    pub waiting_max: usize,
    /// At the ports of single workers.
    pub waiting_at_ports: usize,
    pub oldest_wait_us: u64,
    pub drain_per_s: f64,
    /// The oldest request of a lane has waited for longer than `queue_target`.
    pub over_target: bool,
    pub lanes: Vec<LaneStatus>,
}

/// A standstill of the line, and its cause.
#[derive(Debug, Serialize)]
pub(crate) struct StandstillStatus {
    /// For how long the line has stood.
    pub since_s: f64,
    /// Requests that no seat has taken.
    pub waiting: usize,
    pub oldest_wait_s: f64,
    /// A sentence without a full stop.
    pub why: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct LaneStatus {
    pub name: String,
    pub priority: u32,
    pub waiting: usize,
    /// `None`: the lane shares the limit of the line.
    pub waiting_max: Option<usize>,
    pub oldest_wait_us: u64,
    pub in_exchange: usize,
    pub seats_reserved: usize,
    pub drain_per_s: f64,
    pub over_target: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct SeatStatus {
    pub worker: u16,
    pub seat: u16,
    pub pid: i32,
    /// Its worker is the n-th with this number; 0 if it has no worker.
    pub nth: u32,
    pub state: SeatDoes,
    pub running_us: Option<u64>,
    pub method: Option<String>,
    pub path: Option<String>,
    pub served: u64,
    pub busy_us: u64,
}

impl SeatStatus {
    /// No process has this seat: the worker of this number is missing.
    pub(super) fn empty((worker, seat): (u16, u16)) -> Self {
        Self {
            worker,
            seat,
            pid: 0,
            nth: 0,
            state: SeatDoes::Empty,
            running_us: None,
            method: None,
            path: None,
            served: 0,
            busy_us: 0,
        }
    }
}

/// How many seats are busy, idle and empty.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SeatCounts {
    pub busy: usize,
    pub idle: usize,
    /// Seats that no worker has.
    pub empty: usize,
}

/// The state of an event loop, as the loop itself reports it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoopStatus {
    /// How many sessions it has; `None` under gevent, where there are none.
    pub sessions: Option<u32>,
    /// How late it is, or was the last time.
    pub lag_us: u64,
    /// The latest that this worker's loop has been.
    pub lag_max_us: u64,
    /// All times that it was measured how late the loop was. The acceptor adds up those of this worker, and of the
    /// workers with its number that are gone.
    pub lags: Lags,
}

/// How late an event loop was.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lags {
    pub count: u64,
    pub sum_us: u64,
    /// Each upper bound, and how many times the loop was at most so late.
    pub buckets: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SeatDoes {
    /// No worker has it.
    Empty,
    /// It waits for a request.
    Idle,
    /// It answers a request.
    Busy,
}
