//! Handlers that libraries have for forks (`pthread_atfork(3)`): some end their threads there.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::channel::poll_readable;
use crate::child;
use crate::process::{self, Fork};
use crate::signal::SIGKILL;

/// Forks a child that only ends, so that the handlers run. The process may have threads.
///
/// # Errors
/// The kernel's; and `TimedOut` if the child has not ended within `limit`, since a handler goes on in it. The child is killed.
pub fn run(limit: Duration) -> io::Result<()> {
    // SAFETY: the child makes one system call, _exit(2), which is async-signal-safe.
    let pid = match unsafe { process::fork() }? {
        Fork::Child => process::exit_now(0),
        Fork::Parent(pid) => pid,
    };
    let has_ended = has_ended_within(pid, limit);
    if !matches!(has_ended, Ok(true)) {
        // It may end by itself meanwhile. If the signal is refused, collecting the child waits for it.
        let _ = child::send_signal(pid, SIGKILL);
    }
    process::wait_for(pid)?;
    if has_ended? {
        return Ok(());
    }
    let problem = format!(
        "a library's handler for forks (pthread_atfork) goes on for {} s in a forked process",
        limit.as_secs()
    );
    Err(io::Error::new(io::ErrorKind::TimedOut, problem))
}

fn has_ended_within(pid: i32, limit: Duration) -> io::Result<bool> {
    let child = Pid::from_raw(pid).expect("fork(2) gives positive pids");
    let Ok(pidfd) = pidfd_open(child, PidfdFlags::empty()) else {
        // Filters of containers refuse pidfds, and old kernels do not know them: collecting the child waits for it, with no limit.
        return Ok(true);
    };
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if poll_readable(&[pidfd.as_fd()], left)?.contains(&true) {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}
