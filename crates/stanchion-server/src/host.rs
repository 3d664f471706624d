//! The interface between the process tree and the host of the app: Python in the product, plain Rust in `examples/`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use stanchion_sys::adoption::Between;
use stanchion_sys::process::Fork;
use tracing::{error, warn};

use crate::threads;
use crate::worker::Worker;
use stanchion_settings::Settings;

/// A hook that took longer than this is named in the log.
const HOOK_SLOW: Duration = Duration::from_secs(1);

/// The master gets so much of the reason why an app cannot be loaded. A message has room for it even if each character takes six bytes there, as
/// control characters do in JSON.
pub(crate) const REASON_CHARS_MAX: usize = 512;

/// The way in which this process was started, so that it can be started again.
#[derive(Clone, Debug)]
pub struct StartedAs {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Its working directory.
    pub directory: PathBuf,
}

/// A mistake of the app's, or of the operator's, own code.
#[derive(Debug)]
pub struct LoadError {
    /// For the log: a traceback, and a line that says what to do.
    pub report: String,
}

impl LoadError {
    /// Its last line, which says what is wrong and what to do.
    pub(crate) fn line(&self) -> String {
        let line = self.report.lines().next_back().unwrap_or_default();
        let line = line.strip_prefix("cannot load the app: ").unwrap_or(line);
        line.chars().take(REASON_CHARS_MAX).collect()
    }
}

