//! The ports of single workers: those of `worker_port_base`, and those that workers ask for (`worker.listen`). Each
//! port has a worker, and a line of its own.
//!
//! A port belongs to a worker, not to a process: when that worker is gone its requests wait for the successor.
//!
//! Its requests wait in that line before they go into the worker's own ring of the exchange. All waiting requests count
//! towards `max_waiting`, and one such line may have the worker's share of it: the line of a stuck worker fills up and
//! blocks no other worker.

use std::collections::BTreeMap;
use std::rc::Rc;

use stanchion_line::{LaneId, Line, LineLimits, Pulled};
use tracing::info;

use super::{Dispatch, Sitting, refuse};
use crate::refusal::Refusal;
use crate::ticket::{Stage, Ticket};
use stanchion_generation::messages::WorkerRef;

/// The ports of `worker_port_base` are counted from 0; the master numbers the others, beyond them.
pub type PortNumber = u32;

/// Every port.
pub(super) struct Ports<T> {
    /// Empty, mostly.
    ports: BTreeMap<PortNumber, Port<T>>,
    /// One worker's share of all requests that may wait, so that a stuck worker does not shut out the requests of
    /// others.
    share: LineLimits,
    /// Requests that are worth handing to one worker at a time.
    submitted_max: usize,
}

struct Port<T> {
    /// For the log.
    name: String,
    /// The index of the worker that has it, or had it last.
    worker: u16,
    /// The workers that have asked for the port and are not gone, first come first served. `None` for a port of
    /// `worker_port_base`, which belongs to a worker number.
    claims: Option<Vec<WorkerRef>>,
    line: Line<T>,
    /// Its requests in the exchange.
    submitted: usize,
}

/// A port has passed to another worker.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    port: PortNumber,
    from: u16,
    to: u16,
}

impl<T> Ports<T> {
    /// Makes the ports of `worker_port_base`: port N is worker N's, which has the seats with index N to begin with.
    pub(super) fn new(base: u16, count: u16, share: LineLimits, submitted_max: usize) -> Self {
        let port = |worker: u16| {
            let port = Port {
                name: format!("port {}", base + worker),
                worker,
                claims: None,
                line: Line::new(share),
                submitted: 0,
            };
            (PortNumber::from(worker), port)
        };
        Self {
            ports: (0..count).map(port).collect(),
            share,
            submitted_max,
        }
    }

    /// Notes that a worker asks for a port. If the port is another worker's, this worker is next.
    fn claim(&mut self, port: PortNumber, worker: WorkerRef, name: &str) {
        let share = self.share;
        let port = self.ports.entry(port).or_insert_with(|| Port {
            name: name.to_owned(),
            worker: worker.index,
            claims: Some(Vec::new()),
            line: Line::new(share),
            submitted: 0,
        });
        if let Some(claims) = &mut port.claims
            && !claims.contains(&worker)
        {
            claims.push(worker);
        }
    }

    /// The first worker of those that have asked for a port.
    fn claimant(&self, port: PortNumber) -> Option<WorkerRef> {
        let claims = self.ports.get(&port)?.claims.as_ref()?;
        claims.first().copied()
    }

    /// Removes the claims of a worker that is gone.
    pub(super) fn forget(&mut self, worker: WorkerRef) {
        for port in self.ports.values_mut() {
            if let Some(claims) = &mut port.claims {
                claims.retain(|claim| *claim != worker);
            }
        }
    }

    /// How many requests wait at all ports.
    pub(super) fn waiting(&self) -> usize {
        self.ports.values().map(|port| port.line.len()).sum()
    }

    /// Whether as many requests wait at the ports of this port's worker as may.
    pub(super) fn is_full(&self, port: PortNumber) -> bool {
        let waiting = self.of_worker_of(port).map(|port| port.line.len());
        waiting.sum::<usize>() >= self.share.waiting_max
    }

    fn of_worker_of(&self, port: PortNumber) -> impl Iterator<Item = &Port<T>> {
        let worker = self.worker(port);
        let ports = self.ports.values();
        ports.filter(move |port| Some(port.worker) == worker)
    }

    /// The line at a port; `None` if that is gone.
    pub(super) fn line(&mut self, port: PortNumber) -> Option<&mut Line<T>> {
        self.ports.get_mut(&port).map(|port| &mut port.line)
    }

