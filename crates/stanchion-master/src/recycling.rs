//! Workers that are to be replaced though they serve: those that have had enough, after requests,
//! time or memory, one at a time and only when the successor is there; and those that are condemned,
//! at once.
//!
//! A worker that has reached a limit goes on until its successor is ready, so that capacity stays the same; therefore
//! `max_requests` is not exact. A worker whose request is past its deadline is *condemned*: the acceptor answers 504 at
//! once, a successor is requested, and the worker writes its stacks into a memfd from a signal handler. The master
//! sends it ABRT when no other request of it can still end, at the latest after a second: then it runs its hooks and
//! leaves, and the master kills it if it has not left a second later. A worker that takes too much memory is killed
//! without ABRT.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion_sys::signal::{SIGABRT, SIGKILL, SIGTERM};

use crate::decision::Decision;
use crate::event::{Action, GenerationPlan, Idleness, LoopState, Observation};
use crate::looks::why_it_stands;
use crate::sentence::{Abort, Sentence};
use crate::stage::ChildStage;
use crate::worker::{PresentWorker, WorkerState};
use crate::workers::Workers;
use stanchion_generation::figures::Cause;
use stanchion_generation::jitter::jitter;
use stanchion_generation::messages::{ToAcceptor, WorkerRef};

/// A condemned worker gets so long to write its stacks down.
pub(crate) const DUMP_MS: u64 = 1_000;
/// The other requests of a condemned worker get so long to end.
const GRACE_MS: u64 = 1_000;
/// A worker that has had no request so long after it became ready has the memory that it takes without any.
const NEWBORN_MS: u64 = 5_000;
/// A condemned worker gets so long for its hook, `worker_abort`, as in gunicorn.
const ABORT_MS: u64 = 1_000;

impl Workers {
    /// A worker says that it has served enough.
    pub(crate) fn on_due(&mut self, worker: WorkerRef, requests: u64, messages: u64) {
        if let Some(worker) = self.entry(worker) {
            let why = || match messages {
                0 => format!("it has served {requests} requests (max_requests)"),
                _ => format!(
                    "it has served {requests} requests and {messages} messages (max_requests)"
                ),
            };
            worker.is_due(Cause::MaxRequests, why);
        }
    }

    /// Another process than the master has sent a worker TERM. A worker that is to leave is sent the master's TERM again, once: of two that come at
    /// the same moment the kernel delivers the first (signal(7)), and the worker takes that for one that is not the master's.
    pub(crate) fn on_terminated(
        &mut self,
        worker: WorkerRef,
        is_followed: bool,
        decision: &mut Decision,
    ) {
        let Some(worker) = self.entry(worker) else {
            return;
        };
        if let ChildStage::Becoming { pid } | ChildStage::Leaving { pid, .. } = worker.stage {
            if !std::mem::replace(&mut worker.was_told_again, true) {
                decision.kill(pid, SIGTERM);
            }
        } else if is_followed {
            worker.is_due(Cause::Exited, || "it was sent TERM".to_owned());
        }
    }

    /// Has at most one worker replaced that is due: its successor is asked for first, and the worker leaves when the successor is ready, so that
    /// capacity stays.
    pub(crate) fn recycle(&mut self, target: u16, plan: &GenerationPlan, decision: &mut Decision) {
        if plan.lifetime_ms > 0 {
            for worker in self.seated.values_mut() {
                if end_of_life_ms(worker, plan).is_some_and(|end_ms| decision.now_ms >= end_ms) {
                    let age_s =
                        (decision.now_ms - worker.ready_ms.unwrap_or(decision.now_ms)) / 1_000;
                    let why = || format!("it has lived for {age_s} s (max_lifetime)");
                    worker.is_due(Cause::MaxLifetime, why);
                }
            }
        }
        if !self.seated.values().any(|worker| worker.recycled) {
            let due = |worker: &&mut WorkerState| worker.due.is_some() && worker.stage.is_ready();
            if let Some(worker) = self.seated.values_mut().find(due) {
                worker.recycled = true;
                let why = worker.due.as_deref().unwrap_or_default();
                let message = format!("{} is to be replaced: {why}", worker.called());
                decision.info(message);
            }
        }
        // Also if there is no seat for a successor.
        let is_replaced =
            self.ready() >= usize::from(target) || self.missing(target).next().is_none();
        let none_on_the_way = !self
            .seated
            .values()
            .any(|worker| worker.is_staying() && !worker.stage.is_ready());
        if is_replaced && none_on_the_way {
            let deadline_ms = decision.now_ms + plan.graceful_ms;
            for worker in self.seated.values_mut().filter(|worker| worker.recycled) {
                worker.ask_to_leave(deadline_ms, decision);
            }
        }
    }

