//! A bound on the CPU time of one turn of a loop: a thread that spins never comes back to code that could look at a
//! clock.
//!
//! The clock is the thread's own CPU time (`timer_create(2)`, `CLOCK_THREAD_CPUTIME_ID`). So the timer wakes nothing
//! while the loop sleeps, and a process that is stopped, debugged, frozen or suspended does not count as one that
//! spins.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use super::timer::{self, Target};
use super::{SIGKILL, SPINNING, is_owner, set_action, unblock};
use crate::process;

/// How many frames of a stack are kept.
pub const FRAMES_MAX: usize = 48;

/// The loop that the handler watches, and the stack that it writes; null before [`bound_turns`].
static WATCHED: AtomicPtr<WatchedLoop> = AtomicPtr::new(std::ptr::null_mut());
/// How many turns the loop has made. It is not in shared memory, where another process could hold it still.
static TURNS: AtomicU64 = AtomicU64::new(0);
/// How many turns the loop had made at the last tick.
static SEEN: AtomicU64 = AtomicU64::new(u64::MAX);
/// The timer that kills this process if its stack cannot be kept.
static KILLER: AtomicIsize = AtomicIsize::new(0);
/// How long keeping the stack may take.
const UNWINDING: Duration = Duration::from_secs(1);
/// The process with the loop; its children have no such timer.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// A loop to watch; its memory is shared with the parent process.
#[derive(Clone, Copy, Debug)]
pub struct WatchedLoop {
    /// The stack of its thread when a turn took too long: addresses of code, innermost first, and 0 after the last.
    pub stack: &'static [AtomicU64],
    /// The exit code that the process then has.
    pub exit_code: i32,
}

extern "C" fn on_tick(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel lends `info` for the time of the handler (sigaction(2), SA_SIGINFO).
    let is_ours = unsafe { (*info).si_code } == libc::SI_TIMER;
    // Another process of the same user may send this signal, too.
    if !is_ours || !is_owner(&OWNER, signal) {
        return;
    }
    // SAFETY: the pointer is null, or the box that `bound_turns` has leaked.
    let Some(watched) = (unsafe { WATCHED.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    let turn = TURNS.load(Ordering::Relaxed);
    if SEEN.swap(turn, Ordering::Relaxed) == turn {
        // The killer ends the process if the unwinder waits for a lock that is never free: see `keep_stack`.
        let killer = KILLER.load(Ordering::Acquire);
        let _ = timer::set(killer, 0, UNWINDING, Duration::ZERO);
        keep_stack(watched.stack);
        process::exit_now(watched.exit_code);
    }
}

fn keep_stack(stack: &[AtomicU64]) {
    let mut places = stack.iter();
    // SAFETY: only this handler unwinds by this crate, and the kernel blocks a signal in its own handler, so no other
    // call is under way. The unwinder of libgcc takes no lock of malloc(3), which the thread may hold; a thread may
    // take the unwinder's own lock, of the list of loaded libraries, twice.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let place = places.next();
            place.inspect(|place| place.store(frame.ip() as u64, Ordering::Release));
            place.is_some()
        });
    }
}

/// Notes that the loop has made one more turn.
pub fn turned() {
    TURNS.fetch_add(1, Ordering::Relaxed);
}

/// Bounds the CPU time that the calling thread takes for one turn; the thread ends each turn by [`turned`]. A longer
/// turn ends the process after between one and two times `limit`. Call it once in a process.
///
/// # Errors
/// The errors of `sigaction(2)`, `timer_create(2)` and `timer_settime(2)`.
pub fn bound_turns(watched: WatchedLoop, limit: Duration) -> io::Result<()> {
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

/// The names of the functions in a stack that a child of this process has kept, innermost first; an address if a
/// function has no name. A child made by fork(2) has its code at its parent's addresses. The parent resolves them
/// because the child may be confined (Landlock), and then cannot read the files of its libraries.
pub fn names(stack: &[u64]) -> Vec<String> {
    let addresses = stack.iter().copied().take_while(|&address| address != 0);
    let mut names: Vec<String> = addresses.map(name_of).collect();
    // The crate keeps the files of its last look-ups mapped.
    backtrace::clear_symbol_cache();
    // After the handler comes the code to which it returns, and then the place where the loop was.
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
        // For inlined functions the innermost comes first.
        name = name
            .take()
            .or_else(|| symbol.name().map(|name| format!("{name:#}")));
    });
    name.unwrap_or_else(|| format!("{address:#x}"))
}
