//! Signals (signal-safety(7)): as bytes in a pipe, for the master; as bits in a word, for a worker ([`asked`]); the
//! signal at which a worker writes its stacks ([`dump`]); the death of the parent ([`orphan`]); and a turn of a loop
//! that does not end ([`spin`]).

pub mod asked;
pub mod dump;
pub mod orphan;
pub mod spin;
mod timer;

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crate::call::{InCall, checked, named};

pub use libc::{
    SIGABRT, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU,
    SIGUSR1, SIGUSR2, SIGWINCH,
};

/// Makes a worker write the stacks of its threads ([`dump`]). It is a real-time signal, since every signal below those
/// already means something to some program; it is near the last one, since libraries count from the first.
pub const DUMP: i32 = 62;
/// Interrupts a worker that must leave at once, and ends it if it does not leave ([`asked`]).
const NUDGE: i32 = 61;
/// The kernel sends it each time that a loop has used some more CPU time ([`spin`]).
const SPINNING: i32 = 59;

/// How many signals there are, with one for the unused 0.
const SIGNALS: usize = 65;
/// By signal: the handler that was there before ours; see [`put_in_front`].
static BEHIND: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(libc::SIG_DFL) }; SIGNALS];

/// The descriptor to which the handler writes; -1 while there is no pipe.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// The signals for which the pipe had no room, a bit each: signals of a kind are allowed to merge (signal(7)).
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// Does the work of a signal handler, and leaves errno as it was: the code that the signal has interrupted may be about to
/// read it (signal-safety(7)).
fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: this is the address of the thread's own errno, a number that no other thread reads or writes.
    let errno = unsafe { &*libc::__errno_location().cast::<Cell<libc::c_int>>() };
    let before = errno.get();
    work();
    errno.set(before);
}

extern "C" fn write_byte(signal: libc::c_int) {
    keeping_errno(|| {
        let (pipe, byte) = (PIPE.load(Ordering::Relaxed), signal as u8);
        // SAFETY: write(2) is async-signal-safe, and only reads the byte.
        let written = unsafe { libc::write(pipe, (&raw const byte).cast(), 1) };
        if written != 1 {
            // The reader of a full pipe is awake, and looks here too.
            UNWRITTEN.fetch_or(1 << (signal & 63), Ordering::AcqRel);
        }
    });
}

/// The read end of this process's signal pipe.
#[derive(Debug)]
pub struct SignalPipe {
    read: OwnedFd,
    write: OwnedFd,
    signals: Vec<i32>,
}

impl SignalPipe {
    /// Catches `signals`, even those that the process which started us had blocked or ignored: each becomes a byte in a
    /// pipe made here. A child of a later fork must make its own pipe or [`reset`] before it does anything that takes
    /// long; otherwise its signals would arrive at its parent.
    pub fn install(signals: &[i32]) -> io::Result<Self> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).in_call("pipe2")?;
        PIPE.store(write.as_raw_fd(), Ordering::Relaxed);
        for &signal in signals {
            set_handler(signal, write_byte as *const () as libc::sighandler_t)?;
        }
        unblock(signals)?;
        Ok(Self {
            read,
            write,
            signals: signals.to_vec(),
        })
    }

    /// Catches the signals again, in case other code in this process has changed their handlers or blocked them.
    /// Returns the signals that other code had changed.
    pub fn reclaim(&self) -> io::Result<Vec<i32>> {
        let blocked = unblock(&self.signals)?;
        let handler = write_byte as *const () as libc::sighandler_t;
        let mut taken = Vec::new();
        for &signal in &self.signals {
            let before = action(signal)?;
            set_handler(signal, handler)?;
            if before.sa_sigaction != handler || blocked.contains(&signal) {
                taken.push(signal);
            }
        }
        Ok(taken)
    }

    /// The signals that came since the last call, oldest first; last come, once each, the signals for which the pipe
    /// had no room.
    pub fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        let read = rustix::io::read(&self.read, &mut bytes).unwrap_or(0);
        let unwritten = UNWRITTEN.swap(0, Ordering::AcqRel);
        let late = (1..64).filter(|signal| unwritten & (1 << signal) != 0);
        bytes[..read]
            .iter()
            .map(|&byte| i32::from(byte))
            .chain(late)
            .collect()
    }
}

