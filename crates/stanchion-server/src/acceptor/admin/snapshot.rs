//! Gathering what [`Status`] says.

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::{memory, process, sock_diag};
use tracing::debug;

use super::status::{
    Attempts, Connections, ListenerStatus, ServerStatus, State, Status, WorkerStatus,
};
use crate::acceptor::Shared;
use crate::acceptor::connection::Phase;
use crate::figures::{Attempt, Cause};
use crate::tally::{Event, Outcome, Traffic};

impl Shared {
    /// Whether it serves.
    pub(super) fn state(&self) -> State {
        if self.retiring.get() {
            State::Retiring
        } else if self.draining.get() {
            State::Draining
        } else {
            State::Serving
        }
    }

    /// Everything, at this moment.
    pub(super) fn snapshot(&self) -> Status {
        let common = self.common;
        let figures = &common.figures;
        let now_us = monotonic_us();
        let dispatch = self.dispatch.borrow();
        let not_ready_because = self.verdict_ready().reason();
        let counts = common.total.read();
        let ended = Outcome::ALL
            .iter()
            .map(|one| (one.name(), counts.ended(*one)));
        let sums = [
            ("arrived", counts.arrived()),
            ("in_flight", counts.in_flight()),
        ];
        let events = Event::ALL.iter();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: common.master_pid,
            acceptor_pid: process::pid(),
            uptime_s: now_us.saturating_sub(figures.started_us) / 1_000_000,
            now_us,
            generation: common.generation,
            state: self.state(),
            ready: not_ready_because.is_none(),
            not_ready_because,
            line: dispatch.line_status(now_us),
            seats: dispatch.seat_statuses(common.settings.workers as usize, now_us),
            workers: dispatch
                .sitting()
                .map(|(worker, pid)| WorkerStatus {
                    worker,
                    pid,
                    memory_bytes: memory::resident_bytes(pid),
                })
                .collect(),
            listeners: self.listener_statuses(),
            connections: self.connection_counts(),
            requests: sums.into_iter().chain(ended).collect(),
            events: events
                .map(|one| (one.name(), counts.happened(*one)))
                .collect(),
            bytes: Traffic::ALL
                .iter()
                .map(|one| (one.name(), counts.moved(*one)))
                .collect(),
            wait_us: dispatch.waits.histogram(),
            service_us: dispatch.services.histogram(),
            server: ServerStatus {
                restarts: Cause::ALL
                    .iter()
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
            },
        }
    }

    /// One look at the kernel's list for all of them.
    pub(in crate::acceptor) fn listener_statuses(&self) -> Vec<ListenerStatus> {
        let sockets = sock_diag::listening().unwrap_or_else(|error| {
            debug!("the kernel does not tell how full its queues are: {error}");
            Vec::new()
        });
        let doors = self.doors.borrow();
        let statuses = doors.iter().map(|door| {
            let inode = rustix::fs::fstat(&door.listener).map(|stat| stat.st_ino);
            let queue = sockets
                .iter()
                .find(|socket| Ok(socket.inode) == inode)
                .map(|socket| socket.queue);
            ListenerStatus {
                address: door.listener.address().to_string(),
                backlog_asked: self.common.settings.backlog_of(&door.listener),
                backlog: queue.map(|queue| queue.backlog),
                queued: queue.map(|queue| queue.waiting),
            }
        });
        statuses.collect()
    }

    fn connection_counts(&self) -> Connections {
        let connections = self.connections.borrow();
        let mut counts = Connections {
            total: connections.len(),
            max: self.connections_max,
            ..Connections::default()
        };
        for connection in connections.iter() {
            match connection.phase() {
                Phase::New { .. } => counts.new += 1,
                Phase::Reading { .. } => counts.reading += 1,
                Phase::Busy => counts.busy += 1,
                Phase::Idle { .. } => counts.idle += 1,
                Phase::Leaving { .. } => counts.leaving += 1,
            }
        }
        counts
    }
}