    /// Has a worker that serves leave its seats and become the template. It keeps its place among those that are wanted until it has. `None` if
    /// it is to go anyway.
    pub(crate) fn begin_to_become(&mut self, index: u16) -> Option<PresentWorker> {
        let worker = self.seated.get_mut(&index)?;
        let is_to_stay = worker.stage.is_ready() && worker.is_staying();
        let present = worker.present_at(index).filter(|_| is_to_stay)?;
        worker.stage = ChildStage::Becoming { pid: present.pid };
        Some(present)
    }

    pub(crate) fn is_becoming(&self, worker: WorkerRef) -> bool {
        let seated = self.seated.get(&worker.index);
        seated.is_some_and(|seated| {
            seated.epoch == worker.epoch && matches!(seated.stage, ChildStage::Becoming { .. })
        })
    }

    /// A worker has left its seats and is the template. False if it is none that was to become that.
    pub(crate) fn has_become_template(
        &mut self,
        worker: WorkerRef,
        decision: &mut Decision,
    ) -> bool {
        if !self.is_becoming(worker) {
            return false;
        }
        let seated = self.seated.remove(&worker.index);
        let whose = seated.and_then(|seated| Some((seated.number, seated.stage.pid()?)));
        if let Some(whose) = whose {
            self.has_gone(worker, whose, Some(Cause::Refork), decision);
        }
        whose.is_some()
    }

    /// A worker is to be the template no more: it leaves by the deadline, or is killed now if that is over.
    pub(crate) fn is_not_to_become(
        &mut self,
        worker: WorkerRef,
        deadline_ms: u64,
        decision: &mut Decision,
    ) {
        if self.is_becoming(worker)
            && let Some(worker) = self.entry(worker)
        {
            worker.ask_to_leave(deadline_ms, decision);
        }
    }

    /// The workers that have their seats now.
    pub(crate) fn references(&self) -> BTreeSet<WorkerRef> {
        let seated = self.seated.iter();
        seated.map(|(&index, worker)| worker.at(index)).collect()
    }

    /// These are forks of the template before the present one.
    pub(crate) fn are_outdated(&mut self, workers: &BTreeSet<WorkerRef>) {
        for &worker in workers {
            if let Some(worker) = self.entry(worker) {
                let why = || "it is no fork of the new template (re-fork)".to_owned();
                worker.is_due(Cause::Refork, why);
            }
        }
    }

    /// These are not outdated any more, as their template is the present one again. A worker whose successor was asked for goes nevertheless.
    pub(crate) fn are_up_to_date(&mut self, workers: &BTreeSet<WorkerRef>) {
        for &worker in workers {
            if let Some(worker) = self.entry(worker)
                && worker.cause == Some(Cause::Refork)
                && !worker.recycled
            {
                (worker.due, worker.cause) = (None, None);
            }
        }
    }

    /// Kills those that boot, but for these.
    pub(crate) fn kill_booting_but(
        &mut self,
        workers: &BTreeSet<WorkerRef>,
        decision: &mut Decision,
    ) {
        for (&index, worker) in &mut self.seated {
            if matches!(worker.stage, ChildStage::Booting { .. })
                && !workers.contains(&worker.at(index))
                && let Some(pid) = worker.stage.kill()
            {
                worker.cause = Some(Cause::Boot);
                decision.kill(pid, SIGKILL);
            }
        }
    }

    /// When the next life is over.
    pub(crate) fn end_of_life_ms(&self, plan: &GenerationPlan) -> Option<u64> {
        let ends = self.seated.values().filter(|worker| worker.due.is_none());
        let ends = ends.filter_map(|worker| end_of_life_ms(worker, plan));
        ends.min().filter(|_| plan.lifetime_ms > 0)
    }

    /// Handles an observation on a worker that serves; gives a worker whose stacks are wanted.
    pub(crate) fn on_seen(
        &mut self,
        index: u16,
        seen: Observation,
        plan: &GenerationPlan,
        decision: &mut Decision,
    ) -> Option<PresentWorker> {
        match seen {
            Observation::Overdue {
                seat,
                ran_ms,
                others,
            } => self.on_overdue((index, seat), (ran_ms, others), decision),
            Observation::Beat { state, silent_ms } => {
                self.on_beat(index, (state, silent_ms), decision)
            }
            Observation::Idles(idleness) => self.on_idles(index, idleness, decision),
            Observation::Memory {
                bytes,
                is_unused,
                others,
            } => {
                if is_unused {
                    self.on_newborn_memory(index, bytes, plan, decision);
                }
                self.on_memory(index, (bytes, others), plan, decision)
            }
        }
    }

