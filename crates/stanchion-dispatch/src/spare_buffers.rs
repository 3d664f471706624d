//! Buffers of sent answers, which hold the next answers.

use stanchion_sys::charge;

/// At most so many buffers are kept, and none of more than `SPARE_BYTES_MAX`.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 32 << 10;

/// The buffers that hold no answer now.
#[derive(Default)]
pub struct SpareBuffers(Vec<Vec<u8>>);

impl SpareBuffers {
    /// A buffer for an answer.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = self.0.pop().unwrap_or_default();
        charge::take_over(&mut bytes);
        bytes
    }

    /// Keeps the buffer of an answer that has been sent, for the next answer.
    pub fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.0.len() < SPARE_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            charge::give_back(&mut bytes);
            let _charged = charge::to_nobody();
            self.0.push(bytes);
        }
    }
}
