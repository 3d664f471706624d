//! How long one thread has run, and how long it has waited for a core.
//!
//! `clock_gettime(2)` with the thread's own clock counts the time on a core. /proc/PID/task/TID/schedstat has the time that the
//! thread was ready to run and had none (the second figure, `sched-stats.rst` of the kernel). One reading of both takes 1.6 µs.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use crate::call::checked;

/// Three numbers of 20 digits each, and what is between them.
const SCHEDSTAT_BYTES: usize = 64;

/// The clock of one thread, which any thread of the same process may read.
#[derive(Debug)]
pub struct ThreadClock {
    clock: libc::clockid_t,
    /// The thread's schedstat; `None` if the kernel does not show it.
    schedstat: Option<OwnedFd>,
}

/// The times of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// How long it had a core, in nanoseconds.
    pub cpu_ns: u64,
    /// How long it was ready to run and waited for a core, in nanoseconds; `None` if the kernel does not show it.
    pub core_ns: Option<u64>,
}

impl ThreadClock {
    /// The clock of the calling thread. A process that has it open follows that thread also after a fork, so each process
    /// makes its own.
    ///
    /// # Errors
    /// The C library has no clock for the thread.
    pub fn of_this_thread() -> std::io::Result<Self> {
        let mut clock = MaybeUninit::uninit();
        // SAFETY: pthread_self(3) names the calling thread, and the pointer is live for the call.
        let got = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), clock.as_mut_ptr()) };
        if got != 0 {
            return Err(std::io::Error::from_raw_os_error(got));
        }
        // Where /proc is not mounted or hides the file, only this figure is missing.
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let schedstat = schedstat.map(OwnedFd::from);
        Ok(Self {
            // SAFETY: the call has succeeded, so it has written the clock.
            clock: unsafe { clock.assume_init() },
            schedstat: schedstat.filter(|file| waited_ns(file).is_some()),
        })
    }

    /// The thread's times now.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn read(&self) -> std::io::Result<ThreadTimes> {
        let mut now = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the pointer is live for the call.
        let read = unsafe { libc::clock_gettime(self.clock, now.as_mut_ptr()) };
        checked("clock_gettime", read)?;
        // SAFETY: the call has succeeded, so it has written the time.
        let now = unsafe { now.assume_init() };
        Ok(ThreadTimes {
            cpu_ns: now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned(),
            core_ns: self.schedstat.as_ref().and_then(waited_ns),
        })
    }
}

/// The second figure of a schedstat; `None` if the kernel does not count: it then says that a running thread has never run.
fn waited_ns(schedstat: &OwnedFd) -> Option<u64> {
    let mut text = [0; SCHEDSTAT_BYTES];
    let len = rustix::io::pread(schedstat, &mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..len)?).ok()?;
    let mut figures = text.split_ascii_whitespace().map(str::parse::<u64>);
    let [ran, waited, slices] = [figures.next()?, figures.next()?, figures.next()?];
    let (_, waited_ns, slices) = (ran.ok()?, waited.ok()?, slices.ok()?);
    (slices > 0).then_some(waited_ns)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_has_a_core_while_it_works_and_not_while_it_sleeps() {
        let (send_clock, clocks) = channel();
        let (go, gone) = channel::<()>();
        let (send_done, done) = channel();
        let worker = thread::spawn(move || {
            send_clock.send(ThreadClock::of_this_thread()).unwrap();
            gone.recv().unwrap();
            let before = ThreadClock::of_this_thread().unwrap();
            let start = before.read().unwrap().cpu_ns;
            while before.read().unwrap().cpu_ns - start < 2_000_000 {}
            send_done.send(()).unwrap();
            // The thread lives until the test has read its clock.
            let _ = gone.recv();
        });
        let clock = clocks.recv().unwrap().unwrap();
        let asleep = clock.read().unwrap();
        go.send(()).unwrap();
        done.recv().unwrap();
        let after = clock.read().unwrap();
        assert!(after.cpu_ns - asleep.cpu_ns >= 2_000_000, "{after:?}");
        if let (Some(before_ns), Some(after_ns)) = (asleep.core_ns, after.core_ns) {
            assert!(after_ns >= before_ns);
        }
        drop(go);
        worker.join().unwrap();
    }
}
