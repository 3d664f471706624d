//! How soon the kernel gives a thread a core (sched(7)).
//!
//! The acceptor does not preempt other processes (`SCHED_BATCH`). With the normal policy, and acceptor and worker on
//! one core, each answer and each packet interrupts the worker, which costs CPU time. If a core is idle, `SCHED_BATCH`
//! changes nothing. If none is, the acceptor may wait for a time slice of the scheduler.

use std::io;

use crate::call::checked;

/// Lets this thread, and those that it starts, interrupt other threads when they wake up: `SCHED_RR` of the lowest
/// priority. It takes `CAP_SYS_NICE` or a limit `RLIMIT_RTPRIO`.
pub fn be_prompt() -> io::Result<()> {
    set_policy(libc::SCHED_RR, 1)
}

/// Makes this process wait for its turn when it wakes up while every core is busy, instead of interrupting the thread
/// that runs there (`SCHED_BATCH` in sched(7)). If a core is idle, nothing changes.
pub fn never_preempt() -> io::Result<()> {
    set_policy(libc::SCHED_BATCH, 0)
}

/// The times of a thread since it began, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    /// How long it had a core.
    pub had_us: u64,
    /// How long it was ready to run and waited for a core.
    pub waited_us: u64,
}

/// The times of the first thread of a process (/proc/PID/schedstat, in `sched-stats.rst` of the kernel); `None` if the process is gone, or
/// if the kernel does not show them.
pub fn core_times(pid: i32) -> Option<CoreTimes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let mut figures = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next_us = || Some(figures.next()?.ok()? / 1_000);
    Some(CoreTimes {
        had_us: next_us()?,
        waited_us: next_us()?,
    })
}

fn set_policy(policy: libc::c_int, sched_priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: `parameters` lives through the call, which reads it and concerns only this thread.
    let set = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    checked("sched_setscheduler", set).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: the call takes no pointer, and asks about this thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    /// Runs `work` in a thread of its own, because a policy that is set stays.
    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn a_process_has_had_a_core_for_longer_after_work() {
        let own = || core_times(std::process::id().cast_signed());
        let Some(before) = own() else {
            return; // The kernel has no CONFIG_SCHED_INFO.
        };
        // The first thread of this process waits for this one, so only its past is known.
        let after = own().unwrap();
        assert!(after.had_us >= before.had_us && after.waited_us >= before.waited_us);
        assert_eq!(core_times(-1), None);
    }

    #[test]
    fn a_thread_that_was_made_prompt_is() {
        let (prompt, policy) = in_a_thread(|| (be_prompt(), policy()));
        assert_eq!(prompt.is_ok(), policy == libc::SCHED_RR);
    }

    #[test]
    fn a_thread_that_is_started_is_as_prompt_and_its_starter_need_not_stay_so() {
        let (before, started, own) = in_a_thread(|| {
            let _where_it_may = be_prompt();
            let before = policy();
            let (report, reports) = std::sync::mpsc::channel();
            let (go, gone) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                gone.recv().unwrap();
                report.send(policy()).unwrap();
            });
            never_preempt().unwrap();
            go.send(()).unwrap();
            let started = reports.recv().unwrap();
            thread.join().unwrap();
            (before, started, policy())
        });
        assert_eq!(started, before);
        assert_eq!(own, libc::SCHED_BATCH);
    }
}
