//! What the master decides: a pure step from a state and an event to a new state and actions.
//!
//! No system call, no clock: events carry what happened, `now_ms` is an argument, and the loop in
//! [`super`] performs the actions. Each event is first noted in the state; then [`Master::settle`]
//! derives what follows from the state as a whole, so that it does not matter in which order
//! things happened.

use std::collections::{BTreeMap, VecDeque};

use stanchion_sys::process::Exit;
use stanchion_sys::signal::{
    SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU,
};

use super::backoff::Backoff;
use crate::exit_code;
use crate::messages::{Gone, ToAcceptor, ToMaster, ToTemplate};

/// What a quick stop leaves to the acceptor to tell everybody, and to workers to end by
/// themselves.
const QUICK_MS: u64 = 1_500;
/// What a graceful stop allows on top of `graceful_timeout`, for answers to be flushed.
const MARGIN_MS: u64 = 2_000;
/// Children reaped before the template reported them; older ones are forgotten.
const STRAYS_MAX: usize = 64;

/// What of the settings concerns the master.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Workers to keep.
    pub workers: u16,
    /// Workers there are seats for.
    pub workers_max: u16,
    /// `graceful_timeout` in milliseconds.
    pub graceful_ms: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first of all.
    Started,
    /// Time has passed.
    Tick,
    /// A signal came, other than SIGCHLD.
    Signal(i32),
    /// A child has ended.
    Reaped(i32, Exit),
    /// `ForkAcceptor` was performed; `None`: the kernel refused.
    AcceptorForked(Option<i32>),
    /// `ForkTemplate` was performed; `None`: the kernel refused.
    TemplateForked(Option<i32>),
    /// A child reports.
    Report(ToMaster),
    /// A request of this worker has run for so long, past its timeout.
    Overdue {
        /// Index of the worker.
        worker: u16,
        /// How long, in milliseconds.
        ran_ms: u64,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fork the acceptor.
    ForkAcceptor,
    /// Fork a template, which loads the app.
    ForkTemplate {
        /// Which generation of the code this is.
        generation: u32,
    },
    /// Send to the acceptor.
    TellAcceptor(ToAcceptor),
    /// Send to the template.
    TellTemplate(ToTemplate),
    /// Drop the channel to the present template: another takes its place.
    AdoptTemplate,
    /// Send a signal.
    Kill(i32, i32),
    /// Mark the seats of a worker as empty.
    Vacate(u16),
    /// Write to the log.
    Log(Severity, String),
    /// Leave with this code.
    Exit(i32),
}

/// How loud a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The normal life of the tree.
    Info,
    /// Somebody should know.
    Warning,
    /// A process or a request was lost.
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The acceptor serves who is here; past the deadline it is killed.
    Draining { deadline_ms: u64 },
    /// The acceptor is gone or told to go at once; all others are to go.
    Stopping { deadline_ms: u64, code: i32 },
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be forked as soon as the back-off allows.
    Wanted,
    /// The template was asked for it, or the loop was.
    Asked,
    /// It runs and has not reported.
    Booting { pid: i32 },
    /// It serves.
    Ready { pid: i32 },
    /// It was asked to leave; past the deadline it is killed.
    Leaving { pid: i32, deadline_ms: u64 },
}

impl Stage {
    fn pid(self) -> Option<i32> {
        match self {
            Self::Booting { pid } | Self::Ready { pid } | Self::Leaving { pid, .. } => Some(pid),
            Self::Wanted | Self::Asked => None,
        }
    }
}

#[derive(Debug)]
struct Worker {
    stage: Stage,
    tenure: u16,
    generation: u32,
    /// We killed it because a request ran too long.
    timed_out: bool,
}

#[derive(Debug)]
struct Template {
    stage: Stage,
    generation: u32,
}

