//! The ports of single workers: those of `worker_port_base`, and those that workers ask for (`worker.listen`). Each
//! port has a worker, and a line of its own.
//!
//! A port belongs to a worker, not to a process: when that worker is gone its requests wait for the successor.
//!
//! Its requests wait in that line before they go into the worker's own ring of the exchange. All waiting requests count
//! towards `max_waiting`, and one such line may have the worker's share of it: the line of a stuck worker fills up and
//! blocks no other worker.

use std::collections::BTreeMap;

use stanchion_generation::messages::WorkerRef;
use stanchion_line::{Line, LineLimits};

use crate::request::PortNumber;
use crate::seats_taken::SeatsTaken;

/// Every port.
pub(crate) struct Ports<T> {
    /// Empty, mostly.
    ports: BTreeMap<PortNumber, Port<T>>,
    /// One worker's share of all requests that may wait, so that a stuck worker does not shut out the requests of
    /// others.
    share: LineLimits,
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
}

/// A port has passed to another worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortPassed {
    pub(crate) port: PortNumber,
    pub(crate) to: u16,
}

impl<T> Ports<T> {
    /// Makes the ports of `worker_port_base`: port N is worker N's, which has the seats with index N to begin with.
    pub(crate) fn new(base: u16, count: u16, share: LineLimits) -> Self {
        let port = |worker: u16| {
            let port = Port {
                name: format!("port {}", base + worker),
                worker,
                claims: None,
                line: Line::new(share),
            };
            (PortNumber::from(worker), port)
        };
        Self {
            ports: (0..count).map(port).collect(),
            share,
        }
    }

    /// Notes that a worker asks for a port. If the port is another worker's, this worker is next.
    pub(crate) fn claim(&mut self, port: PortNumber, worker: WorkerRef, name: &str) {
        let share = self.share;
        let port = self.ports.entry(port).or_insert_with(|| Port {
            name: name.to_owned(),
            worker: worker.index,
            claims: Some(Vec::new()),
            line: Line::new(share),
        });
        if let Some(claims) = &mut port.claims
            && !claims.contains(&worker)
        {
            claims.push(worker);
        }
    }

    /// The first worker of those that have asked for a port.
    pub(crate) fn claimant(&self, port: PortNumber) -> Option<WorkerRef> {
        let claims = self.ports.get(&port)?.claims.as_ref()?;
        claims.first().copied()
    }

    /// Removes the claims of a worker that is gone.
    pub(crate) fn forget(&mut self, worker: WorkerRef) {
        for port in self.ports.values_mut() {
            if let Some(claims) = &mut port.claims {
                claims.retain(|claim| *claim != worker);
            }
        }
    }

    /// How many requests wait at all ports.
    pub(crate) fn waiting(&self) -> usize {
        self.ports.values().map(|port| port.line.len()).sum()
    }

    /// Whether as many requests wait at the ports of this port's worker as may.
    pub(crate) fn is_full(&self, port: PortNumber) -> bool {
        let worker = self.worker(port);
        let theirs = self
            .ports
            .values()
            .filter(|port| Some(port.worker) == worker);
        theirs.map(|port| port.line.len()).sum::<usize>() >= self.share.waiting_max
    }

    /// The line at a port; `None` if that is gone.
    pub(crate) fn line(&mut self, port: PortNumber) -> Option<&mut Line<T>> {
        self.ports.get_mut(&port).map(|port| &mut port.line)
    }

