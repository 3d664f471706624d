//! Random lives of a whole tree: simulated children that boot, fork, report, hang and die as they
//! please, a loop that hands over what happened as the real one does, and what must always hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::super::acceptor::RETIRED_WITHIN_MS;
use super::super::generation::Generation;
use super::*;
use stanchion_generation::messages::FromScribe;

const WORKERS_MAX: u16 = 4;
/// More than any calm tree needs to settle.
const ROUNDS_MAX: usize = 2_000;
/// Far longer than whatever else may be waited for.
const LIFETIME_MS: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Role {
    Acceptor {
        /// Whether it is to let clients in.
        open: bool,
        /// When it was ordered to retire, as long as it has not read the order: it still accepts clients.
        retires_since_ms: Option<u64>,
    },
    Template {
        /// It has imported the app, unless workers have to.
        may_preload: bool,
        /// It has said that it has the app for itself alone, or for the other interface, and waits for the master's answer.
        waits: bool,
        orders: VecDeque<WorkerRef>,
        /// Workers that it could not fork, and has not reported.
        unreported: VecDeque<WorkerRef>,
    },
    Worker {
        worker: WorkerRef,
        /// It has said that it is there.
        here: bool,
        /// It was asked for its stacks.
        asked: bool,
    },
    Scribe,
    Heir,
}

/// An acceptor that accepts no client.
const CLOSED: Role = Role::Acceptor {
    open: false,
    retires_since_ms: None,
};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each tells of another event")]
struct Child {
    /// Its generation; 0 for an heir.
    generation: u32,
    role: Role,
    /// It has reported that it is ready; from then on it heeds orders.
    ready: bool,
    told_to_leave: bool,
    /// It does nothing any more, and has to be killed.
    stuck: bool,
    /// A worker that was ordered to be the template once it leaves.
    offered: bool,
}

/// One decision of the test's, however it is read.
type Choice = u16;

const BESIDE_ONE: [BesideOneWorker; 3] = [
    BesideOneWorker::Template,
    BesideOneWorker::TemplateAfterLoss,
    BesideOneWorker::Nothing,
];

struct World {
    tree: Tree,
    /// The settings.
    plan: GenerationPlan,
    events: VecDeque<MasterEvent>,
    /// Reports that were sent and not read.
    reports: VecDeque<MasterEvent>,
    children: BTreeMap<i32, Child>,
    /// Channels that were found to have ended.
    silent: VecDeque<MasterEvent>,
    /// By generation and index: the epoch whose channel the master holds.
    posts: BTreeMap<(u32, u16), u16>,
    /// Ended, and not reaped.
    zombies: VecDeque<(i32, Exit)>,
    /// Reaped, and not yet in `events`.
    reaped: VecDeque<MasterEvent>,
    commands: Vec<MasterEvent>,
    generations: BTreeSet<u32>,
    /// Generations made in place of another one.
    seconds: BTreeSet<u32>,
    /// Generations whose template was heard to say that workers cannot have the app from it.
    not_for_workers: BTreeSet<u32>,
    /// Which generation each template ever had.
    templates: BTreeMap<i32, u32>,
    /// By generation: the process at the other end of the template's channel, and of the channel of another one.
    links: BTreeMap<u32, [Option<i32>; 2]>,
    last_pid: i32,
    refuse_next: bool,
    exits: Vec<i32>,
    /// By generation and index: the epoch asked for last, unless it is over; and whether it was
    /// reported.
    seated: BTreeMap<(u32, u16), (u16, bool)>,
    epochs: BTreeMap<(u32, u16), u16>,
    /// Workers that may have held requests and have been reaped, but whose end no acceptor has heard of.
    owed: BTreeSet<(u32, WorkerRef)>,
    served: BTreeMap<i32, (u32, WorkerRef)>,
    /// How many workers each acceptor believes to be wanted, and whether that is fixed.
    believed: BTreeMap<i32, (u16, bool)>,
    last_client: ClientId,
    /// Clients that wait for the outcome.
    waiting: BTreeSet<ClientId>,
    handed_over: bool,
    is_to_leave: bool,
    /// Generations for the other interface of which the master has made beforehand what they need: one at most.
    others: u8,
}

impl World {
    fn new(workers: u16, (has_scribe, beside_one): (bool, usize)) -> Self {
        let plan = GenerationPlan {
            workers,
            beside_one: BESIDE_ONE[beside_one],
            workers_max: WORKERS_MAX,
            graceful_ms: 2_000,
            drain_delay_ms: 500,
            lifetime_ms: LIFETIME_MS,
            lifetime_jitter_ms: 1_000,
            has_scribe,
            refork: ReforkPlan::AfterRequests,
            ..GUESS
        };
        Self {
            tree: Tree::new(),
            plan,
            events: VecDeque::from([started(plan)]),
            reports: VecDeque::new(),
            children: BTreeMap::new(),
            silent: VecDeque::new(),
            posts: BTreeMap::new(),
            zombies: VecDeque::new(),
            reaped: VecDeque::new(),
            commands: Vec::new(),
            generations: BTreeSet::from([1]),
            seconds: BTreeSet::new(),
            not_for_workers: BTreeSet::new(),
            templates: BTreeMap::new(),
            links: BTreeMap::new(),
            last_pid: 99,
            refuse_next: false,
            exits: Vec::new(),
            seated: BTreeMap::new(),
            epochs: BTreeMap::new(),
            owed: BTreeSet::new(),
            served: BTreeMap::new(),
            believed: BTreeMap::new(),
            last_client: 0,
            waiting: BTreeSet::new(),
            handed_over: false,
            is_to_leave: false,
            others: u8::from(!has_scribe),
        }
    }

