//! The process that has started a daemon, and waits at the shell for the outcome of the start.
//!
//! The server goes into the background before Rust has anything to do with it (`python/stanchion/daemon.py`): two forks
//! and setsid(2). The launching process reads one byte from a pipe, the exit code. The master writes 0 when it serves,
//! or its exit code.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use tracing::info;

/// Gets one report: that the server serves, or the exit code with which it has ended before it did.
#[derive(Debug, Default)]
pub struct Launcher(RefCell<Option<File>>);

impl Launcher {
    /// No process waits.
    pub fn none() -> Self {
        Self::default()
    }

    /// The process reads one byte, the exit code, from the other end of this pipe.
    pub fn at(pipe: OwnedFd) -> Self {
        Self(RefCell::new(Some(pipe.into())))
    }

    /// Whether it still waits for the report.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Sends the report, if the process still waits for it.
    pub(crate) fn tell(&self, exit_code: i32) {
        if let Some(mut pipe) = self.0.take()
            && let Err(error) = pipe.write_all(&[u8::try_from(exit_code).unwrap_or(u8::MAX)])
        {
            info!("the process that has started this daemon has not waited for it: {error}");
        }
    }

    /// For a child: the master sends the report.
    pub(crate) fn forget(&self) {
        drop(self.0.take());
    }
}
