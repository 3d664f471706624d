//! The table of workers: those at their seats, those on the way, and those that have gone.

use std::collections::{BTreeMap, BTreeSet};

use stanchion_exchange::Word;
use stanchion_sys::process::Exit;
use stanchion_sys::signal::{SIGKILL, SIGTERM, SIGUSR1};

use crate::backoff::Backoff;
use crate::decision::Decision;
use crate::departed::Departed;
use crate::event::{Action, News};
use crate::stage::{ChildStage, WorkerStage};
use crate::worker::{BootFailure, PresentWorker, WorkerState, called};
use stanchion_generation::figures::Cause;
use stanchion_generation::messages::{ToTemplate, WorkerRef};
use stanchion_log::exit_code;

/// How long a template may take for its next fork, hooks included, before it counts as stuck.
const FORK_MS_MAX: u64 = 60_000;

/// The workers of a generation.
#[derive(Debug)]
pub struct Workers {
    pub(crate) generation_number: u32,
    /// By index: those asked for, running, or about to be reaped.
    pub(crate) seated: BTreeMap<u16, WorkerState>,
    /// The epoch last given for each index. It wraps, long after any process remembers the first.
    epochs: Vec<u16>,
    /// How many workers have had each number.
    had: BTreeMap<u16, u32>,
    /// When the template was last known to do what it is asked.
    heard_ms: u64,
    departed: Departed,
    pub(crate) backoff: Backoff,
    /// Whether any was ever ready: before that, a broken app ends the server.
    have_served: bool,
    /// Whether any has ended that served and had no successor yet, other than for want of memory.
    pub(crate) have_lost: bool,
    /// The log has said that even a newborn worker takes more memory than it may.
    pub(crate) told_of_newborn: bool,
}

/// A worker, as the status shows it.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its index, which gives its seats.
    pub index: u16,
    /// Its number among the workers that are wanted.
    pub number: u16,
    /// Its process, if there is one.
    pub pid: Option<i32>,
    /// How far it is in its life.
    pub stage: WorkerStage,
}

impl Workers {
    /// None yet, with seats for `most`.
    pub(crate) fn new(generation_number: u32, most: u16) -> Self {
        Self {
            generation_number,
            seated: BTreeMap::new(),
            epochs: vec![0; usize::from(most)],
            had: BTreeMap::new(),
            heard_ms: 0,
            departed: Departed::new(most),
            backoff: Backoff::default(),
            have_served: false,
            have_lost: false,
            told_of_newborn: false,
        }
    }

    pub(crate) fn have_served(&self) -> bool {
        self.have_served
    }

    /// From now on a failed boot is not put down to the app, even if no worker was wanted so far.
    pub(crate) fn are_trusted(&mut self) {
        self.have_served = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seated.is_empty()
    }

    /// How many serve and are to stay.
    pub fn ready(&self) -> usize {
        let ready = |worker: &&WorkerState| worker.stage.is_ready() && worker.is_staying();
        self.seated.values().filter(ready).count()
    }

    /// How many are to stay, with those that do not serve yet.
    pub fn staying(&self) -> usize {
        let staying = self.seated.values().filter(|worker| worker.is_staying());
        staying.count()
    }

    /// The processes of those that were ready by then.
    pub fn ready_by(&self, by_ms: u64) -> impl Iterator<Item = i32> {
        let ready = self.seated.values();
        let ready = ready.filter(move |worker| worker.ready_ms.is_some_and(|at_ms| at_ms <= by_ms));
        ready.filter_map(|worker| worker.stage.pid())
    }

    /// Whether one could not be forked, or did not boot, so that the next has to wait.
    pub fn are_failing(&self, now_ms: u64) -> bool {
        !self.backoff.is_over(now_ms)
    }

    /// The indexes of the workers that are missing of `target`: workers that are about to go do not count, so their successors come first.
    pub(crate) fn missing(&self, target: u16) -> impl Iterator<Item = u16> {
        let missing = usize::from(target).saturating_sub(self.staying());
        (0..self.epochs.len() as u16)
            .filter(|index| !self.seated.contains_key(index))
            .take(missing)
    }

    /// Workers that have reported, and serve or finish.
    pub fn present(&self) -> impl Iterator<Item = PresentWorker> {
        let seated = self.seated.iter();
        seated.filter_map(|(&index, worker)| worker.present_at(index))
    }

    /// Whether the worker has its seats, and has not been reaped.
    pub fn is_seated(&self, worker: WorkerRef) -> bool {
        let seated = self.seated.get(&worker.index);
        seated.is_some_and(|seated| seated.epoch == worker.epoch)
    }

