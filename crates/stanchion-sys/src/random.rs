//! Random bytes from the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::call::retry;

/// Fills `bytes` (getrandom(2)). It waits only on a machine that has just booted.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += retry("getrandom", || {
            getrandom(&mut bytes[filled..], GetRandomFlags::empty())
        })?;
    }
    Ok(())
}
