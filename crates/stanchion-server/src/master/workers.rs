//! The workers' table: who sits where, who is on the way, and who has gone.

use std::collections::BTreeMap;

use stanchion_sys::process::Exit;
use stanchion_sys::signal::{SIGKILL, SIGTERM};

use super::backoff::Backoff;
use super::departed::{Departed, Strays};
use super::event::Action;
use super::stage::Stage;

use crate::exit_code;
use crate::messages::{Gone, ToAcceptor, ToTemplate};

#[derive(Debug)]
struct Worker {
    stage: Stage,
    tenure: u16,
    generation: u32,
    /// We killed it because a request ran too long.
    timed_out: bool,
}

#[derive(Debug)]
pub(super) struct Workers {
    /// By index: those asked for, running, or about to be reaped.
    seated: BTreeMap<u16, Worker>,
    /// The tenure last given for each index. It wraps, long after anybody remembers the first.
    tenures: Vec<u16>,
    /// Workers of a tenure that is over which turned up all the same, and were killed: what they
    /// may have taken until then is cleared up once they are reaped.
    late: BTreeMap<i32, (u16, u16)>,
    strays: Strays,
    departed: Departed,
    backoff: Backoff,
    /// Whether any was ever ready: before that, a broken app ends the server.
    have_served: bool,
}

impl Workers {
    /// None yet, with seats for `most`.
    pub(super) fn new(most: u16) -> Self {
        Self {
            seated: BTreeMap::new(),
            tenures: vec![0; usize::from(most)],
            late: BTreeMap::new(),
            strays: Strays::default(),
            departed: Departed::new(most),
            backoff: Backoff::default(),
            have_served: false,
        }
    }

    pub(super) fn have_served(&self) -> bool {
        self.have_served
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seated.is_empty()
    }

    pub(super) fn ready(&self) -> usize {
        self.seated
            .values()
            .filter(|worker| worker.stage.is_ready())
            .count()
    }

    fn missing(&self, target: u16) -> impl Iterator<Item = u16> {
        (0..target).filter(|index| !self.seated.contains_key(index))
    }

    fn entry(&mut self, index: u16, tenure: u16) -> Option<&mut Worker> {
        self.seated
            .get_mut(&index)
            .filter(|worker| worker.tenure == tenure)
    }

    // What must be done.

    /// Asks the template for whoever is missing.
    pub(super) fn fork_missing(
        &mut self,
        now_ms: u64,
        target: u16,
        generation: u32,
        actions: &mut Vec<Action>,
    ) {
        if !self.backoff.is_over(now_ms) {
            return;
        }
        let missing: Vec<u16> = self.missing(target).collect();
        for worker in missing {
            let last = &mut self.tenures[usize::from(worker)];
            *last = last.wrapping_add(1);
            let tenure = *last;
            let entry = Worker {
                stage: Stage::Asked,
                tenure,
                generation,
                timed_out: false,
            };
            self.seated.insert(worker, entry);
            let message = ToTemplate::Fork { worker, tenure };
            actions.push(Action::TellTemplate {
                generation,
                message,
            });
        }
    }

    /// When [`Self::fork_missing`] has something to do.
    pub(super) fn due_ms(&self, target: u16) -> Option<u64> {
        self.missing(target)
            .next()
            .map(|_| self.backoff.not_before_ms())
    }

    /// What was asked of a template that is gone will not come; a worker it forked all the same
    /// is late. True if there was any.
    pub(super) fn forget_asked(&mut self) -> bool {
        let before = self.seated.len();
        self.seated.retain(|_, worker| worker.stage != Stage::Asked);
        self.seated.len() < before
    }

    /// Asks those from index `target` on to leave; all of them if it is 0.
    pub(super) fn shrink(&mut self, target: u16, deadline_ms: u64, actions: &mut Vec<Action>) {
        for worker in self.seated.range_mut(target..).map(|(_, worker)| worker) {
            ask_to_leave(worker, deadline_ms, actions);
        }
    }

