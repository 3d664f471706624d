//! Random lives of a whole tree: simulated children that boot, fork, report, hang and die as they
//! please, a loop that hands over what happened as the real one does, and what must always hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use stanchion_sys::signal::{SIGTTIN, SIGTTOU};

use super::*;

const WORKERS_MAX: u16 = 4;
/// More than any calm tree needs to settle.
const ROUNDS_MAX: usize = 2_000;

#[derive(Debug)]
enum Role {
    Acceptor,
    Template {
        generation: u32,
        orders: VecDeque<(u16, u16)>,
        unreported: VecDeque<Event>,
    },
    Worker {
        worker: u16,
        tenure: u16,
    },
}

#[derive(Debug)]
struct Child {
    role: Role,
    /// It has reported that it is ready; from then on it heeds what it is told.
    ready: bool,
    told_to_leave: bool,
    /// It does nothing any more, and has to be killed.
    stuck: bool,
}

/// One decision of the test's, however it is read.
type Choice = u16;

struct World {
    tree: Tree,
    events: VecDeque<Event>,
    /// Reports that were sent and not read.
    reports: VecDeque<Event>,
    children: BTreeMap<i32, Child>,
    /// Ended, and not reaped.
    zombies: VecDeque<(i32, Exit)>,
    /// Reaped, and not yet in `events`.
    reaped: VecDeque<Event>,
    signals: Vec<Event>,
    /// Which generation each template ever had.
    templates: BTreeMap<i32, u32>,
    last_pid: i32,
    refuse_fork: bool,
    exits: Vec<i32>,
    /// By worker index: the tenure asked for last, unless it is over; and whether it was reported.
    seated: BTreeMap<u16, (u16, bool)>,
    tenures: BTreeMap<u16, u16>,
    /// Workers that may have held requests, have been reaped, and of which no acceptor was told.
    owed: BTreeSet<(u16, u16)>,
    served: BTreeMap<i32, (u16, u16)>,
}

impl World {
    fn new(workers: u16) -> Self {
        let plan = Plan {
            workers,
            workers_max: WORKERS_MAX,
            graceful_ms: 2_000,
        };
        Self {
            tree: Tree::new(plan),
            events: VecDeque::from([Event::Started]),
            reports: VecDeque::new(),
            children: BTreeMap::new(),
            zombies: VecDeque::new(),
            reaped: VecDeque::new(),
            signals: Vec::new(),
            templates: BTreeMap::new(),
            last_pid: 99,
            refuse_fork: false,
            exits: Vec::new(),
            seated: BTreeMap::new(),
            tenures: BTreeMap::new(),
            owed: BTreeSet::new(),
            served: BTreeMap::new(),
        }
    }

    // The loop.

    /// Hands one event over; false if there was none.
    fn step(&mut self) -> bool {
        let Some(event) = self.events.pop_front() else {
            return false;
        };
        self.note_event(&event);
        let generation = self.tree.master.generation();
        let lost =
            matches!(event, Event::Reaped(pid, _) if self.templates.get(&pid) == Some(&generation));
        let actions = self.tree.master.step(self.tree.now_ms, event);
        if lost || generation != self.tree.master.generation() {
            // What was asked of that template may be asked again.
            self.seated.retain(|_, (_, known)| *known);
        }
        if let Some(due_ms) = self.tree.master.next_tick_ms() {
            assert!(
                due_ms > self.tree.now_ms,
                "the loop would spin: {:?}",
                self.tree.master
            );
        }
        for action in actions {
            self.perform(action);
        }
        true
    }

    /// The first half of the loop's gathering; children live on until the second.
    fn collect_the_dead(&mut self) {
        let dead = self.zombies.drain(..);
        self.reaped
            .extend(dead.map(|(pid, exit)| Event::Reaped(pid, exit)));
    }

    fn read_reports(&mut self) {
        self.events.append(&mut self.reports);
        self.events.append(&mut self.reaped);
        self.events.extend(self.signals.drain(..));
        self.events.push_back(Event::Tick);
    }

