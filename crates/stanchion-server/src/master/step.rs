//! What the master decides: a pure step from a state and an event to a new state and actions.
//!
//! No system call, no clock: events carry what happened, `now_ms` is an argument, and the loop in
//! [`super`] performs the actions. Each event is first noted in the state; then [`Master::settle`]
//! derives what follows from the state as a whole, so that it does not matter in which order
//! things happened.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU};

use super::acceptor::Acceptor;
use super::event::{Action, Event, Plan};
use super::templates::{Ended, Templates};
use super::workers::Workers;
use crate::exit_code;
use crate::messages::{ToAcceptor, ToMaster};

/// What a quick stop leaves to the acceptor to tell everybody, and to workers to end by
/// themselves.
const QUICK_MS: u64 = 1_500;
/// What a graceful stop allows on top of `graceful_timeout`, for answers to be flushed.
const MARGIN_MS: u64 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// The acceptor serves who is here; past the deadline it is told to go at once.
    Draining {
        deadline_ms: u64,
    },
    /// All are to go, and are killed past the deadline.
    Stopping {
        deadline_ms: u64,
        code: i32,
    },
    Gone,
}

/// The state of the tree.
#[derive(Debug)]
pub(super) struct Master {
    plan: Plan,
    phase: Phase,
    /// Workers wanted; TTIN and TTOU change it.
    target: u16,
    acceptor: Acceptor,
    templates: Templates,
    workers: Workers,
    announced: bool,
    rolling: bool,
}

