//! Successors. A reload makes another generation ready beside the generation that serves. An upgrade starts a new master, of the stanchion that is
//! installed now. The successor gets the door, and the old generation, or this master, retires. If the successor cannot be made ready, the old one
//! goes on, untouched.

use stanchion_sys::signal::SIGKILL;

use crate::decision::Decision;
use crate::event::{Action, ClientId, GenerationPlan, News};
use crate::generation::{Generation, MARGIN_MS};
use crate::generation_error::GenerationError;
use crate::heir::Heir;
use crate::run_state::{RunState, Second, Successor};
use crate::step::{Master, QUICK_MS};
use stanchion_generation::messages::WorkerRef;
use stanchion_log::exit_code;

/// Generations that may be on their way out at once: the next reload waits for one to be gone.
const RETIRING_MAX: usize = 3;

impl Master {
    pub(crate) fn reload(&mut self, client: Option<ClientId>, decision: &mut Decision) {
        self.reloads.waiting_next.extend(client);
        if let Some(generation_number) = self.building {
            decision.info(format!(
                "reload: generation {generation_number} is still being made ready, another one follows it"
            ));
            self.reloads.again = true;
            return;
        }
        if let Some(Successor::Generation(generation_number)) = self.successor {
            decision.info(format!(
                "reload: generation {generation_number} is still taking over, another one follows it"
            ));
            self.reloads.again = true;
            return;
        }
        if !self.may_reload() {
            let what = match self.upgrade.heir {
                Heir::Asked | Heir::Booting { .. } => "if the new master does not come up",
                _ => "when an earlier generation has gone",
            };
            decision.info(format!("reload: begins {what}"));
            self.reloads.again = true;
            return;
        }
        self.reloads.again = false;
        self.reloads.waiting.append(&mut self.reloads.waiting_next);
        self.reloads.last_number += 1;
        let generation_number = self.reloads.last_number;
        self.building = Some(generation_number);
        decision.info(format!(
            "reload: making generation {generation_number} ready"
        ));
        decision.push(Action::Announce(News::Reloading));
        decision.push(Action::BuildGeneration { generation_number });
    }

    /// Whether a reload could begin now. Not while a new master boots: it has read the configuration again, and has the listeners of the generation
    /// that it was made from.
    pub(crate) fn may_reload(&self) -> bool {
        let heir_boots = matches!(self.upgrade.heir, Heir::Asked | Heir::Booting { .. });
        !self.is_reloading() && !heir_boots && self.retiring() < RETIRING_MAX
    }

    /// Whether one is under way.
    pub(crate) fn is_reloading(&self) -> bool {
        self.building.is_some() || matches!(self.successor, Some(Successor::Generation(_)))
    }

    fn retiring(&self) -> usize {
        let leaving = self
            .generations
            .values()
            .filter(|generation| generation.is_leaving());
        leaving.count()
    }

    pub(crate) fn on_built(
        &mut self,
        generation_number: u32,
        (plan, template): (Result<GenerationPlan, String>, Option<i32>),
        decision: &mut Decision,
    ) {
        if self.generations.contains_key(&generation_number) {
            // Not an answer to us.
            return;
        }
        let plan = match plan {
            Ok(plan) if self.building == Some(generation_number) => plan,
            // Given up meanwhile.
            Ok(_) => {
                decision.extend(template.map(|pid| Action::Kill(pid, SIGKILL)));
                decision.push(Action::DropGeneration { generation_number });
                return;
            }
            Err(_) if self.building != Some(generation_number) => return,
            Err(why) => {
                let code = exit_code::USAGE;
                self.on_generation_error(
                    generation_number,
                    &GenerationError { why, code },
                    decision,
                );
                return;
            }
        };
        let second = self
            .reloads
            .second
            .filter(|second| second.generation_number == generation_number);
        let old = self
            .serving
            .and_then(|serving| self.generations.get(&serving));
        let target = match (second, old) {
            (Some(second), _) => (second.target, false),
            // Workers that an operator or the line added or removed stay so, unless the setting itself has changed.
            (None, Some(old)) if old.plan.range() == plan.range() => (
                self.paused_from.unwrap_or(old.target),
                old.elastic.is_some_and(|it| it.is_pinned),
            ),
            _ => (plan.workers, false),
        };
        let has_other_master = self.predecessor_until_ms.is_some();
        let only = self.serving.is_none() && !has_other_master;
        let mut generation = Generation::new(generation_number, plan, target, only);
        generation.acceptor.share(has_other_master, decision);
        if let Some(pid) = template {
            generation.template.comes_over(pid);
        }
        self.generations.insert(generation_number, generation);
    }

