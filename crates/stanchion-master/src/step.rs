//! The master's decisions: a pure step from a state and an event to a new state and actions.
//!
//! Events carry what happened, `now_ms` is an argument, and the caller performs the actions. Each event is first noted in the state; then [`Master::settle`]
//! derives what follows from the state as a whole, so that it does not matter in which order
//! things happened.

use std::collections::BTreeMap;

use stanchion_sys::process::Exit;

use crate::dumps::{Dumps, Job};
use crate::event::ClientId;
use crate::event::{Action, Event, News, Plan};
use crate::heir::Heir;
use crate::house::{House, MARGIN_MS};
use crate::phase::ServerPhase;
use crate::run_state::{RunState, Second, Successor};
use crate::standing::Standing;
use stanchion_generation::messages::{FromTemplate, FromWorker};
use stanchion_log::exit_code;

/// A quick stop leaves this long to the acceptor to answer all clients, and to workers to end by themselves.
pub(crate) const QUICK_MS: u64 = 1_500;

/// The state of the tree.
#[derive(Debug)]
pub struct Master {
    pub(crate) run_state: RunState,
    pub(crate) houses: BTreeMap<u32, House>,
    /// The one that has the door.
    pub(crate) serving: Option<u32>,
    /// The one that is made ready; it may not be built yet.
    pub(crate) building: Option<u32>,
    /// The new owner of the door, until that is announced: the owner before may still accept clients until then.
    pub(crate) successor: Option<Successor>,
    /// The house that was made last in place of one that was made for the other interface.
    pub(crate) second: Option<Second>,
    /// The generation last given.
    pub(crate) generations: u32,
    /// Another reload was asked for while one was under way: what that one loads may be older
    /// than what is meant.
    pub(crate) again: bool,
    /// Workers wanted before a pause.
    pub(crate) paused_from: Option<u16>,
    pub(crate) announced: bool,
    pub(crate) heir: Heir,
    /// The reason that the heir has given at its end.
    pub(crate) heir_leaves_because: Option<String>,
    /// Set as long as the master before this one is there: until when this master, once all else is done, waits for the last answers of that one.
    pub(crate) predecessor_until_ms: Option<u64>,
    pub(crate) dumps: Dumps,
    /// Clients that wait for the end of the reload that is under way, of the one that follows it, of an upgrade, of a set of stacks.
    pub(crate) reloading: Vec<ClientId>,
    pub(crate) reloading_next: Vec<ClientId>,
    pub(crate) upgrading: Vec<ClientId>,
    pub(crate) dumping: Vec<ClientId>,
}

impl Master {
    /// Before anything was forked.
    pub fn new() -> Self {
        Self {
            run_state: RunState::Running,
            houses: BTreeMap::new(),
            serving: None,
            building: None,
            successor: None,
            second: None,
            generations: 0,
            again: false,
            paused_from: None,
            announced: false,
            heir: Heir::None,
            heir_leaves_because: None,
            predecessor_until_ms: None,
            dumps: Dumps::default(),
            reloading: Vec::new(),
            reloading_next: Vec::new(),
            upgrading: Vec::new(),
            dumping: Vec::new(),
        }
    }

    /// The step.
    pub fn step(&mut self, now_ms: u64, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.run_state == RunState::Gone {
            return actions;
        }
        self.note(now_ms, event, &mut actions);
        // No message goes to an acceptor that is gone; the next one gets all it needs when it starts.
        actions.retain(|action| match action {
            Action::TellAcceptor { generation, .. } => {
                let house = self.houses.get(generation);
                house.is_some_and(|house| !house.acceptor.is_gone())
            }
            _ => true,
        });
        self.settle(now_ms, &mut actions);
        actions
    }

    /// When the next `Tick` is due at the latest; never in the past after one.
    pub fn next_tick_ms(&self) -> Option<u64> {
        if self.run_state == RunState::Gone {
            return None;
        }
        let houses = self.houses.values().filter_map(House::due_ms);
        let predecessor = match self.run_state {
            RunState::Draining if self.houses.is_empty() => self.predecessor_until_ms,
            _ => None,
        };
        houses.chain(self.dumps.due_ms()).chain(predecessor).min()
    }

