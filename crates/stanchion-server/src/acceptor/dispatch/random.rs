//! Random bytes for names of requests and spans.

use std::io;

use stanchion_sys::random;

/// Bytes that are fetched at a time: a system call for each name would cost more than all else
/// about it.
const STOCK_BYTES: usize = 2048;

/// A stock of them.
pub(crate) struct Random {
    bytes: [u8; STOCK_BYTES],
    used: usize,
}

impl Random {
    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; STOCK_BYTES];
        random::fill(&mut bytes)?;
        Ok(Self { bytes, used: 0 })
    }

    /// The next ones.
    pub(crate) fn take<const LEN: usize>(&mut self) -> [u8; LEN] {
        if self.used + LEN > self.bytes.len() {
            // It cannot fail once it has worked (getrandom(2)); if it did, names would come again.
            if let Err(error) = random::fill(&mut self.bytes) {
                tracing::error!("no random bytes for names: {error}");
            }
            self.used = 0;
        }
        let mut taken = [0; LEN];
        taken.copy_from_slice(&self.bytes[self.used..self.used + LEN]);
        self.used += LEN;
        taken
    }
}

/// Their digits, of which there are twice as many.
pub(crate) fn hexadecimal<const LEN: usize, const DIGITS: usize>(
    bytes: &[u8; LEN],
) -> [u8; DIGITS] {
    const ALL: [u8; 16] = *b"0123456789abcdef";
    const { assert!(DIGITS == 2 * LEN) };
    let mut digits = [0; DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = ALL[usize::from(byte >> 4)];
        pair[1] = ALL[usize::from(byte & 15)];
    }
    digits
}