    /// A generation could not be made ready.
    pub(crate) fn on_generation_error(
        &mut self,
        generation_number: u32,
        failure: &GenerationError,
        decision: &mut Decision,
    ) {
        let Some(serving) = self.serving.filter(|&serving| serving != generation_number) else {
            decision.error(format!("{}: the server leaves", failure.why));
            if self.predecessor_until_ms.is_some() {
                decision.push(Action::LeaveBecause(failure.why.clone()));
            } else if let Some(generation) = self.generations.get(&generation_number)
                && generation.may_have_the_door()
                && !generation.workers.have_served()
            {
                // A listener that a service manager has passed outlives the server, and so would the wait of its clients.
                generation.acceptor.turn_away(decision);
            }
            self.stop(failure.code, decision);
            return;
        };
        if self.building != Some(generation_number) {
            return;
        }
        let outcome = format!(
            "reload failed: {}; generation {serving} goes on serving",
            failure.why
        );
        decision.error(&*outcome);
        self.give_up_building(&outcome, decision);
    }

    pub(crate) fn give_up_building(&mut self, outcome: &str, decision: &mut Decision) {
        let Some(generation_number) = self.building.take() else {
            return;
        };
        if let Some(generation) = self.generations.get_mut(&generation_number) {
            generation.dismiss(decision.now_ms + QUICK_MS);
        }
        if let Some(generation_number) = self.serving {
            decision.push(Action::Announce(News::NotReloaded { generation_number }));
        }
        decision.answer(self.reloads.waiting.drain(..), &Err(outcome.to_owned()));
    }

    /// Answers all clients that wait for a reload, also for one that has not begun: none will come to anything.
    pub(crate) fn answer_all_reloads(&mut self, why: &str, decision: &mut Decision) {
        let outcome = Err(why.to_owned());
        decision.answer(self.reloads.waiting.drain(..), &outcome);
        decision.answer(self.reloads.waiting_next.drain(..), &outcome);
    }

    /// The generation that was made ready gets the door, and the one before it retires.
    pub(crate) fn promote(&mut self, decision: &mut Decision) {
        let ready = self.building.filter(|generation_number| {
            let generation = self.generations.get(generation_number);
            generation.is_some_and(Generation::is_ready)
        });
        let Some(generation_number) = ready else {
            return;
        };
        self.building = None;
        let before = self.serving.replace(generation_number);
        if let Some(generation) = self.generations.get_mut(&generation_number) {
            generation.serve(decision);
            if generation.target > 0 {
                self.paused_from = None;
            }
        }
        let Some(old) = before.and_then(|before| self.generations.get_mut(&before)) else {
            return;
        };
        old.retire(false, decision);
        old.settle(decision);
        decision.push(Action::Announce(News::Promoted { generation_number }));
        self.successor = Some(Successor::Generation(generation_number));
        self.tell_of_successor_if_alone(decision);
    }

    /// Announces the new owner of the door once no generation that had the door before accepts clients: the new owner serves all that come from then on.
    pub(crate) fn tell_of_successor_if_alone(&mut self, decision: &mut Decision) {
        let mut generations = self.generations.values();
        if !generations.any(|generation| generation.acceptor.may_let_in()) {
            self.tell_of_successor(decision);
        }
    }

    /// Announces the new owner of the door in the log and to the clients that wait for it, unless that is done.
    pub(crate) fn tell_of_successor(&mut self, decision: &mut Decision) {
        match self.successor.take() {
            Some(Successor::Generation(generation_number)) => {
                let outcome = format!("reloaded: generation {generation_number} serves");
                decision.info(&*outcome);
                decision.push(Action::Announce(News::Reloaded { generation_number }));
                decision.answer(self.reloads.waiting.drain(..), &Ok(outcome));
            }
            Some(Successor::Heir { pid }) => {
                let outcome = format!("upgraded: the new master {pid} serves");
                decision.info(&*outcome);
                decision.answer(self.upgrade.waiting.drain(..), &Ok(outcome));
            }
            None => {}
        }
    }

    /// A child of this generation, this worker or else the template, has imported the app, and says that it is called by the other interface than the one
    /// that the generation was made for. It runs the app's code and may say anything: it can have a generation
    /// made once more, and that once.
    pub(crate) fn on_other_interface(
        &mut self,
        (generation_number, worker): (u32, Option<WorkerRef>),
        decision: &mut Decision,
    ) {
        let Some(generation) = self.generations.get_mut(&generation_number) else {
            return;
        };
        let (plan, target) = (generation.plan, generation.target);
        if !(plan.is_guess && generation.is_loading(worker)) {
            return;
        }
        if self.building != Some(generation_number) || generation.workers.have_served() {
            // A worker has the app as the generation is made for it, and clients may be waiting for that.
            if generation.may_have_the_door() && !generation.was_told_of_change {
                generation.was_told_of_change = true;
                decision.error(format!(
                    "the app has become {} since it was loaded: reload the server",
                    called(!plan.is_event_loop)
                ));
            }
            return;
        }
        if self
            .reloads
            .second
            .is_some_and(|second| second.generation_number == generation_number)
        {
            let why = "the app is asynchronous at one import and a WSGI app at the next: say what it is by --interface";
            let (why, code) = (why.to_owned(), exit_code::APP_LOAD);
            self.on_generation_error(generation_number, &GenerationError { why, code }, decision);
            return;
        }
        let template = match worker {
            Some(_) => None,
            None => generation.template.goes_over(),
        };
        generation.dismiss(decision.now_ms + QUICK_MS);
        let what = match self.serving {
            Some(_) => "the reload",
            None => "the server",
        };
        decision.info(format!(
            "the app is {}: {what} starts again for it",
            called(!plan.is_event_loop)
        ));
        self.reloads.last_number += 1;
        self.building = Some(self.reloads.last_number);
        self.reloads.second = Some(Second {
            generation_number: self.reloads.last_number,
            target,
        });
        decision.push(Action::RebuildGeneration {
            generation_number: self.reloads.last_number,
            first: generation_number,
            template,
        });
    }