    fn note_event(&mut self, event: &Event) {
        match *event {
            Event::Reaped(pid, _) => {
                if let Some(worker) = self.served.remove(&pid) {
                    self.owed.insert(worker);
                }
            }
            Event::Report(ToMaster::Forked {
                worker,
                tenure,
                pid,
            }) => {
                if let Some((seated, known)) = self.seated.get_mut(&worker)
                    && *seated == tenure
                {
                    *known = true;
                    if pid.is_none() {
                        self.seated.remove(&worker);
                    }
                }
            }
            Event::Report(ToMaster::WorkerReady { worker, tenure, .. }) => {
                if let Some((seated, known)) = self.seated.get_mut(&worker) {
                    *known |= *seated == tenure;
                }
            }
            _ => {}
        }
    }

    fn perform(&mut self, action: Action) {
        assert!(self.exits.is_empty(), "{action:?} after the end");
        match action {
            Action::ForkAcceptor => {
                assert!(
                    self.find(|role| matches!(role, Role::Acceptor)).is_none(),
                    "two acceptors"
                );
                let pid = self.fork(Role::Acceptor);
                self.events.push_front(Event::AcceptorForked(pid));
            }
            Action::ForkTemplate { generation } => {
                assert!(
                    self.template(generation).is_none(),
                    "two templates of one generation"
                );
                let orders = VecDeque::new();
                let unreported = VecDeque::new();
                let pid = self.fork(Role::Template {
                    generation,
                    orders,
                    unreported,
                });
                self.events
                    .push_front(Event::TemplateForked { generation, pid });
            }
            Action::TellAcceptor(message) => self.tell_acceptor(&message),
            Action::TellTemplate {
                generation,
                message,
            } => self.tell_template(generation, &message),
            Action::DropTemplate { .. } | Action::Log(..) => {}
            Action::Kill(pid, signal) => self.kill(pid, signal),
            Action::Vacate(worker) => {
                self.seated.remove(&worker).expect("somebody sat there");
            }
            Action::Exit(code) => {
                self.exits.push(code);
                let left_behind = self.find(|role| !matches!(role, Role::Worker { .. }));
                assert_eq!(left_behind, None, "left behind");
            }
        }
    }

    fn tell_acceptor(&mut self, message: &ToAcceptor) {
        if let ToAcceptor::WorkerGone { worker, tenure, .. } = *message {
            let alive = self.find(|role| {
                matches!(role, Role::Worker { worker: w, tenure: t } if (*w, *t) == (worker, tenure))
            });
            assert_eq!(
                alive, None,
                "{worker}/{tenure} is alive, and its slots were taken from it"
            );
            self.owed.remove(&(worker, tenure));
        }
        if matches!(message, ToAcceptor::Drain { .. } | ToAcceptor::Quit)
            && let Some(pid) = self.find(|role| matches!(role, Role::Acceptor))
        {
            self.children.get_mut(&pid).expect("found").told_to_leave = true;
        }
    }

    fn tell_template(&mut self, generation: u32, message: &ToTemplate) {
        let ToTemplate::Fork { worker, tenure } = *message else {
            panic!("{message:?}")
        };
        let last = self.tenures.insert(worker, tenure);
        assert!(
            last.is_none_or(|last| last < tenure),
            "{worker}/{tenure} after {last:?}"
        );
        let earlier = self.seated.insert(worker, (tenure, false));
        assert_eq!(earlier, None, "{worker} was asked for and may still come");
        // One that is dead does not read it.
        if let Some(pid) = self.template(generation)
            && let Role::Template { orders, .. } =
                &mut self.children.get_mut(&pid).expect("found").role
        {
            orders.push_back((worker, tenure));
        }
    }

    fn kill(&mut self, pid: i32, signal: i32) {
        let dying = self.zombies.iter().any(|(zombie, _)| *zombie == pid)
            || self
                .events
                .iter()
                .any(|event| matches!(event, Event::Reaped(dead, _) if *dead == pid));
        let Some(child) = self.children.get_mut(&pid) else {
            assert!(
                dying,
                "signal {signal} to {pid}, which may be anybody by now"
            );
            return;
        };
        if signal == SIGKILL {
            self.die(pid, KILLED);
        } else {
            // Before that it does not listen.
            child.told_to_leave |= child.ready;
        }
    }

