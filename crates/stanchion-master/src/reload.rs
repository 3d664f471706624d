//! A reload: another house is made ready beside the one that serves, gets the door, and the old house retires. If the new house cannot be made ready
//! the old one goes on, untouched.
//!
//! When all workers of the new generation are ready, its acceptor starts accepting (both have the listening sockets). The
//! old generation *retires*: it accepts no more, answers its requests with `Connection: close`, and is dismissed. A reload
//! replaces the acceptor too, not only template and workers. Each keep-alive client has to connect once more, but every
//! setting can change, also threads and limits, new code cannot harm the old before it has booted, and an upgrade can
//! use the same mechanism. The first start is the same, with no generation before it.

use stanchion_sys::signal::SIGKILL;

use crate::event::ClientId;
use crate::event::{Action, News, Plan};
use crate::generation_error::GenerationError;
use crate::heir::Heir;
use crate::house::House;
use crate::run_state::Successor;
use crate::step::{Master, QUICK_MS, answer};
use stanchion_log::exit_code;

/// Houses that may be on their way out at once: the next reload waits for one to be gone.
const RETIRING_MAX: usize = 3;

impl Master {
    pub(crate) fn reload(&mut self, client: Option<ClientId>, actions: &mut Vec<Action>) {
        self.reloading_next.extend(client);
        if let Some(generation) = self.building {
            actions.push(Action::info(format!(
                "reload: generation {generation} is still being made ready, another one follows it"
            )));
            self.again = true;
            return;
        }
        if let Some(Successor::Generation(generation)) = self.successor {
            actions.push(Action::info(format!(
                "reload: generation {generation} is still taking over, another one follows it"
            )));
            self.again = true;
            return;
        }
        if !self.may_reload() {
            let what = match self.heir {
                Heir::Asked | Heir::Booting { .. } => "if the new master does not come up",
                _ => "when an earlier generation has gone",
            };
            actions.push(Action::info(format!("reload: begins {what}")));
            self.again = true;
            return;
        }
        self.again = false;
        self.reloading.append(&mut self.reloading_next);
        self.generations += 1;
        let generation = self.generations;
        self.building = Some(generation);
        actions.push(Action::info(format!(
            "reload: making generation {generation} ready"
        )));
        actions.push(Action::Announce(News::Reloading));
        actions.push(Action::BuildHouse { generation });
    }

    /// Whether a reload could begin now. Not while a new master boots: it has read the configuration again, and has the listeners of the generation
    /// that it was made from.
    pub(crate) fn may_reload(&self) -> bool {
        let heir_boots = matches!(self.heir, Heir::Asked | Heir::Booting { .. });
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
        now_ms: u64,
        generation: u32,
        (plan, template): (Result<Plan, String>, Option<i32>),
        actions: &mut Vec<Action>,
    ) {
        if self.houses.contains_key(&generation) {
            // Not an answer to us.
            return;
        }
        let plan = match plan {
            Ok(plan) if self.building == Some(generation) => plan,
            // Given up meanwhile.
            Ok(_) => {
                actions.extend(template.map(|pid| Action::Kill(pid, SIGKILL)));
                actions.push(Action::DropHouse { generation });
                return;
            }
            Err(_) if self.building != Some(generation) => return,
            Err(why) => {
                let code = exit_code::USAGE;
                self.on_generation_error(
                    now_ms,
                    generation,
                    &GenerationError { why, code },
                    actions,
                );
                return;
            }
        };
        let second = self.second.filter(|second| second.generation == generation);
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
        house.acceptor.share(has_other_master, actions);
        if let Some(pid) = template {
            house.template.comes_over(pid);
        }
        self.houses.insert(generation, house);
    }

    /// A house could not be made ready.
    pub(crate) fn on_generation_error(
        &mut self,
        now_ms: u64,
        generation: u32,
        failure: &GenerationError,
        actions: &mut Vec<Action>,
    ) {
        let Some(serving) = self.serving.filter(|&serving| serving != generation) else {
            actions.push(Action::error(format!("{}: the server leaves", failure.why)));
            if self.predecessor_until_ms.is_some() {
                actions.push(Action::LeaveBecause(failure.why.clone()));
            } else if let Some(house) = self.houses.get(&generation)
                && house.may_have_the_door()
                && !house.workers.have_served()
            {
                // A listener that a service manager has passed outlives the server, and so would the wait of its clients.
                house.acceptor.turn_away(actions);
            }
            self.stop(now_ms, failure.code, actions);
            return;
        };
        if self.building != Some(generation) {
            return;
        }
        let outcome = format!(
            "reload failed: {}; generation {serving} goes on serving",
            failure.why
        );
        actions.push(Action::error(&*outcome));
        self.give_up_building(now_ms, &outcome, actions);
    }

    pub(crate) fn give_up_building(
        &mut self,
        now_ms: u64,
        outcome: &str,
        actions: &mut Vec<Action>,
    ) {
        let Some(generation) = self.building.take() else {
            return;
        };
        if let Some(house) = self.houses.get_mut(&generation) {
            house.dismiss(now_ms + QUICK_MS);
        }
        if let Some(generation) = self.serving {
            actions.push(Action::Announce(News::NotReloaded { generation }));
        }
        answer(&mut self.reloading, &Err(outcome.to_owned()), actions);
    }

    /// Answers all clients that wait for a reload, also for one that has not begun: none will come to anything.
    pub(crate) fn answer_all_reloads(&mut self, why: &str, actions: &mut Vec<Action>) {
        let outcome = Err(why.to_owned());
        answer(&mut self.reloading, &outcome, actions);
        answer(&mut self.reloading_next, &outcome, actions);
    }

    /// The house that was made ready gets the door, and the one before it retires.
    pub(crate) fn promote(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let ready = self.building.filter(|generation| {
            let house = self.houses.get(generation);
            house.is_some_and(House::is_ready)
        });
        let Some(generation) = ready else { return };
        self.building = None;
        let before = self.serving.replace(generation);
        if let Some(house) = self.houses.get_mut(&generation) {
            house.serve(actions);
            if house.target > 0 {
                self.paused_from = None;
            }
        }
        let Some(old) = before.and_then(|before| self.houses.get_mut(&before)) else {
            return;
        };
        old.retire(now_ms, false, actions);
        old.settle(now_ms, actions);
        actions.push(Action::Announce(News::Promoted { generation }));
        self.successor = Some(Successor::Generation(generation));
        self.tell_of_successor_if_alone(actions);
    }

    /// Announces the new owner of the door once no house that had the door before accepts clients: the new owner serves all that come from then on.
    pub(crate) fn tell_of_successor_if_alone(&mut self, actions: &mut Vec<Action>) {
        let mut houses = self.houses.values();
        if !houses.any(|house| house.acceptor.may_let_in()) {
            self.tell_of_successor(actions);
        }
    }

    /// Announces the new owner of the door in the log and to the clients that wait for it, unless that is done.
    pub(crate) fn tell_of_successor(&mut self, actions: &mut Vec<Action>) {
        match self.successor.take() {
            Some(Successor::Generation(generation)) => {
                let outcome = format!("reloaded: generation {generation} serves");
                actions.push(Action::info(&*outcome));
                actions.push(Action::Announce(News::Reloaded { generation }));
                answer(&mut self.reloading, &Ok(outcome), actions);
            }
            Some(Successor::Heir { pid }) => {
                let outcome = format!("upgraded: the new master {pid} serves");
                actions.push(Action::info(&*outcome));
                answer(&mut self.upgrading, &Ok(outcome), actions);
            }
            None => {}
        }
    }
}
