//! The moments at which the operator's own code runs.
//!
//! The master runs Python for hooks and for a reload of the configuration, and at no other time.

use std::time::{Duration, Instant};

use tracing::{error, warn};

use crate::load_error::LoadError;

/// A hook that took longer than this is named in the log.
const HOOK_SLOW: Duration = Duration::from_secs(1);

/// A moment at which the operator's own code may run (docs/reference/hooks.md). The names and
/// arguments of the functions are gunicorn's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Master, before anything else is started. If it fails, so does the start.
    Starting,
    /// Master, when it has read the configuration again, and before anything is made of it.
    Reload,
    /// Master, when the first workers are ready.
    Ready,
    /// Master, after a worker has ended.
    ChildExit {
        /// The worker's number among those that are wanted: `worker.nr`.
        number: u16,
        /// Its process, which is no more.
        pid: i32,
    },
    /// Master, after the number of workers that are wanted has changed.
    WorkersChanged {
        /// The present number.
        new: u16,
        /// The number before.
        old: u16,
    },
    /// Master, before the next one is started.
    PreExec,
    /// Master, at the end.
    Exit,
    /// Template, before it forks a worker. If it fails there is no fork.
    PreFork {
        /// The worker's number among those that are wanted: `worker.nr`.
        number: u16,
    },
    /// Worker, right after its fork. If it fails the worker does not come up.
    PostFork {
        /// The worker's number among those that are wanted: `worker.nr`.
        number: u16,
    },
    /// Worker, once the app is loaded. If it fails the worker does not come up.
    PostWorkerInit,
    /// Worker, which was sent INT or QUIT and leaves at once.
    WorkerInt,
    /// Worker, which was sent ABRT and leaves at once.
    WorkerAbort,
    /// Worker, at the end.
    WorkerExit,
}

impl Hook {
    /// The name of its function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "on_starting",
            Self::Reload => "on_reload",
            Self::Ready => "when_ready",
            Self::ChildExit { .. } => "child_exit",
            Self::WorkersChanged { .. } => "nworkers_changed",
            Self::PreExec => "pre_exec",
            Self::Exit => "on_exit",
            Self::PreFork { .. } => "pre_fork",
            Self::PostFork { .. } => "post_fork",
            Self::PostWorkerInit => "post_worker_init",
            Self::WorkerInt => "worker_int",
            Self::WorkerAbort => "worker_abort",
            Self::WorkerExit => "worker_exit",
        }
    }

    /// Whether it runs in the master, which must not have threads when it forks.
    pub(crate) fn is_in_master(self) -> bool {
        match self {
            Self::Starting
            | Self::Reload
            | Self::Ready
            | Self::ChildExit { .. }
            | Self::WorkersChanged { .. }
            | Self::PreExec
            | Self::Exit => true,
            Self::PreFork { .. }
            | Self::PostFork { .. }
            | Self::PostWorkerInit
            | Self::WorkerInt
            | Self::WorkerAbort
            | Self::WorkerExit => false,
        }
    }

    /// Runs it by `run`, and logs what it raised, and how long it took if that was long.
    pub fn watched(self, run: impl FnOnce() -> Result<(), LoadError>) -> Result<(), LoadError> {
        let name = self.name();
        let begun = Instant::now();
        let done = run();
        let took = begun.elapsed();
        if let Err(error) = &done {
            error!("{}", error.report);
        }
        if took > HOOK_SLOW {
            let meanwhile = if self.is_in_master() {
                ", and the master did nothing else meanwhile"
            } else {
                ""
            };
            warn!(
                "the hook {name} took {:.1} s{meanwhile}",
                took.as_secs_f64()
            );
        }
        done
    }
}
