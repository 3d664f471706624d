//! The state of the line and of the seats, as `/status` and `/metrics` show it.
//!
//! Keys are stable; programs that read them ignore keys that they do not know.

use serde::Serialize;

pub use stanchion_generation::seat_status::SeatDoes;
pub use stanchion_line::HeldBack;

/// The line.
#[derive(Debug, Default, Serialize)]
pub struct LineStatus {
    /// Requests that wait in the line.
    pub waiting: usize,
    /// Without the lanes that have a limit of their own.
    pub waiting_max: usize,
    /// At the ports of single workers.
    pub waiting_at_ports: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait_us: u64,
    /// Requests that leave the line in a second, as of late.
    pub drain_per_s: f64,
    /// The oldest request of a lane has waited for longer than `queue_target`.
    pub over_target: bool,
    /// Each lane.
    pub lanes: Vec<LaneStatus>,
}

/// A standstill of the line, and its cause.
#[derive(Debug, Serialize)]
pub struct StandstillStatus {
    /// For how long the line has stood.
    pub since_s: f64,
    /// Requests that no seat has taken.
    pub waiting: usize,
    /// How long the oldest of them has waited.
    pub oldest_wait_s: f64,
    /// A sentence without a full stop.
    pub why: String,
}

/// How many workers there should be, if the settings say a range.
#[derive(Debug, Serialize)]
pub struct ElasticStatus {
    /// The fewest.
    pub min: u16,
    /// The most.
    pub max: u16,
    /// How many there should be now.
    pub wanted: u16,
    /// An operator has fixed that number.
    pub pinned: bool,
    /// The bound that keeps the number from growing though requests wait.
    pub held_back: Option<&'static str>,
}

/// A lane of the line.
#[derive(Debug, Serialize)]
pub struct LaneStatus {
    /// The lane's name.
    pub name: String,
    /// The lane's priority.
    pub priority: u32,
    /// Requests that wait in the lane.
    pub waiting: usize,
    /// `None`: the lane shares the limit of the line.
    pub waiting_max: Option<usize>,
    /// How long the oldest of them has waited.
    pub oldest_wait_us: u64,
    /// Requests of the lane that are at seats, or handed out ahead of seats.
    pub in_exchange: usize,
    /// Seats that only this lane may have.
    pub seats_reserved: usize,
    /// The lane may have so many seats at most; `None`: as many as are free.
    pub seats_max: Option<usize>,
    /// Requests that leave the lane in a second, as of late.
    pub drain_per_s: f64,
    /// The oldest request of the lane has waited for longer than `queue_target`.
    pub over_target: bool,
}

/// A seat, and the request that it has in hand.
#[derive(Debug, Serialize)]
pub struct SeatStatus {
    /// The number of the worker.
    pub worker: u16,
    /// The number of the seat at its worker.
    pub seat: u16,
    /// The worker's process; 0 if there is none.
    pub pid: i32,
    /// Its worker is the n-th with this number; 0 if it has no worker.
    pub nth: u32,
    /// The state of the seat.
    pub state: SeatDoes,
    /// How long the seat has had its request.
    pub running_us: Option<u64>,
    /// The method of that request.
    pub method: Option<String>,
    /// The path of that request.
    pub path: Option<String>,
    /// Requests that the seat has answered.
    pub served: u64,
    /// How long the seat has been busy in all.
    pub busy_us: u64,
}

impl SeatStatus {
    /// No process has this seat: the worker of this number is missing.
    pub(crate) fn empty((worker, seat): (u16, u16)) -> Self {
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
pub struct SeatCounts {
    /// Seats that answer a request.
    pub busy: usize,
    /// Seats that wait for one.
    pub idle: usize,
    /// Seats that no worker has.
    pub empty: usize,
}

impl SeatCounts {
    /// The seats that workers have.
    pub fn there(&self) -> usize {
        self.busy + self.idle
    }
}

/// The state of an event loop, as the loop itself reports it.
#[derive(Clone, Debug, Serialize)]
pub struct LoopStatus {
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

impl LoopStatus {
    /// Adds up the event loops of a worker and of its successor, as if they were one. The later of the two is how late
    /// they are.
    pub fn and(&mut self, other: &Self) {
        self.sessions = match (self.sessions, other.sessions) {
            (Some(one), Some(two)) => Some(one.saturating_add(two)),
            (one, two) => one.or(two),
        };
        self.lag_us = self.lag_us.max(other.lag_us);
        self.lag_max_us = self.lag_max_us.max(other.lag_max_us);
        let (lags, more) = (&mut self.lags, &other.lags);
        lags.count = lags.count.saturating_add(more.count);
        lags.sum_us = lags.sum_us.saturating_add(more.sum_us);
        for ((_, count), (_, more)) in lags.buckets.iter_mut().zip(&more.buckets) {
            *count = count.saturating_add(*more);
        }
    }
}

/// How late an event loop was.
#[derive(Clone, Debug, Serialize)]
pub struct Lags {
    /// How many times it was measured.
    pub count: u64,
    /// The sum of these times.
    pub sum_us: u64,
    /// Each upper bound, and how many times the loop was at most so late.
    pub buckets: Vec<(u64, u64)>,
}