/// The state of the tree.
#[derive(Debug)]
pub struct Master {
    plan: Plan,
    phase: Phase,
    /// Workers wanted; TTIN and TTOU change it.
    target: u16,
    acceptor: Stage,
    acceptor_backoff: Backoff,
    template: Template,
    template_backoff: Backoff,
    /// A template with newer code that is still loading it.
    next: Option<Template>,
    workers: BTreeMap<u16, Worker>,
    worker_backoff: Backoff,
    /// The tenure last given for each worker index.
    tenures: Vec<u16>,
    /// Reaped before we heard of them.
    strays: VecDeque<(i32, Exit)>,
    /// Whether any worker was ever ready: before, a broken app ends the server.
    has_served: bool,
    announced: bool,
    rolling: bool,
}

impl Master {
    /// Before anything was forked.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            phase: Phase::Serving,
            target: plan.workers,
            acceptor: Stage::Wanted,
            acceptor_backoff: Backoff::default(),
            template: Template { stage: Stage::Wanted, generation: 1 },
            template_backoff: Backoff::default(),
            next: None,
            workers: BTreeMap::new(),
            worker_backoff: Backoff::default(),
            tenures: vec![0; usize::from(plan.workers_max)],
            strays: VecDeque::new(),
            has_served: false,
            announced: false,
            rolling: false,
        }
    }

    /// The step.
    pub fn step(&mut self, now_ms: u64, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Started | Event::Tick => {}
            Event::Signal(signal) => self.on_signal(now_ms, signal, &mut actions),
            Event::Reaped(pid, exit) => self.on_reaped(now_ms, pid, exit, &mut actions),
            Event::AcceptorForked(Some(pid)) => self.acceptor = Stage::Booting { pid },
            Event::AcceptorForked(None) => {
                self.acceptor = Stage::Wanted;
                self.acceptor_backoff.failed(now_ms);
            }
            Event::TemplateForked(pid) => self.on_template_forked(now_ms, pid),
            Event::Report(report) => self.on_report(now_ms, report, &mut actions),
            Event::Overdue { worker, ran_ms } => self.on_overdue(worker, ran_ms, &mut actions),
        }
        self.settle(now_ms, &mut actions);
        actions
    }

    /// When the next `Tick` is due at the latest.
    pub fn next_tick_ms(&self) -> Option<u64> {
        let mut due = Vec::new();
        match self.phase {
            Phase::Draining { deadline_ms } | Phase::Stopping { deadline_ms, .. } => {
                due.push(deadline_ms);
            }
            Phase::Serving | Phase::Gone => {}
        }
        if self.acceptor == Stage::Wanted {
            due.push(self.acceptor_backoff.not_before_ms());
        }
        if self.template.stage == Stage::Wanted {
            due.push(self.template_backoff.not_before_ms());
        }
        for worker in self.workers.values() {
            if let Stage::Leaving { deadline_ms, .. } = worker.stage {
                due.push(deadline_ms);
            }
        }
        if self.missing().next().is_some() {
            due.push(self.worker_backoff.not_before_ms());
        }
        due.into_iter().min()
    }

    fn missing(&self) -> impl Iterator<Item = u16> {
        (0..self.target).filter(|index| !self.workers.contains_key(index))
    }

    fn on_signal(&mut self, now_ms: u64, signal: i32, actions: &mut Vec<Action>) {
        match (signal, self.phase) {
            (SIGTERM, Phase::Serving) => {
                let timeout_ms = self.plan.graceful_ms;
                info(actions, "TERM: draining, then leaving".to_owned());
                actions.push(Action::TellAcceptor(ToAcceptor::Drain { timeout_ms }));
                self.phase = Phase::Draining { deadline_ms: now_ms + timeout_ms + MARGIN_MS };
            }
            (SIGINT | SIGQUIT | SIGTERM, Phase::Serving | Phase::Draining { .. }) => {
                info(actions, "leaving at once".to_owned());
                actions.push(Action::TellAcceptor(ToAcceptor::Quit));
                self.stop(now_ms, exit_code::FINE, actions);
            }
            (SIGHUP, Phase::Serving) => self.reload(actions),
            (SIGTTIN, Phase::Serving) => {
                if self.target < self.plan.workers_max {
                    self.target += 1;
                    info(actions, format!("TTIN: {} workers", self.target));
                } else {
                    let most = self.plan.workers_max;
                    warn(actions, format!("TTIN: there are seats for {most} workers at most"));
                }
            }
            (SIGTTOU, Phase::Serving) => {
                if self.target > 1 {
                    self.target -= 1;
                    info(actions, format!("TTOU: {} workers", self.target));
                } else {
                    warn(actions, "TTOU: one worker is the least".to_owned());
                }
            }
            (SIGCHLD, _) => {}
            (signal, _) => warn(actions, format!("signal {signal} is not handled now")),
        }
    }

    fn reload(&mut self, actions: &mut Vec<Action>) {
        if self.next.is_some() || self.template.stage == Stage::Asked {
            warn(actions, "a reload is under way already".to_owned());
            return;
        }
        let generation = self.template.generation + 1;
        info(actions, format!("reload: loading the app anew, generation {generation}"));
        self.next = Some(Template { stage: Stage::Asked, generation });
        actions.push(Action::ForkTemplate { generation });
    }

    fn on_template_forked(&mut self, now_ms: u64, pid: Option<i32>) {
        let stage = pid.map_or(Stage::Wanted, |pid| Stage::Booting { pid });
        if pid.is_none() {
            self.template_backoff.failed(now_ms);
        }
        match &mut self.next {
            Some(next) if next.stage == Stage::Asked => match stage {
                Stage::Wanted => self.next = None,
                stage => next.stage = stage,
            },
            _ => self.template.stage = stage,
        }
    }

    fn on_report(&mut self, now_ms: u64, report: ToMaster, actions: &mut Vec<Action>) {
        match report {
            ToMaster::AcceptorReady => {
                if let Stage::Booting { pid } = self.acceptor {
                    self.acceptor = Stage::Ready { pid };
                    self.acceptor_backoff = Backoff::default();
                }
            }
            ToMaster::TemplateReady { generation } => self.on_template_ready(generation, actions),
            ToMaster::Forked { worker, tenure, pid } => {
                self.on_forked(now_ms, worker, tenure, pid, actions);
            }
            ToMaster::WorkerReady { worker, tenure, pid } => {
                self.on_worker_ready(worker, tenure, pid, actions);
            }
            ToMaster::Replace { worker, tenure } => {
                if let Some(entry) = self.entry(worker, tenure) {
                    if let Some(pid) = entry.stage.pid() {
                        error(actions, format!("worker {worker} ({pid}) is replaced: it wrote where it should not"));
                        actions.push(Action::Kill(pid, SIGKILL));
                    }
                }
            }
            ToMaster::Changed { .. } => {
                if self.phase == Phase::Serving && self.next.is_none() {
                    self.reload(actions);
                }
            }
        }
    }

    fn entry(&mut self, worker: u16, tenure: u16) -> Option<&mut Worker> {
        self.workers.get_mut(&worker).filter(|entry| entry.tenure == tenure)
    }

    fn on_template_ready(&mut self, generation: u32, actions: &mut Vec<Action>) {
        match (&self.next, self.template.stage) {
            (Some(Template { stage: Stage::Booting { pid }, generation: loading }), old)
                if *loading == generation =>
            {
                let stage = Stage::Ready { pid: *pid };
                if let Some(pid) = old.pid() {
                    actions.push(Action::Kill(pid, SIGKILL));
                }
                actions.push(Action::AdoptTemplate);
                self.forget_asked();
                self.template = Template { stage, generation };
                self.next = None;
                self.rolling = true;
            }
            (_, Stage::Booting { pid }) if self.template.generation == generation => {
                self.template.stage = Stage::Ready { pid };
                self.template_backoff = Backoff::default();
            }
            _ => {}
        }
    }

    /// What was asked of a template that is gone will not come; a worker it forked all the same
    /// shows up with a tenure that is over, and is killed.
    fn forget_asked(&mut self) {
        self.workers.retain(|_, worker| worker.stage != Stage::Asked);
    }

    fn on_forked(
        &mut self,
        now_ms: u64,
        worker: u16,
        tenure: u16,
        pid: Option<i32>,
        actions: &mut Vec<Action>,
    ) {
        let stray = pid.and_then(|pid| self.strays.iter().position(|(stray, _)| *stray == pid));
        let Some(entry) = self.entry(worker, tenure) else {
            if let (Some(pid), None) = (pid, stray) {
                actions.push(Action::Kill(pid, SIGKILL));
            }
            return;
        };
        match pid {
            Some(pid) if entry.stage == Stage::Asked => entry.stage = Stage::Booting { pid },
            Some(_) => {}
            None => {
                self.workers.remove(&worker);
                self.worker_backoff.failed(now_ms);
            }
        }
        if let Some((pid, exit)) = stray.and_then(|index| self.strays.remove(index)) {
            self.on_reaped(now_ms, pid, exit, actions);
        }
    }

    fn on_worker_ready(&mut self, worker: u16, tenure: u16, pid: i32, actions: &mut Vec<Action>) {
        let Some(entry) = self.entry(worker, tenure) else {
            actions.push(Action::Kill(pid, SIGKILL));
            return;
        };
        // Its own report may overtake the template's.
        if matches!(entry.stage, Stage::Asked | Stage::Booting { .. }) {
            entry.stage = Stage::Ready { pid };
            let generation = entry.generation;
            self.worker_backoff = Backoff::default();
            self.has_served = true;
            actions.push(Action::TellAcceptor(ToAcceptor::WorkerReady { worker, tenure, pid }));
            info(actions, format!("worker ready worker={worker} pid={pid} generation={generation}"));
        }
    }

    fn on_overdue(&mut self, worker: u16, ran_ms: u64, actions: &mut Vec<Action>) {
        if let Some(entry) = self.workers.get_mut(&worker) {
            if let (Some(pid), false) = (entry.stage.pid(), entry.timed_out) {
                entry.timed_out = true;
                error(
                    actions,
                    format!("worker {worker} ({pid}) is killed: a request has run for {ran_ms} ms, past its timeout"),
                );
                actions.push(Action::Kill(pid, SIGKILL));
            }
        }
    }

    fn on_reaped(&mut self, now_ms: u64, pid: i32, exit: Exit, actions: &mut Vec<Action>) {
        if self.acceptor.pid() == Some(pid) {
            self.on_acceptor_gone(now_ms, exit, actions);
        } else if self.template.stage.pid() == Some(pid) {
            self.on_template_gone(now_ms, exit, actions);
        } else if self.next.as_ref().is_some_and(|next| next.stage.pid() == Some(pid)) {
            self.next = None;
            error(
                actions,
                format!("reload failed: the new template {exit}; the old code goes on serving"),
            );
        } else if let Some(worker) = self.worker_of(pid) {
            self.on_worker_gone(now_ms, worker, exit, actions);
        } else {
            if self.strays.len() == STRAYS_MAX {
                self.strays.pop_front();
            }
            self.strays.push_back((pid, exit));
        }
    }

    fn worker_of(&self, pid: i32) -> Option<u16> {
        let mut workers = self.workers.iter();
        workers.find(|(_, entry)| entry.stage.pid() == Some(pid)).map(|(index, _)| *index)
    }

    fn on_acceptor_gone(&mut self, now_ms: u64, exit: Exit, actions: &mut Vec<Action>) {
        let was_ready = matches!(self.acceptor, Stage::Ready { .. });
        self.acceptor = Stage::Wanted;
        match self.phase {
            Phase::Draining { .. } => self.stop(now_ms, exit_code::FINE, actions),
            Phase::Serving if !was_ready && !self.has_served => {
                error(actions, format!("the acceptor {exit} before it was ready"));
                self.stop(now_ms, exit_code::INTERNAL, actions);
            }
            Phase::Serving => {
                error(actions, format!("the acceptor {exit}; its connections are lost, another one is started"));
                if !was_ready {
                    self.acceptor_backoff.failed(now_ms);
                }
            }
            Phase::Stopping { .. } | Phase::Gone => {}
        }
    }

    fn on_template_gone(&mut self, now_ms: u64, exit: Exit, actions: &mut Vec<Action>) {
        let was_ready = matches!(self.template.stage, Stage::Ready { .. });
        self.template.stage = Stage::Wanted;
        self.forget_asked();
        if self.phase != Phase::Serving && !matches!(self.phase, Phase::Draining { .. }) {
            return;
        }
        if was_ready {
            warn(actions, format!("the template {exit}; another one is started"));
        } else if self.has_served {
            self.template_backoff.failed(now_ms);
            let wait_ms = self.template_backoff.wait_ms(now_ms);
            error(actions, format!("the template {exit} before it was ready; next try in {wait_ms} ms"));
        } else {
            let code = match exit {
                Exit::Code(exit_code::APP_LOAD) => exit_code::APP_LOAD,
                _ => exit_code::WORKER_BOOT,
            };
            error(actions, format!("the app could not be loaded: the template {exit}"));
            self.stop(now_ms, code, actions);
        }
    }

    fn on_worker_gone(&mut self, now_ms: u64, worker: u16, exit: Exit, actions: &mut Vec<Action>) {
        let Some(entry) = self.workers.remove(&worker) else { return };
        let gone = Gone::from_exit(exit, entry.timed_out);
        actions.push(Action::Vacate(worker));
        actions.push(Action::TellAcceptor(ToAcceptor::WorkerGone {
            worker,
            tenure: entry.tenure,
            gone,
        }));
        let pid = entry.stage.pid().unwrap_or_default();
        match (entry.stage, exit) {
            (Stage::Booting { .. }, Exit::Code(code @ (exit_code::APP_LOAD | exit_code::WORKER_BOOT)))
                if !self.has_served && self.phase == Phase::Serving =>
            {
                error(actions, format!("worker {worker} ({pid}) {exit} while booting: no worker was ever ready, so the server leaves"));
                self.stop(now_ms, code, actions);
            }
            (Stage::Booting { .. }, _) if self.phase == Phase::Serving => {
                self.worker_backoff.failed(now_ms);
                let failures = self.worker_backoff.failures();
                let wait_ms = self.worker_backoff.wait_ms(now_ms);
                error(actions, format!("worker {worker} ({pid}) {exit} while booting, failure {failures} in a row; next try in {wait_ms} ms"));
            }
            (_, Exit::Code(0)) => {}
            _ => warn(actions, format!("worker {worker} ({pid}) {exit}")),
        }
    }

    fn stop(&mut self, now_ms: u64, code: i32, actions: &mut Vec<Action>) {
        let deadline_ms = now_ms + QUICK_MS;
        self.phase = Phase::Stopping { deadline_ms, code };
        let templates = [Some(&self.template), self.next.as_ref()];
        for pid in templates.into_iter().flatten().filter_map(|template| template.stage.pid()) {
            actions.push(Action::Kill(pid, SIGKILL));
        }
        for worker in self.workers.values_mut() {
            ask_to_leave(worker, deadline_ms, actions);
        }
    }

    /// Derives what follows from the state, whatever led to it.
    fn settle(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Serving => {
                self.keep_acceptor(now_ms, actions);
                self.keep_workers(now_ms, actions);
                self.shrink(now_ms, actions);
                self.roll(now_ms, actions);
                self.announce(actions);
            }
            Phase::Draining { deadline_ms } => {
                self.keep_workers(now_ms, actions);
                if now_ms >= deadline_ms {
                    error(actions, "the acceptor did not drain in time".to_owned());
                    self.stop(now_ms, exit_code::FINE, actions);
                }
            }
            Phase::Stopping { deadline_ms, code } => {
                self.workers.retain(|_, worker| worker.stage.pid().is_some());
                if now_ms >= deadline_ms {
                    if let Some(pid) = self.acceptor.pid() {
                        actions.push(Action::Kill(pid, SIGKILL));
                    }
                }
                let templates_gone = self.template.stage.pid().is_none()
                    && self.next.as_ref().is_none_or(|next| next.stage.pid().is_none());
                if self.workers.is_empty() && templates_gone && self.acceptor.pid().is_none() {
                    self.phase = Phase::Gone;
                    actions.push(Action::Exit(code));
                    return;
                }
                for worker in self.workers.values_mut() {
                    ask_to_leave(worker, deadline_ms, actions);
                }
            }
            Phase::Gone => return,
        }
        self.kill_overstayers(now_ms, actions);
    }

    fn keep_acceptor(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.acceptor == Stage::Wanted && self.acceptor_backoff.is_over(now_ms) {
            self.acceptor = Stage::Asked;
            actions.push(Action::ForkAcceptor);
            // A new acceptor has to be told who serves.
            for (&worker, entry) in &self.workers {
                if let Stage::Ready { pid } | Stage::Leaving { pid, .. } = entry.stage {
                    let tenure = entry.tenure;
                    let ready = ToAcceptor::WorkerReady { worker, tenure, pid };
                    actions.push(Action::TellAcceptor(ready));
                }
            }
        }
    }

    fn keep_workers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let generation = self.template.generation;
        match self.template.stage {
            Stage::Wanted if self.template_backoff.is_over(now_ms) => {
                self.template.stage = Stage::Asked;
                actions.push(Action::ForkTemplate { generation });
            }
            Stage::Ready { .. } if self.worker_backoff.is_over(now_ms) => {
                let missing: Vec<u16> = self.missing().collect();
                for worker in missing {
                    let tenure = &mut self.tenures[usize::from(worker)];
                    *tenure = tenure.wrapping_add(1);
                    let tenure = *tenure;
                    let entry =
                        Worker { stage: Stage::Asked, tenure, generation, timed_out: false };
                    self.workers.insert(worker, entry);
                    actions.push(Action::TellTemplate(ToTemplate::Fork { worker, tenure }));
                }
            }
            _ => {}
        }
    }

    /// Asks workers past the target to leave.
    fn shrink(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let deadline_ms = now_ms + self.plan.graceful_ms;
        for (_, worker) in self.workers.range_mut(self.target..) {
            ask_to_leave(worker, deadline_ms, actions);
        }
    }

    /// After a reload: asks one worker of an older generation after the other to leave, the next
    /// one when the successor of the last is ready, so that one seat at most is missing.
    fn roll(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let all_ready = self.missing().next().is_none()
            && self.workers.values().all(|worker| matches!(worker.stage, Stage::Ready { .. }));
        if !self.rolling || !all_ready {
            return;
        }
        let generation = self.template.generation;
        let old = self.workers.values_mut().find(|worker| worker.generation != generation);
        if let Some(worker) = old {
            ask_to_leave(worker, now_ms + self.plan.graceful_ms, actions);
        } else {
            self.rolling = false;
            info(actions, format!("reloaded: all workers run generation {generation}"));
        }
    }

    fn kill_overstayers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        for (index, worker) in &mut self.workers {
            if let Stage::Leaving { pid, deadline_ms } = &mut worker.stage {
                if now_ms >= *deadline_ms {
                    warn(actions, format!("worker {index} ({pid}) did not leave in time and is killed"));
                    actions.push(Action::Kill(*pid, SIGKILL));
                    // It dies for certain; the log says so once.
                    *deadline_ms = u64::MAX;
                }
            }
        }
    }

    fn announce(&mut self, actions: &mut Vec<Action>) {
        let ready = self.workers.values().filter(|w| matches!(w.stage, Stage::Ready { .. })).count();
        let acceptor = matches!(self.acceptor, Stage::Ready { .. });
        if !self.announced && acceptor && ready == usize::from(self.target) {
            self.announced = true;
            info(actions, format!("ready: {ready} workers"));
        }
    }
}

fn ask_to_leave(worker: &mut Worker, deadline_ms: u64, actions: &mut Vec<Action>) {
    if let Stage::Booting { pid } | Stage::Ready { pid } = worker.stage {
        worker.stage = Stage::Leaving { pid, deadline_ms };
        actions.push(Action::Kill(pid, SIGTERM));
    } else if let Stage::Leaving { deadline_ms: set, .. } = &mut worker.stage {
        // An earlier deadline counts, unless it has been killed already.
        if *set != u64::MAX {
            *set = deadline_ms.min(*set);
        }
    }
}

fn info(actions: &mut Vec<Action>, message: String) {
    actions.push(Action::Log(Severity::Info, message));
}

fn warn(actions: &mut Vec<Action>, message: String) {
    actions.push(Action::Log(Severity::Warning, message));
}

fn error(actions: &mut Vec<Action>, message: String) {
    actions.push(Action::Log(Severity::Error, message));
}
