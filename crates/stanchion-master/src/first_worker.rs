//! The template's work for the workers of its generation.
//!
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
use crate::event::ClientId;
use crate::generation::Generation;
use crate::generation_error::GenerationError;
use crate::standing::GenerationPhase;
use crate::worker::BootFailure;
use stanchion_generation::messages::WorkerRef;
use stanchion_log::exit_code;
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

    /// The template has ended.
    pub(crate) fn on_template_reaped(
        &mut self,
        exit: Exit,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        let was_forking = self.workers.on_template_lost(decision.now_ms);
        if self.standing.is_dismissed() || self.template.is_leaving() {
            self.template.on_left();
            return Ok(());
        }
        if self.refork.is_on_trial() {
            let (template, workers) = (&mut self.template, &mut self.workers);
            template.is_from_now_on(None);
            let why = format!("the new template {exit}");
            self.refork.give_up(&why, template, workers, decision);
            return Ok(());
        }
        let was_ready = self.template.is_ready();
        let message = self.template.on_lost(decision.now_ms, exit, was_forking);
        if was_ready || self.workers.have_served() {
            decision.push(message);
            return self.must(false, "the template was lost");
        }
        let code = match exit {
            Exit::Code(exit_code::APP_LOAD) => exit_code::APP_LOAD,
            _ => exit_code::WORKER_BOOT,
        };
        let why = match self.unloadable.take() {
            // The template has just logged the reason, and at the start no other process waits for it.
            Some(_) if self.only => "the app could not be loaded".to_owned(),
            Some(reason) => format!("the app could not be loaded: {reason}"),
            None => format!("the app could not be loaded: the template {exit}"),
        };
        Err(GenerationError { why, code })
    }

    /// Has workers forked that are missing, and one replaced that has reached a limit.
    pub(crate) fn keep_workers(&mut self, decision: &mut Decision) {
        let plan = self.plan;
        self.workers.recycle(self.target, &plan, decision);
        self.keep_template(decision);
        if self.template.is_ready() {
            if self.workers.are_overdue(decision.now_ms) {
                if self.refork.is_on_trial() {
                    let (template, workers) = (&mut self.template, &mut self.workers);
                    let why = "the new template does not fork what it is asked for";
                    self.refork.give_up(why, template, workers, decision);
                    return;
                }
                decision.error(
                    "the template does not fork what it is asked for: it is killed, and another one started",
                );
                self.template.kill(decision);
                return;
            }
            self.have_missing_workers(decision);
        }
    }

    /// A worker has answered as many requests as `refork_after` says.
    pub(crate) fn on_warm(&mut self, worker: WorkerRef, requests: u64, decision: &mut Decision) {
        // A single worker says so in vain. Once there are more, one of those does.
        if self.standing != GenerationPhase::Serving
            || self.target < 2
            || !self.workers.is_seated(worker)
            || !self.refork.on_warm(&self.plan)
        {
            return;
        }
        // A worker that an attacker has does not choose itself.
        if let Err(why) = self.begin_refork((None, None), decision) {
            decision.warning(format!(
                "there is no re-fork after {requests} requests (refork_after): {why}"
            ));
        }
    }

    /// Has the worker of this index become the template. A client may wait for the outcome. The error is a reason not to.
    pub(crate) fn begin_refork(
        &mut self,
        whose: (Option<u16>, Option<ClientId>),
        decision: &mut Decision,
    ) -> Result<(), String> {
        let wanted = (self.target, &self.plan);
        let (template, workers) = (&self.template, &mut self.workers);
        self.refork
            .begin(whose, wanted, template, workers, decision)
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
            let is_canary = self.refork.is_proving();
            self.workers.fork_missing(self.target, is_canary, decision);
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
