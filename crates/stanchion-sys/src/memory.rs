//! One anonymous file mapped by a whole process tree.

use std::io;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping that every later child inherits at the same address.
///
/// The pages come into being when they are first touched, so a generous length costs nothing.
/// The memory starts as zeroes (`memfd_create(2)`, ftruncate(2)).
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory that outlives every reference handed out by its owner; it
// is up to that owner (stanchion-exchange) to synchronise what it stores there.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; `SharedMemory` itself offers no access, only the address.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `len` bytes (rounded up to whole pages by the kernel) of a new memfd called `name`,
    /// which shows in /proc/PID/maps.
    ///
    /// Errors are the kernel's: out of memory, of descriptors, or of address space.
    pub fn create(name: &str, len: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let base = NonNull::new(base.cast::<u8>()).expect("mmap(2) never returns a null mapping");
        Ok(Self { base, len })
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped (never so for a mapping that was made).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping made in `create`, unmapped once.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping cannot fail");
    }
}
