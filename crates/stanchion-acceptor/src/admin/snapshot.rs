//! Gathers the [`Status`].

use std::borrow::Borrow;

use stanchion_sys::listener::Listener;
use stanchion_sys::{memory, process, sock_diag};
use tracing::debug;

use super::status::{
    AcceptorMemory, Attempts, ConnectionCounts, DemandStatus, ListenerStatus, ServerStatus,
    ServingState, Status, WorkerStatus,
};
use stanchion_dispatch::workers::{SeatedWorkers, Sitting};
use stanchion_dispatch::{Dispatch, judge};
use stanchion_generation::common::Common;
use stanchion_generation::expiry::ServedCertificate;
use stanchion_generation::figures::{Attempt, Cause, Figures};
use stanchion_generation::named_counts::{EventCounts, RequestCounts};
use stanchion_generation::tally::{CloseCode, Traffic};
use stanchion_log as log;
use stanchion_settings::Settings;

/// The sources of a [`Status`].
pub(crate) struct SnapshotSources<'s> {
    pub now_us: u64,
    pub common: &'s Common,
    pub dispatch: &'s Dispatch,
    pub state: ServingState,
    pub not_ready_because: Option<String>,
    pub listeners: Vec<ListenerStatus>,
    pub connections: ConnectionCounts,
    pub memory: Option<AcceptorMemory>,
    pub certificates: &'s [ServedCertificate],
}

impl SnapshotSources<'_> {
    /// Gathers the status of this moment.
    pub(crate) fn status(self) -> Status {
        let Self {
            now_us,
            common,
            dispatch,
            ..
        } = self;
        let counts = common.total.read();
        let traffic = Traffic::ALL
            .iter()
            .map(|one| (one.name(), counts.moved(*one)));
        let codes = CloseCode::ALL
            .iter()
            .map(|one| (one.name(), counts.ended_by(*one)));
        let view = dispatch.view();
        let (seated, workers_wanted) = (view.workers(), dispatch.times.staffing.wanted());
        let workers = seated
            .iter()
            .map(|(index, sitting)| WorkerStatus::of(seated, index, sitting, now_us));
        let running = seated.running(workers_wanted, now_us);
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: common.master_pid,
            acceptor_pid: process::pid(),
            uptime_s: common.figures.uptime_s(now_us),
            now_us,
            generation: common.generation,
            state: self.state,
            ready: self.not_ready_because.is_none(),
            not_ready_because: self.not_ready_because,
            line: view.line_status(now_us),
            standstill: dispatch.standstill(now_us),
            elastic: dispatch.times.staffing.status(),
            seats: view.seat_statuses(workers_wanted, now_us),
            seat_counts: running.counts,
            workers: workers.collect(),
            listeners: self.listeners,
            connections: self.connections,
            memory: self.memory,
            certificates: self.certificates.to_vec(),
            failing_logs: log::failing_logs(),
            requests: RequestCounts(counts).named().collect(),
            events: EventCounts(counts).named().collect(),
            sessions_ended: common.settings.is_asgi().then(|| codes.collect()),
            bytes: traffic.collect(),
            wait_us: dispatch.times.waits.histogram(),
            service_us: dispatch.times.services.histogram(),
            running_us: running.ages.histogram(),
            front_us: dispatch.demand.fronts().histogram(),
            demand: DemandStatus::of(dispatch, now_us),
            causes: judge::causes(
                &view,
                (&dispatch.times, &dispatch.demand),
                common.cores as usize,
                now_us,
            ),
            seats_stuck_us: running.stuck_us,
            server: server_status(&common.figures),
        }
    }
}

impl WorkerStatus {
    fn of(seated: &SeatedWorkers, index: u16, sitting: &Sitting, now_us: u64) -> Self {
        let (seats, busy) = seated.seats_of(index);
        Self {
            worker: sitting.number,
            pid: sitting.pid,
            memory_bytes: memory::resident_bytes(sitting.pid),
            seats,
            busy,
            event_loop: seated.loop_status(index, now_us),
        }
    }
}

fn server_status(figures: &Figures) -> ServerStatus {
    let causes = Cause::ALL.iter();
    ServerStatus {
        restarts: causes
            .map(|cause| (cause.name(), figures.restarts(*cause)))
            .collect(),
        reloads: Attempts {
            done: figures.attempts(Attempt::Reloaded),
            failed: figures.attempts(Attempt::ReloadFailed),
        },
        upgrades: Attempts {
            done: figures.attempts(Attempt::Upgraded),
            failed: figures.attempts(Attempt::UpgradeFailed),
        },
    }
}

/// How full the kernel's queues are; the acceptor asks the kernel once for all of them.
pub(crate) fn listener_statuses<L: Borrow<Listener>>(
    settings: &Settings,
    listeners: impl Iterator<Item = L>,
) -> Vec<ListenerStatus> {
    let sockets = sock_diag::listening().unwrap_or_else(|error| {
        debug!("the kernel does not report how full the listen queues are: {error}");
        Vec::new()
    });
    let statuses = listeners.map(|listener| {
        let listener = listener.borrow();
        let inode = rustix::fs::fstat(listener).map(|stat| stat.st_ino);
        let queue = sockets
            .iter()
            .find(|socket| Ok(socket.inode) == inode)
            .map(|socket| socket.queue);
        ListenerStatus {
            address: listener.address().to_string(),
            backlog_asked: settings.backlog_of(listener),
            backlog: queue.map(|queue| queue.backlog),
            queued: queue.map(|queue| queue.waiting),
        }
    });
    statuses.collect()
}
