//! Forking a child whose parent is the subreaper, and not this process.

use std::io;

use crate::call::{InCall, named, number, retry};
use crate::process::{Fork, exit_now, fork, refuse_threads, wait_for};

/// Forks a child for the subreaper: a process in between forks again and leaves at once, so the kernel gives the grandchild
/// to the nearest subreaper (`PR_SET_CHILD_SUBREAPER` in prctl(2)), which here is the master. Returns the grandchild's pid in
/// the caller, and `Fork::Child` in the grandchild.
///
/// # Safety
///
/// As for [`fork`].
pub unsafe fn fork_for_subreaper() -> io::Result<Fork> {
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).in_call("pipe2")?;
    // SAFETY: the caller keeps fork's contract; the child below makes system calls only.
    match unsafe { fork() }? {
        Fork::Child => {
            drop(read);
            // SAFETY: this process has one thread, which came out of the fork above.
            let report = match unsafe { fork() } {
                Ok(Fork::Child) => return Ok(Fork::Child),
                Ok(Fork::Parent(pid)) => pid,
                Err(error) => -number(&error).unwrap_or(libc::EAGAIN),
            };
            // If the caller does not get it, it takes this process for one that died.
            let _ = rustix::io::write(&write, &report.to_ne_bytes());
            exit_now(0);
        }
        Fork::Parent(between) => {
            drop(write);
            let mut report = [0; 4];
            let read = retry("read", || rustix::io::read(&read, &mut report))?;
            wait_for(between)?;
            match (read, i32::from_ne_bytes(report)) {
                (4, pid) if pid > 0 => Ok(Fork::Parent(pid)),
                (4, errno) => Err(named("fork", io::Error::from_raw_os_error(-errno))),
                // It may have forked the grandchild, so the caller must not fork another one in its place.
                _ => Err(io::Error::other(
                    "the process between template and worker died",
                )),
            }
        }
    }
}

/// As [`fork_for_subreaper`], for a process with one thread; fails in a process with more.
pub fn fork_single_threaded_for_subreaper() -> io::Result<Fork> {
    refuse_threads()?;
    // SAFETY: as in `fork_single_threaded`.
    unsafe { fork_for_subreaper() }
}
