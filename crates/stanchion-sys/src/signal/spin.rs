//! A bound on the CPU time of one turn of a loop: a thread that spins never comes back to where it could look at a clock.
//!
//! The clock is the thread's own CPU time (`timer_create(2)`, `CLOCK_THREAD_CPUTIME_ID`). So nothing is woken while the loop
//! sleeps, and a process that is stopped, debugged, frozen or suspended is not taken for one that spins.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use super::timer::{self, Target};
use super::{SIGKILL, SPINNING, is_owner, set_action, unblock};
use crate::process;

/// Frames of a stack that are kept.
pub const FRAMES_MAX: usize = 48;

/// The loop that the handler looks at, and the stack that it writes; null before [`bound_turns`].
static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(std::ptr::null_mut());
/// How many turns the loop has made. Not in shared memory, where others could hold it still.
static TURNS: AtomicU64 = AtomicU64::new(0);
/// How many turns the loop had made at the last tick.
static SEEN: AtomicU64 = AtomicU64::new(u64::MAX);
/// The timer that kills this process if its stack cannot be kept.
static KILLER: AtomicIsize = AtomicIsize::new(0);
/// For so long it may take.
const UNWINDING: Duration = Duration::from_secs(1);
/// The process that is watched; its children have no such timer.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// A loop in memory that its parent has, too.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Where its thread was when a turn took too long: addresses of code, innermost first, and 0 behind the last.
    pub stack: &'static [AtomicU64],
    /// The exit code of the process then.
    pub exit_code: i32,
}

extern "C" fn on_tick(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel lends it for the time of the handler (sigaction(2), SA_SIGINFO).
    let is_ours = unsafe { (*info).si_code } == libc::SI_TIMER;
    // Another process of the same user may send this signal, too.
    if !is_ours || !is_owner(&OWNER, signal) {
        return;
    }
    // SAFETY: null, or what `bound_turns` has leaked.
    let Some(watched) = (unsafe { WATCHED.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    let turn = TURNS.load(Ordering::Relaxed);
    if SEEN.swap(turn, Ordering::Relaxed) == turn {
        // Should the unwinder wait for a lock that is never free: see `keep_stack`.
        let killer = KILLER.load(Ordering::Acquire);
        let _ = timer::set(killer, 0, UNWINDING, Duration::ZERO);
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

/// The loop has made one turn more.
pub fn turned() {
    TURNS.fetch_add(1, Ordering::Relaxed);
}

/// Bounds the CPU time that the calling thread takes for one turn, which it ends by [`turned`]: between one and two times
/// `limit` the process ends. To be called once in a process.
///
/// # Errors
/// The errors of `sigaction(2)`, `timer_create(2)` and `timer_settime(2)`.
pub fn bound_turns(watched: Watched, limit: Duration) -> io::Result<()> {
    for place in watched.stack {
        place.store(0, Ordering::Relaxed);
    }
    WATCHED.store(Box::leak(Box::new(watched)), Ordering::Release);
    OWNER.store(process::pid(), Ordering::Release);
    let handler = on_tick as *const () as libc::sighandler_t;
    set_action(SPINNING, handler, libc::SA_RESTART | libc::SA_SIGINFO)?;
    unblock(&[SPINNING])?;
    let killer = timer::make(libc::CLOCK_MONOTONIC, Target::Process, SIGKILL)?;
    KILLER.store(killer, Ordering::Release);
    let clock = libc::CLOCK_THREAD_CPUTIME_ID;
    let ticker = timer::make(clock, Target::CallingThread, SPINNING)?;
    timer::set(ticker, 0, limit, limit)
}

/// The names of the functions in a stack that a child of this process has kept, innermost first; an address where there is no
/// name. A child made by fork(2) has its code at its parent's addresses. The parent resolves them because the child may be
/// confined (Landlock), and then cannot read the files of its libraries.
pub fn names(stack: &[u64]) -> Vec<String> {
    let addresses = stack.iter().copied().take_while(|&address| address != 0);
    let mut names: Vec<String> = addresses.map(name_of).collect();
    // It keeps the files of its last look-ups mapped.
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
