//! Memory that requests share, one after the other.

use stanchion_sys::charge;

use super::spare_heads::SpareHeads;

/// Connections read into this buffer first. They share it, so that an idle connection has none. A body of 64 KiB fits with a head of usual size.
const SCRATCH_BYTES: usize = 68 << 10;

/// The memory that all connections share.
#[derive(Default)]
pub struct Buffers {
    scratch: Vec<u8>,
    /// Heads that were read, for the next ones.
    pub heads: SpareHeads,
}

impl Buffers {
    /// Lends the buffer into which connections read first.
    pub fn with_scratch<T>(&mut self, act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut scratch = self.take_scratch();
        let done = act(&mut scratch);
        self.give_scratch(scratch);
        done
    }

    /// Takes that buffer, empty.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        if scratch.capacity() < SCRATCH_BYTES {
            // All connections share it.
            let _charged = charge::to_nobody();
            scratch.reserve_exact(SCRATCH_BYTES);
        }
        scratch
    }

    pub(crate) fn give_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }
}
