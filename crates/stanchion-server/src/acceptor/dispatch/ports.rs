//! The ports of single workers (`worker_port_base`): whose each is, and the line at each.
//!
//! A port belongs to a worker, not to a process: when that worker is gone its requests wait for the
//! successor.

use std::rc::Rc;

use stanchion_line::{LaneId, Line, LineLimits, Pulled};
use tracing::info;

use super::{Dispatch, refuse};
use crate::acceptor::refusal::Refusal;
use crate::acceptor::ticket::Ticket;

/// Every port.
pub(super) struct Ports<T> {
    /// None, mostly.
    ports: Vec<Port<T>>,
    /// The number of the first, for the log.
    base: u16,
    /// Requests that are worth handing to one worker at a time.
    submitted_max: usize,
}

struct Port<T> {
    /// The index of the worker that has it, or had it last.
    worker: u16,
    line: Line<T>,
    /// Its requests in the exchange.
    submitted: usize,
}

/// A port has passed to another worker.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    port: u16,
    from: u16,
    to: u16,
}

impl<T> Ports<T> {
    /// Port N is worker N's to begin with. All of them together may have as many waiting as
    /// `limits` says, and each its share of that, so that one stuck worker shuts out nobody else.
    pub(super) fn new(base: u16, count: u16, limits: LineLimits, submitted_max: usize) -> Self {
        let each = LineLimits {
            waiting_max: (limits.waiting_max / usize::from(count).max(1)).max(1),
            ..limits
        };
        let ports = (0..count).map(|worker| Port {
            worker,
            line: Line::new(each),
            submitted: 0,
        });
        Self {
            ports: ports.collect(),
            base,
            submitted_max,
        }
    }

    /// How many wait at all ports.
    pub(super) fn waiting(&self) -> usize {
        self.ports.iter().map(|port| port.line.len()).sum()
    }

    /// The line at a port.
    pub(super) fn line(&mut self, port: u16) -> &mut Line<T> {
        &mut self.ports[usize::from(port)].line
    }

    /// The lines at all ports.
    pub(super) fn lines(&mut self) -> impl Iterator<Item = &mut Line<T>> {
        self.ports.iter_mut().map(|port| &mut port.line)
    }

    /// Whose a port is.
    pub(super) fn worker(&self, port: u16) -> u16 {
        self.ports[usize::from(port)].worker
    }

    /// A request of a port has got into the exchange.
    pub(super) fn entered(&mut self, port: u16) {
        self.ports[usize::from(port)].submitted += 1;
    }

    /// A request of a port is out of the exchange.
    pub(super) fn left(&mut self, port: u16) {
        self.ports[usize::from(port)].submitted -= 1;
    }

    /// The next request for a worker that sits, if the worker has use for it.
    fn pull(
        &mut self,
        port: u16,
        now_us: u64,
        can_submit_to: impl Fn(u16) -> bool,
    ) -> Option<(u16, T)> {
        let Port {
            worker,
            line,
            submitted,
        } = &mut self.ports[usize::from(port)];
        if *submitted >= self.submitted_max || line.is_empty() || !can_submit_to(*worker) {
            return None;
        }
        let Pulled { item, .. } = line.pull(now_us)?;
        Some((*worker, item))
    }

    /// Gives ports whose workers are gone to workers that have none: a successor may sit elsewhere.
    /// Without one such the port stays with the seats of the one that is gone.
    fn pass_on(&mut self, sitting: &[u16]) -> Vec<Passed> {
        let mut passed = Vec::new();
        for port in 0..self.ports.len() {
            let from = self.ports[port].worker;
            if sitting.contains(&from) {
                continue;
            }
            let has_port = |worker: u16| self.ports.iter().any(|port| port.worker == worker);
            let Some(to) = sitting.iter().copied().find(|&worker| !has_port(worker)) else {
                break;
            };
            self.ports[port].worker = to;
            let port = port as u16;
            passed.push(Passed { port, from, to });
        }
        passed
    }
}

impl Dispatch {
    /// The line that a request is in, or is to join.
    pub(super) fn line_of(&mut self, ticket: &Ticket) -> &mut Line<Rc<Ticket>> {
        match ticket.request.peer.only_worker {
            None => &mut self.line,
            Some(port) => self.ports.line(port),
        }
    }

    /// Moves the heads of the ports' lines into the exchange.
    pub(super) fn fill_ports(&mut self, now_us: u64) {
        for port in 0..self.ports.ports.len() as u16 {
            loop {
                let can_submit_to =
                    |worker| self.workers.contains_key(&worker) && self.side.can_submit_to(worker);
                let Some((worker, ticket)) = self.ports.pull(port, now_us, can_submit_to) else {
                    break;
                };
                self.submit_to(worker, ticket);
            }
        }
    }

    fn submit_to(&mut self, worker: u16, ticket: Rc<Ticket>) {
        let request = &ticket.request;
        let submitted = self
            .side
            .submit_to(worker, request.arrived_us, |area| request.write(area));
        self.submitted(ticket, submitted);
    }