    // The loop.

    /// Hands one event over; false if there was none.
    fn step(&mut self) -> bool {
        let Some(event) = self.events.pop_front() else {
            return false;
        };
        self.note_event(&event);
        let heard = match event {
            MasterEvent::Tick { heard_ms } => Some(heard_ms),
            _ => None,
        };
        for action in self.tree.master.step(self.tree.now_ms, event) {
            self.perform(action);
        }
        let master = &self.tree.master;
        // At once is no spin if more is heard before.
        if let (Some(heard_ms), Some(due_ms)) = (heard, master.next_tick_ms()) {
            assert!(due_ms > heard_ms, "it would spin: {master:?}");
        }
        let open = |child: &&Child| matches!(child.role, Role::Acceptor { open: true, .. });
        let doors = self.children.values().filter(open).count();
        assert!(doors <= 1, "two generations have the door: {master:?}");
        true
    }

    /// The first half of the loop's gathering; children live on until the second.
    fn collect_the_dead(&mut self) {
        let dead = self.zombies.drain(..);
        self.reaped
            .extend(dead.map(|(pid, exit)| MasterEvent::Reaped(pid, exit)));
    }

    fn read_reports(&mut self) {
        self.events.append(&mut self.reports);
        self.events.append(&mut self.reaped);
        self.events.append(&mut self.silent);
        self.events.extend(self.commands.drain(..));
        let heard_ms = self.tree.now_ms;
        self.events.push_back(MasterEvent::Tick { heard_ms });
    }

    fn note_event(&mut self, event: &MasterEvent) {
        match *event {
            MasterEvent::Reaped(pid, _) => {
                let served = self.served.remove(&pid);
                let of_a_generation = |who: &(u32, WorkerRef)| self.generations.contains(&who.0);
                self.owed.extend(served.filter(of_a_generation));
                self.templates.remove(&pid);
            }
            MasterEvent::OfGeneration(generation_number, ref event) => match *event {
                GenerationEvent::WorkerHere { worker, .. } => {
                    self.note_fork(generation_number, worker, true);
                }
                // If it was not there so far, it may be asked for again.
                GenerationEvent::TemplateSaid(FromTemplate::NotForked(worker))
                | GenerationEvent::WorkerSilent(worker) => {
                    self.note_fork(generation_number, worker, false);
                }
                GenerationEvent::TemplateSaid(FromTemplate::NotForWorkers) => {
                    self.not_for_workers.insert(generation_number);
                }
                _ => {}
            },
            MasterEvent::Commanded {
                client: Some(client),
                ..
            } => assert!(self.waiting.insert(client)),
            MasterEvent::Commanded {
                command: Command::Drain | Command::Quit,
                ..
            } => self.is_to_leave = true,
            MasterEvent::HeirReady => self.handed_over = true,
            _ => {}
        }
    }

    fn note_fork(&mut self, generation_number: u32, worker: WorkerRef, lives: bool) {
        let who = (generation_number, worker.index);
        if let Some((seated, known)) = self.seated.get_mut(&who)
            && *seated == worker.epoch
        {
            *known |= lives;
            if !*known {
                self.seated.remove(&who);
            }
        }
    }

    fn fork_child(&mut self, generation_number: u32, child: ChildKind) {
        let role = match child {
            ChildKind::Acceptor => {
                let earlier = self.find(generation_number, |role| {
                    matches!(role, Role::Acceptor { .. })
                });
                assert_eq!(earlier, None, "two acceptors");
                CLOSED
            }
            ChildKind::Template { may_preload } => {
                assert_eq!(self.template(generation_number), None, "two templates");
                let is_found = self.not_for_workers.contains(&generation_number);
                assert!(!(is_found && may_preload), "imported for nothing");
                Role::Template {
                    may_preload,
                    waits: false,
                    orders: VecDeque::new(),
                    unreported: VecDeque::new(),
                }
            }
            ChildKind::Scribe => {
                let earlier = self.find(generation_number, |role| *role == Role::Scribe);
                assert_eq!(earlier, None, "two scribes");
                assert!(self.plan.has_scribe, "nobody asked for it");
                Role::Scribe
            }
        };
        let pid = self.fork(generation_number, role);
        if matches!(child, ChildKind::Template { .. }) {
            self.templates
                .extend(pid.map(|pid| (pid, generation_number)));
            self.links.entry(generation_number).or_default()[0] = pid;
        }
        self.events
            .push_front(forked(generation_number, child, pid));
    }

