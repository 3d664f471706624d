//! The state of the line and of the seats, as `/status` and `/metrics` show it.
//!
//! Keys are stable; programs that read them ignore keys that they do not know.

use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(crate) struct LineStatus {
    pub(crate) waiting: usize,
    /// Without the lanes that have a limit of their own.
    pub(crate) waiting_max: usize,
    /// At the ports of single workers.
    pub(crate) waiting_at_ports: usize,
    pub(crate) oldest_wait_us: u64,
    pub(crate) drain_per_s: f64,
    /// The oldest request of a lane has waited for longer than `queue_target`.
    pub(crate) over_target: bool,
    pub(crate) lanes: Vec<LaneStatus>,
}

/// A standstill of the line, and its cause.
#[derive(Debug, Serialize)]
pub(crate) struct StandstillStatus {
    /// For how long the line has stood.
    pub(crate) since_s: f64,
    /// Requests that no seat has taken.
    pub(crate) waiting: usize,
    pub(crate) oldest_wait_s: f64,
    /// A sentence without a full stop.
    pub(crate) why: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct LaneStatus {
    pub(crate) name: String,
    pub(crate) priority: u32,
    pub(crate) waiting: usize,
    /// `None`: the lane shares the limit of the line.
    pub(crate) waiting_max: Option<usize>,
    pub(crate) oldest_wait_us: u64,
    pub(crate) in_exchange: usize,
    pub(crate) seats_reserved: usize,
    pub(crate) drain_per_s: f64,
    pub(crate) over_target: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct SeatStatus {
    pub(crate) worker: u16,
    pub(crate) seat: u16,
    pub(crate) pid: i32,
    /// Its worker is the n-th with this number; 0 if it has no worker.
    pub(crate) nth: u32,
    pub(crate) state: SeatDoes,
    pub(crate) running_us: Option<u64>,
    pub(crate) method: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) served: u64,
    pub(crate) busy_us: u64,
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
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    /// Seats that no worker has.
    pub(crate) empty: usize,
}

/// The state of an event loop, as the loop itself reports it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoopStatus {
    /// How many sessions it has; `None` under gevent, where there are none.
    pub(crate) sessions: Option<u32>,
    /// How late it is, or was the last time.
    pub(crate) lag_us: u64,
    /// The latest that this worker's loop has been.
    pub(crate) lag_max_us: u64,
    /// All times that it was measured how late the loop was. The acceptor adds up those of this worker, and of the
    /// workers with its number that are gone.
    pub(crate) lags: Lags,
}

/// How late an event loop was.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lags {
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
    /// Each upper bound, and how many times the loop was at most so late.
    pub(crate) buckets: Vec<(u64, u64)>,
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
