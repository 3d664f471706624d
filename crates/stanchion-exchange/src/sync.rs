//! The atomics and the futex, or loom's stand-ins for both, so that the tests explore the same protocol code that runs.

#[cfg(not(loom))]
pub(crate) use stanchion_sys::futex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// futex(2) as its man page promises it: the kernel compares the word and puts the caller to sleep in one step, and a
/// wake reaches the longest sleepers, and no more of them than `count`. The model has no time, so a lost wake-up shows
/// as a deadlock.
#[cfg(loom)]
pub(crate) mod futex {
    use super::{AtomicU32, Ordering};
    use loom::sync::Mutex;
    use loom::thread::{self, Thread};
    use std::time::Duration;

    loom::lazy_static! {
        /// The sleeping threads and the word on which each sleeps, longest sleeper first.
        static ref SLEEPERS: Mutex<Vec<(usize, Thread)>> = Mutex::new(Vec::new());
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, _timeout: Duration) {
        let mut sleepers = SLEEPERS.lock().expect("a panic ends the model");
        if word.load(Ordering::SeqCst) == expected {
            sleepers.push((address(word), thread::current()));
            drop(sleepers);
            thread::park();
        }
    }

    pub(crate) fn wake(word: &AtomicU32, count: u32) -> u32 {
        let mut sleepers = SLEEPERS.lock().expect("a panic ends the model");
        let mut woken = 0;
        sleepers.retain(|(on, thread)| {
            let wakes = *on == address(word) && woken < count;
            if wakes {
                thread.unpark();
                woken += 1;
            }
            !wakes
        });
        woken
    }

    fn address(word: &AtomicU32) -> usize {
        std::ptr::from_ref(word) as usize
    }
}
