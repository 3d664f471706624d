//! A counter that wakes a sleeping epoll loop (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::call::InCall;

/// Workers write to it; the acceptor registers it edge-triggered and never reads it: every write is an edge of its own, and
/// the counter has room for 2^64 - 2 of them.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new counter at zero, non-blocking.
    pub fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .in_call("eventfd2")
            .map(Self)
    }

    /// Adds one. A full counter (2^64 - 2 unread writes) still wakes, so its error is no error.
    pub fn ring(&self) {
        let _full_is_fine = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Sets the counter to zero, for a reader that watches it level-triggered; false if it was zero already.
    pub fn silence(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; size_of::<u64>()]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