impl AsFd for SignalPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        let ours = self.write.as_raw_fd();
        let _was_ours = PIPE.compare_exchange(ours, -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Unblocks `signals` in this thread and the threads that it starts; returns those that were blocked. A process
/// inherits its mask, over fork(2) and execve(2) too, so a parent may have blocked them and forgotten it.
fn unblock(signals: &[i32]) -> io::Result<Vec<i32>> {
    let before = change_mask(libc::SIG_UNBLOCK, &set_of(signals)?)?;
    // SAFETY: sigismember(3) only reads the set.
    let was_blocked = |signal: i32| unsafe { libc::sigismember(&raw const before, signal) == 1 };
    let blocked = signals.iter().copied().filter(|&one| was_blocked(one));
    Ok(blocked.collect())
}

/// Changes the mask of this thread (`pthread_sigmask`(3)); returns the mask before.
pub(crate) fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets live through the call, which reads the one, and fills the other if it succeeds.
    unsafe {
        match libc::pthread_sigmask(how, set, before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            error => Err(named("rt_sigprocmask", io::Error::from_raw_os_error(error))),
        }
    }
}

pub(crate) fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set it is given, sigaddset(3) changes it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            checked("sigaddset", libc::sigaddset(set.as_mut_ptr(), signal))?;
        }
        Ok(set.assume_init())
    }
}

/// Restores the default action.
pub fn reset(signals: &[i32]) -> io::Result<()> {
    signals
        .iter()
        .try_for_each(|&signal| set_handler(signal, libc::SIG_DFL))
}

fn set_handler(signal: i32, handler: libc::sighandler_t) -> io::Result<()> {
    // SA_RESTART spares the app's own system calls an EINTR.
    set_action(signal, handler, libc::SA_RESTART)
}

fn set_action(signal: i32, handler: libc::sighandler_t, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid; the handlers of this module are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigemptyset(&raw mut action.sa_mask);
        let set = libc::sigaction(signal, &raw const action, ptr::null_mut());
        checked("rt_sigaction", set).map(drop)
    }
}

/// The present action.
fn action(signal: i32) -> io::Result<libc::sigaction> {
    // SAFETY: a zeroed sigaction is valid, and sigaction(2) only writes this one.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal, ptr::null(), &raw mut present);
        checked("rt_sigaction", asked).map(|_| present)
    }
}

/// Sets `handler` in front of the present one, which `handler` must call by [`call_behind`]. A default action, or a
/// handler that wants more arguments (`SA_SIGINFO`), is never called.
fn put_in_front(signal: i32, handler: libc::sighandler_t, flags: libc::c_int) -> io::Result<()> {
    let before = action(signal)?;
    if before.sa_sigaction != handler {
        let takes_one = before.sa_flags & libc::SA_SIGINFO == 0;
        let behind = if takes_one {
            before.sa_sigaction
        } else {
            libc::SIG_DFL
        };
        // Before ours is set, which may be called at once.
        BEHIND[signal as usize].store(behind, Ordering::Release);
    }
    set_action(signal, handler, flags)
}

/// Calls the handler that was there before ours. Async-signal-safe if that handler is.
fn call_behind(signal: i32) {
    let behind = BEHIND[signal as usize].load(Ordering::Acquire);
    if behind != libc::SIG_DFL && behind != libc::SIG_IGN {
        // SAFETY: sigaction(2) returned this as a handler without SA_SIGINFO: a function of one int. It was set for
        // this signal, so it expects this call.
        let behind: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(behind) };
        behind(signal);
    }
}

/// For a handler in a child that the app forks: the child inherits our handlers, and its signals do not concern the
/// server. False if this process is not `owner`; then the default action follows.
fn is_owner(owner: &AtomicI32, signal: i32) -> bool {
    // SAFETY: getpid(2), signal(2) and raise(3) are async-signal-safe; the raised signal stays
    // blocked until the handler returns.
    unsafe {
        if libc::getpid() == owner.load(Ordering::Relaxed) {
            return true;
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    false
}

/// Sends a message that was made beforehand; false if there is no room for it, or no reader. Async-signal-safe.
fn send_at_once(channel: RawFd, message: &[u8]) -> bool {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: send(2) is async-signal-safe, and only reads the message.
    unsafe { libc::send(channel, message.as_ptr().cast(), message.len(), flags) != -1 }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// Ignores `signals` by a handler that does nothing: unlike `SIG_IGN`, a handler is not passed on
/// to programs that the app starts (execve(2)).
pub fn ignore(signals: &[i32]) -> io::Result<()> {
    let handler = do_nothing as *const () as libc::sighandler_t;
    signals
        .iter()
        .try_for_each(|&signal| set_handler(signal, handler))
}
