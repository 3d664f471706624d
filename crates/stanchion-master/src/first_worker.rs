//! The template, which has imported the app, becomes a worker itself, in two cases:
//!
//! - The import has left something that workers cannot get from a fork. The template becomes the first worker, so that its import is
//!   not wasted. Another template then forks the other workers, each of which imports the app for itself.
//! - One worker is wanted, and nothing keeps a template beside it. The two would share only pages to which neither has written, so
//!   the template becomes the only worker, and no template stays. Once a worker has died that served, a template stays: what ended that
//!   worker, perhaps a client's request, can end the next one, and each import keeps all clients waiting.
//!
//! Such a template would share memory with one worker only, and each page that the worker writes to, be it a count of
//! references, would be there twice: 58 MB for Prefect. In return, a worker that dies is missing for the time of an
//! import, as with other servers that import in the worker. `--preload` keeps a template, and so does `--reload`, since
//! the template looks for changed files. Where limits have the worker replaced again and again, the template stays,
//! too: an import for each successor would cost more CPU than the template costs memory. A template fills the gaps of
//! its heap only at its first fork, so a template that becomes the worker can use them.

use crate::decision::Decision;
use crate::generation::Generation;
use crate::worker::BootFailure;
use stanchion_settings::BesideOneWorker;
use stanchion_sys::process::Exit;

impl Generation {
    /// Whether the template is to become the only worker, and no template stays beside it.
    fn is_for_one(&self) -> bool {
        let stays = match self.plan.beside_one {
            BesideOneWorker::Template => true,
            BesideOneWorker::TemplateAfterLoss => {
                self.workers.have_lost && self.template.may_preload()
            }
            BesideOneWorker::Nothing => false,
        };
        self.target == 1 && !stays
    }

    /// A worker has ended, or a process that is none.
    pub(crate) fn on_worker_reaped(
        &mut self,
        pid: i32,
        exit: Exit,
        decision: &mut Decision,
    ) -> Result<(), BootFailure> {
        let was_for_one = self.is_for_one();
        let booted = self.workers.on_reaped(pid, exit, decision);
        if was_for_one && !self.is_for_one() {
            decision.info(
                "a template stays beside the only worker from now on: if that worker dies too, its successor needs no import",
            );
        }
        booted
    }

    /// Whether a template has anything to do.
    pub(crate) fn needs_template(&self) -> bool {
        !self.is_for_one() || self.workers.missing(self.target).next().is_some()
    }

    /// Has a template run if there is work for it, and leave otherwise.
    pub(crate) fn keep_template(&mut self, decision: &mut Decision) {
        if !self.needs_template() {
            self.template.leave(decision);
        } else if self.scribe.has_been_ready() {
            // The scribe starts first: it finds out whether the settings of logging work, so that only one process reports that they do not.
            self.template.keep(decision);
        }
    }

    /// Asks the template, which is ready, to fork the workers that are missing, or to become the only worker.
    pub(crate) fn have_missing_workers(&mut self, decision: &mut Decision) {
        if !self.is_for_one() {
            self.workers.fork_missing(self.target, decision);
        } else if let Some(pid) = self.template.pid()
            && self.workers.has_one(self.target, pid, decision)
        {
            self.template.has_become_worker();
        }
    }

    /// The template's import has left something that workers cannot get from a fork: the template becomes a worker if one is missing,
    /// and leaves otherwise.
    pub(crate) fn on_not_for_workers(&mut self, decision: &mut Decision) {
        let Some(pid) = self.template.on_not_for_workers() else {
            return;
        };
        if self.workers.has_one(self.target, pid, decision) {
            self.template.has_become_worker();
        } else {
            self.template.leave(decision);
        }
    }
}