    fn perform(&mut self, action: Action) {
        assert!(self.exits.is_empty(), "{action:?} after the end");
        match action {
            Action::BuildGeneration { generation_number } => self.build(generation_number, None),
            Action::RebuildGeneration {
                generation_number,
                first,
                template,
            } => self.rebuild(generation_number, first, template),
            Action::DropGeneration { generation_number } => self.drop_generation(generation_number),
            Action::Fork {
                generation_number,
                child,
            } => self.fork_child(generation_number, child),
            Action::TellScribe {
                generation_number,
                message,
            } => self.tell_scribe(generation_number, &message),
            Action::TellAcceptor {
                generation_number,
                message,
            } => self.tell_acceptor(generation_number, &message),
            Action::TellTemplate {
                generation_number,
                message,
            } => self.tell_template(generation_number, &message),
            Action::OfferTemplate {
                generation_number,
                worker,
                pid,
            } => self.offer_template(generation_number, worker, pid),
            Action::SwapTemplates { generation_number } => {
                self.links.entry(generation_number).or_default().swap(0, 1);
            }
            Action::DropOtherTemplate { generation_number } => {
                self.links.entry(generation_number).or_default()[1] = None;
                // Messages that were not read are lost.
                self.reports.retain(|event| {
                    !matches!(event, MasterEvent::OfGeneration(number, GenerationEvent::OtherTemplateSaid { .. })
                        if *number == generation_number)
                });
            }
            Action::Kill(pid, signal) => self.kill(pid, signal),
            Action::Vacate {
                generation_number,
                worker,
            } => {
                self.seated.remove(&(generation_number, worker));
                self.close_post((generation_number, worker));
            }
            Action::Dump { pid, .. } => {
                assert!(self.is_known(pid), "{pid} may be anybody by now");
                if let Some(child) = self.children.get_mut(&pid)
                    && let Role::Worker { asked, .. } = &mut child.role
                {
                    *asked = true;
                }
            }
            Action::StartHeir => {
                assert_eq!(self.find(0, |_| true), None, "two heirs");
                let pid = self.fork(0, Role::Heir);
                self.events.push_front(MasterEvent::HeirStarted(pid));
            }
            Action::EndHeir => {
                // It may have ended without being reaped yet.
                if let Some(heir) = self.find(0, |_| true) {
                    self.kill(heir, SIGTERM);
                }
            }
            Action::Reply { client, .. } => {
                assert!(self.waiting.remove(&client), "{client} was told before");
            }
            Action::Announce(News::Reloaded { .. }) if !self.handed_over => {
                self.check_that_no_other_accepts();
            }
            Action::Log(_, message) if message.starts_with("upgraded") => {
                self.check_that_no_other_accepts();
            }
            Action::ShowDump { .. }
            | Action::LeaveBecause(_)
            | Action::Reopen
            | Action::DropHeir
            | Action::Announce(_)
            | Action::Log(..) => {}
            Action::Exit(code) => {
                self.exits.push(code);
                assert_eq!(self.generations, BTreeSet::new(), "left behind");
            }
        }
    }

    /// Unless the server leaves: then no client is served much longer.
    fn check_that_no_other_accepts(&self) {
        let now_ms = self.tree.now_ms;
        for child in self.children.values() {
            if let Role::Acceptor {
                retires_since_ms: Some(since_ms),
                ..
            } = child.role
            {
                let is_late = now_ms >= since_ms + RETIRED_WITHIN_MS;
                assert!(is_late || self.is_to_leave, "told too early: {child:?}");
            }
        }
    }

    fn rebuild(&mut self, generation_number: u32, first: u32, template: Option<i32>) {
        assert!(
            self.generations.contains(&first),
            "nothing is left of the generation that it copies"
        );
        assert!(!self.seconds.contains(&first), "a third one");
        let open = |role: &Role| matches!(role, Role::Acceptor { open: true, .. });
        assert_eq!(self.find(first, open), None, "it has let clients in");
        self.seconds.insert(generation_number);
        let comes_along = self.go_over(generation_number, template);
        self.build(generation_number, comes_along);
    }

    /// The template that has found the other interface comes along, if what it needs is there, or is killed.
    fn go_over(&mut self, generation_number: u32, template: Option<i32>) -> Option<i32> {
        let has_other = std::mem::take(&mut self.others) > 0;
        let pid = template?;
        match self.children.get_mut(&pid) {
            Some(child) if has_other => {
                child.generation = generation_number;
                self.links.insert(generation_number, [Some(pid), None]);
                if let Role::Template { waits, .. } = &mut child.role {
                    *waits = false;
                }
                self.refuse_next = false;
            }
            // A dead template does not read it, and its end is known soon.
            None if has_other => self.refuse_next = false,
            Some(_) => {
                self.die(pid, KILLED);
                return None;
            }
            None => return None,
        }
        Some(pid)
    }

