//! Children of this process. These functions ask the kernel whether a process is our child, and send a signal only if it is.
//! The number alone proves nothing: another process may have reported a wrong one, and the kernel gives the number to another
//! process once the child was reaped, which a hook that calls wait(2) may do.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::call::{named, number};
use crate::process::{self, kill};

/// Whether the kernel answers such questions. If it did not, every child would count as a stranger.
///
/// # Errors
/// The error of waitid(2), if a filter of system calls refuses it.
pub fn can_be_asked_about() -> io::Result<()> {
    // This process is not its own child.
    let own = Pid::from_raw(process::pid());
    match waitid(
        WaitId::Pid(own.expect("getpid(2) gives positive pids")),
        LOOK,
    ) {
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(error) => Err(named("waitid", error)),
    }
}

/// Whether `pid` is a child of ours that runs, or that has ended and was not reaped.
pub fn is_ours(pid: i32) -> bool {
    // waitid(2) answers `ECHILD` for a process that is not our child, and with `WNOWAIT` changes nothing.
    one_process(pid).is_some_and(|pid| waitid(WaitId::Pid(pid), LOOK).is_ok())
}

const LOOK: WaitIdOptions = WaitIdOptions::EXITED
    .union(WaitIdOptions::NOHANG)
    .union(WaitIdOptions::NOWAIT);

/// A pid for one process: to kill(2) and its kind, 0 and negative numbers mean groups of processes.
fn one_process(pid: i32) -> Option<Pid> {
    if pid > 0 { Pid::from_raw(pid) } else { None }
}

/// Sends a signal, which may be a real-time one, to a child of ours. A child that has ended is no error; a process that is
/// not our child gets no signal, and the error is `PermissionDenied`.
pub fn send_signal(pid: i32, signal: i32) -> io::Result<()> {
    let refused = || {
        let problem = format!("process {pid} is not a child of this one");
        io::Error::new(io::ErrorKind::PermissionDenied, problem)
    };
    let Some(child) = one_process(pid).filter(|_| signal > 0) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match pidfd_open(child, PidfdFlags::empty()) {
        Ok(pidfd) => {
            // The pidfd names the process that had the number when it was opened, so the question and the signal concern the
            // same process. Linux before 5.4 does not answer the question for a pidfd.
            match waitid(WaitId::PidFd(pidfd.as_fd()), LOOK) {
                Ok(_) => {}
                Err(Errno::INVAL) if is_ours(pid) => {}
                Err(_) => return Err(refused()),
            }
            match process::send_signal(pidfd.as_fd(), signal) {
                Err(error) if matches!(number(&error), Some(libc::EPERM | libc::ENOSYS)) => {
                    kill(pid, signal).map_err(|_| error)
                }
                sent => sent,
            }
        }
        // Filters of containers refuse pidfds, and old kernels do not know them. A child of ours keeps its number until it
        // is reaped, which happens on this thread only.
        Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) if is_ours(pid) => {
            kill(pid, signal)
        }
        Err(_) => Err(refused()),
    }
}