    // The children.

    fn find(&self, is_it: impl Fn(&Role) -> bool) -> Option<i32> {
        self.children
            .iter()
            .find(|(_, child)| is_it(&child.role))
            .map(|(pid, _)| *pid)
    }

    fn template(&self, wanted: u32) -> Option<i32> {
        self.find(|role| matches!(role, Role::Template { generation, .. } if *generation == wanted))
    }

    fn fork(&mut self, role: Role) -> Option<i32> {
        if std::mem::take(&mut self.refuse_fork) {
            return None;
        }
        self.last_pid += 1;
        if let Role::Template { generation, .. } = role {
            self.templates.insert(self.last_pid, generation);
        }
        let child = Child {
            role,
            ready: false,
            told_to_leave: false,
            stuck: false,
        };
        self.children.insert(self.last_pid, child);
        Some(self.last_pid)
    }

    fn die(&mut self, pid: i32, exit: Exit) {
        self.children.remove(&pid).expect("it lives");
        self.zombies.push_back((pid, exit));
    }

    /// One thing that a child does by itself; false if it waits for something.
    fn go_on(&mut self, pid: i32, choice: Choice) -> bool {
        let Some(child) = self.children.get_mut(&pid).filter(|child| !child.stuck) else {
            return false;
        };
        match &mut child.role {
            Role::Template {
                orders, unreported, ..
            } if child.ready => {
                let reports = orders.is_empty() || choice.is_multiple_of(2);
                if let Some(report) = unreported.front().filter(|_| reports) {
                    self.reports.push_back(report.clone());
                    unreported.pop_front();
                } else if let Some((worker, tenure)) = orders.pop_front() {
                    let forked = self.fork(Role::Worker { worker, tenure });
                    let report = Event::Report(ToMaster::Forked {
                        worker,
                        tenure,
                        pid: forked,
                    });
                    if let Some(Child {
                        role: Role::Template { unreported, .. },
                        ..
                    }) = self.children.get_mut(&pid)
                    {
                        unreported.push_back(report);
                    }
                } else {
                    return false;
                }
                true
            }
            _ if child.told_to_leave && child.ready => {
                self.die(pid, LEFT);
                true
            }
            role if !child.ready => {
                child.ready = true;
                let report = match *role {
                    Role::Acceptor => ToMaster::AcceptorReady,
                    Role::Template { generation, .. } => ToMaster::TemplateReady { generation },
                    Role::Worker { worker, tenure } => {
                        self.served.insert(pid, (worker, tenure));
                        ToMaster::WorkerReady {
                            worker,
                            tenure,
                            pid,
                        }
                    }
                };
                self.reports.push_back(Event::Report(report));
                true
            }
            _ => false,
        }
    }

    // Chaos and calm.

    fn any_pid(&self, choice: Choice) -> Option<i32> {
        let nth = usize::from(choice).checked_rem(self.children.len())?;
        self.children.keys().nth(nth).copied()
    }

    fn stir(&mut self, choice: Choice) {
        let (kind, detail) = (choice % 32, choice / 32);
        match kind {
            0..=9 => {
                self.step();
            }
            10..=12 if self.events.is_empty() => self.collect_the_dead(),
            13..=15 if self.events.is_empty() => {
                self.read_reports();
                self.tree.now_ms += u64::from(detail % 500);
            }
            10..=23 => {
                if let Some(pid) = self.any_pid(detail / 2) {
                    self.go_on(pid, detail);
                }
            }
            24 | 25 => {
                if let Some(pid) = self.any_pid(detail / 8) {
                    let exits = [KILLED, KILLED, LEFT, Exit::Code(1), Exit::Code(4)];
                    self.die(pid, exits[usize::from(detail % 5)]);
                }
            }
            26 => {
                let stuck = self
                    .any_pid(detail)
                    .and_then(|pid| self.children.get_mut(&pid));
                if let Some(child) = stuck {
                    // A template that hangs is not noticed, nor is a child that hangs as it boots.
                    child.stuck = child.ready && !matches!(child.role, Role::Template { .. });
                }
            }
            27 => self.refuse_fork = true,
            28 => {
                let worker = detail % WORKERS_MAX;
                self.signals.push(Event::Overdue {
                    worker,
                    ran_ms: 30_042,
                });
            }
            29 => {
                let worker = detail % WORKERS_MAX;
                let tenure = self.tenures.get(&worker).copied().unwrap_or(1);
                self.reports
                    .push_back(Event::Report(ToMaster::Replace { worker, tenure }));
            }
            30 => self.reports.push_back(changed()),
            _ => {
                let signals = [SIGHUP, SIGTTIN, SIGTTOU];
                self.signals
                    .push(Event::Signal(signals[usize::from(detail % 3)]));
            }
        }
    }

