//! The two clocks: one that only goes forward, and the one on the wall.
//!
//! **A test can set the monotonic clock forward**, for a whole process tree: [`follow`] maps a file that says how far. So a
//! test of a deadline makes the deadline long, does in peace what must come before it, and then jumps. It neither waits nor
//! depends on how busy the machine is. The environment variable [`FILE_VARIABLE`] names that file. It is a hidden variable
//! and not a build feature, so that the tests try the very wheel that people install, and one compile serves all of them.
//! Without it [`monotonic_us`] costs one load and one branch more than the call of `clock_gettime(2)`.

use std::fs::File;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;
use std::{io, ptr};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::time::{ClockId, clock_gettime};

/// Names the file that tests write to, for [`follow`].
pub const FILE_VARIABLE: &str = "STANCHION_CLOCK";

/// The longest wait in the kernel while a test may set the clock forward: the kernel does not follow the test's clock.
const FOLLOWED_WAIT: Duration = Duration::from_millis(10);

/// By how many microseconds a test has set the clock forward; null if there is no test.
static AHEAD_US: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Microseconds of `CLOCK_MONOTONIC`: the same in every process of this machine, so a time taken
/// by the acceptor may be subtracted from one taken by a worker.
pub fn monotonic_us() -> u64 {
    let ahead_us = ahead_us().map_or(0, |ahead_us| ahead_us.load(Ordering::Relaxed));
    kernel_us() + ahead_us
}

/// As [`monotonic_us`], without the time by which a test has set the clock forward: for measuring how long this process
/// itself did not run.
pub fn kernel_us() -> u64 {
    now_us(ClockId::Monotonic)
}

fn now_us(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// Makes this process and its children read the clock as far ahead as the eight bytes of `file` say: microseconds, in the
/// machine's byte order.
///
/// # Errors
/// The file cannot be opened or mapped, or is shorter.
pub fn follow(file: &Path) -> io::Result<()> {
    let len = size_of::<AtomicU64>();
    let file = File::open(file)?;
    if file.metadata()?.len() < len as u64 {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "shorter than eight bytes",
        ));
    }
    // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
    let mapped = unsafe {
        mmap(
            ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        )?
    };
    AHEAD_US.store(mapped.cast(), Ordering::Release);
    Ok(())
}

/// How long a process should wait in the kernel when it wants to wait for `timeout`.
pub fn kernel_wait(timeout: Duration) -> Duration {
    if ahead_us().is_some() {
        timeout.min(FOLLOWED_WAIT)
    } else {
        timeout
    }
}

fn ahead_us() -> Option<&'static AtomicU64> {
    // SAFETY: the pointer is null, or the start of a page that `follow` has mapped and that is never unmapped; all code only
    // loads from it.
    unsafe { AHEAD_US.load(Ordering::Acquire).as_ref() }
}

/// Microseconds since the epoch, by the clock on the wall, which may be set at any time.
pub fn wall_us() -> u64 {
    now_us(ClockId::Realtime)
}

/// Seconds since the epoch, late by a tick of the kernel at most (some ms), for a fraction of the price.
pub fn wall_s() -> u64 {
    clock_gettime(ClockId::RealtimeCoarse)
        .tv_sec
        .cast_unsigned()
}

/// A moment of local time, as logs show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// The year, such as 2026.
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 60.
    pub second: u8,
    /// Minutes east of Greenwich.
    pub offset_minutes: i32,
}

impl LocalTime {
    /// Now, in the time zone of the process (`localtime_r(3)`).
    pub fn now() -> Self {
        Self::at(clock_gettime(ClockId::Realtime).tv_sec)
    }

    /// The moment `epoch_s` seconds after the epoch.
    pub fn at(epoch_s: i64) -> Self {
        let mut tm = MaybeUninit::<libc::tm>::zeroed();
        // SAFETY: both pointers are live for the call, and a zeroed `tm` is valid (all integers
        // and a nullable pointer) should the call fail for a year that does not fit.
        let tm = unsafe {
            libc::localtime_r(&raw const epoch_s, tm.as_mut_ptr());
            tm.assume_init()
        };
        Self {
            year: tm.tm_year + 1900,
            month: (tm.tm_mon + 1) as u8,
            day: tm.tm_mday as u8,
            hour: tm.tm_hour as u8,
            minute: tm.tm_min as u8,
            second: tm.tm_sec as u8,
            offset_minutes: (tm.tm_gmtoff / 60) as i32,
        }
    }

    /// The offset as `+0000`.
    pub fn offset(&self) -> String {
        let sign = if self.offset_minutes < 0 { '-' } else { '+' };
        let minutes = self.offset_minutes.unsigned_abs();
        format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
    }
}
