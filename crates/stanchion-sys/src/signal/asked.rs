//! Requests to a worker by signals: a handler sets bits in one word and does little else.
//!
//! A runtime with signal handlers of its own (Python) sets those first. Our handler stands in front: it sets the bits,
//! wakes the sleepers, and calls the runtime's handler, which acts at its next safe point.
//!
//! Changing the word on which the seats sleep closes the gap between a seat's last look at the bits and its going to
//! sleep, without a thread or a second descriptor. A worker in the middle of Python runs its hooks at Python's next
//! safe point. The signal may come just before the main thread begins to wait, or to another thread: so a timer signals
//! the main thread again, ten times a second, until the handler has run. The same timer ends a worker that comes to no
//! safe point because it is stuck in C.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::timer::{self, Target};
use super::{NUDGE, SIGABRT, SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, orphan};
use super::{
    call_behind, is_owner, keeping_errno, put_in_front, send_at_once, set_action, unblock,
};
use crate::process::{exit_now, parent_pid, pid};
use crate::{clock, futex};

/// Leave once the work under way is done (SIGTERM, unless it is [passed on](pass_on_terms)).
pub const LEAVE: u32 = 1;
/// Leave at once (SIGINT, SIGQUIT).
pub const QUICK: u32 = 2;
/// Leave at once, because something is wrong (SIGABRT).
pub const ABORT: u32 = 4;
/// Open the logs again (SIGUSR1).
pub const REOPEN: u32 = 8;
/// The requests after which the worker takes no further HTTP request.
pub const LEAVING: u32 = LEAVE | QUICK | ABORT;

/// The most seconds that a worker which must leave at once may take, hooks and all. After that it ends with exit code 1
/// wherever it is, even if it is stuck in C.
const QUICK_S_MAX: u32 = 5;

/// How often, until then, a signal interrupts the system call in which the main thread waits. The first signal is not
/// enough: it may come just before the thread begins to wait, or to another thread.
const NUDGE_MS: u32 = 100;

/// The least time from one look for the superior to the next.
const LOOK_AGAIN_US: u64 = 500_000;
/// When the process last looked.
static LOOKED_US: AtomicU64 = AtomicU64::new(0);

/// The bits of the requests.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// The word on which this process's seats sleep.
static BELL: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// The eventfd at which this process's event loop sleeps; -1 = none.
static WAKE: AtomicI32 = AtomicI32::new(-1);
/// The process that catches the signals; its children do not.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The timer that sends [`NUDGE`]; -1 = none, since the kernel counts timers from 0.
static TIMER: AtomicIsize = AtomicIsize::new(-1);
/// When this process must have left, on the monotonic clock; [`NEVER`] = it need not leave at once.
static DEADLINE_US: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;
/// The process that decides whether this one leaves; null = this process decides.
static SUPERIOR: AtomicPtr<Superior> = AtomicPtr::new(std::ptr::null_mut());

/// The process whose SIGTERM counts, and the message that reports a SIGTERM from any other process to it.
struct Superior {
    pid: i32,
    reports: RawFd,
    message: Box<[u8]>,
}

impl Superior {
    /// The superior is the parent as long as it lives. Async-signal-safe.
    fn is_gone(&self) -> bool {
        self.pid != parent_pid()
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    if !is_owner(&OWNER, signal) {
        return;
    }
    keeping_errno(|| {
        ask(match signal {
            SIGINT | SIGQUIT => QUICK,
            SIGABRT => ABORT,
            SIGUSR1 => REOPEN,
            _ => 0,
        });
        if matches!(signal, SIGINT | SIGQUIT | SIGABRT) {
            start_timer();
        }
        call_behind(signal);
    });
}

extern "C" fn on_term(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    if !is_owner(&OWNER, signal) {
        return;
    }
    // SAFETY: the kernel gives a handler with SA_SIGINFO a siginfo_t, and for a SIGTERM it names the sender (sigaction(2)).
    let sender = unsafe { (*info).si_pid() };
    keeping_errno(|| {
        if !is_passed_on(sender) {
            ask(LEAVE);
        }
        call_behind(signal);
    });
}

/// SIGCONT may mean that the superior has ended; then this process acts as if the superior had sent SIGTERM.
extern "C" fn on_cont(signal: libc::c_int) {
    if !is_owner(&OWNER, signal) {
        return;
    }
    keeping_errno(|| {
        if superior().is_some_and(Superior::is_gone) {
            // It signals the process and not this thread, because the handler behind the one of SIGTERM may have to run in
            // another thread.
            // SAFETY: kill(2) and getpid(2) are async-signal-safe.
            unsafe { libc::kill(libc::getpid(), SIGTERM) };
        }
        call_behind(signal);
    });
}

/// Whether the superior has ended. A thread that waits looks, since the app may have blocked SIGCONT, or have set a handler of its
/// own. The kernel is asked twice a second at most: a thread may wait after each request.
pub fn is_orphaned() -> bool {
    let now_us = clock::monotonic_us();
    if now_us.saturating_sub(LOOKED_US.load(Ordering::Relaxed)) < LOOK_AGAIN_US {
        return false;
    }
    LOOKED_US.store(now_us, Ordering::Relaxed);
    has_no_superior()
}

fn has_no_superior() -> bool {
    superior().is_some_and(Superior::is_gone) && OWNER.load(Ordering::Relaxed) == pid()
}

fn superior() -> Option<&'static Superior> {
    // SAFETY: `pass_on_terms` stored a leaked box, which is never changed.
    unsafe { SUPERIOR.load(Ordering::Acquire).as_ref() }
}

