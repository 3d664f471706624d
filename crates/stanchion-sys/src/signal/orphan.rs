//! A bound on how long a process outlives its parent, wherever it hangs then.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU64, Ordering};
use std::time::Duration;

use super::{ORPHANED, SIGKILL, is_owner, set_action, unblock};
use crate::process;

/// The timer that kills; -1 = none, since the kernel counts them from 0.
static TIMER: AtomicIsize = AtomicIsize::new(-1);
/// When it does, counted from the end of the parent.
static GRACE_US: AtomicU64 = AtomicU64::new(0);
/// The process that it kills; its children have no such timer.
static OWNER: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_orphaned(signal: libc::c_int) {
    if !is_owner(&OWNER, signal) {
        return;
    }
    let grace_us = GRACE_US.load(Ordering::Acquire);
    let times = libc::itimerspec {
        it_value: libc::timespec {
            tv_sec: (grace_us / 1_000_000).cast_signed(),
            tv_nsec: (grace_us % 1_000_000 * 1_000).cast_signed(),
        },
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    };
    // SAFETY: timer_settime(2) is async-signal-safe; errno is thread-local. The timer is ours (`die_after` made it in this
    // process), the times live through the call.
    unsafe {
        let errno = *libc::__errno_location();
        let timer = TIMER.load(Ordering::Acquire) as libc::timer_t;
        libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut());
        *libc::__errno_location() = errno;
    }
}

/// Has the kernel kill this process `grace` after its parent has ended, unless it has ended by then. True if the parent
/// is not `parent` (any more). To be called after a change of user, which undoes it (prctl(2), `PR_SET_PDEATHSIG`), and
/// once in a process.
pub fn die_after(parent: i32, grace: Duration) -> io::Result<bool> {
    // A timer of 0 would never go off.
    let grace_us = u64::try_from(grace.as_micros()).unwrap_or(u64::MAX).max(1);
    GRACE_US.store(grace_us, Ordering::Release);
    TIMER.store(make_timer()?, Ordering::Release);
    OWNER.store(process::pid(), Ordering::Release);
    let handler = on_orphaned as *const () as libc::sighandler_t;
    set_action(ORPHANED, handler, libc::SA_RESTART)?;
    unblock(&[ORPHANED])?;
    process::die_with(parent, ORPHANED)
}

/// It is not running yet.
fn make_timer() -> io::Result<isize> {
    // SAFETY: a zeroed sigevent is valid, and both live through the call (timer_create(2)).
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = SIGKILL;
        let mut timer: libc::timer_t = std::ptr::null_mut();
        match libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(timer as isize),
        }
    }
}
