//! Plain bytes in memory that other processes may write to.

use std::marker::PhantomData;

/// Where a request's record goes. No reference to these bytes is ever made, since somebody else may change them
/// under it: they go in by copy, and out by copy.
#[derive(Debug)]
pub struct Area<'m> {
    start: *mut u8,
    len: usize,
    memory: PhantomData<&'m mut [u8]>,
}

impl<'m> Area<'m> {
    /// # Safety
    /// `len` bytes from `start` stay mapped for `'m`, and nobody in this process makes a reference to them.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self {
            start,
            len,
            memory: PhantomData,
        }
    }

    /// Memory of one's own, as if it were shared.
    pub fn over(bytes: &'m mut [u8]) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            memory: PhantomData,
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` in at `at`; nothing of them, if they do not fit there.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let room = self.len.checked_sub(at);
        if room.is_some_and(|room| bytes.len() <= room) {
            // SAFETY: `at + bytes.len()` is within the area, whose bytes stay there and are nobody's
            // reference; `bytes` is memory of our own, so the two do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len());
            }
        }
    }
}