    /// A worker takes too many bytes before its first request. Its successor would take as many, so the master does not replace it for them.
    fn on_newborn_memory(
        &mut self,
        index: u16,
        bytes: u64,
        plan: &GenerationPlan,
        decision: &mut Decision,
    ) {
        let Some(worker) = self.seated.get_mut(&index) else {
            return;
        };
        let is_newborn =
            |ready_ms| worker.newborn_bytes.is_none() && decision.now_ms < ready_ms + NEWBORN_MS;
        if !worker.ready_ms.is_some_and(is_newborn) {
            return;
        }
        worker.newborn_bytes = Some(bytes);
        let who = worker.called();
        if std::mem::replace(&mut self.told_of_newborn, true) {
            return;
        }
        let limits = [
            ("max_memory", plan.memory_max),
            ("max_memory_hard", plan.memory_hard_max),
        ];
        let past = limits
            .iter()
            .filter(|(_, limit)| (1..bytes).contains(limit));
        let past: Vec<_> = past
            .map(|(name, limit)| format!("{name} ({} MiB)", limit >> 20))
            .collect();
        decision.warning(format!(
            "{who} takes {} MiB before its first request, more than {}: the master replaces no worker for that, \
             as its successor would take as much. Set a larger limit",
            bytes >> 20,
            past.join(" and ")
        ));
    }

    /// A worker takes so many bytes.
    fn on_memory(
        &mut self,
        index: u16,
        (bytes, others): (u64, bool),
        plan: &GenerationPlan,
        decision: &mut Decision,
    ) -> Option<PresentWorker> {
        let megabytes = bytes >> 20;
        let newborn_bytes = self.seated.get(&index)?.newborn_bytes.unwrap_or(0);
        let is_past = |limit| limit > newborn_bytes && bytes > limit;
        if is_past(plan.memory_hard_max) {
            let why = format!("it takes {megabytes} MiB (max_memory_hard)");
            return self.condemn(index, others, (Cause::MaxMemoryHard, &why), decision);
        }
        if is_past(plan.memory_max)
            && let Some(worker) = self.seated.get_mut(&index)
        {
            let why = || format!("it takes {megabytes} MiB (max_memory)");
            worker.is_due(Cause::MaxMemory, why);
        }
        None
    }

    /// The request of a seat of worker `index` has run past its deadline.
    fn on_overdue(
        &mut self,
        (index, seat): (u16, u16),
        (ran_ms, others): (u64, bool),
        decision: &mut Decision,
    ) -> Option<PresentWorker> {
        let worker = self.seated.get_mut(&index)?;
        // If the worker is dead already, the acceptor answers its clients for that reason.
        worker.present()?;
        // Sent at each look, as another seat of it may be overdue too by now; the acceptor needs it once for each seat.
        let message = ToAcceptor::Overdue {
            seat,
            epoch: worker.epoch,
            ran_ms,
        };
        decision.push(Action::tell_acceptor(self.generation_number, message));
        if let Some(condemned) = &mut worker.condemned {
            condemned.others = others;
            if condemned.dumped && !others && condemned.abort != Abort::Sent {
                worker.stage.leave_by(decision.now_ms);
            }
            return None;
        }
        let ran_s = Duration::from_millis(ran_ms).as_secs_f64();
        let why = format!("a request has run for {ran_s:.1} s, past its deadline (timeout)");
        self.condemn(index, others, (Cause::Timeout, &why), decision)
    }

    /// The event loop of worker `index` turns no more, or turns again. A worker that leaves has its deadline for that.
    fn on_beat(
        &mut self,
        index: u16,
        (state, silent_ms): (LoopState, u64),
        decision: &mut Decision,
    ) -> Option<PresentWorker> {
        let worker = self.seated.get_mut(&index)?;
        if !worker.stage.is_ready() {
            return None;
        }
        let who = worker.called();
        let silent_s = Duration::from_millis(silent_ms).as_secs_f64();
        let was_late = std::mem::replace(&mut worker.is_late, state != LoopState::Turns);
        match state {
            LoopState::Turns if was_late => decision.info(format!(
                "the event loop of {who} turns again, after {silent_s:.1} s"
            )),
            LoopState::Stopped if !was_late => decision.warning(format!(
                "{who} is stopped, by a signal or a debugger; the others get its share"
            )),
            LoopState::Late if !was_late => {
                decision.warning(format!(
                    "the event loop of {who} has not turned for {silent_s:.1} s \
                     (loop_timeout): something in the app blocks it; the others get its share"
                ));
                return worker.present_at(index);
            }
            LoopState::Stuck => {
                let message = ToAcceptor::LoopStuck(worker.at(index));
                decision.push(Action::tell_acceptor(self.generation_number, message));
                let why = format!("its event loop has not turned for {silent_s:.1} s (timeout)");
                return self.condemn(index, false, (Cause::Timeout, &why), decision);
            }
            LoopState::Turns | LoopState::Stopped | LoopState::Late => {}
        }
        None
    }

