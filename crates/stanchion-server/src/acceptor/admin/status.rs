//! How the server is, as `/status` gives it and everything else is made from it.
//!
//! Keys are stable; whoever reads them ignores those that it does not know.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::acceptor::durations::Histogram;

/// Everything, at one moment.
#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct Status {
    pub(in crate::acceptor) version: &'static str,
    /// The master's process.
    pub(in crate::acceptor) pid: i32,
    pub(in crate::acceptor) acceptor_pid: i32,
    /// Since the master started.
    pub(in crate::acceptor) uptime_s: u64,
    /// The monotonic clock, for differences between two looks.
    pub(in crate::acceptor) now_us: u64,
    pub(in crate::acceptor) generation: u32,
    pub(in crate::acceptor) state: State,
    pub(in crate::acceptor) ready: bool,
    pub(in crate::acceptor) not_ready_because: Option<String>,
    pub(in crate::acceptor) line: LineStatus,
    pub(in crate::acceptor) seats: Vec<SeatStatus>,
    pub(in crate::acceptor) workers: Vec<WorkerStatus>,
    pub(in crate::acceptor) listeners: Vec<ListenerStatus>,
    pub(in crate::acceptor) connections: Connections,
    /// How many arrived, how many are in flight, and how the others ended.
    pub(in crate::acceptor) requests: BTreeMap<&'static str, u64>,
    pub(in crate::acceptor) events: BTreeMap<&'static str, u64>,
    /// On the connections of clients.
    pub(in crate::acceptor) bytes: BTreeMap<&'static str, u64>,
    /// Time in the line, and what came before a seat took it.
    pub(in crate::acceptor) wait_us: Histogram,
    /// Time at a seat.
    pub(in crate::acceptor) service_us: Histogram,
    pub(in crate::acceptor) server: ServerStatus,
}

/// What the acceptor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::acceptor) enum State {
    /// It lets clients in.
    Serving,
    /// Another generation does; this one answers who came to it.
    Retiring,
    /// The server leaves.
    Draining,
}

#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct LineStatus {
    pub(in crate::acceptor) waiting: usize,
    /// But for those in lanes with room of their own.
    pub(in crate::acceptor) waiting_max: usize,
    /// At the ports of single workers.
    pub(in crate::acceptor) waiting_at_ports: usize,
    pub(in crate::acceptor) oldest_wait_us: u64,
    pub(in crate::acceptor) drain_per_s: f64,
    /// Whether one of the lanes stands: its oldest has waited for longer than `queue_target`.
    pub(in crate::acceptor) standing: bool,
    pub(in crate::acceptor) lanes: Vec<LaneStatus>,
}

#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct LaneStatus {
    pub(in crate::acceptor) name: String,
    pub(in crate::acceptor) priority: u32,
    pub(in crate::acceptor) waiting: usize,
    /// `None`: it shares what the line has.
    pub(in crate::acceptor) waiting_max: Option<usize>,
    pub(in crate::acceptor) oldest_wait_us: u64,
    pub(in crate::acceptor) in_exchange: usize,
    pub(in crate::acceptor) seats_reserved: usize,
    pub(in crate::acceptor) drain_per_s: f64,
    pub(in crate::acceptor) standing: bool,
}

#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct SeatStatus {
    pub(in crate::acceptor) worker: u16,
    pub(in crate::acceptor) seat: u16,
    pub(in crate::acceptor) pid: i32,
    pub(in crate::acceptor) tenure: u32,
    pub(in crate::acceptor) state: SeatDoes,
    pub(in crate::acceptor) running_us: Option<u64>,
    pub(in crate::acceptor) method: Option<String>,
    pub(in crate::acceptor) path: Option<String>,
    pub(in crate::acceptor) served: u64,
    pub(in crate::acceptor) busy_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::acceptor) enum SeatDoes {
    /// Nobody has it.
    Empty,
    /// It waits for a request.
    Idle,
    /// It answers one.
    Busy,
}

#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct WorkerStatus {
    pub(in crate::acceptor) worker: u16,
    pub(in crate::acceptor) pid: i32,
    pub(in crate::acceptor) memory_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(in crate::acceptor) struct ListenerStatus {
    pub(in crate::acceptor) address: String,
    pub(in crate::acceptor) backlog_asked: u32,
    /// In force, and how many wait, as the kernel says; `None` where it does not.
    pub(in crate::acceptor) backlog: Option<u32>,
    pub(in crate::acceptor) queued: Option<u32>,
}

#[derive(Debug, Default, Serialize)]
pub(in crate::acceptor) struct Connections {
    pub(in crate::acceptor) new: usize,
    pub(in crate::acceptor) reading: usize,
    pub(in crate::acceptor) busy: usize,
    pub(in crate::acceptor) idle: usize,
    /// All is said; what the client still sends is thrown away.
    pub(in crate::acceptor) leaving: usize,
    pub(in crate::acceptor) total: usize,
    pub(in crate::acceptor) max: usize,
}

/// What the master knows.
#[derive(Debug, Default, Serialize)]
pub(in crate::acceptor) struct ServerStatus {
    /// Workers that were replaced, by cause.
    pub(in crate::acceptor) restarts: BTreeMap<&'static str, u64>,
    pub(in crate::acceptor) reloads: Attempts,
    pub(in crate::acceptor) upgrades: Attempts,
}

#[derive(Debug, Default, Serialize)]
pub(in crate::acceptor) struct Attempts {
    pub(in crate::acceptor) done: u64,
    pub(in crate::acceptor) failed: u64,
}
