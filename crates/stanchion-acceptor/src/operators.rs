//! Answers operators and scrapers, and gathers the figures for the statsd server.

use stanchion_http::Head;

use super::admin::{Facts, ServingState, SnapshotSources, listener_statuses};
use super::{Acceptor, OPERATORS_ANSWERS_MAX, admin};
use stanchion_connections::DriveOutcome;
use stanchion_dispatch::reply::Reply;
use stanchion_observers::{Gauges, Loops};

impl Acceptor {
    /// Answers what an operator has asked, and what it has asked behind that.
    pub(super) fn answer_operator(&mut self, number: u32, fate: DriveOutcome) {
        let mut fate = fate;
        for _ in 0..OPERATORS_ANSWERS_MAX {
            if fate != DriveOutcome::Asks {
                return;
            }
            let Some(head) = self.operators.take_asked(number, self.requests.now_us) else {
                return;
            };
            let reply = self.admin_reply(&head);
            let (requests, poller) = (&mut self.requests, &self.poller);
            fate = self
                .operators
                .reply(number, &head, &reply, requests, poller);
        }
        if fate == DriveOutcome::Asks {
            // Other connections have their turn first.
            self.requests.wakes.operators.add(number);
        }
    }

    fn admin_reply(&mut self, head: &Head) -> Reply {
        let (requests, doors, clients) = (&self.requests, &self.doors, &self.clients);
        let (common, now_us) = (self.common, self.requests.now_us);
        let state = ServingState::of(requests.serving.lifecycle);
        let facts = Facts {
            now_us,
            master_pid: common.master_pid,
            state,
            ready: &|| requests.verdict_ready(),
            snapshot: &|| {
                let sources = SnapshotSources {
                    now_us,
                    common,
                    dispatch: &requests.dispatch,
                    state,
                    not_ready_because: requests.verdict_ready().reason(),
                    listeners: listener_statuses(&common.settings, doors.listeners()),
                    connections: admin::ConnectionCounts::of(
                        clients.doing(),
                        doors.connections_max(),
                    ),
                    memory: admin::AcceptorMemory::of(
                        clients.heaviest(&requests.policy.believed),
                        common.settings.buffers.max_client_memory,
                    ),
                    certificates: &self.certificates.served,
                };
                sources.status()
            },
        };
        self.admin.answer(head, &facts)
    }

    /// Keeps a sample of the server's state for operators that ask later.
    pub(super) fn keep_history(&mut self) {
        self.admin.look(&admin::Moment {
            now_us: self.requests.now_us,
            common: self.common,
            dispatch: &self.requests.dispatch,
        });
    }

    /// Of two acceptors only the one that has the listeners sends gauges.
    pub(super) fn gauges(&self) -> Option<Gauges> {
        if !self.requests.serving.lifecycle.is_open() {
            return None;
        }
        let settings = &self.common.settings;
        let dispatch = &self.requests.dispatch;
        let queued = settings.monitoring.enable_backlog_metric.then(|| {
            let listeners = listener_statuses(settings, self.doors.listeners());
            let queued = listeners.into_iter().filter_map(|listener| listener.queued);
            queued.map(u64::from).sum()
        });
        Some(Gauges {
            workers: dispatch.view().workers().len(),
            waiting: dispatch.waiting(),
            queued,
            loops: settings
                .is_event_loop()
                .then(|| self.loops(self.requests.now_us)),
        })
    }

    fn loops(&self, now_us: u64) -> Loops {
        let workers = self.requests.dispatch.view().workers();
        let loops = workers
            .iter()
            .filter_map(|(worker, _)| workers.loop_now(worker, now_us));
        let none = Loops {
            sessions: self.common.settings.is_asgi().then_some(0),
            lag_us: 0,
        };
        loops.fold(none, |sum, one| Loops {
            sessions: one.sessions.map_or(sum.sessions, |sessions| {
                Some(sum.sessions.unwrap_or(0) + u64::from(sessions))
            }),
            lag_us: sum.lag_us.max(one.lag_us),
        })
    }
}
