//! Counts that one process of the tree writes and others read.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::SharedMemory;

/// A fixed number of counts in memory that every later child shares, all 0 at first.
///
/// One process at a time writes them; their owner decides which one. So adding is a load and a store, with no locked
/// instruction. If two processes wrote at once, an addition could get lost, and nothing worse would happen. The counts
/// outlive the process that writes them: a killed process leaves them as they are.
#[derive(Debug)]
pub struct SharedCounts {
    memory: SharedMemory,
    len: usize,
}

impl SharedCounts {
    /// Makes `len` counts, in a mapping that is called `name` in /proc/PID/maps.
    ///
    /// Errors are the kernel's: out of memory, of descriptors, or of address space.
    pub fn create(name: &str, len: usize) -> io::Result<Self> {
        let memory = SharedMemory::create(name, Self::bytes(len))?;
        Ok(Self { memory, len })
    }

    /// Counts in the memory of a file that is handed on from master to master ([`SharedMemory::file`], [`SharedMemory::inherit`]).
    ///
    /// # Errors
    /// The kernel's: out of memory or of address space.
    pub fn of_file(file: &OwnedFd, len: usize) -> io::Result<Self> {
        let memory = SharedMemory::map(file, Self::bytes(len))?;
        Ok(Self { memory, len })
    }

    /// How many bytes so many counts take.
    pub const fn bytes(len: usize) -> usize {
        len * size_of::<AtomicU64>()
    }

    /// The value of a count.
    pub fn get(&self, index: usize) -> u64 {
        self.atomics()[index].load(Ordering::Acquire)
    }

    /// Adds to a count, in the one process that writes.
    ///
    /// A process that sees the sum also sees every earlier addition, to any count.
    pub fn add(&self, index: usize, more: u64) {
        let count = &self.atomics()[index];
        let sum = count.load(Ordering::Relaxed).wrapping_add(more);
        count.store(sum, Ordering::Release);
    }

    /// The words that hold the counts, for a signal handler, or for several processes that add.
    pub fn atomics(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `len` words, begins at a page, lives as long as `self`, and started as zeroes, which is a
        // valid AtomicU64; all code reaches it by these atomics only.
        unsafe { std::slice::from_raw_parts(self.memory.base().as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_starts_at_0_and_is_its_own() {
        let counts = SharedCounts::create("test", 3).unwrap();
        counts.add(1, 2);
        counts.add(2, 7);
        counts.add(1, 40);
        assert_eq!([0, 1, 2].map(|index| counts.get(index)), [0, 42, 7]);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn there_are_no_more_than_were_asked_for() {
        SharedCounts::create("test", 3).unwrap().get(3);
    }
}
