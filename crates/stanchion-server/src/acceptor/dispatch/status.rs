//! How the line and the seats are, as whoever asks is shown it.
//!
//! Keys are stable; whoever reads them ignores those that it does not know.

use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub(crate) struct LineStatus {
    pub(crate) waiting: usize,
    /// But for those in lanes with room of their own.
    pub(crate) waiting_max: usize,
    /// At the ports of single workers.
    pub(crate) waiting_at_ports: usize,
    pub(crate) oldest_wait_us: u64,
    pub(crate) drain_per_s: f64,
    /// A lane's oldest has waited for longer than `queue_target`.
    pub(crate) over_target: bool,
    pub(crate) lanes: Vec<LaneStatus>,
}

/// Why the line stands.
#[derive(Debug, Serialize)]
pub(crate) struct StandstillStatus {
    /// For how long it has.
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
    /// `None`: it shares what the line has.
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
    /// Its worker is the n-th that has this number; 0 if there is none.
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

/// How many seats do what.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct SeatCounts {
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    /// Nobody has them.
    pub(crate) empty: usize,
}

/// How an event loop is, as it says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoopStatus {
    /// Sessions that it has, as it says; `None` under gevent, where there are none.
    pub(crate) sessions: Option<u32>,
    /// How late it is, or was the last time.
    pub(crate) lag_us: u64,
    /// The worst of this worker's.
    pub(crate) lag_max_us: u64,
    /// The acceptor adds up all times that it was measured, of this worker and of those of its number that are gone.
    pub(crate) lags: Lags,
}

/// How late an event loop was.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Lags {
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
    /// Upper bound and how many were at most so late.
    pub(crate) buckets: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SeatDoes {
    /// Nobody has it.
    Empty,
    /// It waits for a request.
    Idle,
    /// It answers one.
    Busy,
}