    fn build(&mut self, generation_number: u32, template: Option<i32>) {
        let built = if std::mem::take(&mut self.refuse_next) {
            not_built(generation_number)
        } else {
            assert!(self.generations.insert(generation_number), "built twice");
            MasterEvent::GenerationBuilt {
                generation_number,
                plan: Ok(self.plan),
                template,
            }
        };
        self.events.push_front(built);
    }

    fn drop_generation(&mut self, generation_number: u32) {
        assert!(self.generations.remove(&generation_number), "dropped twice");
        let not_a_worker = |role: &Role| !matches!(role, Role::Worker { .. });
        let left_behind = self.find(generation_number, not_a_worker);
        assert_eq!(left_behind, None, "left behind");
        for (who, (_, known)) in &self.seated {
            assert!(
                who.0 != generation_number || !known,
                "{who:?} is left behind"
            );
        }
        self.seated.retain(|who, _| who.0 != generation_number);
        self.posts.retain(|who, _| who.0 != generation_number);
        self.owed.retain(|who| who.0 != generation_number);
        // The others did not get to say that they are there; they find out.
        for child in self.children.values_mut() {
            child.told_to_leave |= child.generation == generation_number;
        }
    }

    fn tell_acceptor(&mut self, generation_number: u32, message: &ToAcceptor) {
        assert!(self.generations.contains(&generation_number), "{message:?}");
        if let ToAcceptor::WorkerGone(gone) = *message {
            let is_it =
                |role: &Role| matches!(role, Role::Worker { worker, .. } if *worker == gone);
            let alive = self.find(generation_number, is_it);
            assert_eq!(
                alive, None,
                "{gone:?} is alive, and its slots were taken from it"
            );
            self.owed.remove(&(generation_number, gone));
        }
        let Some(pid) = self.find(generation_number, |role| {
            matches!(role, Role::Acceptor { .. })
        }) else {
            // It has died, which is not known yet.
            return;
        };
        if let ToAcceptor::Workers { wanted, is_pinned } = *message {
            self.believed.insert(pid, (wanted, is_pinned));
        }
        let acceptor = self.children.get_mut(&pid).expect("found");
        match message {
            ToAcceptor::Accept => {
                assert!(acceptor.ready && !acceptor.told_to_leave, "{acceptor:?}");
                acceptor.role = Role::Acceptor {
                    open: true,
                    retires_since_ms: None,
                };
            }
            ToAcceptor::LameDuck => {
                assert!(acceptor.ready && acceptor.role != CLOSED, "{acceptor:?}");
            }
            ToAcceptor::Retire { .. } => {
                let was_open = acceptor.role != CLOSED;
                acceptor.role = Role::Acceptor {
                    open: false,
                    retires_since_ms: was_open.then_some(self.tree.now_ms),
                };
                acceptor.told_to_leave = true;
            }
            ToAcceptor::Drain { .. } => {
                acceptor.role = CLOSED;
                acceptor.told_to_leave = true;
            }
            ToAcceptor::TurnAway => {
                assert!(!acceptor.told_to_leave, "{acceptor:?}");
                let is_open =
                    |child: &Child| matches!(child.role, Role::Acceptor { open: true, .. });
                let others = self.children.iter().filter(|(other, _)| **other != pid);
                let serving: Vec<_> = others.filter(|(_, child)| is_open(child)).collect();
                assert!(serving.is_empty(), "{serving:?} would answer these clients");
            }
            ToAcceptor::Quit => {
                if let Role::Acceptor { open, .. } = &mut acceptor.role {
                    *open = false;
                }
                acceptor.told_to_leave = true;
            }
            _ => {}
        }
    }

    fn tell_scribe(&mut self, generation_number: u32, message: &ToScribe) {
        if *message != ToScribe::Finish {
            return;
        }
        let scribe = self.find(generation_number, |role| *role == Role::Scribe);
        // A scribe that the master has not heard of has no seat, and finds out.
        let logs = |role: &Role| matches!(role, Role::Acceptor { .. } | Role::Template { .. });
        assert_eq!(
            self.find(generation_number, logs),
            None,
            "it is to be the last"
        );
        if let Some(child) = scribe.and_then(|pid| self.children.get_mut(&pid)) {
            child.told_to_leave = true;
        }
    }