    /// The lines at all ports.
    pub(super) fn lines(&mut self) -> impl Iterator<Item = &mut Line<T>> {
        self.ports.values_mut().map(|port| &mut port.line)
    }

    /// The worker that has a port.
    pub(super) fn worker(&self, port: PortNumber) -> Option<u16> {
        self.ports.get(&port).map(|port| port.worker)
    }

    /// How many seats of these workers, which have `per_worker` each, requests of ports have or are about to have.
    pub(super) fn seats_held(
        &self,
        workers: impl Iterator<Item = u16>,
        per_worker: usize,
    ) -> usize {
        if self.ports.is_empty() {
            return 0;
        }
        let held = |worker| {
            let ports = self.ports.values().filter(|port| port.worker == worker);
            ports
                .map(|port| port.submitted)
                .sum::<usize>()
                .min(per_worker)
        };
        workers.map(held).sum()
    }

    /// Counts a request of a port that has got into the exchange.
    pub(super) fn entered(&mut self, port: PortNumber) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.submitted += 1;
        }
    }

    /// Counts a request that is out of the exchange; its port may be gone by now.
    pub(super) fn left(&mut self, port: PortNumber) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.submitted -= 1;
        }
    }

    /// Takes the next request out of the line at a port, with the index of its worker, if the worker has use for it.
    fn pull(
        &mut self,
        port: PortNumber,
        now_us: u64,
        mut can_submit_to: impl FnMut(u16) -> bool,
    ) -> Option<(u16, T)> {
        let submitted = self.of_worker_of(port).map(|port| port.submitted);
        let has_enough = submitted.sum::<usize>() >= self.submitted_max;
        let Port { worker, line, .. } = self.ports.get_mut(&port)?;
        if has_enough || line.is_empty() || !can_submit_to(*worker) {
            return None;
        }
        let Pulled { item, .. } = line.pull(now_us)?;
        Some((*worker, item))
    }

    /// Gives ports to other workers. `sitting` has the workers at their seats, by index and number, the newest last. A
    /// port of `worker_port_base` goes to the newest worker with its number, as a predecessor leaves and takes no more.
    /// If there is no such worker, the port stays with the seats of the worker that is gone. A port that workers have
    /// asked for goes to the next that has asked, when the one that has it is gone.
    fn pass_on(&mut self, sitting: &[(u16, u16)]) -> Vec<Passed> {
        let mut passed = Vec::new();
        let numbers: Vec<PortNumber> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            let from = port.worker;
            let to = match &port.claims {
                None => {
                    let is_its = |(_, its): &&(u16, u16)| PortNumber::from(*its) == number;
                    let last = sitting.iter().rev().find(is_its);
                    last.map(|(index, _)| *index)
                }
                Some(claims) => {
                    let sits =
                        |claim: &WorkerRef| sitting.iter().any(|(index, _)| *index == claim.index);
                    let mut claims = claims.iter().filter(|claim| sits(claim));
                    claims.next().map(|claim| claim.index)
                }
            };
            if let Some(to) = to.filter(|&to| to != from) {
                if let Some(port) = self.ports.get_mut(&number) {
                    port.worker = to;
                }
                let port = number;
                passed.push(Passed { port, from, to });
            }
        }
        passed
    }
}

impl Dispatch {
    /// The line that a request is in, or is to join; `None` if the port that it came by is gone.
    pub(super) fn line_of(&mut self, ticket: &Ticket) -> Option<&mut Line<Rc<Ticket>>> {
        match ticket.request.peer.only_worker {
            None => Some(&mut self.line),
            Some(port) => self.ports.line(port),
        }
    }

    /// Notes that a worker asks for a port, and passes the port to it if it is first.
    pub fn claim_port(&mut self, port: PortNumber, worker: WorkerRef, name: &str, now_us: u64) {
        self.ports.claim(port, worker, name);
        self.pass_ports_on(now_us);
        self.fill(now_us);
    }

    /// The worker whose turn it is to have a port.
    pub fn claimant(&self, port: PortNumber) -> Option<WorkerRef> {
        self.ports.claimant(port)
    }

