//! What the process tree asks of whoever hosts the app: Python in the product, plain Rust in
//! `examples/`.

use std::io;
use std::path::PathBuf;

use stanchion_sys::process::Fork;

use crate::worker::Worker;

/// The app could not be loaded: the app's or the operator's fault.
#[derive(Debug)]
pub struct LoadError {
    /// For the log: a traceback, and a line that says what to do.
    pub report: String,
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

    /// In the template: the files whose change asks for a reload.
    fn watched_files(&mut self) -> Vec<PathBuf>;
}
