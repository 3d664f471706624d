//! One worker, as the master knows it.

use stanchion_sys::process::Exit;
use stanchion_sys::signal::SIGTERM;

use crate::decision::Decision;
use crate::sentence::Sentence;
use crate::stage::ChildStage;
use stanchion_generation::figures::Cause;
use stanchion_generation::messages::{ToAcceptor, WorkerRef};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each tells of another event")]
pub(crate) struct WorkerState {
    pub(crate) stage: ChildStage,
    pub(crate) epoch: u16,
    /// Number among the workers wanted, for log, status, metrics, title and hooks. A successor has it from the one it
    /// replaces, though it may sit elsewhere.
    pub(crate) number: u16,
    /// It is the n-th that has this number.
    pub(crate) nth: u32,
    /// When it was asked for.
    pub(crate) asked_ms: u64,
    /// Since when no process has its end of the channel to us; if it is only asked for, perhaps since when the template is gone that was to fork it.
    pub(crate) silent_since_ms: Option<u64>,
    /// When it became ready, if it did.
    pub(crate) ready_ms: Option<u64>,
    /// The bytes that it took soon after that, before any request, if that was too much for a limit.
    pub(crate) newborn_bytes: Option<u64>,
    /// Why it is to be replaced, if it is.
    pub(crate) due: Option<String>,
    /// Its successor has been asked for: it stays until that one is ready.
    pub(crate) recycled: bool,
    /// The logs were reopened while it was booting, when USR1 would have ended it.
    pub(crate) missed_reopen: bool,
    /// It was sent TERM a second time, in case the kernel merged the first with a TERM of another process.
    pub(crate) was_told_again: bool,
    /// The cause of its end, once that is known.
    pub(crate) cause: Option<Cause>,
    /// Its event loop has not turned for a while, or it takes no request, and the log has said so.
    pub(crate) is_late: bool,
    /// It will be killed.
    pub(crate) condemned: Option<Sentence>,
}

impl WorkerState {
    pub(crate) fn asked_for(epoch: u16, (number, nth): (u16, u32), now_ms: u64) -> Self {
        Self {
            stage: ChildStage::Asked,
            epoch,
            number,
            nth,
            asked_ms: now_ms,
            silent_since_ms: None,
            ready_ms: None,
            newborn_bytes: None,
            due: None,
            recycled: false,
            missed_reopen: false,
            was_told_again: false,
            cause: None,
            is_late: false,
            condemned: None,
        }
    }

    /// Its reference, if these seats are its.
    pub(crate) fn at(&self, index: u16) -> WorkerRef {
        let epoch = self.epoch;
        WorkerRef { index, epoch }
    }

    /// The worker as others see it, if it has reported, and these seats are its.
    pub(crate) fn present_at(&self, index: u16) -> Option<PresentWorker> {
        Some(PresentWorker {
            worker: self.at(index),
            number: self.number,
            nth: self.nth,
            pid: self.present()?,
        })
    }

    /// Whether it counts among those wanted: it is there or on the way, and not about to go.
    pub(crate) fn is_staying(&self) -> bool {
        let stays = matches!(
            self.stage,
            ChildStage::Asked
                | ChildStage::Booting { .. }
                | ChildStage::Ready { .. }
                | ChildStage::Becoming { .. }
        );
        stays && !self.recycled
    }

    pub(crate) fn is_silent_for(&self, silent_ms: u64, now_ms: u64) -> bool {
        self.silent_since_ms
            .is_some_and(|since_ms| now_ms >= since_ms + silent_ms)
    }

    /// The worker's name in the log. The pid tells it from its predecessor, which has the same number.
    pub(crate) fn called(&self) -> String {
        called(self.number, self.stage.pid())
    }

    /// Its process, if that has reported: it serves or finishes, and listens to signals.
    pub(crate) fn present(&self) -> Option<i32> {
        match self.stage {
            ChildStage::Ready { pid }
            | ChildStage::Becoming { pid }
            | ChildStage::Leaving { pid, .. } => self.ready_ms.map(|_| pid),
            ChildStage::Wanted
            | ChildStage::Asked
            | ChildStage::Booting { .. }
            | ChildStage::Killed { .. } => None,
        }
    }

    /// Why it ended, if it was to stay.
    pub(crate) fn cause_of(&self, exit: Exit) -> Option<Cause> {
        let by_itself = match (self.stage, exit) {
            (ChildStage::Wanted | ChildStage::Asked | ChildStage::Booting { .. }, _) => {
                Some(Cause::Boot)
            }
            (ChildStage::Ready { .. } | ChildStage::Becoming { .. }, exit) => Some(match exit {
                Exit::Signal(_) => Cause::Killed,
                Exit::OutOfMemory(_) => Cause::OutOfMemory,
                Exit::Code(_) | Exit::Unseen => Cause::Exited,
            }),
            (ChildStage::Leaving { .. } | ChildStage::Killed { .. }, _) => None,
        };
        let is_that = !matches!(self.stage, ChildStage::Leaving { .. })
            || self.recycled
            || self.condemned.is_some();
        self.cause.filter(|_| is_that).or(by_itself)
    }

    /// Whether it served, and has no successor that was asked for while it could serve.
    pub(crate) fn has_served_to_its_end(&self) -> bool {
        self.ready_ms.is_some() && (!self.recycled || self.condemned.is_some())
    }

    /// It is to be replaced because of this, if it is not already because of something else.
    pub(crate) fn is_due(&mut self, cause: Cause, why: impl FnOnce() -> String) {
        if self.due.is_none() {
            self.due = Some(why());
            self.cause = Some(cause);
        }
    }

    pub(crate) fn ask_to_leave(&mut self, deadline_ms: u64, decision: &mut Decision) {
        if let Some(pid) = self.stage.leave_by(deadline_ms) {
            decision.kill(pid, SIGTERM);
        }
    }
}

/// A worker that has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentWorker {
    /// Its seats, and its epoch of them.
    pub worker: WorkerRef,
    /// Its number among the workers that are wanted.
    pub number: u16,
    /// It is the n-th that has this number.
    pub nth: u32,
    /// Its process.
    pub pid: i32,
}

impl PresentWorker {
    /// The message to the acceptor about it.
    pub(crate) fn ready(self) -> ToAcceptor {
        let Self {
            worker,
            number,
            nth,
            pid,
        } = self;
        ToAcceptor::WorkerReady {
            worker,
            number,
            nth,
            pid,
        }
    }
}

/// The name in the log of the worker of this number, with its process if there is one.
pub fn called(number: u16, pid: Option<i32>) -> String {
    match pid {
        Some(pid) => format!("worker {number} ({pid})"),
        None => format!("worker {number}"),
    }
}

/// Such as `2 workers`.
pub fn counted(workers: impl std::fmt::Display) -> String {
    let number = workers.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} worker{ending}")
}

/// A worker did not get to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BootFailure {
    /// The app is broken, and no worker has ever served: the server's exit code would be this.
    App(i32),
    /// It may go better next time.
    Passing,
}