    fn tell_template(&mut self, generation_number: u32, message: &ToTemplate) {
        let (worker, becomes) = match *message {
            ToTemplate::Fork { worker, .. } => (worker, false),
            ToTemplate::Become { worker, .. } => (worker, true),
            ToTemplate::GoOver | ToTemplate::Reopen => return,
        };
        self.others = 0;
        let WorkerRef { index, epoch } = worker;
        let who = (generation_number, index);
        let last = self.epochs.insert(who, epoch);
        assert!(
            last.is_none_or(|last| last < epoch),
            "{who:?}/{epoch} after {last:?}"
        );
        let earlier = self.seated.insert(who, (epoch, becomes));
        assert_eq!(earlier, None, "{who:?} was asked for and may still come");
        self.close_post(who);
        self.posts.insert(who, epoch);
        let is_for_one =
            self.generation(generation_number).plan.beside_one != BesideOneWorker::Template;
        if let Some(pid) = self.template(generation_number)
            && let Some(child) = self.children.get_mut(&pid)
            && let Role::Template { orders, waits, .. } = &mut child.role
        {
            assert!(becomes || !*waits, "{worker:?}");
            assert!(!becomes || *waits || is_for_one, "{worker:?}");
            if becomes {
                child.ready = false;
                child.role = Role::Worker {
                    worker,
                    here: true,
                    asked: false,
                };
            } else {
                orders.push_back(worker);
            }
        } else {
            // A dead template does not read it.
            self.silent
                .push_back(silent(generation_number, index, epoch));
        }
    }

    /// The master's end is closed: what was not read is lost.
    fn close_post(&mut self, who: (u32, u16)) {
        let is_of_it = |event: &MasterEvent| match *event {
            MasterEvent::OfGeneration(
                generation_number,
                GenerationEvent::WorkerHere { worker, .. }
                | GenerationEvent::WorkerSaid { worker, .. }
                | GenerationEvent::WorkerSilent(worker),
            ) => (generation_number, worker.index) == who,
            _ => false,
        };
        if self.posts.remove(&who).is_some() {
            self.reports.retain(|event| !is_of_it(event));
            self.silent.retain(|event| !is_of_it(event));
        }
    }

    /// The process that had a worker's end of its channel is gone.
    fn end_channel(&mut self, generation: u32, worker: WorkerRef) {
        if self.holds_post(generation, worker) {
            let silent = silent(generation, worker.index, worker.epoch);
            self.silent.push_back(silent);
        }
    }

    /// Whether the master holds this worker's channel.
    fn holds_post(&self, generation: u32, worker: WorkerRef) -> bool {
        self.posts.get(&(generation, worker.index)) == Some(&worker.epoch)
    }

    fn kill(&mut self, pid: i32, signal: i32) {
        assert!(
            self.is_known(pid),
            "signal {signal} to {pid}, which may be anybody by now"
        );
        let Some(child) = self.children.get_mut(&pid) else {
            return;
        };
        match signal {
            SIGKILL => self.die(pid, KILLED),
            // A booting master has no handler yet.
            SIGTERM if child.role == Role::Heir && !child.ready => {
                self.die(pid, Exit::Signal(SIGTERM));
            }
            // Before that it does not listen.
            SIGTERM => child.told_to_leave |= child.ready,
            SIGABRT => child.told_to_leave = true,
            SIGUSR1 => assert!(child.ready, "{child:?} might die of it"),
            other => panic!("signal {other}"),
        }
    }

    /// Whether it runs, or has not been reaped as far as the master knows.
    fn is_known(&self, pid: i32) -> bool {
        self.children.contains_key(&pid)
            || self.zombies.iter().any(|(zombie, _)| *zombie == pid)
            || self.events.iter().any(|event| event.is_end_of(pid))
    }

    // The children.

    fn find(&self, generation: u32, is_it: impl Fn(&Role) -> bool) -> Option<i32> {
        self.children
            .iter()
            .find(|(_, child)| child.generation == generation && is_it(&child.role))
            .map(|(pid, _)| *pid)
    }

    /// The template that gets orders.
    fn template(&self, generation: u32) -> Option<i32> {
        let [template, _] = self.links.get(&generation)?;
        template.filter(|pid| {
            let child = self.children.get(pid);
            child.is_some_and(|child| matches!(child.role, Role::Template { .. }))
        })
    }

    fn offer_template(&mut self, generation_number: u32, worker: WorkerRef, pid: i32) {
        let links = self.links.entry(generation_number).or_default();
        assert_eq!(links[1].replace(pid), None, "two re-forks");
        // A dead worker does not read it.
        if let Some(child) = self.children.get_mut(&pid) {
            let is_it = matches!(child.role, Role::Worker { worker: own, .. } if own == worker);
            assert!(is_it && child.ready, "{child:?}");
            child.offered = true;
        }
    }

    /// A child leaves, or a worker that was ordered to be the template has left its seats.
    fn leave(&mut self, pid: i32, choice: Choice) {
        let child = self.children.get_mut(&pid).expect("it lives");
        let generation = child.generation;
        let was_offered = std::mem::take(&mut child.offered);
        let is_open = was_offered && self.links[&generation][1] == Some(pid);
        let said = |said| {
            let event = GenerationEvent::OtherTemplateSaid { pid, said };
            MasterEvent::OfGeneration(generation, event)
        };
        if !is_open {
            self.die(pid, LEFT);
        } else if choice % 4 == 1 {
            let reason = "has 1 thread".to_owned();
            self.reports.push_back(said(FromTemplate::Unfit { reason }));
            self.die(pid, LEFT);
        } else {
            child.told_to_leave = false;
            child.role = Role::Template {
                may_preload: true,
                waits: false,
                orders: VecDeque::new(),
                unreported: VecDeque::new(),
            };
            self.served.remove(&pid);
            self.reports.push_back(said(FromTemplate::Ready));
        }
    }

