//! The import of an app may leave what no fork brings to workers. The process that has imported it, the template, is then the first
//! worker itself, so that nothing is imported in vain; another template forks the others, which import the app each for itself.

use super::event::Action;
use super::house::House;
use super::stage::Stage;
use super::workers::Workers;
use crate::messages::ToTemplate;

impl House {
    /// The template has the app for itself alone: its process is a worker, if one is wanted.
    pub(super) fn on_not_for_workers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Some(pid) = self.template.on_not_for_workers() else {
            return;
        };
        if self.workers.has_one(now_ms, self.target, pid, actions) {
            self.template.has_become_worker();
        } else {
            self.template.leave(actions);
        }
    }
}

impl Workers {
    /// The template's process, which has the app, is to be one of those that are missing. False if none is.
    fn has_one(&mut self, now_ms: u64, target: u16, pid: i32, actions: &mut Vec<Action>) -> bool {
        let missing = self.missing(target).next();
        let Some(index) = missing.filter(|_| self.may_try(now_ms)) else {
            return false;
        };
        let (worker, number) = self.seat(now_ms, index, Stage::Booting { pid });
        let message = ToTemplate::Become { worker, number };
        let generation = self.generation;
        actions.push(Action::TellTemplate {
            generation,
            message,
        });
        true
    }
}
