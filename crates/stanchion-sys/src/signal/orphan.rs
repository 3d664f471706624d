//! Ending a process after its parent. The kernel sends it SIGCONT at the parent's end (prctl(2), `PR_SET_PDEATHSIG`):
//! SIGCONT also makes a stopped process go on (signal(7)). Any other signal would stay pending in a stopped process,
//! except SIGKILL, which leaves no time for requests. A timer bounds how long the process may take, wherever it hangs.
//!
//! A worker takes SIGCONT for SIGTERM, and an acceptor sees the end of its channel. An idle worker also looks each
//! second whether the master is its parent, as its app may catch or block SIGCONT.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU64, Ordering};
use std::time::Duration;

use super::timer::{self, Target};
use super::{SIGCONT, SIGKILL, is_owner, keeping_errno, set_action, unblock};
use crate::process;

/// The timer that kills the process; -1 = none, since the kernel counts timers from 0.
static TIMER: AtomicIsize = AtomicIsize::new(-1);
/// How long after the end of the parent the timer does so.
static GRACE_US: AtomicU64 = AtomicU64::new(0);
/// The process that the timer kills; its children have no such timer.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The parent of that process. Other processes send SIGCONT too.
static PARENT: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_orphaned(signal: libc::c_int) {
    if !is_owner(&OWNER, signal) || process::parent_pid() == PARENT.load(Ordering::Acquire) {
        return;
    }
    let grace_us = GRACE_US.load(Ordering::Acquire);
    let timer = TIMER.load(Ordering::Acquire);
    keeping_errno(|| {
        let _ = timer::set(timer, 0, Duration::from_micros(grace_us), Duration::ZERO);
    });
}

/// Makes the kernel send this process SIGCONT once its parent has ended, which also wakes it if it is stopped. True if
/// the parent is not `parent`, or not any more. Call it after a change of user, which undoes it (prctl(2),
/// `PR_SET_PDEATHSIG`). It follows the present parent, also over an adoption.
///
/// # Errors
/// The kernel's.
pub fn go_on_after(parent: i32) -> io::Result<bool> {
    process::die_with(parent, SIGCONT)
}

/// Makes the kernel kill this process `grace` after its parent has ended, unless it has ended before that. True if the
/// parent is not `parent`, or not any more. Call it after a change of user, which undoes it (prctl(2),
/// `PR_SET_PDEATHSIG`), and once in a process.
pub fn die_after(parent: i32, grace: Duration) -> io::Result<bool> {
    // A timer of 0 would never go off.
    let grace_us = u64::try_from(grace.as_micros()).unwrap_or(u64::MAX).max(1);
    GRACE_US.store(grace_us, Ordering::Release);
    let timer = timer::make(libc::CLOCK_MONOTONIC, Target::Process, SIGKILL)?;
    TIMER.store(timer, Ordering::Release);
    OWNER.store(process::pid(), Ordering::Release);
    PARENT.store(parent, Ordering::Release);
    let handler = on_orphaned as *const () as libc::sighandler_t;
    set_action(SIGCONT, handler, libc::SA_RESTART)?;
    unblock(&[SIGCONT])?;
    go_on_after(parent)
}
