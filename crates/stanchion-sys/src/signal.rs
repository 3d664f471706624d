//! Signals as bytes in a pipe, and the one bit that asks a worker to leave (signal-safety(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

pub use libc::{
    SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
    SIGWINCH,
};

/// Asks a worker for its stacks.
pub const DUMP: i32 = 62;

/// Where the handler writes; -1 while there is no pipe.
static PIPE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn write_byte(signal: libc::c_int) {
    // SAFETY: errno is thread-local, and write(2) and errno are async-signal-safe. A full pipe
    // loses nothing: its reader is then awake with this signal or another one unread, and signals
    // of a kind are allowed to merge (signal(7)).
    unsafe {
        let errno = *libc::__errno_location();
        let byte = signal as u8;
        libc::write(PIPE.load(Ordering::Relaxed), (&raw const byte).cast(), 1);
        *libc::__errno_location() = errno;
    }
}

/// The read end of this process's signal pipe.
#[derive(Debug)]
pub struct SignalPipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl SignalPipe {
    /// Catches `signals`: each becomes a byte in a pipe made here. A child of a later fork must
    /// make its own pipe or [`reset`] before it does anything that takes long, else its signals
    /// would arrive at its parent.
    pub fn install(signals: &[i32]) -> io::Result<Self> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        PIPE.store(write.as_raw_fd(), Ordering::Relaxed);
        for &signal in signals {
            set_handler(signal, write_byte as *const () as libc::sighandler_t)?;
        }
        Ok(Self { read, write })
    }

    /// The signals that came since the last call, oldest first.
    pub fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        match rustix::io::read(&self.read, &mut bytes) {
            Ok(count) => bytes[..count].iter().map(|byte| i32::from(*byte)).collect(),
            Err(_) => Vec::new(),
        }
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

/// Set once a worker has been asked to leave; see [`leave_on`].
static LEAVE: AtomicU32 = AtomicU32::new(0);
/// The word on which this process's seats sleep.
static BELL: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn ask_to_leave(_signal: libc::c_int) {
    LEAVE.store(1, Ordering::Release);
    let bell = BELL.load(Ordering::Acquire);
    if !bell.is_null() {
        // SAFETY: `leave_on` took a `&'static`, so the word is alive. Changing it makes a
        // futex wait that is about to begin return at once; one under way ends by this signal.
        unsafe { (*bell).fetch_add(2, Ordering::AcqRel) };
    }
}

/// Makes `signals` set the flag that [`leave_flag`] gives, and change `bell` (by two: its lowest
/// bit belongs to the waiters), so that a thread which looks at the flag and then sleeps on the
/// word cannot miss them. The handler stores two words: no pipe, so that an idle seat needs no
/// second descriptor to watch.
pub fn leave_on(signals: &[i32], bell: &'static AtomicU32) -> io::Result<()> {
    LEAVE.store(0, Ordering::Release);
    BELL.store(std::ptr::from_ref(bell).cast_mut(), Ordering::Release);
    for &signal in signals {
        set_handler(signal, ask_to_leave as *const () as libc::sighandler_t)?;
    }
    Ok(())
}

/// Zero until this process was asked to leave. Also a futex word for a thread that only waits
/// for that.
pub fn leave_flag() -> &'static AtomicU32 {
    &LEAVE
}

/// Back to the default action.
pub fn reset(signals: &[i32]) -> io::Result<()> {
    signals
        .iter()
        .try_for_each(|&signal| set_handler(signal, libc::SIG_DFL))
}

fn set_handler(signal: i32, handler: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid; the handlers above are async-signal-safe. SA_RESTART
    // spares the app's own system calls an EINTR.
    let status = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if status == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
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
