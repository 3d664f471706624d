//! Random bytes for names of requests and spans.

use std::io;

use stanchion_sys::random;

/// How many bytes the acceptor fetches at a time: a system call for each name would cost more than all else about it.
const STOCK_BYTES: usize = 2048;

/// A stock of random bytes.
pub struct Random {
    bytes: [u8; STOCK_BYTES],
    used: usize,
}

impl Random {
    /// Takes the seed from the kernel.
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0; STOCK_BYTES];
        random::fill(&mut bytes)?;
        Ok(Self { bytes, used: 0 })
    }

    /// Takes the next random bytes.
    pub fn take<const LEN: usize>(&mut self) -> [u8; LEN] {
        if self.used + LEN > self.bytes.len() {
            // The call cannot fail once it has worked (getrandom(2)). If it did, names would repeat.
            if let Err(error) = random::fill(&mut self.bytes) {
                tracing::error!(
                    "the kernel gave no random bytes, so the ids of requests and spans may repeat: {error}"
                );
            }
            self.used = 0;
        }
        let mut taken = [0; LEN];
        taken.copy_from_slice(&self.bytes[self.used..self.used + LEN]);
        self.used += LEN;
        taken
    }
}

/// Writes the bytes as hexadecimal digits, of which there are twice as many.
pub fn hexadecimal<const LEN: usize, const DIGITS: usize>(bytes: &[u8; LEN]) -> [u8; DIGITS] {
    const ALL: [u8; 16] = *b"0123456789abcdef";
    const { assert!(DIGITS == 2 * LEN) };
    let mut digits = [0; DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = ALL[usize::from(byte >> 4)];
        pair[1] = ALL[usize::from(byte & 15)];
    }
    digits
}