impl Master {
    /// Before anything was forked.
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            phase: Phase::Serving,
            target: plan.workers,
            acceptor: Acceptor::new(),
            templates: Templates::new(),
            workers: Workers::new(plan.workers_max),
            announced: false,
            rolling: false,
        }
    }

    /// The step.
    pub(super) fn step(&mut self, now_ms: u64, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.phase == Phase::Gone {
            return actions;
        }
        self.workers.forget_strays(now_ms);
        match event {
            Event::Started | Event::Tick => {}
            Event::Signal(signal) => self.on_signal(now_ms, signal, &mut actions),
            Event::Reaped(pid, exit) => self.on_reaped(now_ms, pid, exit, &mut actions),
            Event::AcceptorForked(pid) => self.acceptor.on_forked(now_ms, pid, &mut actions),
            Event::TemplateForked { generation, pid } => {
                self.templates
                    .on_forked(now_ms, generation, pid, &mut actions);
            }
            Event::Report(report) => self.on_report(now_ms, &report, &mut actions),
            Event::Overdue { worker, ran_ms } => {
                self.workers.on_overdue(worker, ran_ms, &mut actions);
            }
        }
        if self.acceptor.is_gone() {
            // Nobody is there to be told; the next one is told all it needs.
            actions.retain(|action| !matches!(action, Action::TellAcceptor(_)));
        }
        self.settle(now_ms, &mut actions);
        actions
    }

    /// When the next `Tick` is due at the latest; never in the past after a step.
    pub(super) fn next_tick_ms(&self) -> Option<u64> {
        let phase = match self.phase {
            Phase::Serving => self.acceptor.due_ms(),
            Phase::Draining { deadline_ms } => Some(deadline_ms),
            Phase::Stopping { .. } | Phase::Gone => None,
        };
        let forks = match self.phase {
            Phase::Serving | Phase::Draining { .. }
                if self.templates.present().stage.is_ready() =>
            {
                self.workers.due_ms(self.target)
            }
            Phase::Serving | Phase::Draining { .. } => self.templates.due_ms(),
            Phase::Stopping { .. } | Phase::Gone => None,
        };
        let overstayers = [self.acceptor.deadline_ms(), self.workers.deadline_ms()];
        [phase, forks]
            .into_iter()
            .chain(overstayers)
            .flatten()
            .min()
    }

    fn on_signal(&mut self, now_ms: u64, signal: i32, actions: &mut Vec<Action>) {
        match (signal, self.phase) {
            (SIGTERM, Phase::Serving) => {
                let timeout_ms = self.plan.graceful_ms;
                actions.push(Action::info("TERM: draining, then leaving"));
                actions.push(Action::TellAcceptor(ToAcceptor::Drain { timeout_ms }));
                self.phase = Phase::Draining {
                    deadline_ms: now_ms + timeout_ms + MARGIN_MS,
                };
            }
            (SIGINT | SIGQUIT | SIGTERM, Phase::Serving | Phase::Draining { .. }) => {
                actions.push(Action::info("leaving at once"));
                self.stop(now_ms, exit_code::FINE);
            }
            (SIGINT | SIGQUIT | SIGTERM, Phase::Stopping { .. }) => {
                actions.push(Action::info("leaving already"));
            }
            (SIGHUP, Phase::Serving) => self.templates.reload(actions),
            (SIGTTIN, Phase::Serving) if self.target < self.plan.workers_max => {
                self.target += 1;
                actions.push(Action::info(format!("TTIN: {} workers", self.target)));
            }
            (SIGTTIN, Phase::Serving) => {
                let most = self.plan.workers_max;
                let message = format!("TTIN: there are seats for {most} workers at most");
                actions.push(Action::warning(message));
            }
            (SIGTTOU, Phase::Serving) if self.target > 1 => {
                self.target -= 1;
                actions.push(Action::info(format!("TTOU: {} workers", self.target)));
            }
            (SIGTTOU, Phase::Serving) => {
                actions.push(Action::warning("TTOU: one worker is the least"));
            }
            (SIGCHLD, _) => {}
            (signal, _) => {
                actions.push(Action::warning(format!(
                    "signal {signal} is not handled now"
                )));
            }
        }
    }

    fn on_report(&mut self, now_ms: u64, report: &ToMaster, actions: &mut Vec<Action>) {
        match *report {
            ToMaster::AcceptorReady => self.acceptor.on_ready(),
            ToMaster::TemplateReady { generation } => {
                if self.templates.on_ready(generation, actions) {
                    self.workers.forget_asked();
                    self.rolling = true;
                }
            }
            ToMaster::Forked {
                worker,
                tenure,
                pid,
            } => {
                if pid.is_some() {
                    self.templates.has_forked();
                }
                let broken = self.workers.on_forked(now_ms, worker, tenure, pid, actions);
                self.stop_if(now_ms, broken);
            }
            ToMaster::WorkerReady {
                worker,
                tenure,
                pid,
            } => {
                let broken = self.workers.on_ready(now_ms, worker, tenure, pid, actions);
                self.stop_if(now_ms, broken);
            }
            ToMaster::Replace { worker, tenure } => {
                self.workers.on_replace(worker, tenure, actions);
            }
            ToMaster::Changed { .. } => {
                if self.phase == Phase::Serving {
                    self.templates.reload(actions);
                }
            }
        }
    }

    fn on_reaped(&mut self, now_ms: u64, pid: i32, exit: Exit, actions: &mut Vec<Action>) {
        if self.acceptor.pid() == Some(pid) {
            if self.phase == Phase::Serving {
                let broken = self.acceptor.on_lost(now_ms, exit, actions);
                self.stop_if(now_ms, broken);
            } else {
                self.acceptor.on_left(exit, actions);
            }
            return;
        }
        match self.templates.on_reaped(pid, exit, actions) {
            Some(Ended::Present { was_ready }) => {
                self.on_template_gone(now_ms, was_ready, exit, actions);
            }
            Some(Ended::Next) => {}
            None => {
                let broken = self.workers.on_reaped(now_ms, pid, exit, actions);
                self.stop_if(now_ms, broken);
            }
        }
    }

    fn on_template_gone(
        &mut self,
        now_ms: u64,
        was_ready: bool,
        exit: Exit,
        actions: &mut Vec<Action>,
    ) {
        let was_forking = self.workers.forget_asked();
        if matches!(self.phase, Phase::Stopping { .. } | Phase::Gone) {
            return;
        }
        if was_ready && !was_forking {
            actions.push(Action::warning(format!(
                "the template {exit}; another one is started"
            )));
        } else if was_ready || self.workers.have_served() {
            let wait_ms = self.templates.back_off(now_ms);
            let when = if was_ready {
                "while forking"
            } else {
                "before it was ready"
            };
            let message = format!("the template {exit} {when}; next try in {wait_ms} ms");
            actions.push(Action::error(message));
        } else {
            let code = match exit {
                Exit::Code(exit_code::APP_LOAD) => exit_code::APP_LOAD,
                _ => exit_code::WORKER_BOOT,
            };
            let message = format!("the app could not be loaded: the template {exit}");
            actions.push(Action::error(message));
            self.stop(now_ms, code);
        }
    }

    fn stop_if(&mut self, now_ms: u64, code: Option<i32>) {
        if let Some(code) = code {
            self.stop(now_ms, code);
        }
    }

    /// From here on all are to go; the first reason to stop gives the exit code.
    fn stop(&mut self, now_ms: u64, code: i32) {
        if matches!(self.phase, Phase::Serving | Phase::Draining { .. }) {
            self.phase = Phase::Stopping {
                deadline_ms: now_ms + QUICK_MS,
                code,
            };
        }
    }

    /// Derives what follows from the state, whatever led to it.
    fn settle(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if let Phase::Draining { deadline_ms } = self.phase {
            if self.acceptor.is_gone() {
                self.stop(now_ms, exit_code::FINE);
            } else if now_ms >= deadline_ms {
                actions.push(Action::error("the acceptor did not drain in time"));
                self.stop(now_ms, exit_code::FINE);
            }
        }
        match self.phase {
            Phase::Serving => {
                self.templates.follow_up(actions);
                self.keep_acceptor(now_ms, actions);
                self.keep_workers(now_ms, actions);
                self.workers
                    .shrink(self.target, now_ms + self.plan.graceful_ms, actions);
                self.roll(now_ms, actions);
                self.announce(actions);
            }
            Phase::Draining { .. } => self.keep_workers(now_ms, actions),
            Phase::Stopping { deadline_ms, code } => {
                self.dismiss(deadline_ms, actions);
                if self.acceptor.is_gone() && self.templates.are_gone() && self.workers.is_empty() {
                    self.phase = Phase::Gone;
                    actions.push(Action::Exit(code));
                }
            }
            Phase::Gone => {}
        }
        self.acceptor.kill_if_overstaying(now_ms, actions);
        self.workers.kill_overstayers(now_ms, actions);
    }

    fn keep_acceptor(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        if self.acceptor.keep(now_ms, actions) {
            self.workers.introduce(actions);
        }
    }

    fn keep_workers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        self.templates.keep(now_ms, actions);
        let template = self.templates.present();
        if template.stage.is_ready() {
            self.workers
                .fork_missing(now_ms, self.target, template.generation, actions);
        }
    }

    /// After a reload: one worker of an older generation after the other leaves, the next one
    /// when the successor of the last is ready.
    fn roll(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let generation = self.templates.present().generation;
        let deadline_ms = now_ms + self.plan.graceful_ms;
        if self.rolling
            && self
                .workers
                .roll(self.target, generation, deadline_ms, actions)
        {
            self.rolling = false;
            let message = format!("reloaded: all workers run generation {generation}");
            actions.push(Action::info(message));
        }
    }

    fn announce(&mut self, actions: &mut Vec<Action>) {
        let ready = self.workers.ready();
        if !self.announced && self.acceptor.is_ready() && ready == usize::from(self.target) {
            self.announced = true;
            actions.push(Action::info(format!("ready: {ready} workers")));
        }
    }

    fn dismiss(&mut self, deadline_ms: u64, actions: &mut Vec<Action>) {
        self.acceptor.quit_by(deadline_ms, actions);
        self.templates.kill_all(actions);
        self.workers.shrink(0, deadline_ms, actions);
    }
}

#[cfg(test)]
impl Master {
    pub(super) fn target(&self) -> u16 {
        self.target
    }

    pub(super) fn generation(&self) -> u32 {
        self.templates.present().generation
    }

    pub(super) fn is_rolling(&self) -> bool {
        self.rolling
    }
}
