//! A generation of settings and code, with an acceptor, a template and workers of its own. A reload builds another.
//!
//! Once its workers are ready, the new acceptor accepts (both have the listening sockets), and the old generation *retires*:
//! it accepts no more, answers with `Connection: close`, and is dismissed. A keep-alive client has to connect once more, but
//! any setting can change, new code cannot harm the old before it has booted, and an upgrade works in the same way.

use stanchion_sys::process::Exit;

use crate::acceptor::{AcceptorState, AcceptsFrom};
use crate::decision::Decision;
use crate::elastic::ElasticNumber;
use crate::event::{ChildKind, GenerationEvent, GenerationPlan};
use crate::generation_error::GenerationError;
use crate::refork::Refork;
use crate::scribe::ScribeState;
use crate::standing::GenerationPhase;
use crate::template::TemplateState;
use crate::worker::{BootFailure, PresentWorker};
use crate::workers::Workers;
use stanchion_generation::messages::{
    FromAcceptor, FromTemplate, FromWorker, REASON_CHARS_MAX, WorkerRef,
};
use stanchion_log::exit_code;

/// A graceful end allows so long on top of `graceful_timeout`, for answers to be flushed.
pub(crate) const MARGIN_MS: u64 = 2_000;

/// A generation, as the master knows it.
#[derive(Debug)]
pub struct Generation {
    /// Its number.
    pub number: u32,
    /// Its settings, as far as they concern the master.
    pub plan: GenerationPlan,
    /// Workers wanted.
    pub target: u16,
    pub(crate) elastic: Option<ElasticNumber>,
    pub(crate) standing: GenerationPhase,
    /// There is no other generation that serves: its troubles are worth another try, and clients may come before all is ready.
    pub(crate) only: bool,
    pub(crate) acceptor: AcceptorState,
    pub(crate) template: TemplateState,
    pub(crate) refork: Refork,
    pub(crate) scribe: ScribeState,
    /// A child has found that the app is called by another interface by now, and the log has it.
    pub(crate) was_told_of_change: bool,
    /// The reason that its acceptor has given for not serving, if it has.
    unservable: Option<String>,
    /// Why a child of it could not load the app, if one could not.
    pub(crate) unloadable: Option<String>,
    /// Its workers.
    pub workers: Workers,
}

impl Generation {
    pub(crate) fn new(
        generation_number: u32,
        plan: GenerationPlan,
        (target, is_pinned): (u16, bool),
        only: bool,
    ) -> Self {
        let elastic = ElasticNumber::new(&plan, is_pinned);
        let target = elastic.map_or(target, |elastic| elastic.begins_with(target));
        let mut acceptor = AcceptorState::new(generation_number);
        if only {
            // The acceptor is not ready yet, so there is no message to send.
            acceptor.open(AcceptsFrom::first(&plan), &mut Decision::at(0));
        }
        Self {
            number: generation_number,
            plan,
            target: target.min(plan.workers_max),
            elastic,
            standing: GenerationPhase::Building,
            only,
            acceptor,
            template: TemplateState::new(generation_number),
            refork: Refork::default(),
            scribe: ScribeState::new(generation_number, plan.has_scribe),
            was_told_of_change: false,
            unservable: None,
            unloadable: None,
            workers: Workers::new(generation_number, plan.workers_max),
        }
    }

    /// Whether it is on its way out.
    pub fn is_leaving(&self) -> bool {
        !self.may_have_the_door()
    }

    /// The process of its acceptor, if that is ready.
    pub fn ready_acceptor(&self) -> Option<i32> {
        self.acceptor.pid().filter(|_| self.acceptor.is_ready())
    }

    /// Whether this process is its acceptor.
    pub fn has_acceptor(&self, pid: i32) -> bool {
        self.acceptor.pid() == Some(pid)
    }

    /// The process of its template.
    pub fn template_pid(&self) -> Option<i32> {
        self.template.pid()
    }

    /// The process of its scribe.
    pub fn scribe_pid(&self) -> Option<i32> {
        self.scribe.pid()
    }

