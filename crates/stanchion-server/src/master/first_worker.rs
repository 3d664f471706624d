//! The process that has imported the app, the template, becomes a worker itself, so that nothing is imported in vain: the first one
//! where the import has left what no fork brings to workers, and another template forks the others, which import the app each for
//! itself; or the only one, which would share with a template no more than it has left as it was.

use super::event::Action;
use super::house::House;
use super::stage::Stage;
use super::workers::Workers;
use stanchion_generation::messages::ToTemplate;

impl House {
    /// Whether the template is to be the only worker, and none stays beside that.
    fn is_for_one(&self) -> bool {
        self.target == 1 && !self.plan.keeps_template
    }

    /// Whether a template has anything to do.
    pub(super) fn needs_template(&self) -> bool {
        !self.is_for_one() || self.workers.missing(self.target).next().is_some()
    }

    /// Has a template run, or leave.
    pub(super) fn keep_template(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if !self.needs_template() {
            self.template.leave(actions);
        } else if self.scribe.has_been_ready() {
            // One process, the scribe, finds out whether the settings of logging are any good, and reports it, before the template starts.
            self.template.keep(now_ms, actions);
        }
    }

    /// Asks the template, which is ready, for the workers that are missing, or has it become the only one.
    pub(super) fn have_missing_workers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if !self.is_for_one() {
            self.workers.fork_missing(now_ms, self.target, actions);
        } else if let Some(pid) = self.template.pid()
            && self.workers.has_one(now_ms, self.target, pid, actions)
        {
            self.template.has_become_worker();
        }
    }

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
    /// The template's process is to be one of those that are missing. False if none is, or if it is too early for another try.
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