    /// No generation takes the place of the one that serves.
    pub(crate) fn give_up_reloads(&mut self, decision: &mut Decision) {
        let outcome = "reload given up: the server leaves";
        self.tell_of_successor(decision);
        if self.serving.is_some() {
            self.give_up_building(outcome, decision);
        }
        self.answer_all_reloads(outcome, decision);
    }

    /// All generations retire: another master serves, or none.
    pub(crate) fn retire_all(&mut self, close_door: bool, decision: &mut Decision) {
        self.give_up_reloads(decision);
        self.building = None;
        let graceful_ms = self
            .generations
            .values()
            .map(|generation| generation.plan.graceful_ms);
        let until_ms = decision.now_ms + graceful_ms.max().unwrap_or(0) + MARGIN_MS;
        if let Some(predecessor_until_ms) = &mut self.predecessor_until_ms {
            *predecessor_until_ms = until_ms;
        }
        let generations = self.generations.values_mut();
        for generation in generations.filter(|generation| generation.may_have_the_door()) {
            generation.retire(close_door, decision);
        }
    }

    // Upgrades.

    pub(crate) fn upgrade(&mut self, client: Option<ClientId>, decision: &mut Decision) {
        let refusal = match self.upgrade.heir {
            Heir::None if self.building.is_some() => {
                Some("upgrade: not while a generation is being made ready".to_owned())
            }
            Heir::None => None,
            Heir::Asked | Heir::Left => Some("upgrade: there is one under way".to_owned()),
            Heir::Booting { pid } | Heir::Serving { pid } => Some(format!(
                "upgrade: there is one under way (the new master is {pid})"
            )),
        };
        if let Some(refusal) = refusal {
            decision.warning(&*refusal);
            decision.answer(client, &Err(refusal));
            return;
        }
        self.upgrade.waiting.extend(client);
        self.upgrade.heir = Heir::Asked;
        self.share_doors(true, decision);
        decision.info("upgrade: starting a new master");
        decision.push(Action::StartHeir);
    }

    pub(crate) fn on_heir_started(&mut self, pid: Option<i32>, decision: &mut Decision) {
        if self.upgrade.heir != Heir::Asked {
            // Not an answer to us.
            decision.extend(pid.map(|_| Action::EndHeir));
            return;
        }
        match pid {
            Some(pid) => {
                self.upgrade.heir = Heir::Booting { pid };
                if self.run_state != RunState::Running {
                    decision.push(Action::EndHeir);
                }
            }
            None => self.on_heir_lost("it could not be started", decision),
        }
    }

    /// Another master has our listeners, or none does any more.
    pub(crate) fn share_doors(&mut self, shared: bool, decision: &mut Decision) {
        let generations = self.generations.values_mut();
        for generation in generations.filter(|generation| generation.may_have_the_door()) {
            generation.acceptor.share(shared, decision);
        }
    }

    fn on_heir_lost(&mut self, why: &str, decision: &mut Decision) {
        self.upgrade.heir = Heir::None;
        self.share_doors(false, decision);
        let rest = match self.run_state {
            RunState::Running => "this master goes on serving",
            _ => "the server leaves",
        };
        let reason = self.upgrade.leaves_because.take();
        let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let outcome = format!("upgrade failed: {why}{reason}; {rest}");
        decision.error(&*outcome);
        decision.push(Action::DropHeir);
        decision.answer(self.upgrade.waiting.drain(..), &Err(outcome));
    }

    pub(crate) fn on_heir_ready(&mut self, decision: &mut Decision) {
        let Heir::Booting { pid } = self.upgrade.heir else {
            return;
        };
        self.upgrade.heir = Heir::Serving { pid };
        decision.push(Action::Announce(News::Heir { pid }));
        if self.run_state == RunState::Running {
            self.run_state = RunState::Draining;
            self.retire_all(false, decision);
        }
        self.successor = Some(Successor::Heir { pid });
    }

    /// True if it was the heir that has ended; `how` is the rest of a sentence on it.
    pub(crate) fn on_heir_ended(&mut self, pid: i32, how: &str, decision: &mut Decision) -> bool {
        match self.upgrade.heir {
            Heir::Booting { pid: heir } if heir == pid => {
                self.on_heir_lost(&format!("the new master {how}"), decision);
                true
            }
            Heir::Serving { pid: heir } if heir == pid => {
                self.upgrade.heir = Heir::Left;
                let message = format!("the new master ({pid}) {how}");
                decision.warning(message);
                true
            }
            _ => false,
        }
    }
}

fn called(by_asgi: bool) -> &'static str {
    if by_asgi {
        "asynchronous (ASGI)"
    } else {
        "a WSGI app"
    }
}
