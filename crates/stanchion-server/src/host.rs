//! What the process tree asks of whoever hosts the app: Python in the product, plain Rust in
//! `examples/`.

use std::io;
use std::path::PathBuf;

use stanchion_sys::process::Fork;

use crate::master::StartedAs;
use crate::settings::Settings;
use crate::worker::Worker;

/// The app could not be loaded: the app's or the operator's fault.
#[derive(Debug)]
pub struct LoadError {
    /// For the log: a traceback, and a line that says what to do.
    pub report: String,
}

/// A moment at which the operator may want something done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Master: before anything else.
    Starting,
    /// Master: a reload begins.
    Reload,
    /// Master: the server is ready for the first time.
    Ready,
    /// Master: a worker has ended.
    ChildExit {
        /// Its index.
        worker: u16,
        /// Its process.
        pid: i32,
    },
    /// Master: the number of workers wanted has changed.
    WorkersChanged {
        /// Now.
        new: u16,
        /// Before.
        old: u16,
    },
    /// Master: a new master is about to be started.
    PreExec,
    /// Master: the end.
    Exit,
}

/// Hosts an app. Each method says in which process it is called.
pub trait Host {
    /// Imports the app: in the template, or in each worker without preloading.
    fn load(&mut self) -> Result<(), LoadError>;

    /// In the template, once the app is loaded and before the first worker is forked: make what
    /// was loaded cheap to share.
    fn settle(&mut self);

    /// In the master: forks the template.
    fn fork(&mut self) -> io::Result<Fork>;

    /// In the template: forks a worker that becomes the master's child
    /// ([`stanchion_sys::process::fork_for_subreaper`]).
    fn fork_worker(&mut self) -> io::Result<Fork>;

    /// In a worker: serves until [`Worker::should_leave`], each seat on a thread of its own; a
    /// single seat on the calling thread.
    ///
    /// An error says why it cannot, or can no longer, serve.
    fn serve(&mut self, worker: &'static Worker) -> Result<(), String>;

    /// In the master: reads the configuration again, as at the start.
    ///
    /// An error says what is wrong with it; everything is then as it was.
    fn reconfigure(&mut self) -> Result<Settings, String>;

    /// In the master: what came of the last [`Host::reconfigure`] failed, and what was before goes on.
    fn revert(&mut self);

    /// In the process that the hook's name says: calls what the operator has put there.
    fn hook(&mut self, hook: Hook) -> Result<(), LoadError>;

    /// In the master: how this process was started.
    fn started_as(&self) -> StartedAs;

    /// In the template: the files whose change asks for a reload.
    fn watched_files(&mut self) -> Vec<PathBuf>;
}