    /// Workers have come or gone: ports pass to successors, and with them what waits in the
    /// exchange for the one before.
    pub(super) fn pass_ports_on(&mut self) {
        let sitting: Vec<u16> = self.workers.keys().copied().collect();
        for Passed { port, from, to } in self.ports.pass_on(&sitting) {
            let number = self.ports.base + port;
            info!("port {number} passes from worker {from} to worker {to}");
            let mut tickets = Vec::new();
            for slot in 0..self.slots.len() as u32 {
                let whose = self.slots[slot as usize]
                    .as_ref()
                    .and_then(|ticket| ticket.request.peer.only_worker);
                if whose == Some(port) {
                    tickets.extend(self.withdraw(slot));
                }
            }
            tickets.sort_by_key(|ticket| ticket.request.arrived_us);
            for ticket in tickets {
                if self.side.can_submit_to(to) {
                    self.submit_to(to, ticket);
                } else {
                    // The slots were just freed, and nothing is in the ring of a worker that had
                    // no port: this does not happen while the exchange is sound.
                    refuse(&ticket, Refusal::NoAnswer);
                }
            }
        }
    }

    /// What one is told who has waited too long.
    pub(super) fn waited_too_long(&mut self, ticket: &Ticket, now_us: u64) -> Refusal {
        let retry_after_s = self.line_of(ticket).retry_after_s(now_us, LaneId::DEFAULT);
        let absent = ticket
            .request
            .peer
            .only_worker
            .is_some_and(|port| !self.workers.contains_key(&self.ports.worker(port)));
        if absent {
            Refusal::WorkerAbsent { retry_after_s }
        } else {
            Refusal::WaitedTooLong { retry_after_s }
        }
    }
}

#[cfg(test)]
mod tests {
    use stanchion_line::Order;

    use super::*;

    const LIMITS: LineLimits = LineLimits {
        waiting_max: 9,
        queue_timeout_us: 100,
        order: Order::Fifo,
    };

    fn workers<T>(ports: &Ports<T>) -> Vec<u16> {
        ports.ports.iter().map(|port| port.worker).collect()
    }

    #[test]
    fn a_port_stays_with_its_worker_as_long_as_that_can_come_back() {
        // Who sits, one after the other, and whose the ports are then.
        let table: &[(&[u16], [u16; 3])] = &[
            (&[2], [0, 1, 2]),
            (&[0, 1, 2], [0, 1, 2]),
            // 1 dies, and comes back.
            (&[0, 2], [0, 1, 2]),
            (&[0, 1, 2], [0, 1, 2]),
            // 1 is relieved by 3, which is there before 1 is gone.
            (&[0, 1, 2, 3], [0, 1, 2]),
            (&[0, 2, 3], [0, 3, 2]),
            // Somebody else comes to sit where 1 sat.
            (&[0, 1, 2, 3], [0, 3, 2]),
            // Two are gone, and one can take over: the first port is served first.
            (&[1, 2], [1, 3, 2]),
            (&[1], [1, 3, 2]),
            (&[], [1, 3, 2]),
            (&[4, 5, 6, 7], [4, 5, 6]),
        ];
        let mut ports: Ports<char> = Ports::new(9293, 3, LIMITS, 2);
        for (sitting, expected) in table {
            ports.pass_on(sitting);
            assert_eq!(workers(&ports), expected, "sitting: {sitting:?}");
        }
    }

    #[test]
    fn who_takes_over_from_whom_is_told() {
        let mut ports: Ports<char> = Ports::new(9293, 2, LIMITS, 2);
        let passed = ports.pass_on(&[1, 2]);
        let expected = Passed {
            port: 0,
            from: 0,
            to: 2,
        };
        assert_eq!(passed, [expected]);
        assert_eq!(ports.pass_on(&[1, 2]), []);
    }

    #[test]
    fn each_port_has_its_share_of_what_may_wait() {
        for (waiting_max, count, share) in [(9, 3, 3), (10, 3, 3), (2, 3, 1), (9, 1, 9)] {
            let limits = LineLimits {
                waiting_max,
                ..LIMITS
            };
            let mut ports = Ports::new(9293, count, limits, 2);
            for port in 0..count {
                while ports.line(port).join(0, LaneId::DEFAULT, 'x').is_ok() {}
            }
            assert_eq!(ports.waiting(), share * usize::from(count));
        }
        assert_eq!(Ports::<char>::new(0, 0, LIMITS, 2).waiting(), 0);
    }

    #[test]
    fn a_worker_gets_as_many_as_it_has_use_for() {
        let mut ports = Ports::new(9293, 2, LIMITS, 2);
        for item in "abc".chars() {
            ports.line(1).join(0, LaneId::DEFAULT, item).unwrap();
        }
        assert_eq!(ports.pull(0, 1, |_| true), None);
        assert_eq!(ports.pull(1, 1, |worker| worker != 1), None, "not there");
        for item in "ab".chars() {
            assert_eq!(ports.pull(1, 1, |_| true), Some((1, item)));
            ports.entered(1);
        }
        assert_eq!(ports.pull(1, 1, |_| true), None, "it has enough");
        ports.left(1);
        assert_eq!(ports.pull(1, 100, |_| true), None, "it has waited too long");
        assert_eq!(ports.pull(1, 99, |_| true), Some((1, 'c')));
    }
}
