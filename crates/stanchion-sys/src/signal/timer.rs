//! Timers of a process that send a signal (`timer_create(2)`).

use std::io;
use std::time::Duration;

use crate::call::checked;

/// A timer's number, which fits an atomic. The kernel counts from 0, so -1 stands for none.
pub(super) type Timer = isize;

/// The thread or process that gets the signal.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Process,
    CallingThread,
}

/// Makes a timer that does not run yet, and that sends `signal` by this clock.
pub(super) fn make(clock: libc::clockid_t, target: Target, signal: i32) -> io::Result<Timer> {
    // SAFETY: a zeroed sigevent is valid, and both live through the call (timer_create(2)).
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_signo = signal;
        match target {
            Target::Process => event.sigev_notify = libc::SIGEV_SIGNAL,
            Target::CallingThread => {
                event.sigev_notify = libc::SIGEV_THREAD_ID;
                event.sigev_notify_thread_id = libc::gettid();
            }
        }
        let mut timer: libc::timer_t = std::ptr::null_mut();
        let made = libc::timer_create(clock, &raw mut event, &raw mut timer);
        checked("timer_create", made).map(|_| timer as Timer)
    }
}

/// Sets a timer of [`make`] to go off after `first` (or, with `TIMER_ABSTIME`, at `first`), and then after each `then`
/// if that is not 0. Async-signal-safe, as `timer_settime(2)` is, but it changes errno.
pub(super) fn set(
    timer: Timer,
    flags: libc::c_int,
    first: Duration,
    then: Duration,
) -> io::Result<()> {
    let time_of = |time: Duration| libc::timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    };
    let times = libc::itimerspec {
        it_value: time_of(first),
        it_interval: time_of(then),
    };
    let timer = timer as libc::timer_t;
    // SAFETY: the timer is this process's, and the times live through the call.
    let set = unsafe { libc::timer_settime(timer, flags, &raw const times, std::ptr::null_mut()) };
    checked("timer_settime", set).map(drop)
}
