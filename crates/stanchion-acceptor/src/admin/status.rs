//! The state of the server: `/status` shows it, and the other pages are made from it.
//!
//! Keys are stable. A program that reads them ignores those that it does not know.

use std::collections::BTreeMap;

use serde::Serialize;
use stanchion_sys::charge::{self, Payer};

use stanchion_connections::{ClientMemory, ConnectionState};
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::causes::CausesStatus;
use stanchion_dispatch::durations::Histogram;
use stanchion_dispatch::status::{
    ElasticStatus, LineStatus, LoopStatus, SeatCounts, SeatStatus, StandstillStatus,
};
use stanchion_generation::expiry::ServedCertificate;
use stanchion_log::FailingLog;
use stanchion_requests::lifecycle::Lifecycle;

/// The state at one moment.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    pub version: &'static str,
    /// The process of the master.
    pub pid: i32,
    pub acceptor_pid: i32,
    /// Seconds since the master started.
    pub uptime_s: u64,
    /// The monotonic clock, for differences between two looks.
    pub now_us: u64,
    pub generation: u32,
    pub state: ServingState,
    pub ready: bool,
    pub not_ready_because: Option<String>,
    pub line: LineStatus,
    /// Why the line stands still, if it does.
    pub standstill: Option<StandstillStatus>,
    /// How many workers there should be; `None` if the settings say one number.
    pub elastic: Option<ElasticStatus>,
    /// All seats of threads; of event loops the busy seats, the longest first, up to a limit.
    pub seats: Vec<SeatStatus>,
    pub seat_counts: SeatCounts,
    pub workers: Vec<WorkerStatus>,
    pub listeners: Vec<ListenerStatus>,
    pub connections: ConnectionCounts,
    /// `None` if the acceptor does not count memory.
    pub memory: Option<AcceptorMemory>,
    /// The TLS certificates, in the order of the settings.
    pub certificates: Vec<ServedCertificate>,
    /// Logs that take no lines at present.
    pub failing_logs: Vec<FailingLog>,
    /// How many requests arrived, how many are in flight, and how the others ended.
    pub requests: BTreeMap<&'static str, u64>,
    pub events: BTreeMap<&'static str, u64>,
    /// How many sessions ended with which close code; `None` if the app is not ASGI.
    pub sessions_ended: Option<BTreeMap<&'static str, u64>>,
    /// Bytes received from clients' connections, and sent on them.
    pub bytes: BTreeMap<&'static str, u64>,
    /// From the arrival of a request until a seat took it.
    pub wait_us: Histogram,
    /// Time at a seat of the requests that have ended.
    pub service_us: Histogram,
    /// How long the requests that have not ended have run.
    pub running_us: Histogram,
    /// From when a proxy had a request until it came here; requests of which no proxy says so are left out.
    pub front_us: Histogram,
    /// The seats that the requests want.
    pub demand: DemandStatus,
    /// Where the time of requests goes, and what would help.
    pub causes: CausesStatus,
    /// For how long no seat has taken a request, while all were busy.
    pub seats_stuck_us: u64,
    pub server: ServerStatus,
}

/// Whether the acceptor accepts clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServingState {
    #[default]
    /// The acceptor accepts clients.
    Serving,
    /// Another generation accepts clients; this acceptor serves those that it has.
    Retiring,
    /// The server leaves.
    Draining,
}