    fn fork(&mut self, generation: u32, role: Role) -> Option<i32> {
        if std::mem::take(&mut self.refuse_next) {
            return None;
        }
        self.last_pid += 1;
        let child = Child {
            generation,
            role,
            ready: false,
            told_to_leave: false,
            stuck: false,
            offered: false,
        };
        self.children.insert(self.last_pid, child);
        Some(self.last_pid)
    }

    fn die(&mut self, pid: i32, exit: Exit) {
        let child = self.children.remove(&pid).expect("it lives");
        match child.role {
            Role::Worker { worker, .. } => self.end_channel(child.generation, worker),
            Role::Template { orders, .. } => {
                for worker in orders {
                    self.end_channel(child.generation, worker);
                }
            }
            Role::Acceptor { .. } | Role::Scribe | Role::Heir => {}
        }
        self.zombies.push_back((pid, exit));
    }

    /// One thing that a child does by itself; false if it waits for something.
    fn go_on(&mut self, pid: i32, choice: Choice) -> bool {
        if choice % 7 == 1
            && let Some(said) = self.other_interface_of(pid)
        {
            self.reports.push_back(said);
            let has_other = self.others > 0;
            let child = self.children.get_mut(&pid).expect("it lives");
            match &mut child.role {
                Role::Template {
                    may_preload: true,
                    waits,
                    ..
                } if has_other => *waits = true,
                _ => self.die(pid, BROKEN),
            }
            return true;
        }
        let Some(child) = self.children.get_mut(&pid).filter(|child| !child.stuck) else {
            return false;
        };
        let generation = child.generation;
        if let Role::Worker {
            worker: worker @ WorkerRef { index, epoch },
            ref mut here,
            ..
        } = child.role
            && !std::mem::replace(here, true)
        {
            if self.holds_post(generation, worker) {
                self.reports
                    .push_back(super::here(generation, index, epoch, pid));
            } else {
                // The master does not hold its channel any more.
                self.die(pid, Exit::Code(3));
            }
            return true;
        }
        if let Role::Template {
            may_preload: true,
            ref mut waits,
            ..
        } = child.role
            && !child.ready
            && (*waits || choice.is_multiple_of(3))
        {
            // From then on it waits.
            let was_said = std::mem::replace(waits, true);
            if !was_said {
                self.reports.push_back(not_for_workers(generation));
            }
            return !was_said;
        }
        if !child.ready {
            child.ready = true;
            let ready = match child.role {
                Role::Acceptor { .. } => acceptor_ready(generation),
                Role::Template { .. } => template_ready(generation),
                Role::Worker { worker, .. } => {
                    self.served.insert(pid, (generation, worker));
                    ready(generation, worker.index, worker.epoch)
                }
                Role::Scribe => MasterEvent::OfGeneration(
                    generation,
                    GenerationEvent::ScribeSaid(FromScribe::Ready),
                ),
                Role::Heir => MasterEvent::HeirReady,
            };
            self.reports.push_back(ready);
            return true;
        }
        if let Role::Acceptor {
            retires_since_ms, ..
        } = &mut child.role
            && retires_since_ms.take().is_some()
        {
            self.reports.push_back(retired(generation));
            return true;
        }
        if child.told_to_leave {
            self.leave(pid, choice);
            return true;
        }
        match &mut child.role {
            Role::Worker { worker, asked, .. } if *asked => {
                *asked = false;
                let stacks = dumped(generation, worker.index, worker.epoch);
                self.reports.push_back(stacks);
            }
            Role::Template {
                orders, unreported, ..
            } => {
                let reports = orders.is_empty() || choice.is_multiple_of(2);
                if reports && let Some(WorkerRef { index, epoch }) = unreported.pop_front() {
                    self.reports.push_back(not_forked(generation, index, epoch));
                } else if let Some(worker) = orders.pop_front() {
                    self.fork_worker(pid, worker);
                } else {
                    return false;
                }
            }
            _ => return false,
        }
        true
    }

    /// A report of a child that is not ready yet; also of a child that has not imported the app, or has found the other interface before: it may lie.
    fn other_interface_of(&self, pid: i32) -> Option<MasterEvent> {
        let child = &self.children[&pid];
        if child.ready || child.stuck {
            return None;
        }
        match child.role {
            Role::Template { waits: true, .. } => None,
            Role::Template { .. } => Some(other_interface(child.generation)),
            Role::Worker {
                worker: worker @ WorkerRef { index, epoch },
                here: true,
                ..
            } if self.holds_post(child.generation, worker) => {
                let said = FromWorker::OtherInterface;
                Some(worker_said(child.generation, index, epoch, said))
            }
            _ => None,
        }
    }

