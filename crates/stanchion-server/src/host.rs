//! The interface between the process tree and the host of the app: Python in the product, plain Rust in `examples/`.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use stanchion_sys::process::Fork;

use crate::hook::Hook;
use crate::load_error::{LoadError, NotLoaded};
use crate::worker::Worker;
use stanchion_settings::Settings;

/// The way in which this process was started, so that it can be started again.
#[derive(Clone, Debug)]
pub struct StartedAs {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Its working directory.
    pub directory: PathBuf,
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

/// Hosts an app. Each method says in which process it is called; a host that has no such thing leaves it out.
pub trait Host {
    /// Imports the app: in the template, or in each worker without preloading.
    fn load(&mut self, settings: &Settings) -> Result<(), NotLoaded>;

    /// In the template, once the app is loaded, if `warm_up` has requests: calls the app with each, for at most `timeout`. A failure of the app is
    /// logged, and no more than that.
    fn warm_up(&mut self, _settings: &Settings) {}

    /// In a canary, before the master hears that it is ready: calls the app with the first request of `warm_up`, or with `/`, for at most `limit`. An
    /// error says how the app failed.
    fn answer_one(&mut self, _settings: &Settings, _limit: Duration) -> Result<(), String> {
        Ok(())
    }

    /// Once the app is loaded, before a worker is forked or serves, and in a worker that becomes the template: make what was loaded cheap to share.
    fn settle(&mut self, _settings: &Settings) {}

    /// In the template, before the first worker is forked: sets a handler for
    /// [`stanchion_sys::signal::DUMP`] that writes the stacks of all threads to `dumps` from within the
    /// signal. The workers have it from here, each with a handler of its own in front of it.
    fn write_stacks_to(&mut self, _dumps: BorrowedFd<'static>) -> Result<(), String> {
        Ok(())
    }

    /// In the master: forks the template.
    fn fork(&mut self) -> io::Result<Fork>;

    /// In the template: forks a worker that becomes the master's child
    /// ([`stanchion_sys::adoption::fork_for_subreaper`]).
    fn fork_worker(&mut self) -> io::Result<Fork>;

    /// In a worker, first of all: sets what handlers the host's language has for the signals of
    /// [`stanchion_sys::signal::asked`], such that they call [`Worker::depart`] at the next safe
    /// point. The worker's own handlers stand in front of these.
    fn enter(&mut self, _worker: &'static Worker) -> Result<(), String> {
        Ok(())
    }

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
    fn watched_files(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Runs the operator's function for this moment, if there is one, in the process that
    /// [`Hook`] names.
    fn run_hook(&mut self, _hook: Hook) -> Result<(), LoadError> {
        Ok(())
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

    /// In the master, when the generation of the last [`Host::reconfigure`] failed to boot: goes back to the configuration before it. Without one, nothing
    /// happens.
    fn revert(&mut self) {}
}