    /// Whether `pid` is one of its children.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.pids().any(|own| own == pid)
    }

    /// Its children, as far as they have been reported.
    pub(crate) fn pids(&self) -> impl Iterator<Item = i32> {
        let workers = self.workers.pids();
        let others = [self.acceptor.pid(), self.template.pid(), self.scribe.pid()];
        let others = others.into_iter().flatten();
        others.chain(self.refork.pids()).chain(workers)
    }

    /// Whether all that was to be made ready is.
    pub(crate) fn is_ready(&self) -> bool {
        self.acceptor.is_ready()
            && (self.template.is_ready() || !self.needs_template())
            && self.scribe.is_ready()
            && self.has_its_workers()
    }

    /// Whether as many workers serve as are wanted.
    pub fn has_its_workers(&self) -> bool {
        self.workers.ready() >= usize::from(self.target)
    }

    /// Whether it lets clients in, or may come to.
    pub fn may_have_the_door(&self) -> bool {
        use GenerationPhase::{Building, Serving};
        matches!(self.standing, Building | Serving)
    }

    /// Whether none of its processes is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.standing.is_dismissed() && self.has_only_scribe() && self.scribe.is_gone()
    }

    /// Whether none of its processes is left but the scribe, if there is one.
    fn has_only_scribe(&self) -> bool {
        self.acceptor.is_gone()
            && self.template.is_gone()
            && self.refork.is_over()
            && self.workers.is_empty()
    }

    /// It gets the door.
    pub(crate) fn serve(&mut self, decision: &mut Decision) {
        self.standing = GenerationPhase::Serving;
        self.workers.are_trusted();
        self.acceptor.open(AcceptsFrom::Clients, decision);
    }

    /// It serves the clients that are here and then goes, with a worker at least: after a pause it has none, and requests that waited for its end
    /// would be refused. `close_door`: no other acceptor has the door.
    pub(crate) fn retire(&mut self, close_door: bool, decision: &mut Decision) {
        self.target = self.target.max(1);
        let timeout_ms = self.plan.graceful_ms;
        // A generation that is still being made ready beside another one, or in an heir, does not have the door.
        let has_door = self.only || self.standing == GenerationPhase::Serving;
        self.acceptor
            .retire(timeout_ms, close_door && has_door, decision);
        let deadline_ms = decision.now_ms + timeout_ms + MARGIN_MS;
        self.standing = GenerationPhase::Retiring { deadline_ms };
    }

    /// All processes are to go by the deadline, or by an earlier deadline that was set before.
    pub(crate) fn dismiss(&mut self, deadline_ms: u64) {
        self.standing = self.standing.dismissed_by(deadline_ms);
    }

    // Events.

    pub(crate) fn on_event(
        &mut self,
        event: GenerationEvent,
        decision: &mut Decision,
    ) -> Result<Option<PresentWorker>, GenerationError> {
        match event {
            GenerationEvent::Forked { child, pid } => {
                match child {
                    ChildKind::Acceptor => self.acceptor.on_forked(pid, decision),
                    ChildKind::Template { .. } => self.template.on_forked(pid, decision),
                    ChildKind::Scribe => self.scribe.on_forked(pid, decision),
                }
                let why = format!("the {} could not be forked", child.name());
                self.must(pid.is_some(), &why)?;
            }
            GenerationEvent::ScribeSaid(said) => self.scribe.on_said(&said, decision),
            GenerationEvent::AcceptorSaid(said) => self.on_acceptor_said(&said, decision),
            GenerationEvent::TemplateSaid(said) => self.on_template_said(&said, decision)?,
            GenerationEvent::OtherTemplateSaid { pid, said } => {
                // The template before the present one could not fork a worker. A worker that is to be the template has none to fork.
                if let FromTemplate::NotForked(_) = said
                    && self.refork.is_on_trial()
                {
                    self.on_template_said(&said, decision)?;
                }
                let (template, workers) = (&mut self.template, &mut self.workers);
                self.refork
                    .on_said((pid, &said), template, workers, decision);
            }
            GenerationEvent::WorkerHere { worker, pid } => {
                let was_awaited = self.workers.on_here(worker, pid, decision);
                if was_awaited {
                    self.template.has_given_a_worker();
                }
            }
            GenerationEvent::WorkerSaid { worker, said } => {
                self.on_worker_said(worker, &said, decision);
            }
            GenerationEvent::WorkerSilent(worker) => {
                let is_asked = self.template.is_ready();
                self.workers.on_silent(decision.now_ms, worker, is_asked);
            }
            GenerationEvent::WorkerSeen(index, seen) => {
                return Ok(self.workers.on_seen(index, seen, &self.plan, decision));
            }
        }
        Ok(None)
    }

    fn on_acceptor_said(&mut self, said: &FromAcceptor, decision: &mut Decision) {
        match *said {
            FromAcceptor::Ready => self.acceptor.on_ready(decision),
            FromAcceptor::CannotServe { ref reason } => self.unservable = Some(reason.clone()),
            FromAcceptor::Retired => self.acceptor.on_retired(),
            FromAcceptor::Replace(worker) => self.workers.on_replace(worker, decision),
            FromAcceptor::Want { workers, ref why } => {
                self.acceptor.awaits_number();
                // The worker that becomes the template, or the canary, would be the first to go.
                let is_held = workers < self.target && self.refork.lacks_a_worker();
                let may_change = self.may_have_the_door() && !is_held;
                if let Some(elastic) = self.elastic.filter(|_| may_change) {
                    elastic.on_want(&mut self.target, (workers, why), decision);
                }
            }
            // The loop's own business.
            FromAcceptor::Listen { .. } | FromAcceptor::Weigh => {}
        }
    }

    fn on_template_said(
        &mut self,
        said: &FromTemplate,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        match *said {
            FromTemplate::Ready => self.template.on_ready(),
            FromTemplate::NotForWorkers => self.on_not_for_workers(decision),
            FromTemplate::NotForked(worker) => {
                let booted = self.workers.on_not_forked(worker, decision);
                self.must_boot(booted, decision)?;
            }
            FromTemplate::CannotLoad { ref reason } if !self.template.is_ready() => {
                self.cannot_load(reason);
            }
            // A template that is ready has loaded the app; the master handles the others.
            FromTemplate::CannotLoad { .. }
            | FromTemplate::Changed { .. }
            | FromTemplate::Unfit { .. }
            | FromTemplate::OtherInterface => {}
        }
        Ok(())
    }

    fn on_worker_said(&mut self, worker: WorkerRef, said: &FromWorker, decision: &mut Decision) {
        match *said {
            FromWorker::Ready => {
                if self.workers.on_ready(worker, decision) {
                    self.template.has_given_a_worker();
                    let workers = &mut self.workers;
                    self.refork.on_worker_ready(worker, workers, decision);
                }
                self.accept_clients_once_served(decision);
            }
            FromWorker::Warm { requests } => self.on_warm(worker, requests, decision),
            // A generation that leaves as a whole replaces no worker, whichever other processes were sent TERM with it.
            FromWorker::Terminated => {
                self.workers
                    .on_terminated(worker, self.may_have_the_door(), decision);
            }
            FromWorker::Due { requests, messages } => {
                self.workers.on_due(worker, requests, messages);
            }
            FromWorker::CannotLoad { ref reason } if self.workers.is_booting(worker) => {
                self.cannot_load(reason);
            }
            // A worker that serves has loaded the app; `Here` is its first report; the loop and the master handle the others.
            FromWorker::CannotLoad { .. }
            | FromWorker::Here
            | FromWorker::Dumped
            | FromWorker::Listen { .. }
            | FromWorker::OtherInterface => {}
        }
    }

    /// A child of it is about to end, and has said why. It runs the app's code, and may say anything.
    fn cannot_load(&mut self, reason: &str) {
        self.unloadable = Some(reason.chars().take(REASON_CHARS_MAX).collect());
    }

    /// A child of it has ended.
    pub(crate) fn on_reaped(
        &mut self,
        pid: i32,
        exit: Exit,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        if self.acceptor.pid() == Some(pid) {
            return self.on_acceptor_reaped(exit, decision);
        }
        if self.template.pid() == Some(pid) {
            return self.on_template_reaped(exit, decision);
        }
        if self.scribe.pid() == Some(pid) {
            return self.on_scribe_reaped(exit, decision);
        }
        if self.refork.on_reaped(pid, exit, &self.workers, decision) {
            return Ok(());
        }
        let booted = self.on_worker_reaped(pid, exit, decision);
        self.must_boot(booted, decision)
    }

    fn on_acceptor_reaped(
        &mut self,
        exit: Exit,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        match self.standing {
            GenerationPhase::Building | GenerationPhase::Serving => {
                let lost = self.acceptor.on_lost(exit, decision);
                match (lost, self.unservable.take()) {
                    (Some(_), Some(why)) => Err(GenerationError {
                        why,
                        code: exit_code::USAGE,
                    }),
                    (Some(code), None) => Err(GenerationError {
                        why: format!("the acceptor {exit} before it was ready"),
                        code,
                    }),
                    (None, _) => self.must(false, "the acceptor was lost"),
                }
            }
            GenerationPhase::Retiring { .. } | GenerationPhase::Dismissed { .. } => {
                self.acceptor.on_left(exit, decision);
                Ok(())
            }
        }
    }

    fn on_scribe_reaped(
        &mut self,
        exit: Exit,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        if self.standing.is_dismissed() {
            self.scribe.on_left();
            return Ok(());
        }
        decision.push(self.scribe.on_lost(decision.now_ms, exit)?);
        self.must(false, "the scribe was lost")
    }

    /// While it is built beside a generation that serves, nothing is tried twice: the old one is better
    /// than one that came up by luck.
    pub(crate) fn must(&self, is_well: bool, why: &str) -> Result<(), GenerationError> {
        if is_well || self.only || self.standing != GenerationPhase::Building {
            return Ok(());
        }
        Err(GenerationError {
            why: why.to_owned(),
            code: exit_code::INTERNAL,
        })
    }

    fn must_boot(
        &mut self,
        booted: Result<(), BootFailure>,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        if booted.is_err() && self.refork.is_on_trial() {
            let (template, workers) = (&mut self.template, &mut self.workers);
            let why = "a worker that it forked did not boot, as the lines above say";
            self.refork.give_up(why, template, workers, decision);
        }
        let why = match self.unloadable.take_if(|_| booted.is_err()) {
            Some(_) if self.only => "a worker could not load the app".to_owned(),
            Some(reason) => format!("a worker could not load the app: {reason}"),
            None => "a worker did not boot".to_owned(),
        };
        match booted {
            Ok(()) => Ok(()),
            Err(BootFailure::Passing) => self.must(false, &why),
            Err(BootFailure::App(code)) => Err(GenerationError { why, code }),
        }
    }

    /// Time has passed: children whose report is overdue will not report.
    pub(crate) fn end_silences(
        &mut self,
        heard_ms: u64,
        decision: &mut Decision,
    ) -> Result<(), GenerationError> {
        self.acceptor.end_silence(heard_ms, decision);
        let booted = self.workers.end_silences(heard_ms, decision);
        self.must_boot(booted, decision)
    }

    // Consequences.

    /// Derives what follows from the state, whatever led to it.
    pub(crate) fn settle(&mut self, decision: &mut Decision) {
        let is_dismissed = self.standing.is_dismissed();
        let wanted = (self.target, self.may_have_the_door());
        let (template, workers) = (&mut self.template, &mut self.workers);
        self.refork.settle(wanted, template, workers, decision);
        match self.standing {
            GenerationPhase::Building | GenerationPhase::Serving => {
                if self.acceptor.keep(decision) {
                    self.workers.introduce(decision);
                }
                let number = self.elastic.map(|elastic| elastic.message(self.target));
                self.acceptor.know(number, decision);
                self.keep_workers(decision);
                let deadline_ms = decision.now_ms + self.plan.graceful_ms;
                self.workers.shrink(self.target, deadline_ms, decision);
            }
            GenerationPhase::Retiring { .. } => self.keep_workers(decision),
            GenerationPhase::Dismissed { deadline_ms } => {
                self.acceptor.quit_by(deadline_ms, decision);
                self.template.kill(decision);
                self.workers.dismiss(deadline_ms, decision);
            }
        }
        if !is_dismissed {
            self.scribe.keep(decision);
        } else if self.has_only_scribe() {
            self.scribe.finish(decision);
        }
        self.acceptor.kill_if_overstaying(decision);
        self.workers.kill_overstayers(decision);
    }

    /// When [`Self::settle`] has something to do at the latest.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let acceptor = self.acceptor.due_ms();
        let acceptor = acceptor.filter(|_| self.may_have_the_door());
        let retired = match self.standing {
            GenerationPhase::Retiring { deadline_ms } => Some(deadline_ms),
            _ => None,
        };
        let forks = match self.standing {
            GenerationPhase::Dismissed { .. } => None,
            _ if self.template.is_ready() => {
                [self.workers.due_ms(self.target), self.workers.overdue_ms()]
                    .into_iter()
                    .flatten()
                    .min()
            }
            _ if self.scribe.has_been_ready() && self.needs_template() => self.template.due_ms(),
            _ => None,
        };
        let is_dismissed = self.standing.is_dismissed();
        let lives = self.workers.end_of_life_ms(&self.plan);
        let lives = lives.filter(|_| !is_dismissed);
        [
            acceptor,
            retired,
            self.scribe.due_ms(is_dismissed),
            forks,
            lives,
            self.acceptor.silence_due_ms(),
            self.acceptor.deadline_ms(),
            self.workers.deadline_ms(),
            self.workers.silence_due_ms(),
            self.refork.due_ms(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