    /// All of them, also those that are only asked for.
    pub fn all(&self) -> impl Iterator<Item = Listed> {
        self.seated.iter().map(|(&index, worker)| Listed {
            index,
            number: worker.number,
            pid: worker.stage.pid(),
            stage: worker.stage.into(),
        })
    }

    /// Whether `pid` is one of them that was killed on purpose.
    pub fn has_killed(&self, pid: i32) -> bool {
        let mut seated = self.seated.values();
        seated.any(|worker| worker.stage == ChildStage::Killed { pid })
    }

    /// Their processes, as far as they have been reported.
    pub(crate) fn pids(&self) -> impl Iterator<Item = i32> {
        let seated = self.seated.values();
        seated.filter_map(|worker| worker.stage.pid())
    }

    fn index_of(&self, pid: i32) -> Option<u16> {
        let mut seated = self.seated.iter();
        let found = seated.find(|(_, worker)| worker.stage.pid() == Some(pid));
        found.map(|(&index, _)| index)
    }

    /// Whether this one is there and has not said that it serves.
    pub(crate) fn is_booting(&self, worker: WorkerRef) -> bool {
        let seated = self.seated.get(&worker.index);
        seated.is_some_and(|seated| {
            seated.epoch == worker.epoch && matches!(seated.stage, ChildStage::Booting { .. })
        })
    }

    pub(crate) fn entry(&mut self, worker: WorkerRef) -> Option<&mut WorkerState> {
        self.seated
            .get_mut(&worker.index)
            .filter(|seated| seated.epoch == worker.epoch)
    }

    // Actions.

    /// Asks the template for the missing workers; `is_canary`: which it has to prove first.
    pub(crate) fn fork_missing(&mut self, target: u16, is_canary: bool, decision: &mut Decision) {
        if !self.backoff.is_over(decision.now_ms) {
            return;
        }
        let missing: Vec<u16> = self.missing(target).collect();
        for index in missing {
            let (worker, number) = self.seat(decision.now_ms, index, ChildStage::Asked);
            let message = ToTemplate::Fork {
                worker,
                number,
                is_canary,
            };
            decision.push(Action::tell_template(self.generation_number, message));
        }
    }

    /// Has the template become one of the missing workers. False if no worker is missing, or if it is too early for another try.
    pub(crate) fn has_one(&mut self, target: u16, pid: i32, decision: &mut Decision) -> bool {
        let missing = self.missing(target).next();
        let Some(index) = missing.filter(|_| self.backoff.is_over(decision.now_ms)) else {
            return false;
        };
        let (worker, number) = self.seat(decision.now_ms, index, ChildStage::Booting { pid });
        let message = ToTemplate::Become { worker, number };
        decision.push(Action::tell_template(self.generation_number, message));
        true
    }

    /// Gives these seats to another process, with the lowest number that is free.
    pub(crate) fn seat(&mut self, now_ms: u64, index: u16, stage: ChildStage) -> (WorkerRef, u16) {
        let last = &mut self.epochs[usize::from(index)];
        *last = (*last + 1) % Word::EPOCHS;
        let epoch = *last;
        let number = self.free_number();
        let nth = self.had.entry(number).or_default();
        *nth = nth.saturating_add(1);
        let mut seated = WorkerState::asked_for(epoch, (number, *nth), now_ms);
        seated.stage = stage;
        let worker = seated.at(index);
        self.seated.insert(index, seated);
        (worker, number)
    }

    /// The lowest number that no staying worker has.
    fn free_number(&self) -> u16 {
        let staying = self.seated.values().filter(|worker| worker.is_staying());
        let taken: BTreeSet<u16> = staying.map(|worker| worker.number).collect();
        let mut numbers = 0..=u16::MAX;
        numbers.find(|number| !taken.contains(number)).unwrap_or(0)
    }

    /// When [`Self::fork_missing`] has something to do.
    pub(crate) fn due_ms(&self, target: u16) -> Option<u64> {
        self.missing(target)
            .next()
            .map(|_| self.backoff.not_before_ms())
    }

    /// Whether the template has had ample time for a worker that it was asked for, and has not forked
    /// any for as long.
    pub(crate) fn are_overdue(&self, now_ms: u64) -> bool {
        self.overdue_ms()
            .is_some_and(|overdue_ms| now_ms >= overdue_ms)
    }