    fn fork_worker(&mut self, template: i32, worker: WorkerRef) {
        let generation = self.children[&template].generation;
        let role = Role::Worker {
            worker,
            here: false,
            asked: false,
        };
        if self.fork(generation, role).is_some() {
            return;
        }
        self.end_channel(generation, worker);
        if let Some(child) = self.children.get_mut(&template)
            && let Role::Template { unreported, .. } = &mut child.role
        {
            unreported.push_back(worker);
        }
    }

    // Chaos and calm.

    fn any_pid(&self, choice: Choice) -> Option<i32> {
        let nth = usize::from(choice).checked_rem(self.children.len())?;
        self.children.keys().nth(nth).copied()
    }

    fn any_generation(&self, choice: Choice) -> u32 {
        let nth = usize::from(choice).checked_rem(self.generations.len());
        let generation = nth.and_then(|nth| self.generations.iter().nth(nth));
        generation.copied().unwrap_or(1)
    }

    fn stir(&mut self, choice: Choice) {
        let (kind, detail) = (choice % 64, choice / 64);
        match kind {
            0..=19 => {
                self.step();
            }
            20..=23 if self.events.is_empty() => self.collect_the_dead(),
            24..=29 if self.events.is_empty() => {
                self.read_reports();
                self.tree.now_ms += u64::from(detail % 500);
            }
            20..=48 => {
                if let Some(pid) = self.any_pid(detail / 2) {
                    self.go_on(pid, detail);
                }
            }
            49 | 50 => {
                if let Some(pid) = self.any_pid(detail / 8) {
                    let exits = [KILLED, KILLED, LEFT, Exit::Code(1), BROKEN];
                    self.die(pid, exits[usize::from(detail % 5)]);
                }
            }
            51 => {
                let stuck = self
                    .any_pid(detail)
                    .and_then(|pid| self.children.get_mut(&pid));
                if let Some(child) = stuck {
                    // A template that hangs is not noticed, nor is a child that hangs as it boots.
                    let is_unnoticed = matches!(child.role, Role::Template { .. });
                    child.stuck = child.ready && !is_unnoticed;
                }
            }
            52 => self.refuse_next = true,
            53..=56 => self.trouble(kind, detail),
            57 => {
                self.plan.workers = detail % WORKERS_MAX + 1;
                self.plan.beside_one = BESIDE_ONE[usize::from(detail / 8 % 3)];
                let more = detail / 32 % 3;
                let most = (self.plan.workers + more).min(WORKERS_MAX);
                self.plan.elastic_max = (most > self.plan.workers).then_some(most);
            }
            58 if detail.is_multiple_of(8) => self.tree.now_ms += LIFETIME_MS,
            58..=60 => {
                let numbers = [SIGHUP, SIGHUP, SIGTTIN, SIGTTOU, SIGUSR1, SIGWINCH, SIGUSR2];
                let number = numbers[usize::from(detail % 7)];
                self.commands.push(signal(number));
            }
            _ => {
                let refork = Command::Refork {
                    worker: Some(detail / 8 % WORKERS_MAX),
                };
                let commands = [
                    Command::Reload,
                    Command::Reload,
                    Command::Scale(detail / 8 % 6),
                    Command::Dump,
                    Command::More,
                    Command::Upgrade,
                    refork,
                    refork,
                ];
                self.last_client += 1;
                let command = commands[usize::from(detail % 8)];
                self.commands.push(ask_as(self.last_client, command));
            }
        }
    }

    /// An event on a worker that is in trouble.
    fn trouble(&mut self, kind: Choice, detail: Choice) {
        let generation = self.any_generation(detail);
        let worker = detail / 8 % WORKERS_MAX;
        let epoch = self.epochs.get(&(generation, worker)).copied().unwrap_or(1);
        match kind {
            53 => {
                let others = detail.is_multiple_of(2);
                self.commands.push(overdue(generation, worker, others));
            }
            54 if detail.is_multiple_of(2) => self.want(generation, detail / 16 % 8),
            54 => self.reports.push_back(replace(generation, worker, epoch)),
            55 if detail.is_multiple_of(2) => {
                self.reports.push_back(due(generation, worker, epoch));
            }
            55 => {
                let told = worker_said(generation, worker, epoch, FromWorker::Terminated);
                self.reports.push_back(told);
            }
            _ => {
                let megabytes = u64::from(detail % 300);
                self.commands.push(memory(generation, worker, megabytes));
                if detail.is_multiple_of(4) {
                    self.reports.push_back(changed(generation));
                }
                if detail % 4 == 1 {
                    let warm = FromWorker::Warm { requests: 1_000 };
                    self.reports
                        .push_back(worker_said(generation, worker, epoch, warm));
                }
            }
        }
    }

    /// An acceptor that is ready wants so many workers.
    fn want(&mut self, generation_number: u32, workers: u16) {
        let is_acceptor = |role: &Role| matches!(role, Role::Acceptor { .. });
        let found = self.find(generation_number, is_acceptor);
        if let Some(pid) = found.filter(|pid| self.children[pid].ready) {
            self.believed.insert(pid, (workers, false));
            let why = "requests wait".to_owned();
            let want = FromAcceptor::Want { workers, why };
            self.reports
                .push_back(acceptor_said(generation_number, want));
        }
    }