    /// Whether this house has a scribe that does its work.
    pub fn has_ready_scribe(&self, generation: u32) -> bool {
        let house = self.houses.get(&generation);
        house.is_some_and(|house| house.scribe.takes_lines())
    }

    /// How far the server is.
    pub fn phase(&self) -> ServerPhase {
        match self.run_state {
            RunState::Draining => ServerPhase::Draining,
            RunState::Stopping { .. } | RunState::Gone => ServerPhase::Stopping,
            RunState::Running if self.serving.is_none() => ServerPhase::Starting,
            RunState::Running if self.is_reloading() => ServerPhase::Reloading,
            RunState::Running if self.heir != Heir::None => ServerPhase::Upgrading,
            RunState::Running => ServerPhase::Serving,
        }
    }

    /// The generation that serves, or is the first to do so.
    pub fn main_generation(&self) -> Option<u32> {
        self.serving.or(self.building)
    }

    /// The house of that generation, once it is there.
    pub fn main_house(&self) -> Option<&House> {
        self.houses.get(&self.main_generation()?)
    }

    /// The house of this generation.
    pub fn house(&self, generation: u32) -> Option<&House> {
        self.houses.get(&generation)
    }

    /// Whether a generation has served.
    pub fn has_served(&self) -> bool {
        self.serving.is_some()
    }

    /// Whether a new master is on its way, or has come.
    pub fn has_heir(&self) -> bool {
        self.heir != Heir::None
    }

    /// The new master's process.
    pub fn heir_pid(&self) -> Option<i32> {
        self.heir.pid()
    }

    /// The houses there are.
    pub fn houses(&self) -> impl Iterator<Item = &House> {
        self.houses.values()
    }

    /// The children there are, as far as they have reported. An heir is not among them: it may be no child of ours.
    pub fn children(&self) -> impl Iterator<Item = i32> {
        self.houses.values().flat_map(House::pids)
    }