/// Whether a process other than the superior has sent it, and the superior got a report of it. Async-signal-safe.
fn is_passed_on(sender: i32) -> bool {
    let Some(superior) = superior() else {
        return false;
    };
    if superior.pid == sender || superior.is_gone() {
        return false;
    }
    // If the superior has closed the channel, or is far behind, no report arrives, so this process decides itself.
    send_at_once(superior.reports, &superior.message)
}

extern "C" fn on_nudge(_signal: libc::c_int) {
    keeping_errno(|| {
        // _exit(2) and clock_gettime(2) are async-signal-safe.
        if clock::monotonic_us() >= DEADLINE_US.load(Ordering::Acquire) {
            exit_now(1);
        }
        // The main thread has the process's number. If this is another thread, pass the signal on to the main thread.
        let main = OWNER.load(Ordering::Relaxed);
        // SAFETY: gettid(2) and tgkill(2) are async-signal-safe.
        unsafe {
            if libc::gettid() != main {
                libc::syscall(libc::SYS_tgkill, main, main, NUDGE);
            }
        }
    });
}

/// Catches SIGTERM, SIGINT, SIGQUIT, SIGABRT and SIGUSR1, in front of the present handlers. Each signal sets its bit in
/// [`word`] and changes `bell` (by two: its lowest bit belongs to the waiters), so a thread that looks at the word and
/// then sleeps on the bell cannot miss it. There is no pipe, so that an idle seat needs no second descriptor to watch.
/// The app may have blocked the signals when it was imported: this unblocks them.
///
/// An event loop sleeps on no word, so the handler also writes to `wake`, an eventfd that stays open.
///
/// Children of a later fork get the default actions at their first signal.
pub fn catch(bell: &'static AtomicU32, wake: Option<BorrowedFd<'static>>) -> io::Result<()> {
    ASKED.store(0, Ordering::Release);
    WAKE.store(wake.map_or(-1, |wake| wake.as_raw_fd()), Ordering::Release);
    BELL.store(std::ptr::from_ref(bell).cast_mut(), Ordering::Release);
    OWNER.store(pid(), Ordering::Release);
    // Without SA_RESTART: see below.
    set_action(NUDGE, on_nudge as *const () as libc::sighandler_t, 0)?;
    DEADLINE_US.store(NEVER, Ordering::Release);
    let timer = timer::make(libc::CLOCK_MONOTONIC, Target::Process, NUDGE)?;
    TIMER.store(timer, Ordering::Release);
    SUPERIOR.store(std::ptr::null_mut(), Ordering::Release);
    let handler = on_term as *const () as libc::sighandler_t;
    put_in_front(SIGTERM, handler, libc::SA_RESTART | libc::SA_SIGINFO)?;
    let handler = on_signal as *const () as libc::sighandler_t;
    put_in_front(SIGUSR1, handler, libc::SA_RESTART)?;
    // Without SA_RESTART: the system call in which the process waits ends, and a runtime comes to its safe point. Code
    // that fails at the EINTR is about to be given up anyway.
    for signal in [SIGINT, SIGQUIT, SIGABRT] {
        put_in_front(signal, handler, 0)?;
    }
    unblock(&[NUDGE, SIGTERM, SIGUSR1, SIGINT, SIGQUIT, SIGABRT]).map(drop)
}

/// From now on this process leaves only at a SIGTERM from its superior, its parent `pid`, or when the superior ends. If
/// another process sends SIGTERM, perhaps to all processes of the server at once, `message` goes to the superior on
/// `reports`, which must stay open for the life of the process.
///
/// # Errors
/// The kernel's.
pub fn pass_on_terms(pid: i32, reports: BorrowedFd<'static>, message: &[u8]) -> io::Result<()> {
    let superior = Box::new(Superior {
        pid,
        reports: reports.as_raw_fd(),
        message: message.into(),
    });
    SUPERIOR.store(Box::leak(superior), Ordering::Release);
    let handler = on_cont as *const () as libc::sighandler_t;
    put_in_front(SIGCONT, handler, libc::SA_RESTART)?;
    unblock(&[SIGCONT])?;
    // The superior may have ended before this process caught SIGCONT.
    if orphan::go_on_after(pid)? {
        ask(LEAVE);
    }
    Ok(())
}

/// The word with the bits. It is also a futex word, for a thread that only waits for them.
pub fn word() -> &'static AtomicU32 {
    &ASKED
}

