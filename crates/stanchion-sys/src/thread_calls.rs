//! In which system call a thread sleeps (/proc/PID/task/TID/syscall in proc(5)).
//!
//! A process may look at its own threads, but it opens the file of a thread only if it is *dumpable* (prctl(2)): a process that has
//! changed its user is not.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// A number of a call, six arguments, stack and program counter, each in hexadecimal.
const TEXT_BYTES: usize = 256;

/// The calls of one thread, which any thread of the same process may look at.
#[derive(Debug)]
pub struct ThreadCalls(OwnedFd);

impl ThreadCalls {
    /// The calls of the calling thread.
    ///
    /// # Errors
    /// The kernel does not show them: see above, or it was built without them (`CONFIG_HAVE_ARCH_TRACEHOOK`).
    pub fn of_this_thread() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/syscall")?.into()))
    }

    /// The address at which the thread sleeps in futex(2); `None` if it runs, sleeps in another call, or has ended. This takes
    /// 7 to 40 µs, as the kernel waits until the thread stands still.
    pub fn futex(&self) -> Option<usize> {
        let mut text = [0; TEXT_BYTES];
        let len = rustix::io::pread(&self.0, &mut text, 0).ok()?;
        futex_in(std::str::from_utf8(text.get(..len)?).ok()?)
    }
}

fn futex_in(text: &str) -> Option<usize> {
    let mut words = text.split_ascii_whitespace();
    let call: libc::c_long = words.next()?.parse().ok()?;
    let address = words.next()?.strip_prefix("0x")?;
    let address = usize::from_str_radix(address, 16).ok()?;
    (call == libc::SYS_futex).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::futex;

    #[test]
    fn only_a_thread_in_a_futex_has_an_address() {
        let number = libc::SYS_futex;
        let text = format!("{number} 0x7f00a0 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f1b\n");
        assert_eq!(futex_in(&text), Some(0x7f_00a0));
        let another = format!("{} 0x7f00a0 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f1b", number + 1);
        for text in ["running\n", "-1 0x7ffc 0x7f1b", "", another.as_str()] {
            assert_eq!(futex_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_found_where_it_sleeps() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        let (send, calls) = channel();
        let sleeper = thread::spawn(move || {
            send.send(ThreadCalls::of_this_thread()).unwrap();
            while WORD.load(std::sync::atomic::Ordering::Acquire) == 0 {
                futex::wait(&WORD, 0, Duration::from_secs(60));
            }
        });
        let Ok(calls) = calls.recv().unwrap() else {
            return; // The kernel shows no calls here.
        };
        while calls.futex() != Some(WORD.as_ptr().addr()) {
            thread::yield_now();
        }
        WORD.store(1, std::sync::atomic::Ordering::Release);
        futex::wake(&WORD, 1);
        sleeper.join().unwrap();
        assert_eq!(calls.futex(), None, "the thread has ended");
    }
}
