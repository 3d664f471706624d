//! The master's decisions: a pure step from a state and an event to a new state and actions.
//!
//! Events carry what happened, `now_ms` is an argument, and the caller performs the actions. Each event is first noted in the state; then [`Master::settle`]
//! derives what follows from the state as a whole, so that it does not matter in which order
//! things happened.

use std::collections::BTreeMap;

use stanchion_sys::process::Exit;

use crate::decision::Decision;
use crate::dumps::{DumpJob, Dumps};
use crate::event::{Action, GenerationEvent, GenerationPlan, MasterEvent, News};
use crate::generation::Generation;
use crate::heir::{Heir, Upgrade};
use crate::phase::ServerPhase;
use crate::run_state::{Reloads, RunState, Successor};
use crate::standing::GenerationPhase;
use crate::worker::{PresentWorker, counted};
use stanchion_generation::messages::{FromTemplate, FromWorker};
use stanchion_log::exit_code;

/// A quick stop leaves this long to the acceptor to answer all clients, and to workers to end by themselves.
pub(crate) const QUICK_MS: u64 = 1_500;

/// The state of the tree; by default as it is before anything was forked.
#[derive(Debug, Default)]
pub struct Master {
    pub(crate) run_state: RunState,
    pub(crate) generations: BTreeMap<u32, Generation>,
    /// The one that has the door.
    pub(crate) serving: Option<u32>,
    /// The one that is made ready; it may not be built yet.
    pub(crate) building: Option<u32>,
    /// The new owner of the door, until that is announced: the owner before may still accept clients until then.
    pub(crate) successor: Option<Successor>,
    pub(crate) reloads: Reloads,
    /// Workers wanted before a pause.
    pub(crate) paused_from: Option<u16>,
    pub(crate) announced: bool,
    pub(crate) upgrade: Upgrade,
    /// Set as long as the master before this one is there: until when this master, once all else is done, waits for the last answers of that one.
    pub(crate) predecessor_until_ms: Option<u64>,
    pub(crate) dumps: Dumps,
}

impl Master {
    /// The step.
    pub fn step(&mut self, now_ms: u64, event: MasterEvent) -> Vec<Action> {
        if self.run_state == RunState::Gone {
            return Vec::new();
        }
        let mut decision = Decision::at(now_ms);
        self.note(event, &mut decision);
        // No message goes to an acceptor that is gone; the next one gets all it needs when it starts.
        decision.actions.retain(|action| match action {
            Action::TellAcceptor {
                generation_number, ..
            } => {
                let generation = self.generations.get(generation_number);
                generation.is_some_and(|generation| !generation.acceptor.is_gone())
            }
            _ => true,
        });
        self.settle(&mut decision);
        decision.actions
    }

    /// When the next `Tick` is due at the latest; never in the past after one.
    pub fn next_tick_ms(&self) -> Option<u64> {
        if self.run_state == RunState::Gone {
            return None;
        }
        let generations = self.generations.values().filter_map(Generation::due_ms);
        let predecessor = match self.run_state {
            RunState::Draining if self.generations.is_empty() => self.predecessor_until_ms,
            _ => None,
        };
        let lame_duck = match self.run_state {
            RunState::LameDuck { until_ms } => Some(until_ms),
            _ => None,
        };
        generations
            .chain(self.dumps.due_ms())
            .chain(predecessor)
            .chain(lame_duck)
            .min()
    }

    /// Whether this generation has a scribe that does its work.
    pub fn has_ready_scribe(&self, generation_number: u32) -> bool {
        let generation = self.generations.get(&generation_number);
        generation.is_some_and(|generation| generation.scribe.takes_lines())
    }

    /// How far the server is.
    pub fn phase(&self) -> ServerPhase {
        match self.run_state {
            RunState::LameDuck { .. } | RunState::Draining => ServerPhase::Draining,
            RunState::Stopping { .. } | RunState::Gone => ServerPhase::Stopping,
            RunState::Running if self.serving.is_none() => ServerPhase::Starting,
            RunState::Running if self.is_reloading() => ServerPhase::Reloading,
            RunState::Running if self.upgrade.heir != Heir::None => ServerPhase::Upgrading,
            RunState::Running => ServerPhase::Serving,
        }
    }

    /// The generation that serves, or is the first to do so.
    pub fn main_generation_number(&self) -> Option<u32> {
        self.serving.or(self.building)
    }

    /// The state of that generation, once it is there.
    pub fn main_generation(&self) -> Option<&Generation> {
        self.generations.get(&self.main_generation_number()?)
    }

    /// The generation of this number.
    pub fn generation(&self, generation_number: u32) -> Option<&Generation> {
        self.generations.get(&generation_number)
    }

    /// The workers of a generation that have reported.
    pub fn present_workers(&self, generation_number: u32) -> impl Iterator<Item = PresentWorker> {
        let generation = self.generation(generation_number).into_iter();
        generation.flat_map(|generation| generation.workers.present())
    }

    /// Whether a generation has served.
    pub fn has_served(&self) -> bool {
        self.serving.is_some()
    }

