//! A bound on the CPU time of one turn of a loop: a thread that spins never comes back to where it could look at a clock.
//!
//! The clock is the thread's own CPU time (`timer_create(2)`, `CLOCK_THREAD_CPUTIME_ID`). So nothing is woken while the loop
//! sleeps, and a process that is stopped, debugged, frozen or suspended is not taken for one that spins.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use super::{SPINNING, is_owner, set_action, unblock};
use crate::process;

/// Frames of a stack that are kept.
pub const FRAMES_MAX: usize = 48;

/// What the handler looks at and writes to; null before [`bound_turns`].
static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(std::ptr::null_mut());
/// How many turns the loop had made at the last tick.
static SEEN: AtomicU64 = AtomicU64::new(u64::MAX);
/// The process that is watched; its children have no such timer.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// A loop in memory that its parent has, too.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// How many turns it has made. The loop counts them.
    pub turns: &'static AtomicU64,
    /// Where its thread was when a turn took too long: addresses of code, innermost first, and 0 behind the last.
    pub stack: &'static [AtomicU64],
    /// The exit code of the process then.
    pub exit_code: i32,
}

extern "C" fn on_tick(signal: libc::c_int) {
    if !is_owner(&OWNER, signal) {
        return;
    }
    // SAFETY: null, or what `bound_turns` has leaked.
    let Some(watched) = (unsafe { WATCHED.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    let turn = watched.turns.load(Ordering::Relaxed);
    if SEEN.swap(turn, Ordering::Relaxed) == turn {
        keep_stack(watched.stack);
        process::exit_now(watched.exit_code);
    }
}

fn keep_stack(stack: &[AtomicU64]) {
    let mut places = stack.iter();
    // SAFETY: only this handler unwinds by this crate, and a signal is blocked in its own handler, so that no other call is
    // under way. The unwinder of libgcc takes no lock of malloc(3), which the thread may hold; its own one, of the list of
    // loaded libraries, a thread may take twice.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let place = places.next();
            place.inspect(|place| place.store(frame.ip() as u64, Ordering::Release));
            place.is_some()
        });
    }
}

/// Bounds the CPU time that the calling thread takes for one turn: between one and two times `limit` the process ends. To be
/// called once in a process.
///
/// # Errors
/// Those of the kernel.
pub fn bound_turns(watched: Watched, limit: Duration) -> io::Result<()> {
    for place in watched.stack {
        place.store(0, Ordering::Relaxed);
    }
    WATCHED.store(Box::leak(Box::new(watched)), Ordering::Release);
    OWNER.store(process::pid(), Ordering::Release);
    let handler = on_tick as *const () as libc::sighandler_t;
    set_action(SPINNING, handler, libc::SA_RESTART)?;
    unblock(&[SPINNING])?;
    start_timer(limit)
}

fn start_timer(every: Duration) -> io::Result<()> {
    let every = libc::timespec {
        tv_sec: every.as_secs().cast_signed(),
        tv_nsec: every.subsec_nanos().into(),
    };
    let times = libc::itimerspec {
        it_value: every,
        it_interval: every,
    };
    // SAFETY: a zeroed sigevent is valid, and all of them live through the calls (timer_create(2), timer_settime(2)).
    let status = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SPINNING;
        event.sigev_notify_thread_id = libc::gettid();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        match libc::timer_create(
            libc::CLOCK_THREAD_CPUTIME_ID,
            &raw mut event,
            &raw mut timer,
        ) {
            0 => libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()),
            failed => failed,
        }
    };
    if status == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The names of the functions that a process was in, whose parent this one is, innermost first; or the addresses, where there
/// are no names. Not in a process that may not read the files of its libraries.
pub fn names(stack: &[AtomicU64]) -> Vec<String> {
    let addresses = stack.iter().map(|place| place.load(Ordering::Acquire));
    let names = addresses.take_while(|&address| address != 0).map(name_of);
    let mut names: Vec<String> = names.collect();
    // It has whole files in memory.
    backtrace::clear_symbol_cache();
    // Behind the handler comes what it returns to, and then where the loop was.
    if let Some(handler) = names
        .iter()
        .position(|name| name.ends_with("spin::on_tick"))
    {
        names.drain(..names.len().min(handler + 2));
    }
    names
}

fn name_of(address: u64) -> String {
    let mut name = None;
    backtrace::resolve(address as *mut _, |symbol| {
        // Of functions that were put into others the innermost comes first.
        name = name
            .take()
            .or_else(|| symbol.name().map(|name| format!("{name:#}")));
    });
    name.unwrap_or_else(|| format!("{address:#x}"))
}
