//! Plain bytes in memory to which other processes may write.

use std::marker::PhantomData;

/// The memory into which a request's record is written. Code copies bytes in and out and never makes a reference to
/// them, because another process may change them under it.
#[derive(Debug)]
pub struct Area<'m> {
    start: *mut u8,
    len: usize,
    memory: PhantomData<&'m mut [u8]>,
}

impl<'m> Area<'m> {
    /// # Safety
    /// `len` bytes from `start` stay mapped for `'m`, and no code in this process makes a reference to them.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self {
            start,
            len,
            memory: PhantomData,
        }
    }

    /// Treats private memory as if it were shared.
    pub fn over(bytes: &'m mut [u8]) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            memory: PhantomData,
        }
    }

    /// How many bytes the area has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the area has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to offset `at`; copies nothing if they do not fit there.
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        let room = self.len.checked_sub(at);
        if room.is_some_and(|room| bytes.len() <= room) {
            // SAFETY: `at + bytes.len()` is within the area, whose bytes stay mapped and to which no references exist;
            // `bytes` is our own memory, so the two do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len());
            }
        }
    }
}