/// Whether this process must leave at once.
pub fn is_quick() -> bool {
    ASKED.load(Ordering::Acquire) & (QUICK | ABORT) != 0
}

/// Sets bits as a signal would. Async-signal-safe.
pub fn ask(bits: u32) {
    ASKED.fetch_or(bits, Ordering::AcqRel);
    let bell = BELL.load(Ordering::Acquire);
    if !bell.is_null() {
        // SAFETY: `catch` took a `&'static`, so the word is alive. Changing it makes a futex wait that is about to
        // begin return at once; the signal itself ends a wait that is under way in this thread.
        unsafe { (*bell).fetch_add(2, Ordering::AcqRel) };
    }
    // The kernel may have delivered the signal to another thread than the one that waits for it. futex(2) is a bare
    // system call.
    futex::wake(&ASKED, u32::MAX);
    let wake = WAKE.load(Ordering::Acquire);
    if wake >= 0 {
        let one = 1_u64;
        // SAFETY: write(2) is async-signal-safe, and the descriptor that `catch` was given stays open. A full counter
        // wakes the loop as well.
        unsafe { libc::write(wake, (&raw const one).cast(), size_of::<u64>()) };
    }
}

/// Takes back `bit`: true for exactly one caller, which does what the bit asks for.
pub fn take(bit: u32) -> bool {
    ASKED.fetch_and(!bit, Ordering::AcqRel) & bit != 0
}

/// Starts the timer at the first of several signals. Async-signal-safe.
fn start_timer() {
    let deadline_us = clock::monotonic_us() + u64::from(QUICK_S_MAX) * 1_000_000;
    let is_first = DEADLINE_US
        .compare_exchange(NEVER, deadline_us, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok();
    if is_first {
        set_timer(0, u64::from(NUDGE_MS) * 1_000, u64::from(NUDGE_MS) * 1_000);
    }
}

/// For the main thread, once it knows that it must leave at once: stops the interruptions, because its last work should
/// not be broken off. The deadline stays.
pub fn heard() {
    let deadline_us = DEADLINE_US.load(Ordering::Acquire);
    if deadline_us != NEVER {
        set_timer(libc::TIMER_ABSTIME, deadline_us, 0);
    }
}

/// Async-signal-safe, as `timer_settime(2)` is.
fn set_timer(flags: libc::c_int, first_us: u64, then_us: u64) {
    let timer = TIMER.load(Ordering::Acquire);
    if timer >= 0 {
        let (first, then) = (
            Duration::from_micros(first_us),
            Duration::from_micros(then_us),
        );
        // The timer is this process's own, so this cannot fail.
        let _ = timer::set(timer, flags, first, then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_sets_its_bit_and_changes_the_bell_by_two() {
        static BELL: AtomicU32 = AtomicU32::new(1);
        catch(&BELL, None).expect("caught");
        // SAFETY: raise(3) has no preconditions; the handler has run when it returns.
        unsafe { libc::raise(SIGUSR1) };
        assert_eq!(word().load(Ordering::Acquire), REOPEN);
        assert_eq!(BELL.load(Ordering::Acquire), 3);
        assert!(take(REOPEN));
        assert!(!take(REOPEN), "only once");
        // SAFETY: as above.
        unsafe { libc::raise(SIGTERM) };
        assert_eq!(word().load(Ordering::Acquire), LEAVE);
        assert_eq!(BELL.load(Ordering::Acquire), 5);
        assert!(!is_quick());
        a_term_of_others_is_passed_on();
    }

    /// In the same test, since both change the signal handlers of this one process.
    fn a_term_of_others_is_passed_on() {
        use crate::channel::{Channel, Received};
        use std::os::fd::AsFd;

        let (ours, theirs) = Channel::pair().expect("a channel");
        let theirs: &'static Channel = Box::leak(Box::new(theirs));
        let raised = |superior| {
            assert!(take(LEAVE) || word().load(Ordering::Acquire) == 0);
            pass_on_terms(superior, theirs.as_fd(), b"report").expect("set");
            // SAFETY: raise(3) has no preconditions.
            unsafe { libc::raise(SIGTERM) };
            word().load(Ordering::Acquire)
        };
        let (this, parent) = (pid(), parent_pid());
        assert_eq!(raised(this), LEAVE, "no parent is there to decide");
        assert!(has_no_superior());
        assert!(matches!(ours.receive(), Ok(Received::Nothing)));
        assert_eq!(raised(parent), 0, "the superior decides");
        let received = ours.receive().expect("received");
        assert!(matches!(received, Received::Message(one) if one.bytes == b"report"));
        // SAFETY: as above.
        unsafe { libc::raise(SIGCONT) };
        assert_eq!(word().load(Ordering::Acquire), 0, "the parent is there");
        assert!(!has_no_superior());
        drop(ours);
        assert_eq!(raised(parent), LEAVE, "no process reads the report");
    }
}