    /// When [`Self::are_overdue`] becomes true.
    pub(crate) fn overdue_ms(&self) -> Option<u64> {
        let asked = self.seated.values();
        let asked = asked.filter(|worker| worker.stage == ChildStage::Asked);
        let first_ms = asked.map(|worker| worker.asked_ms).min()?;
        Some(first_ms.max(self.heard_ms) + FORK_MS_MAX)
    }

    /// Asks those beyond `target` to leave: those that do not serve yet, then the last numbers.
    pub(crate) fn shrink(&mut self, target: u16, deadline_ms: u64, decision: &mut Decision) {
        let staying = self.seated.values_mut();
        let mut staying: Vec<_> = staying.filter(|worker| worker.is_staying()).collect();
        staying.sort_by_key(|worker| (!worker.stage.is_ready(), worker.number));
        for worker in staying.into_iter().skip(usize::from(target)) {
            worker.ask_to_leave(deadline_ms, decision);
        }
    }

    /// Asks all of them to leave.
    pub(crate) fn dismiss(&mut self, deadline_ms: u64, decision: &mut Decision) {
        for worker in self.seated.values_mut() {
            worker.ask_to_leave(deadline_ms, decision);
        }
    }

    pub(crate) fn kill_overstayers(&mut self, decision: &mut Decision) {
        for worker in self.seated.values_mut() {
            if Self::abort(worker, decision) {
                continue;
            }
            if let Some(pid) = worker.stage.kill_if_overstaying(decision.now_ms) {
                if worker.condemned.is_none() {
                    let who = worker.called();
                    decision.warning(format!("{who} did not leave in time and is killed"));
                }
                decision.kill(pid, SIGKILL);
            }
        }
    }

