//! Successors. A reload makes another house ready beside the house that serves. An upgrade starts a new master, of the stanchion that is
//! installed now. The successor gets the door, and the old house, or this master, retires. If the successor cannot be made ready, the old one
//! goes on, untouched.

use stanchion_sys::signal::SIGKILL;

use crate::decision::Decision;
use crate::event::{Action, ClientId, GenerationPlan, News};
use crate::generation_error::GenerationError;
use crate::heir::Heir;
use crate::house::{House, MARGIN_MS};
use crate::run_state::{RunState, Second, Successor};
use crate::standing::GenerationPhase;
use crate::step::{Master, QUICK_MS};
use stanchion_generation::messages::WorkerRef;
use stanchion_log::exit_code;

/// Houses that may be on their way out at once: the next reload waits for one to be gone.
const RETIRING_MAX: usize = 3;

impl Master {
    pub(crate) fn reload(&mut self, client: Option<ClientId>, decision: &mut Decision) {
        self.reloads.waiting_next.extend(client);
        if let Some(generation) = self.building {
            decision.info(format!(
                "reload: generation {generation} is still being made ready, another one follows it"
            ));
            self.reloads.again = true;
            return;
        }
        if let Some(Successor::Generation(generation)) = self.successor {
            decision.info(format!(
                "reload: generation {generation} is still taking over, another one follows it"
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
        self.reloads.generations += 1;
        let generation = self.reloads.generations;
        self.building = Some(generation);
        decision.info(format!("reload: making generation {generation} ready"));
        decision.push(Action::Announce(News::Reloading));
        decision.push(Action::BuildHouse { generation });
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
        let leaving = self.houses.values().filter(|house| house.is_leaving());
        leaving.count()
    }

    pub(crate) fn on_built(
        &mut self,
        generation: u32,
        (plan, template): (Result<GenerationPlan, String>, Option<i32>),
        decision: &mut Decision,
    ) {
        if self.houses.contains_key(&generation) {
            // Not an answer to us.
            return;
        }
        let plan = match plan {
            Ok(plan) if self.building == Some(generation) => plan,
            // Given up meanwhile.
            Ok(_) => {
                decision.extend(template.map(|pid| Action::Kill(pid, SIGKILL)));
                decision.push(Action::DropHouse { generation });
                return;
            }
            Err(_) if self.building != Some(generation) => return,
            Err(why) => {
                let code = exit_code::USAGE;
                self.on_generation_error(generation, &GenerationError { why, code }, decision);
                return;
            }
        };
        let second = self
            .reloads
            .second
            .filter(|second| second.generation == generation);
        let old = self.serving.and_then(|serving| self.houses.get(&serving));
        let target = match (second, old) {
            (Some(second), _) => second.target,
            // Workers that an operator added or removed stay so, unless the setting itself has changed.
            (None, Some(old)) if old.plan.workers == plan.workers => {
                self.paused_from.unwrap_or(old.target)
            }
            _ => plan.workers,
        };
        let target = target.min(plan.workers_max);
        let has_other_master = self.predecessor_until_ms.is_some();
        let only = self.serving.is_none() && !has_other_master;
        let mut house = House::new(generation, plan, target, only);
        house.acceptor.share(has_other_master, decision);
        if let Some(pid) = template {
            house.template.comes_over(pid);
        }
        self.houses.insert(generation, house);
    }

    /// A house could not be made ready.
    pub(crate) fn on_generation_error(
        &mut self,
        generation: u32,
        failure: &GenerationError,
        decision: &mut Decision,
    ) {
        let Some(serving) = self.serving.filter(|&serving| serving != generation) else {
            decision.error(format!("{}: the server leaves", failure.why));
            if self.predecessor_until_ms.is_some() {
                decision.push(Action::LeaveBecause(failure.why.clone()));
            } else if let Some(house) = self.houses.get(&generation)
                && house.may_have_the_door()
                && !house.workers.have_served()
            {
                // A listener that a service manager has passed outlives the server, and so would the wait of its clients.
                house.acceptor.turn_away(decision);
            }
            self.stop(failure.code, decision);
            return;
        };
        if self.building != Some(generation) {
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
        let Some(generation) = self.building.take() else {
            return;
        };
        if let Some(house) = self.houses.get_mut(&generation) {
            house.dismiss(decision.now_ms + QUICK_MS);
        }
        if let Some(generation) = self.serving {
            decision.push(Action::Announce(News::NotReloaded { generation }));
        }
        decision.answer(&mut self.reloads.waiting, &Err(outcome.to_owned()));
    }

    /// Answers all clients that wait for a reload, also for one that has not begun: none will come to anything.
    pub(crate) fn answer_all_reloads(&mut self, why: &str, decision: &mut Decision) {
        let outcome = Err(why.to_owned());
        decision.answer(&mut self.reloads.waiting, &outcome);
        decision.answer(&mut self.reloads.waiting_next, &outcome);
    }

    /// The house that was made ready gets the door, and the one before it retires.
    pub(crate) fn promote(&mut self, decision: &mut Decision) {
        let ready = self.building.filter(|generation| {
            let house = self.houses.get(generation);
            house.is_some_and(House::is_ready)
        });
        let Some(generation) = ready else { return };
        self.building = None;
        let before = self.serving.replace(generation);
        if let Some(house) = self.houses.get_mut(&generation) {
            house.serve(decision);
            if house.target > 0 {
                self.paused_from = None;
            }
        }
        let Some(old) = before.and_then(|before| self.houses.get_mut(&before)) else {
            return;
        };
        old.retire(false, decision);
        old.settle(decision);
        decision.push(Action::Announce(News::Promoted { generation }));
        self.successor = Some(Successor::Generation(generation));
        self.tell_of_successor_if_alone(decision);
    }

    /// Announces the new owner of the door once no house that had the door before accepts clients: the new owner serves all that come from then on.
    pub(crate) fn tell_of_successor_if_alone(&mut self, decision: &mut Decision) {
        let mut houses = self.houses.values();
        if !houses.any(|house| house.acceptor.may_let_in()) {
            self.tell_of_successor(decision);
        }
    }

    /// Announces the new owner of the door in the log and to the clients that wait for it, unless that is done.
    pub(crate) fn tell_of_successor(&mut self, decision: &mut Decision) {
        match self.successor.take() {
            Some(Successor::Generation(generation)) => {
                let outcome = format!("reloaded: generation {generation} serves");
                decision.info(&*outcome);
                decision.push(Action::Announce(News::Reloaded { generation }));
                decision.answer(&mut self.reloads.waiting, &Ok(outcome));
            }
            Some(Successor::Heir { pid }) => {
                let outcome = format!("upgraded: the new master {pid} serves");
                decision.info(&*outcome);
                decision.answer(&mut self.upgrade.waiting, &Ok(outcome));
            }
            None => {}
        }
    }

    /// A child of this house, this worker or else the template, has imported the app, and says that it is called by the other interface than the one
    /// that the house was made for. It runs the app's code and may say anything: it can have a house
    /// made once more, and that once.
    pub(crate) fn on_other_interface(
        &mut self,
        (generation, worker): (u32, Option<WorkerRef>),
        decision: &mut Decision,
    ) {
        let Some(house) = self.houses.get_mut(&generation) else {
            return;
        };
        let (plan, target) = (house.plan, house.target);
        if !(plan.is_guess && house.is_loading(worker)) {
            return;
        }
        if self.building != Some(generation) || house.workers.have_served() {
            // A worker has the app as the house is made for it, and clients may be waiting for that.
            if house.may_have_the_door() && !house.was_told_of_change {
                house.was_told_of_change = true;
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
            .is_some_and(|second| second.generation == generation)
        {
            let why = "the app is asynchronous at one import and a WSGI app at the next: say what it is by --interface";
            let (why, code) = (why.to_owned(), exit_code::APP_LOAD);
            self.on_generation_error(generation, &GenerationError { why, code }, decision);
            return;
        }
        let template = match worker {
            Some(_) => None,
            None => house.template.goes_over(),
        };
        house.dismiss(decision.now_ms + QUICK_MS);
        let what = match self.serving {
            Some(_) => "the reload",
            None => "the server",
        };
        decision.info(format!(
            "the app is {}: {what} starts again for it",
            called(!plan.is_event_loop)
        ));
        self.reloads.generations += 1;
        self.building = Some(self.reloads.generations);
        self.reloads.second = Some(Second {
            generation: self.reloads.generations,
            target,
        });
        decision.push(Action::RebuildHouse {
            generation: self.reloads.generations,
            first: generation,
            template,
        });
    }

    /// All houses retire: another master serves, or none.
    pub(crate) fn retire_all(&mut self, close_door: bool, decision: &mut Decision) {
        let outcome = "reload given up: the server leaves";
        self.tell_of_successor(decision);
        if self.serving.is_some() {
            self.give_up_building(outcome, decision);
        }
        self.answer_all_reloads(outcome, decision);
        self.building = None;
        let graceful_ms = self.houses.values().map(|house| house.plan.graceful_ms);
        let until_ms = decision.now_ms + graceful_ms.max().unwrap_or(0) + MARGIN_MS;
        if let Some(predecessor_until_ms) = &mut self.predecessor_until_ms {
            *predecessor_until_ms = until_ms;
        }
        for house in self.houses.values_mut() {
            match house.standing {
                // The first one has the door since its boot.
                GenerationPhase::Building | GenerationPhase::Serving => {
                    house.retire(close_door, decision);
                }
                GenerationPhase::Retiring { .. } | GenerationPhase::Dismissed { .. } => {}
            }
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
            decision.answer(&mut client.into_iter().collect(), &Err(refusal));
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
        let houses = self.houses.values_mut();
        for house in houses.filter(|house| house.may_have_the_door()) {
            house.acceptor.share(shared, decision);
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
        decision.answer(&mut self.upgrade.waiting, &Err(outcome));
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
