//! The template of a house: loads the app once, forks workers.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGKILL;

use crate::backoff::Backoff;
use crate::event::Action;
use crate::stage::ChildStage;

#[derive(Debug)]
pub(crate) struct Template {
    generation: u32,
    stage: ChildStage,
    backoff: Backoff,
    /// No template has found, after the import, that each worker has to import the app for itself.
    may_preload: bool,
    /// The template that runs is to end.
    is_leaving: bool,
}

impl Template {
    /// To be forked.
    pub(crate) fn new(generation: u32) -> Self {
        Self {
            generation,
            stage: ChildStage::Wanted,
            backoff: Backoff::default(),
            may_preload: true,
            is_leaving: false,
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.stage.pid()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage.is_ready()
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
        self.stage == ChildStage::Wanted
    }

    // Actions.

    /// Forks it if it is not there.
    pub(crate) fn keep(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.stage == ChildStage::Wanted && self.backoff.is_over(now_ms) {
            self.stage = ChildStage::Asked;
            let generation = self.generation;
            actions.push(Action::ForkTemplate {
                generation,
                may_preload: self.may_preload,
            });
        }
    }

    /// When [`Self::keep`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        (self.stage == ChildStage::Wanted).then(|| self.backoff.not_before_ms())
    }

    /// Kills it: it holds nothing of a client's.
    pub(crate) fn kill(&mut self, actions: &mut Vec<Action>) {
        if let Some(pid) = self.stage.kill() {
            actions.push(Action::Kill(pid, SIGKILL));
        }
    }

    // Events.

    pub(crate) fn on_forked(&mut self, now_ms: u64, pid: Option<i32>, actions: &mut Vec<Action>) {
        if self.stage != ChildStage::Asked {
            // Not an answer to us; there is one template at a time.
            actions.extend(pid.map(|pid| Action::Kill(pid, SIGKILL)));
            return;
        }
        self.stage = ChildStage::forked(pid);
        if pid.is_none() {
            self.backoff.failed(now_ms);
        }
    }

    pub(crate) fn on_ready(&mut self) {
        if let ChildStage::Booting { pid } = self.stage {
            self.stage = ChildStage::Ready { pid };
        }
    }

    /// It has imported the app and cannot fork workers with it. The next template does without the import, as long as this house stands. Gives the
    /// process that has the app for itself, unless the report came out of turn.
    pub(crate) fn on_not_for_workers(&mut self) -> Option<i32> {
        match self.stage {
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

    /// It has the app, for another house. Gives its process, which is no longer this one's.
    pub(crate) fn goes_over(&mut self) -> Option<i32> {
        match self.stage {
            ChildStage::Booting { pid } => {
                self.stage = ChildStage::Wanted;
                Some(pid)
            }
            _ => None,
        }
    }

    /// The process was the template of the house before this one, and has the app.
    pub(crate) fn comes_over(&mut self, pid: i32) {
        self.stage = ChildStage::Booting { pid };
    }

    /// Its process is a worker from now on.
    pub(crate) fn has_become_worker(&mut self) {
        self.stage = ChildStage::Wanted;
    }

    /// Its process, if there is one, is of no use.
    pub(crate) fn leave(&mut self, actions: &mut Vec<Action>) {
        if let Some(pid) = self.stage.kill() {
            self.is_leaving = true;
            actions.push(Action::Kill(pid, SIGKILL));
        }
    }

    /// It has forked a worker, or the worker that it has become serves: all is well with it.
    pub(crate) fn has_given_a_worker(&mut self) {
        self.backoff = Backoff::default();
    }

    /// It has ended, when it should have stayed. `was_forking`: it had been asked for a worker.
    /// Says what will be done about it.
    pub(crate) fn on_lost(&mut self, now_ms: u64, exit: Exit, was_forking: bool) -> Action {
        let was_ready = self.stage.is_ready();
        self.stage = ChildStage::Wanted;
        let is_short_of_memory = matches!(exit, Exit::OutOfMemory(_));
        if was_ready && !was_forking && !is_short_of_memory {
            return Action::warning(format!("the template {exit}; another one is started"));
        }
        self.backoff.failed(now_ms);
        let wait_ms = self.backoff.wait_ms(now_ms);
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
        self.stage = ChildStage::Wanted;
        self.is_leaving = false;
    }
}
