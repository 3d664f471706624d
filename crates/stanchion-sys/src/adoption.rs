//! Forking a child whose parent is the subreaper, and not this process.

use std::io;

use crate::call::{InCall, named, number};
use crate::errand;
use crate::process::{Fork, collect, exit_now, fork, refuse_threads, retry};

/// The process in between, which forks the child for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// It borrows our memory for its only fork, which takes half the time. Not every system supports that:
    /// [`crate::trial::run`] finds out.
    Borrowing,
    /// It has a copy of our memory, which works with any kernel and processor.
    Copying,
}

/// Forks a child for the subreaper: a process in between forks again and leaves at once, so the kernel gives the grandchild
/// to the nearest subreaper (`PR_SET_CHILD_SUBREAPER` in prctl(2)), which here is the master. Returns the grandchild's pid in
/// the caller, and `Fork::Child` in the grandchild.
///
/// # Safety
///
/// As for [`fork`].
pub unsafe fn fork_for_subreaper(between: Between) -> io::Result<Fork> {
    if between == Between::Copying {
        // SAFETY: the caller keeps the contract.
        return unsafe { fork_twice() };
    }
    // SAFETY: the caller keeps the contract.
    match unsafe { errand::fork_by_another() } {
        Ok((Fork::Child, _)) => Ok(Fork::Child),
        Ok((Fork::Parent(pid), between)) => collect(between).map(|()| Fork::Parent(pid)),
        // Either there are too many processes, or too little memory, and the long way has no better chance. Or the process in
        // between was killed, and may have forked the grandchild, which must not get a twin.
        Err(error) if matches!(number(&error), None | Some(libc::EAGAIN | libc::ENOMEM)) => {
            Err(error)
        }
        // SAFETY: the caller keeps the contract.
        Err(_) => unsafe { fork_twice() },
    }
}

/// As [`fork_for_subreaper`], for a process with one thread; fails in a process with more.
pub fn fork_single_threaded_for_subreaper(between: Between) -> io::Result<Fork> {
    refuse_threads()?;
    // SAFETY: as in `fork_single_threaded`.
    unsafe { fork_for_subreaper(between) }
}

/// The long way, which works with any kernel and processor: the process in between has a copy of our memory, and its
/// grandchild a copy of that copy.
///
/// # Safety
///
/// As for [`fork`].
unsafe fn fork_twice() -> io::Result<Fork> {
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).in_call("pipe2")?;
    // SAFETY: the caller keeps fork's contract; the child below makes system calls only.
    match unsafe { fork() }? {
        Fork::Child => {
            drop(read);
            // SAFETY: this process has one thread, which came out of the fork above.
            let (told, grandchild) = match unsafe { fork() } {
                Ok(Fork::Child) => return Ok(Fork::Child),
                Ok(Fork::Parent(pid)) => (pid, true),
                Err(error) => (-number(&error).unwrap_or(libc::EAGAIN), false),
            };
            let sent = rustix::io::write(&write, &told.to_ne_bytes()).is_ok();
            exit_now(i32::from(!(sent && grandchild)));
        }
        Fork::Parent(between) => {
            drop(write);
            let mut told = [0; 4];
            let read = retry("read", || rustix::io::read(&read, &mut told))?;
            collect(between)?;
            let told = i32::from_ne_bytes(told);
            match (read, told) {
                (4, pid) if pid > 0 => Ok(Fork::Parent(pid)),
                (4, errno) => Err(named("fork", io::Error::from_raw_os_error(-errno))),
                _ => Err(io::Error::other(errand::KILLED)),
            }
        }
    }
}
