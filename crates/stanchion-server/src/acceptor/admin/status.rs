//! How the server is, as `/status` gives it and everything else is made from it.
//!
//! Keys are stable; whoever reads them ignores those that it does not know.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::acceptor::durations::Histogram;

/// Everything, at one moment.
#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct Status {
    pub(super) version: &'static str,
    /// The master's process.
    pub(super) pid: i32,
    pub(super) acceptor_pid: i32,
    /// Since the master started.
    pub(super) uptime_s: u64,
    /// The monotonic clock, for differences between two looks.
    pub(super) now_us: u64,
    pub(super) generation: u32,
    pub(super) state: State,
    pub(super) ready: bool,
    pub(super) not_ready_because: Option<String>,
    pub(super) line: LineStatus,
    pub(super) seats: Vec<SeatStatus>,
    pub(super) workers: Vec<WorkerStatus>,
    pub(super) listeners: Vec<ListenerStatus>,
    pub(super) connections: Connections,
    /// How many arrived, how many are in flight, and how the others ended.
    pub(super) requests: BTreeMap<&'static str, u64>,
    pub(super) events: BTreeMap<&'static str, u64>,
    /// Time in the line, and what came before a seat took it.
    pub(super) wait_us: Histogram,
    /// Time at a seat.
    pub(super) service_us: Histogram,
    pub(super) server: ServerStatus,
}

/// What the acceptor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// It lets clients in.
    Serving,
    /// Another generation does; this one answers who came to it.
    Retiring,
    /// The server leaves.
    Draining,
}

#[derive(Debug, Serialize)]
pub(super) struct LineStatus {
    pub(super) waiting: usize,
    pub(super) waiting_max: usize,
    pub(super) oldest_wait_us: u64,
    /// Whether one of the lanes stands: its oldest has waited for longer than `queue_target`.
    pub(super) standing: bool,
    pub(super) lanes: Vec<LaneStatus>,
}

#[derive(Debug, Serialize)]
pub(super) struct LaneStatus {
    pub(super) name: String,
    pub(super) priority: u32,
    pub(super) waiting: usize,
    /// `None`: it shares what the line has.
    pub(super) waiting_max: Option<usize>,
    pub(super) oldest_wait_us: u64,
    pub(super) in_exchange: usize,
    pub(super) seats_reserved: usize,
    pub(super) drain_per_s: f64,
    pub(super) standing: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct SeatStatus {
    pub(super) worker: u16,
    pub(super) seat: u16,
    pub(super) pid: i32,
    pub(super) tenure: u32,
    pub(super) state: SeatDoes,
    pub(super) running_us: Option<u64>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    pub(super) served: u64,
    pub(super) busy_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SeatDoes {
    /// Nobody has it.
    Empty,
    /// It waits for a request.
    Idle,
    /// It answers one.
    Busy,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkerStatus {
    pub(super) worker: u16,
    pub(super) pid: i32,
    pub(super) memory_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct ListenerStatus {
    pub(super) address: String,
    pub(super) backlog_asked: u32,
    /// In force, and how many wait, as the kernel says; `None` where it does not.
    pub(super) backlog: Option<u32>,
    pub(super) queued: Option<u32>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Connections {
    pub(super) new: usize,
    pub(super) reading: usize,
    pub(super) busy: usize,
    pub(super) idle: usize,
    pub(super) total: usize,
    pub(super) max: usize,
}

/// What the master knows.
#[derive(Debug, Default, Serialize)]
pub(super) struct ServerStatus {
    /// Workers that were replaced, by cause.
    pub(super) restarts: BTreeMap<&'static str, u64>,
    pub(super) reloads: Attempts,
    pub(super) upgrades: Attempts,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Attempts {
    pub(super) done: u64,
    pub(super) failed: u64,
}
