//! Waiting on a word of memory, also across processes (futex(2)).
//!
//! The calls leave out `FUTEX_PRIVATE_FLAG`, because the words live in memory that several processes share. The kernel wakes
//! waiters of equal priority in the order in which they began to wait, so idle workers take turns.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why a wait ended. In every case the caller checks its condition again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// Another thread or process called [`wake`], or the word had changed before the wait began, or a signal handler ran.
    Look,
    /// The time was up.
    TimedOut,
}

/// Sleeps while `word` holds `expected`, at most for `timeout`.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) -> WakeReason {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: `word` is a live, aligned 32-bit word and `timeout` a live timespec for the whole
    // call; the kernel only reads them.
    let status = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
        )
    };
    if status == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
        WakeReason::TimedOut
    } else {
        WakeReason::Look
    }
}

/// Wakes up to `count` waiters, the longest waiters first; returns how many it woke.
pub fn wake(word: &AtomicU32, count: u32) -> u32 {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    // SAFETY: FUTEX_WAKE uses the address as a key only.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    u32::try_from(woken).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_changed_word_is_not_waited_on() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, Duration::from_secs(60)), WakeReason::Look);
    }

    #[test]
    fn a_wait_is_bounded() {
        let word = AtomicU32::new(0);
        assert_eq!(
            wait(&word, 0, Duration::from_millis(1)),
            WakeReason::TimedOut
        );
    }

    #[test]
    fn a_wake_reaches_a_waiter() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while word.load(Ordering::SeqCst) == 0 {
                    wait(&word, 0, Duration::from_secs(60));
                }
            });
            word.store(1, Ordering::SeqCst);
            wake(&word, 1);
            waiter.join().expect("the waiter saw the word change");
        });
    }
}