    fn stir_all(&mut self, choices: Vec<Choice>) {
        for choice in choices {
            if self.exits.is_empty() {
                self.stir(choice);
            }
        }
    }

    /// Until nothing happens any more, however long one waits.
    fn calm_down(&mut self) {
        self.refuse_next = false;
        for _ in 0..ROUNDS_MAX {
            while self.exits.is_empty() && self.step() {}
            if !self.exits.is_empty() {
                return;
            }
            let pids: Vec<i32> = self.children.keys().copied().collect();
            let mut moved = pids.into_iter().filter(|&pid| self.go_on(pid, 0)).count() > 0;
            moved |= !(self.reports.is_empty()
                && self.silent.is_empty()
                && self.zombies.is_empty()
                && self.reaped.is_empty()
                && self.commands.is_empty());
            if !moved {
                match self.tree.due_in_ms() {
                    Some(due_ms) if due_ms < LIFETIME_MS / 2 => self.tree.now_ms += due_ms,
                    _ => return,
                }
            }
            self.collect_the_dead();
            self.read_reports();
        }
        panic!("it does not settle: {:?}", self.tree.master);
    }

    fn generation(&self, generation_number: u32) -> &Generation {
        let mut generations = self.tree.master.generations();
        let generation = generations.find(|generation| generation.number == generation_number);
        generation.expect("it stands")
    }

    /// The acceptor knows how many workers are wanted, if their number is elastic.
    fn check_belief(&self, pid: i32) {
        let master = &self.tree.master;
        let generation = master.main_generation().expect("one that serves");
        if let Some(elastic) = generation.elastic {
            let target = generation.target;
            let is_fixed = elastic.is_pinned || target == 0;
            assert_eq!(
                self.believed.get(&pid),
                Some(&(target, is_fixed)),
                "{master:?}"
            );
        }
    }

    fn check_that_all_serve(&self) {
        let master = &self.tree.master;
        let generation = master.serving.expect("one that serves");
        assert_eq!(self.generations, BTreeSet::from([generation]), "{master:?}");
        let mut acceptors = 0;
        let mut templates = 0_u8;
        let mut scribes = 0;
        let mut workers = BTreeSet::new();
        for (&pid, child) in &self.children {
            assert!(child.ready, "{child:?} is not ready: {master:?}");
            assert_eq!(
                child.generation, generation,
                "{child:?} is left: {master:?}"
            );
            match child.role {
                Role::Acceptor { open, .. } => {
                    acceptors += usize::from(open);
                    self.check_belief(pid);
                }
                Role::Template { .. } => templates += 1,
                Role::Scribe => scribes += 1,
                Role::Worker { worker, .. } => assert!(workers.insert(worker)),
                Role::Heir => panic!("it would serve: {master:?}"),
            }
        }
        let target = master.target().map(usize::from);
        let needed = u8::from(self.generation(generation).needs_template());
        assert_eq!((acceptors, templates), (1, needed), "{master:?}");
        assert_eq!(scribes, usize::from(self.plan.has_scribe), "{master:?}");
        assert_eq!(Some(workers.len()), target, "{master:?}");
        assert_eq!(self.owed, BTreeSet::new(), "slots of these are stranded");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn once_left_in_peace_one_generation_serves_or_the_heir_does(
        workers in 1..=WORKERS_MAX,
        has in (any::<bool>(), 0..3_usize),
        choices in prop::collection::vec(any::<Choice>(), 0..500),
    ) {
        let mut world = World::new(workers, has);
        world.stir_all(choices);
        world.calm_down();
        prop_assert_eq!(&world.waiting, &BTreeSet::new(), "these were not told");
        match world.exits.first() {
            Some(0) => prop_assert!(world.handed_over),
            // No command made it leave: the exit code is that of an app or an acceptor that never worked, or of a second generation that could not be
            // made.
            Some(code) => prop_assert!([1, 2, 3, 4].contains(code), "exit {code}"),
            None => world.check_that_all_serve(),
        }
    }

    #[test]
    fn once_told_to_leave_all_leave(
        workers in 1..=WORKERS_MAX,
        has in (any::<bool>(), 0..3_usize),
        before in prop::collection::vec(any::<Choice>(), 0..400),
        signals in prop::collection::vec(prop::sample::select(&[SIGTERM, SIGINT][..]), 1..3),
        after in prop::collection::vec(any::<Choice>(), 0..200),
    ) {
        let mut world = World::new(workers, has);
        world.stir_all(before);
        world.commands.extend(signals.into_iter().map(signal));
        world.stir_all(after);
        world.calm_down();
        prop_assert_eq!(world.exits.len(), 1);
        prop_assert_eq!(&world.waiting, &BTreeSet::new(), "these were not told");
        for event in [TICK, reaped(1, LEFT), ask(Command::Dump)] {
            prop_assert_eq!(world.tree.step(event), "");
        }
    }
}