    /// Removes a port that no worker has any more, and refuses the requests that wait there.
    pub fn give_up_port(&mut self, number: PortNumber, now_us: u64) {
        let mut waiting = self.withdraw_all_of(number);
        let Some(mut port) = self.ports.ports.remove(&number) else {
            return;
        };
        let retry_after_s = port.line.retry_after_s(now_us, LaneId::DEFAULT);
        waiting.extend(port.line.drain(now_us).map(|pulled| pulled.item));
        for ticket in waiting {
            refuse(&ticket, Refusal::WorkerAbsent { retry_after_s });
        }
    }

    /// Moves the heads of the ports' lines into the exchange.
    pub(super) fn fill_ports(&mut self, now_us: u64) {
        if self.ports.waiting() == 0 {
            return;
        }
        let numbers: Vec<PortNumber> = self.ports.ports.keys().copied().collect();
        for port in numbers {
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

    /// Passes ports to successors after workers have come or gone. The requests that wait in the exchange for the
    /// worker before go back to the line.
    pub(super) fn pass_ports_on(&mut self, now_us: u64) {
        let mut sitting: Vec<_> = self.sitting().collect();
        sitting.sort_by_key(|(_, one)| one.since_us);
        let sitting = sitting.iter().map(|(index, one)| (*index, one.number));
        let sitting: Vec<_> = sitting.collect();
        for Passed { port, to, .. } in self.ports.pass_on(&sitting) {
            let name = &self.ports.ports[&port].name;
            if let Some(Sitting { number, pid, .. }) = self.workers.get(&to) {
                info!("{name} passes to worker {number} ({pid})");
            }
            let tickets = self.withdraw_all_of(port);
            let (whole, begun): (Vec<_>, Vec<_>) = tickets
                .into_iter()
                .partition(|ticket| ticket.request.is_whole());
            for ticket in begun {
                // The part of the body that came later was in the slot, and cannot be handed over again.
                let retry_after_s = self.retry_after_s(&ticket, now_us);
                refuse(&ticket, Refusal::WorkerAbsent { retry_after_s });
            }
            let Some(line) = self.ports.line(port) else {
                continue;
            };
            for ticket in whole {
                let (lane, since_us) = (LaneId::DEFAULT, ticket.request.arrived_us);
                let place = line.put_back(now_us, lane, since_us, Rc::clone(&ticket));
                ticket.stage.set(Stage::Waiting(place));
            }
        }
    }

    /// Takes back the requests of a port that no seat has taken.
    fn withdraw_all_of(&mut self, port: PortNumber) -> Vec<Rc<Ticket>> {
        let mut tickets = Vec::new();
        for slot in 0..self.slots.len() as u32 {
            let whose = self.slots[slot as usize]
                .as_ref()
                .and_then(|ticket| ticket.request.peer.only_worker);
            if whose == Some(port) {
                tickets.extend(self.withdraw(slot));
            }
        }
        tickets
    }

    /// Whether a request came by the port of a worker that is not there.
    pub(super) fn is_workers_absent(&self, ticket: &Ticket) -> bool {
        let port = ticket.request.peer.only_worker;
        port.is_some_and(|port| {
            let worker = self.ports.worker(port);
            worker.is_none_or(|worker| !self.workers.contains_key(&worker))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use stanchion_line::Discipline;

    use super::*;

    const LIMITS: LineLimits = LineLimits {
        waiting_max: 9,
        queue_timeout_us: 100,
        discipline: Discipline::Fifo,
    };

    const LENT: PortNumber = 1 << 16;

    fn worker(index: u16, epoch: u16) -> WorkerRef {
        WorkerRef { index, epoch }
    }

    fn workers<T>(ports: &Ports<T>) -> Vec<u16> {
        ports.ports.values().map(|port| port.worker).collect()
    }

    /// Workers, each with the number of its index.
    fn of(indexes: &[u16]) -> Vec<(u16, u16)> {
        indexes.iter().map(|&index| (index, index)).collect()
    }

    #[test]
    fn a_port_stays_with_the_number_of_its_worker() {
        // Workers sit, by index and number, one after the other; the ports are at these indexes then.
        type Sitting = [(u16, u16)];
        let table: &[(&Sitting, [u16; 3])] = &[
            (&[(2, 2)], [0, 1, 2]),
            (&[(0, 0), (1, 1), (2, 2)], [0, 1, 2]),
            // 1 dies, and comes back.
            (&[(0, 0), (2, 2)], [0, 1, 2]),
            (&[(0, 0), (1, 1), (2, 2)], [0, 1, 2]),
            // A successor of 1 sits down beside it, and has the port at once.
            (&[(0, 0), (1, 1), (2, 2), (3, 1)], [0, 3, 2]),
            (&[(0, 0), (2, 2), (3, 1)], [0, 3, 2]),
            // Worker 3, which has no port, sits down where 1 sat; then 1 dies, and comes back elsewhere.
            (&[(0, 0), (2, 2), (3, 1), (1, 3)], [0, 3, 2]),
            (&[(0, 0), (2, 2), (1, 3)], [0, 3, 2]),
            (&[(0, 0), (2, 2), (1, 3), (4, 1)], [0, 4, 2]),
            (&[], [0, 4, 2]),
            (&[(7, 0), (6, 1), (5, 2), (4, 3)], [7, 6, 5]),
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
        let passed = ports.pass_on(&[(1, 1), (2, 0)]);
        let expected = Passed {
            port: 0,
            from: 0,
            to: 2,
        };
        assert_eq!(passed, [expected]);
        assert_eq!(ports.pass_on(&[(1, 1), (2, 0)]), []);
    }

    #[test]
    fn each_port_has_its_share_of_what_may_wait() {
        let mut ports = Ports::new(9293, 3, LIMITS, 2);
        ports.claim(LENT, worker(1, 1), "another of worker 1");
        for (port, others, fits) in [(0, 0, 9), (1, 0, 4), (LENT, 4, 5), (2, 0, 9)] {
            for joined in others..others + fits {
                assert!(
                    !ports.is_full(port),
                    "{joined} wait at the ports of its worker"
                );
                ports
                    .line(port)
                    .unwrap()
                    .join(0, LaneId::DEFAULT, 'x')
                    .unwrap();
            }
        }
        for port in [0, 1, 2, LENT] {
            assert!(ports.is_full(port), "{port}");
        }
        assert_eq!(ports.waiting(), 27);
        assert_eq!(Ports::<char>::new(0, 0, LIMITS, 2).waiting(), 0);
    }

    #[test]
    fn requests_of_ports_hold_seats_of_workers_that_sit() {
        let mut ports: Ports<char> = Ports::new(9293, 3, LIMITS, 4);
        for port in [0, 0, 0, 1, 2] {
            ports.entered(port);
        }
        assert_eq!(ports.seats_held([0, 1, 2, 3].into_iter(), 2), 4);
        assert_eq!(ports.seats_held([0, 1, 2].into_iter(), 9), 5);
        assert_eq!(ports.seats_held([1, 3].into_iter(), 2), 1);
    }

    #[test]
    fn a_worker_gets_as_many_as_it_has_use_for() {
        let mut ports = Ports::new(9293, 2, LIMITS, 2);
        for item in "abc".chars() {
            ports
                .line(1)
                .unwrap()
                .join(0, LaneId::DEFAULT, item)
                .unwrap();
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

    #[test]
    fn a_port_that_was_asked_for_is_the_first_askers_until_it_is_gone() {
        let mut ports: Ports<char> = Ports::new(0, 0, LIMITS, 2);
        let passed = |from, to| {
            vec![Passed {
                port: LENT,
                from,
                to,
            }]
        };
        ports.claim(LENT, worker(0, 1), "one");
        assert_eq!(ports.pass_on(&of(&[0, 1])), []);
        // 2 is to replace 0, and 1 has asked too.
        ports.claim(LENT, worker(2, 1), "one");
        ports.claim(LENT, worker(1, 1), "one");
        assert_eq!(ports.pass_on(&of(&[0, 1, 2])), []);
        ports.forget(worker(0, 1));
        assert_eq!(ports.pass_on(&of(&[1])), passed(0, 1), "2 is not there yet");
        assert_eq!(
            ports.pass_on(&of(&[1, 2])),
            passed(1, 2),
            "and it came before 1"
        );
        ports.forget(worker(2, 1));
        assert_eq!(ports.pass_on(&of(&[1])), passed(2, 1));
        // It dies, and comes back to the same seats.
        ports.forget(worker(1, 1));
        assert_eq!(ports.pass_on(&[]), []);
        assert_eq!(ports.pass_on(&of(&[0, 2, 3])), [], "they have not asked");
        ports.claim(LENT, worker(1, 2), "one");
        assert_eq!(ports.pass_on(&of(&[0, 1, 2, 3])), []);
        assert_eq!(ports.worker(LENT), Some(1));
    }

    #[test]
    fn all_ports_of_a_worker_together_give_it_as_many_as_it_has_use_for() {
        let mut ports = Ports::new(9293, 2, LIMITS, 2);
        ports.claim(LENT, worker(1, 1), "another of worker 1");
        for port in [0, 1, LENT] {
            for item in "abc".chars() {
                ports
                    .line(port)
                    .unwrap()
                    .join(0, LaneId::DEFAULT, item)
                    .unwrap();
            }
        }
        for port in [1, LENT, 0, 0] {
            assert!(ports.pull(port, 1, |_| true).is_some());
            ports.entered(port);
        }
        for port in [0, 1, LENT] {
            assert_eq!(ports.pull(port, 1, |_| true), None);
        }
        ports.left(LENT);
        assert_eq!(ports.pull(1, 1, |_| true), Some((1, 'b')));
        // A request that is still in the exchange when its port has gone leaves no trace.
        ports.ports.remove(&LENT);
        ports.left(LENT);
        assert!(ports.line(LENT).is_none());
    }

    /// A plain model of the ports that workers have asked for.
    #[derive(Default)]
    struct Model {
        ports: BTreeMap<PortNumber, (Vec<WorkerRef>, u16, usize)>,
        sitting: BTreeSet<u16>,
    }

    impl Model {
        fn settle(&mut self) {
            for (claims, worker, _) in self.ports.values_mut() {
                let sits = |who: &&WorkerRef| self.sitting.contains(&who.index);
                if let Some(first) = claims.iter().find(sits) {
                    *worker = first.index;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn ports_grow_and_shrink_as_workers_come_and_go(
            events in prop::collection::vec((0..5u8, 0..4u32, 0..4u16), 0..80)
        ) {
            let mut ports: Ports<usize> = Ports::new(0, 0, LIMITS, 2);
            let mut model = Model::default();
            let mut epochs = [0u16; 4];
            for (kind, number, index) in events {
                let number = LENT + number;
                let worker = worker(index, epochs[usize::from(index)]);
                match kind {
                    // The worker asks, before it is at its seats or after.
                    0 => {
                        ports.claim(number, worker, "p");
                        let (claims, ..) = model.ports.entry(number).or_insert((vec![], index, 0));
                        if !claims.contains(&worker) {
                            claims.push(worker);
                        }
                    }
                    1 => {
                        model.sitting.insert(index);
                    }
                    2 => {
                        model.sitting.remove(&index);
                        ports.forget(worker);
                        for (claims, ..) in model.ports.values_mut() {
                            claims.retain(|who| *who != worker);
                        }
                        epochs[usize::from(index)] += 1;
                    }
                    // No worker has the port any more.
                    3 => {
                        ports.ports.remove(&number);
                        model.ports.remove(&number);
                    }
                    _ => {
                        let is_full = ports.is_full(number);
                        if let Some(line) = ports.line(number)
                            && !is_full
                            && line.join(0, LaneId::DEFAULT, 0).is_ok()
                        {
                            model.ports.get_mut(&number).unwrap().2 += 1;
                        }
                    }
                }
                model.settle();
                let sitting: Vec<_> = model.sitting.iter().map(|&index| (index, index)).collect();
                ports.pass_on(&sitting);
                prop_assert_eq!(ports.pass_on(&sitting), vec![], "it has settled");
                let numbers: Vec<_> = ports.ports.keys().copied().collect();
                prop_assert_eq!(numbers, model.ports.keys().copied().collect::<Vec<_>>());
                for (&number, (_, worker, waiting)) in &model.ports {
                    prop_assert_eq!(ports.worker(number), Some(*worker));
                    prop_assert_eq!(ports.line(number).unwrap().len(), *waiting);
                }
                let waiting: usize = model.ports.values().map(|port| port.2).sum();
                prop_assert_eq!(ports.waiting(), waiting);
            }
        }
    }
}