    /// When [`Self::kill_overstayers`] has something to do.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.seated
            .values()
            .filter_map(|worker| worker.stage.deadline_ms())
            .min()
    }

    /// Tells a new acceptor which workers have gone, as the acceptor before it may not have heard or acted, and which serve.
    pub(crate) fn introduce(&self, decision: &mut Decision) {
        let tell = |message| Action::tell_acceptor(self.generation_number, message);
        decision.extend(self.departed.messages().map(tell));
        decision.extend(self.present().map(PresentWorker::ready).map(tell));
    }

    /// The worker that has served for longest, of those that are to stay.
    pub(crate) fn oldest(&self) -> Option<u16> {
        let ready = self.seated.iter();
        let ready = ready.filter(|(_, one)| one.stage.is_ready() && one.is_staying());
        ready
            .min_by_key(|(_, one)| one.ready_ms)
            .map(|(&index, _)| index)
    }

    /// Has each worker reopen the logs, or do so once it is ready.
    pub(crate) fn reopen(&mut self, decision: &mut Decision) {
        for worker in self.seated.values_mut() {
            match worker.present() {
                Some(pid) => decision.kill(pid, SIGUSR1),
                None => worker.missed_reopen = true,
            }
        }
    }

    // Events.

    /// The template could not fork a worker.
    pub(crate) fn on_not_forked(
        &mut self,
        worker: WorkerRef,
        decision: &mut Decision,
    ) -> Result<(), BootFailure> {
        let Some(seated) = self.entry(worker) else {
            return Ok(());
        };
        if seated.stage != ChildStage::Asked {
            return Ok(());
        }
        let number = seated.number;
        self.seated.remove(&worker.index);
        self.heard_ms = decision.now_ms;
        self.backoff.failed(decision.now_ms);
        let wait_ms = self.backoff.wait_ms(decision.now_ms);
        decision.error(format!(
            "worker {number} could not be forked; next try in {wait_ms} ms"
        ));
        Err(BootFailure::Passing)
    }

    /// A worker is there. True if it was asked for; a process that comes too late is killed.
    pub(crate) fn on_here(&mut self, worker: WorkerRef, pid: i32, decision: &mut Decision) -> bool {
        match self.entry(worker) {
            Some(worker) if worker.stage == ChildStage::Asked => {
                worker.stage = ChildStage::Booting { pid };
                worker.silent_since_ms = None;
                self.heard_ms = decision.now_ms;
                true
            }
            Some(worker) if worker.stage.pid() == Some(pid) => false,
            _ => {
                decision.kill(pid, SIGKILL);
                false
            }
        }
    }

    /// The template has ended: workers that it was asked for have been forked and will report, or will never exist. True if there were any.
    pub(crate) fn on_template_lost(&mut self, now_ms: u64) -> bool {
        let was_asked = |worker: &&mut WorkerState| worker.stage == ChildStage::Asked;
        let were_asked = self.seated.values_mut().filter(was_asked);
        let count = were_asked
            .map(|worker| worker.silent_since_ms.get_or_insert(now_ms))
            .count();
        // The next template is not late for what it was not asked.
        self.heard_ms = now_ms;
        count > 0
    }

    /// A worker says that it serves. True if it was awaited.
    pub(crate) fn on_ready(&mut self, worker: WorkerRef, decision: &mut Decision) -> bool {
        let generation_number = self.generation_number;
        let Some(seated) = self.entry(worker) else {
            return false;
        };
        let was_awaited = matches!(seated.stage, ChildStage::Booting { .. });
        match seated.stage {
            ChildStage::Booting { pid } => {
                let missed_reopen = std::mem::take(&mut seated.missed_reopen);
                seated.stage = ChildStage::Ready { pid };
                seated.ready_ms = Some(decision.now_ms);
                let (number, present) = (seated.number, seated.present_at(worker.index));
                self.backoff = Backoff::default();
                self.have_served = true;
                let ready = present.map(PresentWorker::ready);
                decision.extend(ready.map(|ready| Action::tell_acceptor(generation_number, ready)));
                decision.info(format!(
                    "worker ready worker={number} pid={pid} generation={generation_number}"
                ));
                decision.extend(missed_reopen.then_some(Action::Kill(pid, SIGUSR1)));
            }
            // It was sent TERM while it was booting, when it may not have listened yet.
            ChildStage::Leaving { pid, .. } => {
                seated.ready_ms = Some(decision.now_ms);
                decision.kill(pid, SIGTERM);
            }
            ChildStage::Wanted
            | ChildStage::Asked
            | ChildStage::Ready { .. }
            | ChildStage::Becoming { .. }
            | ChildStage::Killed { .. } => {}
        }
        was_awaited
    }

    /// The acceptor finds that a worker must not go on.
    pub(crate) fn on_replace(&mut self, worker: WorkerRef, decision: &mut Decision) {
        let Some(seated) = self.entry(worker) else {
            return;
        };
        if let Some(pid) = seated.stage.kill() {
            seated.cause = Some(Cause::Corrupt);
            let who = seated.called();
            decision.error(format!("{who} is replaced: it wrote where it should not"));
            decision.kill(pid, SIGKILL);
        }
    }

    /// No process has a worker's seats any more.
    pub(crate) fn has_gone(
        &mut self,
        worker: WorkerRef,
        (number, pid): (u16, i32),
        cause: Option<Cause>,
        decision: &mut Decision,
    ) {
        decision.push(Action::Vacate {
            generation_number: self.generation_number,
            worker: worker.index,
        });
        let message = self.departed.add(worker);
        decision.push(Action::tell_acceptor(self.generation_number, message));
        decision.push(Action::Announce(News::WorkerGone { number, pid, cause }));
    }

    /// A worker has ended.
    pub(crate) fn on_reaped(
        &mut self,
        pid: i32,
        exit: Exit,
        decision: &mut Decision,
    ) -> Result<(), BootFailure> {
        let known = self.index_of(pid);
        let Some((index, worker)) = known.and_then(|index| self.seated.remove_entry(&index)) else {
            return Ok(());
        };
        let cause = worker.cause_of(exit);
        // With memory as short as that, a template would only make it shorter.
        let is_lost = cause.is_some_and(|cause| cause != Cause::OutOfMemory);
        self.have_lost |= is_lost && worker.has_served_to_its_end();
        self.has_gone(worker.at(index), (worker.number, pid), cause, decision);
        let called = called(worker.number, Some(pid));
        let who = match &worker.condemned {
            Some(condemned) => format!("{called} {exit}: {}", condemned.why),
            None => format!("{called} {exit}"),
        };
        match (worker.stage, exit) {
            (
                ChildStage::Booting { .. },
                Exit::Code(code @ (exit_code::APP_LOAD | exit_code::WORKER_BOOT)),
            ) if !self.have_served => {
                decision.error(format!("{who} while booting: no worker was ever ready"));
                return Err(BootFailure::App(code));
            }
            (ChildStage::Booting { .. }, _) => {
                self.backoff.failed(decision.now_ms);
                let failures = self.backoff.failures();
                let wait_ms = self.backoff.wait_ms(decision.now_ms);
                decision.error(format!(
                    "{who} while booting, failure {failures} in a row; next try in {wait_ms} ms"
                ));
                return Err(BootFailure::Passing);
            }
            (_, Exit::Code(exit_code::FINE)) => {}
            _ => decision.warning(who),
        }
        Ok(())
    }
}
