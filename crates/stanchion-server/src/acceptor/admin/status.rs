//! How the server is, as `/status` gives it and everything else is made from it.
//!
//! Keys are stable; whoever reads them ignores those that it does not know.

use std::collections::BTreeMap;

use serde::Serialize;
use stanchion_sys::charge::{self, Payer};

use crate::acceptor::connections::{ClientMemory, Doing};
use crate::acceptor::dispatch::durations::Histogram;
use crate::acceptor::dispatch::status::{
    LineStatus, LoopStatus, SeatCounts, SeatStatus, StandstillStatus,
};
use crate::acceptor::lifecycle::Lifecycle;
use crate::expiry::ServedCertificate;
use crate::log::FailingLog;

/// Everything, at one moment.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    pub(crate) version: &'static str,
    /// The master's process.
    pub(crate) pid: i32,
    pub(crate) acceptor_pid: i32,
    /// Since the master started.
    pub(crate) uptime_s: u64,
    /// The monotonic clock, for differences between two looks.
    pub(crate) now_us: u64,
    pub(crate) generation: u32,
    pub(crate) state: State,
    pub(crate) ready: bool,
    pub(crate) not_ready_because: Option<String>,
    pub(crate) line: LineStatus,
    /// Why the line stands, if it does.
    pub(crate) standstill: Option<StandstillStatus>,
    /// Of event loops only those that are busy, and not more than some.
    pub(crate) seats: Vec<SeatStatus>,
    pub(crate) seat_counts: SeatCounts,
    pub(crate) workers: Vec<WorkerStatus>,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) connections: Connections,
    /// `None` if it is not counted.
    pub(crate) memory: Option<AcceptorMemory>,
    /// Those of TLS, in the order of the settings.
    pub(crate) certificates: Vec<ServedCertificate>,
    /// Logs that take no lines at present.
    pub(crate) failing_logs: Vec<FailingLog>,
    /// How many arrived, how many are in flight, and how the others ended.
    pub(crate) requests: BTreeMap<&'static str, u64>,
    pub(crate) events: BTreeMap<&'static str, u64>,
    /// How many sessions were closed by which code; `None` if the app is no asynchronous one.
    pub(crate) sessions_ended: Option<BTreeMap<&'static str, u64>>,
    /// On the connections of clients.
    pub(crate) bytes: BTreeMap<&'static str, u64>,
    /// Time in the line, and what came before a seat took it.
    pub(crate) wait_us: Histogram,
    /// Time at a seat, of those that have ended.
    pub(crate) service_us: Histogram,
    /// For how long those have run that have not.
    pub(crate) running_us: Histogram,
    /// For how long no seat has taken a request, while all were busy.
    pub(crate) seats_stuck_us: u64,
    pub(crate) server: ServerStatus,
}

/// What the acceptor is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    #[default]
    /// It lets clients in.
    Serving,
    /// Another generation does; this one answers who came to it.
    Retiring,
    /// The server leaves.
    Draining,
}

impl State {
    pub(crate) fn of(lifecycle: Lifecycle) -> Self {
        match lifecycle {
            Lifecycle::Starting | Lifecycle::Announced | Lifecycle::Open => Self::Serving,
            Lifecycle::Retiring => Self::Retiring,
            Lifecycle::Draining | Lifecycle::Refusing | Lifecycle::TurningAway => Self::Draining,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct WorkerStatus {
    /// Which of the workers wanted it is. A successor has the number beside its predecessor, as long as both live.
    pub(crate) worker: u16,
    pub(crate) pid: i32,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) seats: usize,
    pub(crate) busy: usize,
    /// `None` if it runs threads.
    pub(crate) event_loop: Option<LoopStatus>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ListenerStatus {
    pub(crate) address: String,
    pub(crate) backlog_asked: u32,
    /// In force, and how many wait, as the kernel says; `None` where it does not.
    pub(crate) backlog: Option<u32>,
    pub(crate) queued: Option<u32>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Connections {
    pub(crate) new: usize,
    pub(crate) reading: usize,
    pub(crate) busy: usize,
    pub(crate) idle: usize,
    /// All is said; what the client still sends is thrown away.
    pub(crate) leaving: usize,
    pub(crate) total: usize,
    pub(crate) max: usize,
}

impl Connections {
    /// Of those that are here.
    pub(crate) fn of(doing: impl Iterator<Item = Doing>, max: usize) -> Self {
        let mut counts = Self {
            max,
            ..Self::default()
        };
        for doing in doing {
            counts.total += 1;
            match doing {
                Doing::New => counts.new += 1,
                Doing::Idle => counts.idle += 1,
                Doing::Reading => counts.reading += 1,
                Doing::Busy => counts.busy += 1,
                Doing::Leaving => counts.leaving += 1,
            }
        }
        counts
    }
}

/// The memory that the acceptor has allocated.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptorMemory {
    /// For all clients.
    pub(crate) bytes: usize,
    /// For itself, since it has begun to count.
    pub(crate) own_bytes: usize,
    /// 0 = no limit.
    pub(crate) max_bytes: usize,
    /// The clients that have most, in order.
    pub(crate) most: Vec<ClientMemory>,
}

impl AcceptorMemory {
    /// `None` if it is not counted.
    pub(crate) fn of(most: Vec<ClientMemory>, max_bytes: usize) -> Option<Self> {
        charge::is_open().then(|| Self {
            bytes: charge::all(),
            own_bytes: Payer::NOBODY.bytes(),
            max_bytes,
            most,
        })
    }
}

/// What the master knows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ServerStatus {
    /// Workers that were replaced, by cause.
    pub(crate) restarts: BTreeMap<&'static str, u64>,
    pub(crate) reloads: Attempts,
    pub(crate) upgrades: Attempts,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Attempts {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}
