//! The C library's heap, which children share with their parent page by page, until one of them writes to a page.
//!
//! The master fills the gaps before its first fork, and the template before it forks the first worker. The filling is
//! never given back. No memory is lost by it, as the pages stay the parent's. For the same reason the template makes
//! the objects that each seat of a worker needs for its first request, and those that a worker needs to catch signals
//! (`crates/stanchion-py/src/host.rs`).

use std::hint::black_box;

/// The largest block to take at once. A larger block may get a mapping of its own, however much room the heap has
/// (mallopt(3), `M_MMAP_THRESHOLD`).
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// The sizes of all blocks are multiples of this on 64 bits, with 8 bytes for the block's own size in front of it.
const STEP_BYTES: usize = 16;
/// The smallest block.
const BLOCK_BYTES_MIN: usize = 16;
/// The most bytes in free blocks that a thread keeps for itself, and that mallinfo(3) counts as used: seven of each of 64
/// lengths up to 1,032 (`glibc.malloc.tcache_count` in mallopt(3)).
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Takes the free gaps between the blocks of the heap, for good, so that later allocations lie side by side behind them. A
/// process calls this before it forks, on the thread that forks: otherwise its children would put their allocations into the
/// gaps, and copy a page for nearly each of them.
///
/// It does nothing if the C library is not glibc. If another allocator stands before glibc's (`LD_PRELOAD`), this loses the
/// free memory in glibc's heap, and 256 KiB more.
pub fn fill_gaps() {
    let Some((end, mut free_bytes)) = end_of_blocks() else {
        return;
    };
    let mut len = BLOCK_BYTES_MAX;
    while len >= BLOCK_BYTES_MIN {
        // SAFETY: malloc(3) accepts any length. `black_box` hides the block from the compiler, which may otherwise leave out
        // a block that no code uses.
        let block = black_box(unsafe { libc::malloc(len) });
        if block.is_null() {
            return;
        }
        if block.addr() >= end {
            // There is no gap of this length any more.
            // SAFETY: malloc(3) has given the block a moment ago, and no other code knows of it.
            unsafe { libc::free(block) };
            len -= STEP_BYTES;
        } else if free_bytes > len {
            free_bytes -= len;
        } else {
            // All gaps are filled already: these blocks come from another place, such as another allocator.
            return;
        }
    }
}

/// Gives whole pages in the gaps of the heap back to the kernel: for a process that has just freed much, and does not fork.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives whole pages in gaps back to the kernel. Returns the address behind the heap's last block, and how many bytes are
/// free in the heap.
#[cfg(target_env = "gnu")]
fn end_of_blocks() -> Option<(usize, usize)> {
    // SAFETY: any code may call these three at any time (malloc_trim(3), mallinfo(3), sbrk(2)); the last one, with 0, changes
    // nothing. A thread that allocates meanwhile makes the answer too low, so that fewer gaps are filled.
    let (info, end) = unsafe {
        libc::malloc_trim(0);
        (libc::mallinfo(), libc::sbrk(0))
    };
    let end = end
        .addr()
        .checked_sub(usize::try_from(info.keepcost).ok()?)?;
    let free_bytes = usize::try_from(info.fordblks).ok()?;
    Some((end, free_bytes + KEPT_BYTES_MAX))
}

/// Other C libraries do not report it.
#[cfg(not(target_env = "gnu"))]
fn end_of_blocks() -> Option<(usize, usize)> {
    None
}
