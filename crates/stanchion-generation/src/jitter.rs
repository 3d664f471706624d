//! Limits that processes reach at different times.

/// A number up to `most` that differs between processes.
pub fn jitter(pid: i32, most: u64) -> u64 {
    // Fibonacci hashing spreads neighbouring pids.
    let spread = u64::from(pid.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    spread % most.saturating_add(1)
}