    /// Whether a new master is on its way, or has come.
    pub fn has_heir(&self) -> bool {
        self.upgrade.heir != Heir::None
    }

    /// The new master's process.
    pub fn heir_pid(&self) -> Option<i32> {
        self.upgrade.heir.pid()
    }

    /// The generations there are.
    pub fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.generations.values()
    }

    /// The children there are, as far as they have reported. An heir is not among them: it may be no child of ours.
    pub fn children(&self) -> impl Iterator<Item = i32> {
        self.generations.values().flat_map(Generation::pids)
    }

    fn note(&mut self, event: MasterEvent, decision: &mut Decision) {
        match event {
            MasterEvent::Tick { heard_ms } => {
                self.end_silences(heard_ms.min(decision.now_ms), decision);
            }
            MasterEvent::Started {
                plan,
                is_heir,
                scaled_to,
                is_pinned,
                range_before,
            } => {
                // As by a reload, a number that an operator or the line has chosen stays unless the setting itself has changed.
                let stays = range_before.is_none_or(|before| before == plan.range());
                let number = match scaled_to {
                    _ if !stays => (plan.workers, false),
                    target => (target.unwrap_or(plan.workers), is_pinned),
                };
                self.on_started(plan, is_heir, number, decision);
            }
            MasterEvent::Commanded {
                command,
                by,
                client,
            } => {
                self.on_command(command, by, client, decision);
            }
            MasterEvent::Reaped(pid, exit) => self.on_reaped(pid, exit, decision),
            MasterEvent::Childless { generation_number } => {
                self.on_childless(generation_number, decision);
            }
            MasterEvent::GenerationBuilt {
                generation_number,
                plan,
                template,
            } => {
                self.on_built(generation_number, (plan, template), decision);
            }
            MasterEvent::HeirStarted(pid) => self.on_heir_started(pid, decision),
            MasterEvent::HeirReady => self.on_heir_ready(decision),
            MasterEvent::HeirLeaves(reason) => self.upgrade.leaves_because = Some(reason),
            MasterEvent::HeirEnded(pid) => {
                self.on_heir_ended(pid, "has ended", decision);
            }
            MasterEvent::PredecessorGone => {
                self.predecessor_until_ms = None;
                if self.upgrade.heir == Heir::None {
                    self.share_doors(false, decision);
                }
            }
            MasterEvent::OfGeneration(generation_number, event) => {
                self.on_generation_event(generation_number, event, decision);
            }
        }
    }

    /// A few reports are the whole master's business, all others that of their generation.
    fn on_generation_event(
        &mut self,
        generation_number: u32,
        event: GenerationEvent,
        decision: &mut Decision,
    ) {
        match event {
            GenerationEvent::TemplateSaid(FromTemplate::Changed { .. }) => {
                // The templates of generations on their way out look at the same files.
                let present = [self.serving, self.building];
                if self.run_state == RunState::Running && present.contains(&Some(generation_number))
                {
                    self.reload(None, decision);
                }
            }
            GenerationEvent::TemplateSaid(FromTemplate::OtherInterface) => {
                self.on_other_interface((generation_number, None), decision);
            }
            GenerationEvent::WorkerSaid {
                worker,
                said: FromWorker::OtherInterface,
            } => self.on_other_interface((generation_number, Some(worker)), decision),
            GenerationEvent::WorkerSaid {
                worker,
                said: FromWorker::Dumped,
            } => {
                let dumped = self.dumps.on_dumped(generation_number, worker, decision);
                self.on_dumped(dumped, decision);
            }
            event => self.pass_on(generation_number, event, decision),
        }
    }

    fn on_started(
        &mut self,
        plan: GenerationPlan,
        is_heir: bool,
        number: (u16, bool),
        decision: &mut Decision,
    ) {
        self.reloads.last_number = 1;
        self.building = Some(1);
        // The wait has no end until this master drains, which sets one.
        self.predecessor_until_ms = is_heir.then_some(u64::MAX);
        let generation = Generation::new(1, plan, number, !is_heir);
        self.generations.insert(1, generation);
        self.share_doors(is_heir, decision);
    }

    fn on_childless(&mut self, generation_number: u32, decision: &mut Decision) {
        // A generation beside another one is given up like any that cannot be built.
        let only = self.generations.len() == 1;
        if self.generations.contains_key(&generation_number) && only {
            decision.error(
                "the server stops, since it cannot serve without an acceptor. Start it again",
            );
            self.stop(exit_code::INTERNAL, decision);
        }
    }

    /// Has a generation deal with an event of its own.
    fn pass_on(&mut self, generation_number: u32, event: GenerationEvent, decision: &mut Decision) {
        let Some(generation) = self.generations.get_mut(&generation_number) else {
            return;
        };
        match generation.on_event(event, decision) {
            Ok(Some(whose)) => self.dumps.add(DumpJob {
                generation_number,
                whose,
                client: None,
            }),
            Ok(None) => {}
            Err(failure) => self.on_generation_error(generation_number, &failure, decision),
        }
    }

    fn on_reaped(&mut self, pid: i32, exit: Exit, decision: &mut Decision) {
        self.dumps.on_reaped(pid, decision);
        self.on_dumped(None, decision);
        if self.on_heir_ended(pid, &exit.to_string(), decision) {
            return;
        }
        let Some(generation) = self
            .generations
            .values_mut()
            .find(|generation| generation.has(pid))
        else {
            // An orphan of the app's: they become the master's children.
            return;
        };
        let generation_number = generation.number;
        if let Err(failure) = generation.on_reaped(pid, exit, decision) {
            self.on_generation_error(generation_number, &failure, decision);
        }
    }

    /// From here on all processes are to go; the first reason to stop gives the exit code.
    pub(crate) fn stop(&mut self, code: i32, decision: &mut Decision) {
        if let RunState::Running | RunState::LameDuck { .. } | RunState::Draining = self.run_state {
            self.tell_of_successor(decision);
            if self.run_state == RunState::Running {
                decision.push(Action::Announce(News::Stopping));
            }
            self.run_state = RunState::Stopping { code };
            self.building = None;
            if let Heir::Booting { .. } = self.upgrade.heir {
                decision.push(Action::EndHeir);
            }
            for generation in self.generations.values_mut() {
                generation.dismiss(decision.now_ms + QUICK_MS);
            }
            self.answer_all_reloads("the server leaves", decision);
            let leaves = Err("the server leaves".to_owned());
            decision.answer(self.upgrade.waiting.drain(..), &leaves);
        }
    }

    /// Handles children whose report is overdue.
    fn end_silences(&mut self, heard_ms: u64, decision: &mut Decision) {
        let mut failures = Vec::new();
        for generation in self.generations.values_mut() {
            let silences = generation.end_silences(heard_ms, decision);
            failures.extend(silences.err().map(|failure| (generation.number, failure)));
        }
        for (generation_number, failure) in failures {
            self.on_generation_error(generation_number, &failure, decision);
        }
    }

    /// Derives what follows from the state, whatever led to it.
    fn settle(&mut self, decision: &mut Decision) {
        if let RunState::LameDuck { until_ms } = self.run_state
            && decision.now_ms >= until_ms
        {
            self.drain("drain_delay", decision);
        }
        for generation in self.generations.values_mut() {
            if let GenerationPhase::Retiring { deadline_ms } = generation.standing {
                let is_late = decision.now_ms >= deadline_ms;
                if is_late {
                    let generation_number = generation.number;
                    let message = format!("generation {generation_number} did not finish in time");
                    decision.error(message);
                }
                if is_late || generation.acceptor.is_gone() {
                    // The rest of the time is for the last work of workers: hooks, an app's shutdown.
                    generation.dismiss(deadline_ms.max(decision.now_ms + QUICK_MS));
                }
            }
            generation.settle(decision);
        }
        self.tell_of_successor_if_alone(decision);
        // A reload may wait for one to be gone.
        self.generations.retain(|&generation_number, generation| {
            if generation.is_empty() {
                decision.push(Action::DropGeneration { generation_number });
            }
            !generation.is_empty()
        });
        if self.run_state == RunState::Running {
            self.promote(decision);
            self.announce(decision);
            if self.reloads.again && self.may_reload() {
                self.reload(None, decision);
            }
        }
        let given_up = self.dumps.advance(decision);
        self.on_dumped(given_up, decision);
        self.clear_up(decision);
    }

    fn clear_up(&mut self, decision: &mut Decision) {
        let code = match self.run_state {
            RunState::Draining => exit_code::FINE,
            RunState::Stopping { code } => code,
            RunState::Running | RunState::LameDuck { .. } | RunState::Gone => return,
        };
        // A service manager takes the end of this process for the end of the service, and kills all processes that are left of it: also the master
        // before us, which still answers.
        let is_waited_for = self.run_state == RunState::Draining
            && self
                .predecessor_until_ms
                .is_some_and(|until_ms| decision.now_ms < until_ms);
        if self.generations.is_empty() && !is_waited_for {
            self.run_state = RunState::Gone;
            let leaves = Err("the server has left".to_owned());
            decision.answer(self.upgrade.waiting.drain(..), &leaves);
            decision.answer(self.dumps.clients.drain(..), &leaves);
            decision.push(Action::Exit(code));
        }
    }

    fn announce(&mut self, decision: &mut Decision) {
        let Some(generation) = self
            .serving
            .and_then(|serving| self.generations.get(&serving))
        else {
            return;
        };
        if !self.announced {
            self.announced = true;
            let workers = generation.workers.ready();
            decision.info(format!("ready: {}", counted(workers)));
            decision.push(Action::Announce(News::Ready { workers }));
        }
    }

    fn on_dumped(&mut self, job: Option<DumpJob>, decision: &mut Decision) {
        if let Some(job) = job
            && let Some(generation) = self.generations.get_mut(&job.generation_number)
        {
            generation
                .workers
                .on_dumped(decision.now_ms, job.whose.worker);
            generation.workers.kill_overstayers(decision);
        }
        decision.answer(self.dumps.done(), &Ok(String::new()));
    }
}
