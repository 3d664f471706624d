//! Waiting for signals before a process has set up its handlers.

use std::io;
use std::time::Duration;

use crate::call::{checked, number};
use crate::process::{self, Fork};
use crate::signal::{change_mask, set_of};

/// Forks so that the parent gets no signal that was sent to the child. At first the child has our handlers, and the pipe into
/// which they write is ours too. `in_child` gives the child its own while `signals` are held back from both processes; a
/// signal that has arrived has its effect after that.
pub fn fork_with(
    signals: &[i32],
    fork: impl FnOnce() -> io::Result<Fork>,
    in_child: impl FnOnce() -> io::Result<()>,
) -> io::Result<Fork> {
    let held = HeldSignals::hold(signals)?;
    let forked = fork()?;
    if forked == Fork::Child && in_child().is_err() {
        // The child must not go on with anything of its parent's.
        process::exit_now(1);
    }
    drop(held);
    Ok(forked)
}

/// Holds signals back from this thread while this lives. A signal that has arrived, and that [`wait`](Self::wait) has not
/// taken, has its usual effect afterwards: none is lost.
///
/// [`wait`](Self::wait) also takes a signal whose default action is to be ignored, as the default action of every signal is
/// in the first process of a pid namespace (`pid_namespaces(7)`).
#[derive(Debug)]
pub struct HeldSignals {
    held: libc::sigset_t,
    before: libc::sigset_t,
}

impl HeldSignals {
    /// Holds `signals` back. For a process with one thread: another thread would still get them.
    pub fn hold(signals: &[i32]) -> io::Result<Self> {
        let held = set_of(signals)?;
        let before = change_mask(libc::SIG_BLOCK, &held)?;
        Ok(Self { held, before })
    }

    /// Waits at most this long for one of the signals, and takes it (sigtimedwait(2)).
    pub fn wait(&self, longest: Duration) -> io::Result<Option<i32>> {
        let timeout = libc::timespec {
            tv_sec: longest.as_secs().cast_signed(),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // SAFETY: set and time live through the call, which only reads them; we ask for no details about the signal.
        let waited = unsafe {
            libc::sigtimedwait(
                &raw const self.held,
                std::ptr::null_mut(),
                &raw const timeout,
            )
        };
        match checked("rt_sigtimedwait", waited) {
            // EINTR comes from a signal that is not held; the caller checks again anyway.
            Err(error) if matches!(number(&error), Some(libc::EAGAIN | libc::EINTR)) => Ok(None),
            signal => signal.map(Some),
        }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // This cannot fail for a set that the kernel itself returned.
        let _ = change_mask(libc::SIG_SETMASK, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Exit;

    /// Raises a signal for this thread, and for no other test's.
    fn raise(signal: i32) {
        // SAFETY: a live thread, our own, and a valid signal.
        let status = unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        assert_eq!(status, 0);
    }

    #[test]
    fn a_held_signal_is_taken_and_does_no_harm() {
        let held = HeldSignals::hold(&[libc::SIGTERM, libc::SIGUSR2]).expect("held");
        assert_eq!(held.wait(Duration::ZERO).expect("waited"), None);
        // Its default action would end the test.
        raise(libc::SIGTERM);
        let taken = held.wait(Duration::from_secs(10)).expect("waited");
        assert_eq!(taken, Some(libc::SIGTERM));
        assert_eq!(held.wait(Duration::ZERO).expect("waited"), None);
    }

    #[test]
    fn a_signal_to_a_newborn_child_is_its_own() {
        use crate::signal::{self, SIGWINCH, SignalPipe};
        let pipe = SignalPipe::install(&[libc::SIGUSR2]).expect("caught");
        let fork = || {
            // SAFETY: the child makes system calls only.
            let forked = unsafe { process::fork() }?;
            if forked == Fork::Child {
                raise(libc::SIGUSR2);
            }
            Ok(forked)
        };
        let in_child = || signal::reset(&[libc::SIGUSR2]);
        let forked = fork_with(&[libc::SIGUSR2, SIGWINCH], fork, in_child).expect("forked");
        let Fork::Parent(child) = forked else {
            process::exit_now(7);
        };
        let exit = process::wait_for(child).expect("it is our child");
        assert_eq!(exit, Exit::Signal(libc::SIGUSR2));
        assert_eq!(pipe.take(), [], "it came to its parent");
    }
}
