//! The template of a generation: loads the app once, forks workers.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGKILL;

use crate::child::ForkedChild;
use crate::decision::Decision;
use crate::event::{Action, ChildKind};
use crate::stage::ChildStage;

#[derive(Debug)]
pub(crate) struct TemplateState {
    child: ForkedChild,
    /// No template has found, after the import, that each worker has to import the app for itself.
    may_preload: bool,
    /// The template that runs is to end.
    is_leaving: bool,
}

impl TemplateState {
    /// To be forked.
    pub(crate) fn new(generation_number: u32) -> Self {
        Self {
            child: ForkedChild::wanted(generation_number),
            may_preload: true,
            is_leaving: false,
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.child.pid()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.child.is_ready()
    }

    /// Whether workers can have the app from its import, as far as is known.
    pub(crate) fn may_preload(&self) -> bool {
        self.may_preload
    }

    /// Whether it is to end: no worker is to come from it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether none runs or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.child.is_gone()
    }

    // Actions.

    /// Forks it if it is not there.
    pub(crate) fn keep(&mut self, decision: &mut Decision) {
        let may_preload = self.may_preload;
        let kind = ChildKind::Template { may_preload };
        self.child.keep(kind, decision);
    }

    /// When [`Self::keep`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.child.due_ms()
    }

    /// Kills it: it holds nothing of a client's.
    pub(crate) fn kill(&mut self, decision: &mut Decision) {
        if let Some(pid) = self.child.stage.kill() {
            decision.kill(pid, SIGKILL);
        }
    }

    // Events.

    pub(crate) fn on_forked(&mut self, pid: Option<i32>, decision: &mut Decision) {
        self.child.on_forked(pid, decision);
    }

    pub(crate) fn on_ready(&mut self) {
        self.child.on_ready();
    }

    /// It has imported the app and cannot fork workers with it. The next template does without the import, as long as this generation stands. Gives the
    /// process that has the app for itself, unless the report came out of turn.
    pub(crate) fn on_not_for_workers(&mut self) -> Option<i32> {
        match self.child.stage {
            ChildStage::Booting { pid } if self.may_preload => {
                self.may_preload = false;
                Some(pid)
            }
            // It was killed before its finding was read.
            ChildStage::Killed { .. } if self.is_leaving => {
                self.may_preload = false;
                None
            }
            _ => None,
        }
    }

    /// It has the app, for another generation. Gives its process, which is no longer this one's.
    pub(crate) fn goes_over(&mut self) -> Option<i32> {
        let pid = self.child.booting()?;
        self.child.on_gone();
        Some(pid)
    }

    /// The process was the template of the generation before this one, and has the app.
    pub(crate) fn comes_over(&mut self, pid: i32) {
        self.child.stage = ChildStage::Booting { pid };
    }

    /// Its process is a worker from now on.
    pub(crate) fn has_become_worker(&mut self) {
        self.child.on_gone();
    }

    /// This process is the template from now on; `None`: one is to be forked. The process that was it is no longer known here.
    pub(crate) fn is_from_now_on(&mut self, pid: Option<i32>) {
        self.child.stage = pid.map_or(ChildStage::Wanted, |pid| ChildStage::Ready { pid });
        self.is_leaving = false;
    }

    /// Its process, if there is one, is of no use.
    pub(crate) fn leave(&mut self, decision: &mut Decision) {
        if let Some(pid) = self.child.stage.kill() {
            self.is_leaving = true;
            decision.kill(pid, SIGKILL);
        }
    }

    /// It has forked a worker, or the worker that it has become serves: all is well with it.
    pub(crate) fn has_given_a_worker(&mut self) {
        self.child.is_well();
    }

    /// It has ended, when it should have stayed. `was_forking`: it had been asked for a worker.
    /// Says what will be done about it.
    pub(crate) fn on_lost(&mut self, now_ms: u64, exit: Exit, was_forking: bool) -> Action {
        let was_ready = self.child.on_gone();
        let is_short_of_memory = matches!(exit, Exit::OutOfMemory(_));
        if was_ready && !was_forking && !is_short_of_memory {
            return Action::warning(format!("the template {exit}; another one is started"));
        }
        let wait_ms = self.child.has_failed(now_ms);
        let when = if was_forking {
            "while forking"
        } else if was_ready {
            "while it waited"
        } else {
            "before it was ready"
        };
        Action::error(format!(
            "the template {exit} {when}; next try in {wait_ms} ms"
        ))
    }

    /// It has ended, as it was to.
    pub(crate) fn on_left(&mut self) {
        self.child.on_gone();
        self.is_leaving = false;
    }
}