impl ServingState {
    pub(crate) fn of(lifecycle: Lifecycle) -> Self {
        match lifecycle {
            Lifecycle::Starting | Lifecycle::Announced | Lifecycle::Open => Self::Serving,
            Lifecycle::Retiring => Self::Retiring,
            Lifecycle::LameDuck
            | Lifecycle::Draining
            | Lifecycle::Refusing
            | Lifecycle::TurningAway => Self::Draining,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct WorkerStatus {
    /// The worker's number among those that the settings want. A successor has the number of its predecessor while both
    /// live.
    pub worker: u16,
    pub pid: i32,
    pub memory_bytes: Option<u64>,
    pub seats: usize,
    pub busy: usize,
    /// `None` if the worker runs threads.
    pub event_loop: Option<LoopStatus>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ListenerStatus {
    pub address: String,
    pub backlog_asked: u32,
    /// The backlog in force, and the connections that wait, as the kernel reports them; `None` where it does not.
    pub backlog: Option<u32>,
    pub queued: Option<u32>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ConnectionCounts {
    pub new: usize,
    pub reading: usize,
    pub busy: usize,
    pub idle: usize,
    /// The last answer is out, and the acceptor discards what the client still sends.
    pub leaving: usize,
    pub total: usize,
    pub max: usize,
}

impl ConnectionCounts {
    /// Counts connections by what they do.
    pub(crate) fn of(doing: impl Iterator<Item = ConnectionState>, max: usize) -> Self {
        let mut counts = Self {
            max,
            ..Self::default()
        };
        for doing in doing {
            counts.total += 1;
            match doing {
                ConnectionState::New => counts.new += 1,
                ConnectionState::Idle => counts.idle += 1,
                ConnectionState::Reading => counts.reading += 1,
                ConnectionState::Busy => counts.busy += 1,
                ConnectionState::Leaving => counts.leaving += 1,
            }
        }
        counts
    }
}

/// The memory that the acceptor has allocated.
#[derive(Debug, Serialize)]
pub(crate) struct AcceptorMemory {
    /// Bytes for all clients.
    pub bytes: usize,
    /// Bytes for the acceptor itself, since it began to count.
    pub own_bytes: usize,
    /// 0 = no limit.
    pub max_bytes: usize,
    /// The clients that have most, the largest first.
    pub most: Vec<ClientMemory>,
}

impl AcceptorMemory {
    /// `None` if the acceptor does not count memory.
    pub(crate) fn of(most: Vec<ClientMemory>, max_bytes: usize) -> Option<Self> {
        charge::is_open().then(|| Self {
            bytes: charge::all(),
            own_bytes: Payer::NOBODY.bytes(),
            max_bytes,
            most,
        })
    }
}

/// The seats that the requests of this server want, for autoscalers, and what they are computed of.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DemandStatus {
    /// By the rate of the last ten seconds.
    pub seats_wanted_10s: f64,
    /// By the largest rate of six seconds in the last twenty.
    pub seats_wanted_peak12s: f64,
    /// By the largest rate of six seconds in the last minute.
    pub seats_wanted_peak60s: f64,
    /// Busy seats, of the seats that there were, over ten seconds.
    pub utilization: f64,
    pub arrivals_per_s: f64,
    pub service_us: f64,
    /// How long a proxy had the requests of the last seconds.
    pub front_us: f64,
    /// Requests that no seat has taken: in the line, or handed out ahead.
    pub untaken: usize,
    /// How long the oldest of them has waited.
    pub oldest_untaken_us: u64,
    /// All but a twentieth of the requests of the last ten to twenty seconds waited for at most so long; 0 if there were none.
    pub wait_p95_us: u64,
}

impl DemandStatus {
    pub(crate) fn of(dispatch: &Dispatch, now_us: u64) -> Self {
        let view = dispatch.view();
        let demand = dispatch.demand.of(&view, now_us);
        let waits = dispatch.demand.recent_waits(&dispatch.times);
        Self {
            untaken: view.untaken(),
            oldest_untaken_us: view.oldest_untaken_us(now_us),
            wait_p95_us: waits.estimate_us(95).unwrap_or_default(),
            seats_wanted_10s: demand.seats_10s,
            seats_wanted_peak12s: demand.seats_peak_12s,
            seats_wanted_peak60s: demand.seats_peak_60s,
            utilization: demand.utilization,
            arrivals_per_s: demand.arrived_per_s,
            service_us: demand.service_us,
            front_us: demand.front_us,
        }
    }
}

/// Figures that the master keeps.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ServerStatus {
    /// Workers that were replaced, by cause.
    pub restarts: BTreeMap<&'static str, u64>,
    pub reloads: Attempts,
    pub upgrades: Attempts,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Attempts {
    pub done: u64,
    pub failed: u64,
}
