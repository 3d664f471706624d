//! A process beside this one: a child of our parent, which goes on when this process has left.
//!
//! A service manager watches, and waits for, only its own children: systemd says `Supervising process 129 which is not
//! our child` of any other, and kills it without waiting. So the next main process of the service must be the manager's
//! child from the start.
//!
//! So the old master learns by a pidfd that the new one ended, but not how: the new one leaves the reason in a file of
//! the kernel's memory (`last_words` of stanchion-server).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};

use crate::call::checked;
use crate::channel::poll_readable;
use crate::process::{self, Fork};

/// `CLONE_PARENT` in clone(2); the libc crate defines it for few systems only.
const CLONE_PARENT: libc::c_int = 0x8000;

/// Another child of our parent, held by a descriptor that never names any other process (`pidfd_open(2)`). Only the
/// parent learns how it ended.
#[derive(Debug)]
pub struct Sibling(OwnedFd);

impl Sibling {
    /// Whether it has ended.
    pub fn has_ended(&self) -> io::Result<bool> {
        Ok(poll_readable(&[self.0.as_fd()], Duration::ZERO)? == [true])
    }

    /// Sends a signal; it is no error if the sibling has ended.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        process::send_signal(self.as_fd(), signal)
    }
}

impl AsFd for Sibling {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Forks a sibling, from a process that has one thread. In the first process of a pid namespace this fails, because
/// that process has no parent there (`EINVAL` in clone(2)). The new process may do nothing but execve(2), or end.
///
/// The parent gets the `Sibling` too, unless the new process is its child after all: that is so without descriptors of
/// processes (Linux before 5.3, and some filters of system calls), and on s390, whose clone(2) takes its arguments in
/// another order.
pub fn fork() -> io::Result<(Fork, Option<Sibling>)> {
    process::refuse_threads()?;
    // An older kernel would ignore `CLONE_PIDFD` and make a sibling whose end this process cannot see.
    let own = Pid::from_raw(process::pid()).expect("getpid(2) gives positive pids");
    if cfg!(target_arch = "s390x") || rustix::process::pidfd_open(own, PidfdFlags::empty()).is_err()
    {
        return Ok((process::fork_single_threaded()?, None));
    }
    let mut fd: RawFd = -1;
    // SAFETY: clone(2) without a stack and without `CLONE_VM` is fork(2): a copy of this process that goes on here.
    // `fd` lives through the call, which fills it in the parent. The C library does not learn of the fork: handlers of
    // pthread_atfork(3) do not run, and the new process has its parent's thread id in its own records. No missing
    // thread can hold a lock, since there is no other thread, and by the contract above the new process ends or
    // executes before it could miss the rest.
    let forked = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(CLONE_PARENT | libc::CLONE_PIDFD),
            0,
            &raw mut fd,
            0,
            0,
        )
    };
    match checked("clone", forked)? {
        0 => Ok((Fork::Child, None)),
        pid => {
            // SAFETY: the kernel has just made the descriptor for this process (`CLONE_PIDFD`), with close-on-exec, and
            // nothing else owns it.
            let sibling = Sibling(unsafe { OwnedFd::from_raw_fd(fd) });
            let pid = i32::try_from(pid).expect("pids fit (PID_MAX_LIMIT)");
            Ok((Fork::Parent(pid), Some(sibling)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, exit_now};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Forks a sibling that waits for a signal, ends it, and sees that it has ended. Writes its pid to the pipe.
    fn have_a_sibling(write: &OwnedFd) -> io::Result<()> {
        let (forked, sibling) = fork()?;
        let (Fork::Parent(pid), Some(sibling)) = (forked, sibling) else {
            loop {
                // SAFETY: pause(2) has no preconditions.
                unsafe { libc::pause() };
            }
        };
        rustix::io::write(write, &pid.to_ne_bytes())?;
        let lived = !sibling.has_ended()?;
        sibling.signal(libc::SIGKILL)?;
        let ended = poll_readable(&[sibling.as_fd()], PATIENCE)? == [true];
        // A signal is no error before or after the parent has collected the sibling.
        sibling.signal(libc::SIGKILL)?;
        if lived && ended && sibling.has_ended()? {
            Ok(())
        } else {
            Err(io::Error::other("seen otherwise"))
        }
    }

    #[test]
    fn a_sibling_is_the_parents_child_and_its_end_is_seen() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        // SAFETY: the child has one thread, and allocates little; fork(3) of glibc sees to the allocator's locks.
        let Fork::Parent(child) = unsafe { process::fork() }.expect("forked") else {
            exit_now(i32::from(have_a_sibling(&write).is_err()));
        };
        let mut pid = [0; 4];
        assert_eq!(rustix::io::read(&read, &mut pid).expect("read"), 4);
        let end = |pid| process::wait_for(pid).expect("it is our child");
        assert_eq!(end(child), Exit::Code(0));
        let sibling = i32::from_ne_bytes(pid);
        assert_eq!(end(sibling), Exit::Signal(libc::SIGKILL));
    }
}
