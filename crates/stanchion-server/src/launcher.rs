//! Whoever has started a daemon, and waits at the shell to be told how the start went.

use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use tracing::info;

/// Told once: that the server serves, or with which exit code it has ended before it did.
#[derive(Debug, Default)]
pub struct Launcher(RefCell<Option<File>>);

impl Launcher {
    /// Nobody waits.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads one byte, the exit code, from the other end of this pipe.
    pub fn at(pipe: OwnedFd) -> Self {
        Self(RefCell::new(Some(pipe.into())))
    }

    /// Whether it is still to be told.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Tells it, if it is still to be told.
    pub(crate) fn tell(&self, exit_code: i32) {
        if let Some(mut pipe) = self.0.take()
            && let Err(error) = pipe.write_all(&[u8::try_from(exit_code).unwrap_or(u8::MAX)])
        {
            info!("whoever has started this daemon has not waited for it: {error}");
        }
    }

    /// For a child: it is the master who tells.
    pub(crate) fn forget(&self) {
        drop(self.0.take());
    }
}
