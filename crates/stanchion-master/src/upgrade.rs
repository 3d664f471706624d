//! An upgrade: a new master of the stanchion that is installed now gets the door, and this one retires. If the new master fails, this one goes on,
//! untouched.

use crate::event::ClientId;
use crate::event::{Action, News};
use crate::heir::Heir;
use crate::run_state::{RunState, Successor};
use crate::step::{Master, answer};

impl Master {
    pub(crate) fn upgrade(&mut self, client: Option<ClientId>, actions: &mut Vec<Action>) {
        let refusal = match self.heir {
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
            actions.push(Action::warning(&*refusal));
            answer(&mut client.into_iter().collect(), &Err(refusal), actions);
            return;
        }
        self.upgrading.extend(client);
        self.heir = Heir::Asked;
        self.share_doors(true, actions);
        actions.push(Action::info("upgrade: starting a new master"));
        actions.push(Action::StartHeir);
    }

    pub(crate) fn on_heir_started(&mut self, pid: Option<i32>, actions: &mut Vec<Action>) {
        if self.heir != Heir::Asked {
            // Not an answer to us.
            actions.extend(pid.map(|_| Action::EndHeir));
            return;
        }
        match pid {
            Some(pid) => {
                self.heir = Heir::Booting { pid };
                if self.run_state != RunState::Running {
                    actions.push(Action::EndHeir);
                }
            }
            None => self.on_heir_lost("it could not be started", actions),
        }
    }

    /// Another master has our listeners, or none does any more.
    pub(crate) fn share_doors(&mut self, shared: bool, actions: &mut Vec<Action>) {
        let houses = self.houses.values_mut();
        for house in houses.filter(|house| house.may_have_the_door()) {
            house.acceptor.share(shared, actions);
        }
    }

    fn on_heir_lost(&mut self, why: &str, actions: &mut Vec<Action>) {
        self.heir = Heir::None;
        self.share_doors(false, actions);
        let rest = match self.run_state {
            RunState::Running => "this master goes on serving",
            _ => "the server leaves",
        };
        let reason = self.heir_leaves_because.take();
        let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let outcome = format!("upgrade failed: {why}{reason}; {rest}");
        actions.push(Action::error(&*outcome));
        actions.push(Action::DropHeir);
        answer(&mut self.upgrading, &Err(outcome), actions);
    }

    pub(crate) fn on_heir_ready(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Heir::Booting { pid } = self.heir else {
            return;
        };
        self.heir = Heir::Serving { pid };
        actions.push(Action::Announce(News::Heir { pid }));
        if self.run_state == RunState::Running {
            self.run_state = RunState::Draining;
            self.retire_all(now_ms, false, actions);
        }
        self.successor = Some(Successor::Heir { pid });
    }

    /// True if it was the heir that has ended; `how` is the rest of a sentence on it.
    pub(crate) fn on_heir_ended(&mut self, pid: i32, how: &str, actions: &mut Vec<Action>) -> bool {
        match self.heir {
            Heir::Booting { pid: heir } if heir == pid => {
                self.on_heir_lost(&format!("the new master {how}"), actions);
                true
            }
            Heir::Serving { pid: heir } if heir == pid => {
                self.heir = Heir::Left;
                let message = format!("the new master ({pid}) {how}");
                actions.push(Action::warning(message));
                true
            }
            _ => false,
        }
    }
}