    /// Worker `index` takes no request though one waits, or does again.
    fn on_idles(
        &mut self,
        index: u16,
        idleness: Idleness,
        decision: &mut Decision,
    ) -> Option<PresentWorker> {
        let worker = self.seated.get_mut(&index)?;
        if !worker.stage.is_ready() {
            return None;
        }
        let who = worker.called();
        let was_late = std::mem::replace(
            &mut worker.is_late,
            matches!(idleness, Idleness::Lasts { .. }),
        );
        match idleness {
            Idleness::Over if was_late => {
                decision.info(format!("{who} takes requests again, or none waits for it"));
            }
            Idleness::Over => {}
            Idleness::Lasts {
                idle_ms,
                state,
                is_too_long,
            } => {
                let idle_s = Duration::from_millis(idle_ms).as_secs_f64();
                let what = format!("has taken no request for {idle_s:.1} s though one waits");
                let why = why_it_idles(state);
                if is_too_long {
                    let why = format!("it {what} (timeout): {why}");
                    return self.condemn(index, false, (Cause::Timeout, &why), decision);
                }
                if !was_late {
                    decision.warning(format!("{who} {what}: {why}"));
                }
            }
        }
        None
    }

    /// Has a worker write its stacks down, and then has it killed; the worker takes no further request.
    fn condemn(
        &mut self,
        index: u16,
        others: bool,
        (cause, why): (Cause, &str),
        decision: &mut Decision,
    ) -> Option<PresentWorker> {
        let worker = self.seated.get_mut(&index)?;
        let condemned = worker.present_at(index)?;
        if worker.condemned.is_some() {
            return None;
        }
        worker.cause = Some(cause);
        worker.condemned = Some(Sentence {
            why: why.to_owned(),
            others,
            dumped: false,
            // A worker that takes too much memory runs no hook, which would take more.
            abort: match cause {
                Cause::Timeout => Abort::Due,
                _ => Abort::Never,
            },
        });
        let who = worker.called();
        decision.error(format!("{who} is killed: {why}"));
        // The worker ends by this deadline even if its stacks cannot be written.
        worker.ask_to_leave(decision.now_ms + DUMP_MS + GRACE_MS, decision);
        Some(condemned)
    }

    /// Its stacks are written down, or it had its time for that: it dies as soon as no other
    /// request of it can still end.
    pub(crate) fn on_dumped(&mut self, now_ms: u64, worker: WorkerRef) {
        if let Some(worker) = self.entry(worker)
            && let Some(condemned) = &mut worker.condemned
        {
            condemned.dumped = true;
            let grace_ms = if condemned.others { GRACE_MS } else { 0 };
            if condemned.abort != Abort::Sent {
                worker.stage.leave_by(now_ms + grace_ms);
            }
        }
    }

    /// Sends ABRT to a condemned worker whose time is up, so that it runs its hooks and leaves. False if it is not due: the worker has had
    /// ABRT already, or is killed without it.
    pub(crate) fn abort(worker: &mut WorkerState, decision: &mut Decision) -> bool {
        let is_up = |deadline_ms| decision.now_ms >= deadline_ms;
        if let ChildStage::Leaving { pid, deadline_ms } = &mut worker.stage
            && is_up(*deadline_ms)
            && let Some(condemned) = &mut worker.condemned
            && condemned.abort == Abort::Due
        {
            condemned.abort = Abort::Sent;
            decision.kill(*pid, SIGABRT);
            *deadline_ms = decision.now_ms + ABORT_MS;
            return true;
        }
        false
    }
}

fn why_it_idles(state: Option<char>) -> &'static str {
    why_it_stands(state).unwrap_or(match state {
        Some('D') => "it waits in the kernel (disk or network file system)",
        _ => "it is stuck outside of the app's requests",
    })
}

/// When a worker has lived long enough.
fn end_of_life_ms(worker: &WorkerState, plan: &GenerationPlan) -> Option<u64> {
    let ChildStage::Ready { pid } = worker.stage else {
        return None;
    };
    let jitter_ms = jitter(pid, plan.lifetime_jitter_ms);
    Some(worker.ready_ms? + plan.lifetime_ms + jitter_ms)
}
