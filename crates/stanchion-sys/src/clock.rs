//! The two clocks: one that only goes forward, and the one on the wall.

use std::mem::MaybeUninit;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of `CLOCK_MONOTONIC`: the same in every process of this machine, so a time taken
/// by the acceptor may be subtracted from one taken by a worker.
pub fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// Microseconds since the epoch, by the clock on the wall, which may be set at any time.
pub fn wall_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1_000
}

/// Seconds since the epoch, a tick of the kernel late at most (some ms), for a fraction of the price.
pub fn wall_s() -> u64 {
    clock_gettime(ClockId::RealtimeCoarse)
        .tv_sec
        .cast_unsigned()
}

/// A moment of local time, as logs show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Seconds since the epoch.
    pub epoch_s: i64,
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
            epoch_s,
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