/// Why an app is not hosted.
#[derive(Debug)]
pub enum NotLoaded {
    /// It cannot be loaded.
    Broken(LoadError),
    /// The app decides by which interface it is called ([`Interface::Auto`](stanchion_settings::Interface)), and these settings take it for the other
    /// one ([`Settings::is_asgi`]).
    OtherInterface,
}

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
    fn is_in_master(self) -> bool {
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

/// Logging of the host's language, set up by the operator's settings, in a scribe.
pub trait Logging {
    /// Writes a line of another process of the server: its id, the time in microseconds since the epoch, and the level, one of Python's.
    fn error(&mut self, pid: i32, time_us: u64, level: u8, text: &str);

    /// Writes a line of the access log: a JSON object of a request that is over. False if it makes no sense.
    fn access(&mut self, line: &str) -> bool;

    /// Reopens the files of the handlers.
    fn reopen(&mut self);

    /// Has all written that handlers hold back.
    fn finish(&mut self);

    /// Waits, while threads of the handlers' run.
    fn wait(&mut self, wait: &mut (dyn FnMut() + Send));
}

/// Hosts an app. Each method says in which process it is called.
pub trait Host {
    /// Imports the app: in the template, or in each worker without preloading.
    fn load(&mut self, settings: &Settings) -> Result<(), NotLoaded>;

    /// Once the app is loaded, before a worker is forked or serves: make what was loaded cheap to share.
    fn settle(&mut self, settings: &Settings);

    /// In the template, before the first worker is forked: sets a handler for
    /// [`stanchion_sys::signal::DUMP`] that writes the stacks of all threads to `dumps` from within the
    /// signal. The workers have it from here, each with a handler of its own in front of it.
    fn write_stacks_to(&mut self, dumps: BorrowedFd<'static>) -> Result<(), String>;

    /// In the master: forks the template.
    fn fork(&mut self) -> io::Result<Fork>;

    /// In the template: forks a worker that becomes the master's child
    /// ([`stanchion_sys::adoption::fork_for_subreaper`]).
    fn fork_worker(&mut self, between: Between) -> io::Result<Fork>;

    /// In a worker, first of all: sets what handlers the host's language has for the signals of
    /// [`stanchion_sys::signal::asked`], such that they call [`Worker::depart`] at the next safe
    /// point. The worker's own handlers stand in front of these.
    fn enter(&mut self, worker: &'static Worker) -> Result<(), String>;

    /// In a worker that has the app, before the master hears that it is ready: the work of the app before it can take requests. False if the worker
    /// was asked to leave before that was done: [`Worker::should_leave`].
    ///
    /// An error says why it cannot serve.
    fn start_up(&mut self, _worker: &'static Worker) -> Result<bool, String> {
        Ok(true)
    }

    /// In a worker: serves until [`Worker::should_leave`], each seat on a thread of its own; a
    /// single seat, or those of an event loop, on the calling thread.
    ///
    /// An error says why it cannot, or can no longer, serve.
    fn serve(&mut self, worker: &'static Worker) -> Result<(), String>;

    /// In the master: whether the configuration asks for a scribe, which runs logging of the host's.
    fn has_scribe(&mut self) -> bool {
        false
    }

    /// In a scribe, before anything is written: sets logging up as the configuration says.
    fn set_up_logging(&mut self) -> Result<Box<dyn Logging>, LoadError> {
        let report = "this host has no logging of its own".to_owned();
        Err(LoadError { report })
    }

    /// In a template: reopens the files of the app's own handlers. A worker's host does so too, by itself.
    fn reopen_logs(&mut self) {}

    /// In the master: how this process was started.
    fn started_as(&self) -> StartedAs;

    /// In the template: the files whose change asks for a reload.
    fn watched_files(&mut self) -> Vec<PathBuf>;

    /// Runs the operator's function for this moment, if there is one, in the process that
    /// [`Hook`] names. Callers want [`Host::hook`].
    fn run_hook(&mut self, hook: Hook) -> Result<(), LoadError>;

    /// Runs a hook. When this returns, the log has what the hook raised, and the threads that it has left in the master.
    fn hook(&mut self, hook: Hook) -> Result<(), LoadError> {
        let before = hook.is_in_master().then(threads::present);
        let done = hook.watched(|| self.run_hook(hook));
        let left = before.map(|before| threads::staying(self, &before?));
        match left.transpose() {
            // Threads that are left before the start end it, with an error of its own.
            Ok(Some(Some(threads))) if hook != Hook::Starting => error!(
                "the hook {} has left {threads} in the master, which cannot fork any more: a reload \
                 will fail, a template that ends cannot be replaced, and if the acceptor ends, so does \
                 the server. Start threads in post_fork or post_worker_init, and restart the server",
                hook.name()
            ),
            Ok(_) => {}
            Err(error) => warn!("the master cannot count its threads: {error}"),
        }
        done
    }

    /// Has other threads of this process run for a moment, which may take a lock that this one holds.
    fn let_threads_run(&mut self, moment: Duration) {
        std::thread::sleep(moment);
    }

    /// The names that the host's language has for the threads of this process, by their ids (gettid(2)).
    fn thread_names(&mut self) -> HashMap<i32, String> {
        HashMap::new()
    }

    /// In the master, at a reload: reads the configuration again, from where it came at the start (command line, environment, config file), and lets
    /// it take effect here: directory, import path, variables, hooks, app. Processes that are forked from now on have it.
    ///
    /// An error says all that is wrong, and has changed nothing.
    fn reconfigure(&mut self) -> Result<Settings, String>;

    /// In the master, when the house of the last [`Host::reconfigure`] failed to boot: goes back to the configuration before it. Without one, nothing
    /// happens.
    fn revert(&mut self);
}

#[cfg(test)]
mod tests {
    use stanchion_sys::channel::MESSAGE_BYTES_MAX;

    use super::*;
    use stanchion_generation::messages::{self, FromTemplate};

    #[test]
    fn whatever_the_reason_is_it_fits_a_message() {
        for worst in ["\u{1}", "\u{1f600}", "\\", "e\u{301}"] {
            let report = worst.repeat(5_000);
            let reason = LoadError { report }.line();
            assert!(!reason.is_empty());
            let message = messages::prepare(&FromTemplate::CannotLoad { reason }).unwrap();
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{worst:?}");
        }
    }
}