    /// Until nothing happens any more, however long one waits.
    fn calm_down(&mut self) {
        self.refuse_fork = false;
        for _ in 0..ROUNDS_MAX {
            while self.exits.is_empty() && self.step() {}
            if !self.exits.is_empty() {
                return;
            }
            let pids: Vec<i32> = self.children.keys().copied().collect();
            let mut moved = pids.into_iter().filter(|&pid| self.go_on(pid, 0)).count() > 0;
            moved |= !(self.reports.is_empty()
                && self.zombies.is_empty()
                && self.reaped.is_empty()
                && self.signals.is_empty());
            if !moved {
                let Some(due_ms) = self.tree.master.next_tick_ms() else {
                    return;
                };
                self.tree.now_ms = due_ms;
            }
            self.collect_the_dead();
            self.read_reports();
        }
        panic!("it does not settle: {:?}", self.tree.master);
    }

    fn check_that_all_serve(&self) {
        let master = &self.tree.master;
        let mut acceptors = 0;
        let mut templates = Vec::new();
        let mut workers = Vec::new();
        for child in self.children.values() {
            assert!(child.ready, "{child:?} is not ready: {master:?}");
            match child.role {
                Role::Acceptor => acceptors += 1,
                Role::Template { generation, .. } => templates.push(generation),
                Role::Worker { worker, .. } => workers.push(worker),
            }
        }
        workers.sort_unstable();
        assert_eq!(acceptors, 1, "{master:?}");
        assert_eq!(templates, [master.generation()], "{master:?}");
        assert!(workers.into_iter().eq(0..master.target()), "{master:?}");
        assert_eq!(self.owed, BTreeSet::new(), "slots of these are stranded");
        assert!(!master.is_rolling(), "{master:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn once_left_in_peace_all_workers_serve(
        workers in 1..=WORKERS_MAX,
        choices in prop::collection::vec(any::<Choice>(), 0..400),
    ) {
        let mut world = World::new(workers);
        for choice in choices {
            if world.exits.is_empty() {
                world.stir(choice);
            }
        }
        world.calm_down();
        // Nobody asked it to leave: that is for an app or an acceptor that never worked.
        if let Some(code) = world.exits.first() {
            prop_assert!([1, 3, 4].contains(code), "exit {code}");
        } else {
            world.check_that_all_serve();
        }
    }

    #[test]
    fn once_told_to_leave_all_leave(
        workers in 1..=WORKERS_MAX,
        before in prop::collection::vec(any::<Choice>(), 0..300),
        signals in prop::collection::vec(prop::sample::select(&[SIGTERM, SIGINT][..]), 1..3),
        after in prop::collection::vec(any::<Choice>(), 0..200),
    ) {
        let mut world = World::new(workers);
        for choice in before {
            if world.exits.is_empty() {
                world.stir(choice);
            }
        }
        world.signals.extend(signals.into_iter().map(Event::Signal));
        for choice in after {
            if world.exits.is_empty() {
                world.stir(choice);
            }
        }
        world.calm_down();
        prop_assert_eq!(world.exits.len(), 1);
        for (_, event) in [("tick", Event::Tick), ("reaped", Event::Reaped(1, LEFT))] {
            prop_assert_eq!(world.tree.step(event), Vec::<String>::new());
        }
    }
}
