//! A child that the master forks itself: the acceptor, the template or the scribe of a generation.

use stanchion_sys::signal::SIGKILL;

use crate::backoff::Backoff;
use crate::decision::Decision;
use crate::event::{Action, ChildKind};
use crate::stage::ChildStage;

/// How far such a child is. There is one of each kind at a time.
#[derive(Debug)]
pub(crate) struct ForkedChild {
    pub(crate) generation_number: u32,
    pub(crate) stage: ChildStage,
    backoff: Backoff,
}

impl ForkedChild {
    /// To be forked.
    pub(crate) fn wanted(generation_number: u32) -> Self {
        Self {
            generation_number,
            stage: ChildStage::Wanted,
            backoff: Backoff::default(),
        }
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        self.stage.pid()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage.is_ready()
    }

    /// Its process, if it runs and has not reported.
    pub(crate) fn booting(&self) -> Option<i32> {
        match self.stage {
            ChildStage::Booting { pid } => Some(pid),
            _ => None,
        }
    }

    /// Whether none runs or is about to.
    pub(crate) fn is_gone(&self) -> bool {
        self.stage == ChildStage::Wanted
    }

    /// Forks one if none is there; true if so.
    pub(crate) fn keep(&mut self, kind: ChildKind, decision: &mut Decision) -> bool {
        let due = self.is_gone() && self.backoff.is_over(decision.now_ms);
        if due {
            self.stage = ChildStage::Asked;
            let generation_number = self.generation_number;
            decision.push(Action::Fork {
                generation_number,
                child: kind,
            });
        }
        due
    }

    /// When [`Self::keep`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.is_gone().then(|| self.backoff.not_before_ms())
    }

    /// It was forked, unless the kernel refused. A process that was not asked for is killed.
    pub(crate) fn on_forked(&mut self, pid: Option<i32>, decision: &mut Decision) {
        if self.stage != ChildStage::Asked {
            decision.extend(pid.map(|pid| Action::Kill(pid, SIGKILL)));
            return;
        }
        self.stage = ChildStage::forked(pid);
        if pid.is_none() {
            self.backoff.failed(decision.now_ms);
        }
    }

    /// It says that it is ready; true if that was awaited.
    pub(crate) fn on_ready(&mut self) -> bool {
        let booting = self.booting();
        if let Some(pid) = booting {
            self.stage = ChildStage::Ready { pid };
        }
        booting.is_some()
    }

    /// It has ended; true if it was ready.
    pub(crate) fn on_gone(&mut self) -> bool {
        let was_ready = self.is_ready();
        self.stage = ChildStage::Wanted;
        was_ready
    }

    /// It has failed: the next one comes after a while. Gives the milliseconds until then.
    pub(crate) fn has_failed(&mut self, now_ms: u64) -> u64 {
        self.backoff.failed(now_ms);
        self.backoff.wait_ms(now_ms)
    }

    /// All is well with it.
    pub(crate) fn is_well(&mut self) {
        self.backoff = Backoff::default();
    }
}