    fn note(&mut self, now_ms: u64, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Tick { heard_ms } => self.end_silences(heard_ms.min(now_ms), actions),
            Event::Started {
                plan,
                is_heir,
                scaled_to,
            } => self.on_started(plan, is_heir, scaled_to, actions),
            Event::Commanded {
                command,
                by,
                client,
            } => {
                self.on_command(now_ms, command, by, client, actions);
            }
            Event::Reaped(pid, exit) => self.on_reaped(now_ms, pid, exit, actions),
            Event::Childless { generation } => self.on_childless(now_ms, generation, actions),
            Event::HouseBuilt {
                generation,
                plan,
                template,
            } => {
                self.on_built(now_ms, generation, (plan, template), actions);
            }
            Event::HeirStarted(pid) => self.on_heir_started(pid, actions),
            Event::HeirReady => self.on_heir_ready(now_ms, actions),
            Event::HeirLeaves(reason) => self.heir_leaves_because = Some(reason),
            Event::HeirEnded(pid) => {
                self.on_heir_ended(pid, "has ended", actions);
            }
            Event::PredecessorGone => {
                self.predecessor_until_ms = None;
                if self.heir == Heir::None {
                    self.share_doors(false, actions);
                }
            }
            Event::TemplateSaid {
                generation,
                said: FromTemplate::Changed { .. },
            } => {
                // The templates of houses on their way out look at the same files.
                let present = [self.serving, self.building];
                if self.run_state == RunState::Running && present.contains(&Some(generation)) {
                    self.reload(None, actions);
                }
            }
            Event::TemplateSaid {
                generation,
                said: FromTemplate::OtherInterface,
            } => self.on_other_interface(now_ms, (generation, None), actions),
            Event::WorkerSaid {
                generation,
                worker,
                said: FromWorker::OtherInterface,
            } => self.on_other_interface(now_ms, (generation, Some(worker)), actions),
            Event::WorkerSaid {
                generation,
                worker,
                said: FromWorker::Dumped,
            } => {
                let dumped = self.dumps.on_dumped(generation, worker, actions);
                self.on_dumped(now_ms, dumped, actions);
            }
            Event::Forked { generation, .. }
            | Event::ScribeSaid { generation, .. }
            | Event::AcceptorSaid { generation, .. }
            | Event::TemplateSaid { generation, .. }
            | Event::WorkerHere { generation, .. }
            | Event::WorkerSaid { generation, .. }
            | Event::WorkerSilent { generation, .. }
            | Event::Overdue { generation, .. }
            | Event::Beat { generation, .. }
            | Event::Idles { generation, .. }
            | Event::Memory { generation, .. } => {
                self.on_house_event(now_ms, generation, event, actions);
            }
        }
    }

    fn on_started(
        &mut self,
        plan: Plan,
        is_heir: bool,
        scaled_to: Option<u16>,
        actions: &mut Vec<Action>,
    ) {
        self.generations = 1;
        self.building = Some(1);
        let target = scaled_to.unwrap_or(plan.workers).min(plan.workers_max);
        // The wait has no end until this master drains, which sets one.
        self.predecessor_until_ms = is_heir.then_some(u64::MAX);
        let house = House::new(1, plan, target, !is_heir);
        self.houses.insert(1, house);
        self.share_doors(is_heir, actions);
    }

    fn on_childless(&mut self, now_ms: u64, generation: u32, actions: &mut Vec<Action>) {
        // A house beside another one is given up like any that cannot be built.
        let only = self.houses.len() == 1;
        if self.houses.contains_key(&generation) && only {
            let why = "the server stops, since it cannot serve without an acceptor. Start it again";
            actions.push(Action::error(why));
            self.stop(now_ms, exit_code::INTERNAL, actions);
        }
    }

    fn on_house_event(
        &mut self,
        now_ms: u64,
        generation: u32,
        event: Event,
        actions: &mut Vec<Action>,
    ) {
        let Some(house) = self.houses.get_mut(&generation) else {
            return;
        };
        match house.on_event(now_ms, event, actions) {
            Ok(Some(whose)) => self.dumps.add(Job {
                generation,
                whose,
                client: None,
            }),
            Ok(None) => {}
            Err(failure) => self.on_generation_error(now_ms, generation, &failure, actions),
        }
    }

    fn on_reaped(&mut self, now_ms: u64, pid: i32, exit: Exit, actions: &mut Vec<Action>) {
        self.dumps.on_reaped(pid, actions);
        self.on_dumped(now_ms, None, actions);
        if self.on_heir_ended(pid, &exit.to_string(), actions) {
            return;
        }
        let Some(house) = self.houses.values_mut().find(|house| house.has(pid)) else {
            // An orphan of the app's: they become the master's children.
            return;
        };
        let generation = house.generation;
        if let Err(failure) = house.on_reaped(now_ms, pid, exit, actions) {
            self.on_generation_error(now_ms, generation, &failure, actions);
        }
    }

    pub(crate) fn retire_all(&mut self, now_ms: u64, close_door: bool, actions: &mut Vec<Action>) {
        let outcome = "reload given up: the server leaves";
        self.tell_of_successor(actions);
        if self.serving.is_some() {
            self.give_up_building(now_ms, outcome, actions);
        }
        self.answer_all_reloads(outcome, actions);
        self.building = None;
        let graceful_ms = self.houses.values().map(|house| house.plan.graceful_ms);
        let until_ms = now_ms + graceful_ms.max().unwrap_or(0) + MARGIN_MS;
        if let Some(predecessor_until_ms) = &mut self.predecessor_until_ms {
            *predecessor_until_ms = until_ms;
        }
        for house in self.houses.values_mut() {
            match house.standing {
                // The first one has the door since its boot.
                Standing::Building | Standing::Serving => {
                    house.retire(now_ms, close_door, actions);
                }
                Standing::Retiring { .. } | Standing::Dismissed { .. } => {}
            }
        }
    }

    /// From here on all processes are to go; the first reason to stop gives the exit code.
    pub(crate) fn stop(&mut self, now_ms: u64, code: i32, actions: &mut Vec<Action>) {
        if let RunState::Running | RunState::Draining = self.run_state {
            self.tell_of_successor(actions);
            if self.run_state == RunState::Running {
                actions.push(Action::Announce(News::Stopping));
            }
            self.run_state = RunState::Stopping { code };
            self.building = None;
            if let Heir::Booting { .. } = self.heir {
                actions.push(Action::EndHeir);
            }
            for house in self.houses.values_mut() {
                house.dismiss(now_ms + QUICK_MS);
            }
            self.answer_all_reloads("the server leaves", actions);
            let leaves = Err("the server leaves".to_owned());
            answer(&mut self.upgrading, &leaves, actions);
        }
    }

    /// Handles children whose report is overdue.
    fn end_silences(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let mut failures = Vec::new();
        for house in self.houses.values_mut() {
            let silences = house.end_silences(now_ms, actions);
            failures.extend(silences.err().map(|failure| (house.generation, failure)));
        }
        for (generation, failure) in failures {
            self.on_generation_error(now_ms, generation, &failure, actions);
        }
    }

    /// Derives what follows from the state, whatever led to it.
    fn settle(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        for house in self.houses.values_mut() {
            if let Standing::Retiring { deadline_ms } = house.standing {
                let is_late = now_ms >= deadline_ms;
                if is_late {
                    let generation = house.generation;
                    let message = format!("generation {generation} did not finish in time");
                    actions.push(Action::error(message));
                }
                if is_late || house.acceptor.is_gone() {
                    // The rest of the time is for the last work of workers: hooks, an app's shutdown.
                    house.dismiss(deadline_ms.max(now_ms + QUICK_MS));
                }
            }
            house.settle(now_ms, actions);
        }
        self.tell_of_successor_if_alone(actions);
        // A reload may wait for one to be gone.
        self.houses.retain(|&generation, house| {
            if house.is_empty() {
                actions.push(Action::DropHouse { generation });
            }
            !house.is_empty()
        });
        if self.run_state == RunState::Running {
            self.promote(now_ms, actions);
            self.announce(actions);
            if self.again && self.may_reload() {
                self.reload(None, actions);
            }
        }
        let given_up = self.dumps.advance(now_ms, actions);
        self.on_dumped(now_ms, given_up, actions);
        self.clear_up(now_ms, actions);
    }

    fn clear_up(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let code = match self.run_state {
            RunState::Draining => exit_code::FINE,
            RunState::Stopping { code } => code,
            RunState::Running | RunState::Gone => return,
        };
        // A service manager takes the end of this process for the end of the service, and kills all processes that are left of it: also the master
        // before us, which still answers.
        let is_waited_for = self.run_state == RunState::Draining
            && self
                .predecessor_until_ms
                .is_some_and(|until_ms| now_ms < until_ms);
        if self.houses.is_empty() && !is_waited_for {
            self.run_state = RunState::Gone;
            let leaves = Err("the server has left".to_owned());
            answer(&mut self.upgrading, &leaves, actions);
            answer(&mut self.dumping, &leaves, actions);
            actions.push(Action::Exit(code));
        }
    }

    fn announce(&mut self, actions: &mut Vec<Action>) {
        let Some(house) = self.serving.and_then(|serving| self.houses.get(&serving)) else {
            return;
        };
        if !self.announced {
            self.announced = true;
            let workers = house.workers.ready();
            actions.push(Action::info(format!("ready: {}", counted(workers))));
            actions.push(Action::Announce(News::Ready { workers }));
        }
    }

    fn on_dumped(&mut self, now_ms: u64, job: Option<Job>, actions: &mut Vec<Action>) {
        if let Some(job) = job
            && let Some(house) = self.houses.get_mut(&job.generation)
        {
            house.workers.on_dumped(now_ms, job.whose.worker);
            house.workers.kill_overstayers(now_ms, actions);
        }
        let (waiting, done): (Vec<_>, Vec<_>) = self
            .dumping
            .drain(..)
            .partition(|&client| self.dumps.has_any_for(client));
        self.dumping = waiting;
        for client in done {
            let outcome = Ok(String::new());
            actions.push(Action::Reply { client, outcome });
        }
    }
}

/// Sends all clients that waited the outcome.
pub(crate) fn answer(
    clients: &mut Vec<ClientId>,
    outcome: &Result<String, String>,
    actions: &mut Vec<Action>,
) {
    for client in clients.drain(..) {
        let outcome = outcome.clone();
        actions.push(Action::Reply { client, outcome });
    }
}

/// Such as `2 workers`.
pub fn counted(workers: impl std::fmt::Display) -> String {
    let number = workers.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} worker{ending}")
}