    /// The lines at all ports.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = &mut Line<T>> {
        self.ports.values_mut().map(|port| &mut port.line)
    }

    /// The worker that has a port.
    pub(crate) fn worker(&self, port: PortNumber) -> Option<u16> {
        self.ports.get(&port).map(|port| port.worker)
    }

    /// How many seats of these workers, which have `seats_each`, requests of ports have or are about to have.
    pub(crate) fn seats_held(
        &self,
        workers: impl Iterator<Item = u16>,
        seats_each: usize,
        taken: &SeatsTaken,
    ) -> usize {
        if self.ports.is_empty() {
            return 0;
        }
        let held = |worker| taken.by_ports(self.of_worker(worker)).min(seats_each);
        workers.map(held).sum()
    }

    /// Whether the ports of a worker together have so many requests in the exchange.
    pub(crate) fn have_handed(&self, worker: u16, count: usize, taken: &SeatsTaken) -> bool {
        taken.by_ports(self.of_worker(worker)) >= count
    }

    /// The numbers of all ports.
    pub(crate) fn numbers(&self) -> Vec<PortNumber> {
        self.ports.keys().copied().collect()
    }

    /// The ports of a worker.
    pub(crate) fn of_worker(&self, worker: u16) -> impl Iterator<Item = PortNumber> {
        let theirs = self
            .ports
            .iter()
            .filter(move |(_, port)| port.worker == worker);
        theirs.map(|(&number, _)| number)
    }

    /// The worker for which requests wait at a port; `None` if none waits there.
    pub(crate) fn awaited(&self, port: PortNumber) -> Option<u16> {
        let port = self.ports.get(&port)?;
        (!port.line.is_empty()).then_some(port.worker)
    }

    /// The name of a port, for the log.
    pub(crate) fn name(&self, port: PortNumber) -> &str {
        self.ports.get(&port).map_or("", |port| &port.name)
    }

    /// Removes a port, and gives its line.
    pub(crate) fn remove(&mut self, port: PortNumber) -> Option<Line<T>> {
        self.ports.remove(&port).map(|port| port.line)
    }

    /// Gives ports to other workers. `sitting` has the workers at their seats, by index and number, the newest last. A
    /// port of `worker_port_base` goes to the newest worker with its number, as a predecessor leaves and takes no more.
    /// If there is no such worker, the port stays with the seats of the worker that is gone. A port that workers have
    /// asked for goes to the next that has asked, when the one that has it is gone.
    pub(crate) fn pass_on(&mut self, sitting: &[(u16, u16)]) -> Vec<PortPassed> {
        let mut passed = Vec::new();
        for (&number, port) in &mut self.ports {
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
            if let Some(to) = to.filter(|&to| to != port.worker) {
                port.worker = to;
                passed.push(PortPassed { port: number, to });
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use stanchion_line::{Discipline, LaneId, Reserve};

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
        type AtSeats = [(u16, u16)];
        let table: &[(&AtSeats, [u16; 3])] = &[
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
        let mut ports: Ports<char> = Ports::new(9293, 3, LIMITS);
        for (sitting, expected) in table {
            ports.pass_on(sitting);
            assert_eq!(workers(&ports), expected, "sitting: {sitting:?}");
        }
    }

    #[test]
    fn each_port_that_passes_is_named() {
        let mut ports: Ports<char> = Ports::new(9293, 2, LIMITS);
        let passed = ports.pass_on(&[(1, 1), (2, 0)]);
        assert_eq!(passed, [PortPassed { port: 0, to: 2 }]);
        assert_eq!(ports.pass_on(&[(1, 1), (2, 0)]), []);
    }

    #[test]
    fn each_port_has_its_share_of_what_may_wait() {
        let mut ports = Ports::new(9293, 3, LIMITS);
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
        assert_eq!(Ports::<char>::new(0, 0, LIMITS).waiting(), 0);
    }

    #[test]
    fn requests_of_ports_hold_seats_of_workers_that_sit() {
        let ports: Ports<char> = Ports::new(9293, 3, LIMITS);
        let mut taken = SeatsTaken::new(Reserve::new(vec![]));
        for port in [0, 0, 0, 1, 2] {
            taken.entered(LaneId::DEFAULT, Some(port));
        }
        let held = |workers: &[u16], each| ports.seats_held(workers.iter().copied(), each, &taken);
        assert_eq!(held(&[0, 1, 2, 3], 2), 4);
        assert_eq!(held(&[0, 1, 2], 9), 5);
        assert_eq!(held(&[1, 3], 2), 1);
    }

    #[test]
    fn all_ports_of_a_worker_together_give_it_as_many_as_it_has_use_for() {
        let mut ports: Ports<char> = Ports::new(9293, 2, LIMITS);
        ports.claim(LENT, worker(1, 1), "another of worker 1");
        let mut taken = SeatsTaken::new(Reserve::new(vec![]));
        for port in [0, 1, LENT] {
            assert!(!ports.have_handed(1, 2, &taken));
            taken.entered(LaneId::DEFAULT, Some(port));
        }
        assert!(ports.have_handed(1, 2, &taken) && !ports.have_handed(0, 2, &taken));
        taken.left(LaneId::DEFAULT, Some(LENT));
        assert!(!ports.have_handed(1, 2, &taken));
        // A request that is still in the exchange when its port has gone leaves no trace.
        taken.entered(LaneId::DEFAULT, Some(LENT));
        ports.remove(LENT);
        assert!(!ports.have_handed(1, 2, &taken));
        taken.left(LaneId::DEFAULT, Some(LENT));
    }

    #[test]
    fn a_port_says_for_which_worker_requests_wait() {
        let mut ports = Ports::new(9293, 2, LIMITS);
        ports.claim(LENT, worker(1, 1), "another of worker 1");
        assert_eq!(ports.of_worker(1).collect::<Vec<_>>(), [1, LENT]);
        let line = ports.line(LENT).unwrap();
        line.join(0, LaneId::DEFAULT, 'a').unwrap();
        assert_eq!(
            ports
                .numbers()
                .into_iter()
                .map(|port| ports.awaited(port))
                .collect::<Vec<_>>(),
            [None, None, Some(1)]
        );
        let mut line = ports.remove(LENT).expect("it was there");
        assert_eq!(line.pull(1).map(|pulled| pulled.item), Some('a'));
        assert!(ports.line(LENT).is_none() && ports.awaited(LENT).is_none());
    }

    #[test]
    fn a_port_that_was_asked_for_is_the_first_askers_until_it_is_gone() {
        let mut ports: Ports<char> = Ports::new(0, 0, LIMITS);
        let passed = |to| vec![PortPassed { port: LENT, to }];
        ports.claim(LENT, worker(0, 1), "one");
        assert_eq!(ports.pass_on(&of(&[0, 1])), []);
        // 2 is to replace 0, and 1 has asked too.
        ports.claim(LENT, worker(2, 1), "one");
        ports.claim(LENT, worker(1, 1), "one");
        assert_eq!(ports.pass_on(&of(&[0, 1, 2])), []);
        ports.forget(worker(0, 1));
        assert_eq!(ports.pass_on(&of(&[1])), passed(1), "2 is not there yet");
        assert_eq!(
            ports.pass_on(&of(&[1, 2])),
            passed(2),
            "and it came before 1"
        );
        ports.forget(worker(2, 1));
        assert_eq!(ports.pass_on(&of(&[1])), passed(1));
        // It dies, and comes back to the same seats.
        ports.forget(worker(1, 1));
        assert_eq!(ports.pass_on(&[]), []);
        assert_eq!(ports.pass_on(&of(&[0, 2, 3])), [], "they have not asked");
        ports.claim(LENT, worker(1, 2), "one");
        assert_eq!(ports.pass_on(&of(&[0, 1, 2, 3])), []);
        assert_eq!(ports.worker(LENT), Some(1));
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
            let mut ports: Ports<usize> = Ports::new(0, 0, LIMITS);
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
