//! Children of this process: whether one is ours is asked of the kernel, and only one that is gets a
//! signal. The number alone proves nothing: somebody may have told us a wrong one, and the kernel
//! gives it to somebody else once the child was reaped, which a hook that calls wait(2) may do.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::call::{last_error, named, number};

/// Whether the kernel answers such questions, without which every child would be taken for a stranger.
///
/// # Errors
/// The error of waitid(2), if a filter of system calls refuses it.
pub fn can_be_asked_about() -> io::Result<()> {
    // This process is no child of its own.
    let own = Pid::from_raw(crate::process::pid());
    match waitid(
        WaitId::Pid(own.expect("getpid(2) gives positive pids")),
        LOOK,
    ) {
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(error) => Err(named("waitid", error)),
    }
}

/// Whether `pid` is a child of ours that runs, or has ended and was not reaped.
pub fn is_ours(pid: i32) -> bool {
    // waitid(2) answers `ECHILD` for who is not our child, and changes nothing with `WNOWAIT`.
    one_process(pid).is_some_and(|pid| waitid(WaitId::Pid(pid), LOOK).is_ok())
}

const LOOK: WaitIdOptions = WaitIdOptions::EXITED
    .union(WaitIdOptions::NOHANG)
    .union(WaitIdOptions::NOWAIT);

/// To kill(2) and its kind 0 and negative numbers are groups of processes.
fn one_process(pid: i32) -> Option<Pid> {
    if pid > 0 { Pid::from_raw(pid) } else { None }
}

/// Sends a signal, which may be a real-time one, to a child of ours. One that has ended is no error;
/// a process that is not our child is `PermissionDenied`, and gets nothing.
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
            // Whoever had the number when it was opened: that one is asked about, that one signalled.
            // Linux before 5.4 cannot be asked so.
            match waitid(WaitId::PidFd(pidfd.as_fd()), LOOK) {
                Ok(_) => {}
                Err(Errno::INVAL) if is_ours(pid) => {}
                Err(_) => return Err(refused()),
            }
            let none = std::ptr::null::<libc::siginfo_t>();
            // SAFETY: pidfd_send_signal(2) reads nothing through a null pointer, and the descriptor
            // is open.
            let sent = unsafe {
                let fd = pidfd.as_raw_fd();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0)
            };
            match unless_it_has_ended("pidfd_send_signal", sent == 0) {
                Err(error) if matches!(number(&error), Some(libc::EPERM | libc::ENOSYS)) => {
                    send_by_number(pid, signal).map_err(|_| error)
                }
                sent => sent,
            }
        }
        // Filters of containers refuse pidfds, and old kernels have none.
        Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) if is_ours(pid) => {
            send_by_number(pid, signal)
        }
        Err(_) => Err(refused()),
    }
}

/// To a child of ours, which keeps its number until it is reaped: that happens on this thread only.
fn send_by_number(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill(2) has no preconditions.
    unless_it_has_ended("kill", unsafe { libc::kill(pid, signal) } == 0)
}

fn unless_it_has_ended(call: &'static str, was_sent: bool) -> io::Result<()> {
    if was_sent {
        return Ok(());
    }
    match last_error(call) {
        error if number(&error) == Some(libc::ESRCH) => Ok(()),
        error => Err(error),
    }
}
