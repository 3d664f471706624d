//! Tries the process that borrows our memory (`errand`) before the template makes workers that way: once, for real, but
//! in a copy of ours, so that a failure harms only the copy, and within a bounded time.
//!
//! It checks pid, thread, locks, restartable sequences, signal mask and adoption. If a check fails, or the copy crashes
//! or hangs, the template uses ordinary forks.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::call::InCall;
use crate::process::{self, Fork};
use crate::{channel, errand, signal};

/// Whether there is anything to try: the code in `errand` works with this processor and C library only.
pub const IS_THERE: bool = cfg!(all(target_arch = "x86_64", target_env = "gnu"));

/// How long the trial may take; it takes as long as two forks.
const LONGEST: Duration = Duration::from_secs(5);

/// A fault that the forked process finds in itself, in the place of a worker. It reports the first one that it finds.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Found {
    Nothing = 1,
    NotAnother,
    ThreadId,
    Mutex,
    Rseq,
    Mask,
    NotAdopted,
    /// The fork failed.
    Refused,
    /// The process that lent its memory did not get it back as it was.
    Lender,
}

impl Found {
    fn words(byte: u8) -> &'static str {
        const WORDS: [&str; 8] = [
            "the worker had the pid of another process",
            "the worker did not know its thread",
            "the worker's locks took it for another thread",
            "the worker had lost its restartable sequences",
            "the worker had another signal mask",
            "the worker was not adopted by the master",
            "the kernel refused it",
            "the template's own state had changed",
        ];
        let index = usize::from(byte).wrapping_sub(Found::NotAnother as usize);
        WORDS
            .get(index)
            .copied()
            .unwrap_or("its report made no sense")
    }
}

/// Makes a child fork a grandchild for `adopter`. The error says what went wrong.
pub fn run(adopter: i32) -> Result<(), String> {
    let failed = |error: io::Error| format!("the trial failed: {error}");
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .in_call("pipe2")
        .map_err(failed)?;
    // SAFETY: the child does what the template does for each worker, so it asks no more of other threads than that;
    // beside that it makes system calls and takes a lock of its own. It never returns.
    match unsafe { process::fork() }.map_err(failed)? {
        Fork::Child => {
            drop(read);
            let found = subject(adopter);
            // If the write fails, the parent has given up.
            let _ = rustix::io::write(&write, &[found as u8]);
            process::exit_now(0);
        }
        Fork::Parent(child) => {
            drop(write);
            let told = listen(&read);
            // The child may wait for ever; killing it also kills the process for which it waits.
            let ended =
                process::kill(child, signal::SIGKILL).and_then(|()| process::collect(child));
            let told = told.and_then(|told| ended.map(|()| told)).map_err(failed)?;
            match told.iter().find(|&&found| found != Found::Nothing as u8) {
                Some(&found) => Err(Found::words(found).to_owned()),
                None if told.len() == 2 => Ok(()),
                None => Err("it crashed, or took too long".to_owned()),
            }
        }
    }
}

/// Collects the reports of both processes, until the time is up or both have left.
fn listen(read: &OwnedFd) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + LONGEST;
    let mut told = Vec::new();
    while told.len() < 2 && told.iter().all(|&found| found == Found::Nothing as u8) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        if channel::poll_readable(&[read.as_fd()], left_ms.saturating_add(1))? == [true] {
            let mut found = [0];
            match rustix::io::read(read, &mut found) {
                Ok(1) => told.push(found[0]),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(told)
}

/// Forks as the template does for a worker. Returns in both processes, and each reports what it found.
fn subject(adopter: i32) -> Found {
    let tried = process::pid();
    let lock = Lock::taken();
    let mask = errand::blocked();
    // SAFETY: as in `run`.
    match unsafe { errand::fork_by_another() } {
        Err(_) => Found::Refused,
        Ok((Fork::Parent(_), between)) => match process::collect(between) {
            Ok(()) if errand::blocked() == mask && process::pid() == tried => Found::Nothing,
            _ => Found::Lender,
        },
        Ok((Fork::Child, _)) => look_around(tried, adopter, &lock, mask),
    }
}

fn look_around(tried: i32, adopter: i32, lock: &Lock, mask: u64) -> Found {
    let begun = Instant::now();
    // SAFETY: gettid(2) has no preconditions.
    let thread = unsafe { libc::gettid() };
    if process::pid() == tried {
        return Found::NotAnother;
    }
    if thread != process::pid() {
        return Found::ThreadId;
    }
    if lock.takes_us_for_its_owner() {
        return Found::Mutex;
    }
    if !errand::knows_rseq() {
        return Found::Rseq;
    }
    if errand::blocked() != mask {
        return Found::Mask;
    }
    while process::parent_pid() != adopter {
        if begun.elapsed() > LONGEST / 2 {
            return Found::NotAdopted;
        }
        // As for a worker: the process in between ends when the scheduler lets it.
        std::thread::yield_now();
    }
    Found::Nothing
}

/// A lock that knows its owner by the thread id that the C library has noted (`PTHREAD_MUTEX_RECURSIVE` in
/// `pthread_mutexattr_settype(3)`). In the child of a fork that id must be a new one.
struct Lock(Box<UnsafeCell<libc::pthread_mutex_t>>);

impl Lock {
    fn taken() -> Self {
        let lock = Self(Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER)));
        // SAFETY: the attributes are initialised before they are used, and the mutex lies in a box, so it does not
        // move; no other code has its address.
        unsafe {
            let mut kind = std::mem::MaybeUninit::uninit();
            libc::pthread_mutexattr_init(kind.as_mut_ptr());
            libc::pthread_mutexattr_settype(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_RECURSIVE);
            libc::pthread_mutex_init(lock.0.get(), kind.as_ptr());
            libc::pthread_mutex_lock(lock.0.get());
        }
        lock
    }

    fn takes_us_for_its_owner(&self) -> bool {
        // SAFETY: the mutex was initialised by `taken` and is a copy of ours alone.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }
}