    /// Asks one worker of an older generation to leave, if all are ready: so that one at most is
    /// missing. True if there is none of an older generation left.
    pub(super) fn roll(
        &mut self,
        target: u16,
        generation: u32,
        deadline_ms: u64,
        actions: &mut Vec<Action>,
    ) -> bool {
        let all_ready = self.missing(target).next().is_none()
            && self.seated.values().all(|worker| worker.stage.is_ready());
        if !all_ready {
            return false;
        }
        match self
            .seated
            .values_mut()
            .find(|worker| worker.generation != generation)
        {
            Some(worker) => {
                ask_to_leave(worker, deadline_ms, actions);
                false
            }
            None => true,
        }
    }

    pub(super) fn kill_overstayers(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        for (index, worker) in &mut self.seated {
            if let Some(pid) = worker.stage.kill_if_overstaying(now_ms) {
                actions.push(Action::warning(format!(
                    "worker {index} ({pid}) did not leave in time and is killed"
                )));
                actions.push(Action::Kill(pid, SIGKILL));
            }
        }
    }

    /// When [`Self::kill_overstayers`] has something to do.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.seated
            .values()
            .filter_map(|worker| worker.stage.deadline_ms())
            .min()
    }

    /// Forgets children that nobody will report any more.
    pub(super) fn forget_strays(&mut self, now_ms: u64) {
        // A template may take its time between its fork and its report.
        if !self
            .seated
            .values()
            .any(|worker| worker.stage == Stage::Asked)
        {
            self.strays.forget_old(now_ms);
        }
    }

    /// Tells a new acceptor who has gone, as the one before it may not have heard or acted, and
    /// who serves.
    pub(super) fn introduce(&self, actions: &mut Vec<Action>) {
        actions.extend(self.departed.messages().map(Action::TellAcceptor));
        for (&worker, entry) in &self.seated {
            if let Stage::Ready { pid } | Stage::Leaving { pid, .. } = entry.stage {
                let tenure = entry.tenure;
                let ready = ToAcceptor::WorkerReady {
                    worker,
                    tenure,
                    pid,
                };
                actions.push(Action::TellAcceptor(ready));
            }
        }
    }

    // What happened.

    /// The template says that it has forked a worker, or could not. Like [`Self::on_reaped`], since
    /// the worker may have ended before.
    pub(super) fn on_forked(
        &mut self,
        now_ms: u64,
        index: u16,
        tenure: u16,
        pid: Option<i32>,
        actions: &mut Vec<Action>,
    ) -> Option<i32> {
        let Some(worker) = self.entry(index, tenure) else {
            if let Some(pid) = pid {
                self.turn_away(index, tenure, pid, actions);
            }
            return None;
        };
        if worker.stage != Stage::Asked {
            // Its own report came first.
            return None;
        }
        let Some(pid) = pid else {
            self.seated.remove(&index);
            self.backoff.failed(now_ms);
            let wait_ms = self.backoff.wait_ms(now_ms);
            actions.push(Action::error(format!(
                "worker {index} could not be forked; next try in {wait_ms} ms"
            )));
            return None;
        };
        worker.stage = Stage::Booting { pid };
        let exit = self.strays.take(pid)?;
        self.on_reaped(now_ms, pid, exit, actions)
    }

    /// A worker says that it serves. Like [`Self::on_reaped`], since it may have ended before.
    pub(super) fn on_ready(
        &mut self,
        now_ms: u64,
        index: u16,
        tenure: u16,
        pid: i32,
        actions: &mut Vec<Action>,
    ) -> Option<i32> {
        let Some(worker) = self.entry(index, tenure) else {
            self.turn_away(index, tenure, pid, actions);
            return None;
        };
        match worker.stage {
            // Its own report may overtake the template's.
            Stage::Asked | Stage::Booting { .. } => {
                worker.stage = Stage::Ready { pid };
                let generation = worker.generation;
                self.backoff = Backoff::default();
                self.have_served = true;
                let ready = ToAcceptor::WorkerReady {
                    worker: index,
                    tenure,
                    pid,
                };
                actions.push(Action::TellAcceptor(ready));
                actions.push(Action::info(format!(
                    "worker ready worker={index} pid={pid} generation={generation}"
                )));
                let exit = self.strays.take(pid)?;
                return self.on_reaped(now_ms, pid, exit, actions);
            }
            // It was told while it was booting, when it may not have listened yet.
            Stage::Leaving { .. } => actions.push(Action::Kill(pid, SIGTERM)),
            Stage::Wanted | Stage::Ready { .. } | Stage::Killed { .. } => {}
        }
        None
    }

    /// A request of worker `index` has run past its timeout.
    pub(super) fn on_overdue(&mut self, index: u16, ran_ms: u64, actions: &mut Vec<Action>) {
        let Some(worker) = self.seated.get_mut(&index) else {
            return;
        };
        if let Some(pid) = worker.stage.kill() {
            worker.timed_out = true;
            actions.push(Action::error(format!(
                "worker {index} ({pid}) is killed: a request has run for {ran_ms} ms, past its timeout"
            )));
            actions.push(Action::Kill(pid, SIGKILL));
        }
    }

    /// The acceptor finds that a worker must not go on.
    pub(super) fn on_replace(&mut self, index: u16, tenure: u16, actions: &mut Vec<Action>) {
        let Some(worker) = self.entry(index, tenure) else {
            return;
        };
        if let Some(pid) = worker.stage.kill() {
            actions.push(Action::error(format!(
                "worker {index} ({pid}) is replaced: it wrote where it should not"
            )));
            actions.push(Action::Kill(pid, SIGKILL));
        }
    }

    /// A child has ended that is neither the acceptor nor a template. Gives the exit code of the
    /// server if that shall end too: the app is broken, and nobody has ever served.
    pub(super) fn on_reaped(
        &mut self,
        now_ms: u64,
        pid: i32,
        exit: Exit,
        actions: &mut Vec<Action>,
    ) -> Option<i32> {
        let known = self
            .seated
            .iter()
            .find(|(_, worker)| worker.stage.pid() == Some(pid));
        let Some((&index, _)) = known else {
            match self.late.remove(&pid) {
                Some((index, tenure)) => {
                    self.part(index, tenure, Gone::from_exit(exit, false), actions);
                }
                None => self.strays.add(now_ms, pid, exit),
            }
            return None;
        };
        let worker = self.seated.remove(&index)?;
        actions.push(Action::Vacate(index));
        self.part(
            index,
            worker.tenure,
            Gone::from_exit(exit, worker.timed_out),
            actions,
        );
        let who = format!("worker {index} ({pid}) {exit}");
        match (worker.stage, exit) {
            (
                Stage::Booting { .. },
                Exit::Code(code @ (exit_code::APP_LOAD | exit_code::WORKER_BOOT)),
            ) if !self.have_served => {
                actions.push(Action::error(format!(
                    "{who} while booting: no worker was ever ready, so the server leaves"
                )));
                return Some(code);
            }
            (Stage::Booting { .. }, _) => {
                self.backoff.failed(now_ms);
                let failures = self.backoff.failures();
                let wait_ms = self.backoff.wait_ms(now_ms);
                actions.push(Action::error(format!(
                    "{who} while booting, failure {failures} in a row; next try in {wait_ms} ms"
                )));
            }
            (_, Exit::Code(exit_code::FINE)) => {}
            _ => actions.push(Action::warning(who)),
        }
        None
    }

    /// A worker of a tenure that is over has turned up.
    fn turn_away(&mut self, index: u16, tenure: u16, pid: i32, actions: &mut Vec<Action>) {
        if self.departed.has(index, tenure) {
            // It served and ended before the template got to report it.
            return;
        }
        if let Some(exit) = self.strays.take(pid) {
            self.part(index, tenure, Gone::from_exit(exit, false), actions);
        } else if self.late.insert(pid, (index, tenure)).is_none() {
            actions.push(Action::Kill(pid, SIGKILL));
        }
    }

    fn part(&mut self, index: u16, tenure: u16, gone: Gone, actions: &mut Vec<Action>) {
        actions.push(Action::TellAcceptor(self.departed.add(index, tenure, gone)));
    }
}

fn ask_to_leave(worker: &mut Worker, deadline_ms: u64, actions: &mut Vec<Action>) {
    if let Some(pid) = worker.stage.leave_by(deadline_ms) {
        actions.push(Action::Kill(pid, SIGTERM));
    }
}
