//! The C library's heap, which children share with their parent page by page, until one of them writes to a page.

use std::hint::black_box;

/// What is taken at most at once. Larger blocks may get mappings of their own, however much room there is in the heap
/// (mallopt(3), `M_MMAP_THRESHOLD`).
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Of which the sizes of all blocks are multiples, on 64 bits, with 8 for the block's own size in front of it.
const STEP_BYTES: usize = 16;
/// The smallest block.
const BLOCK_BYTES_MIN: usize = 16;

/// Takes what is free between the blocks of the heap, for good, so that what is allocated from now on lies side by side
/// behind them. To be called before forks, on the thread that is to fork: children would else put what they allocate
/// into the gaps, and copy a page for nearly each of it.
///
/// Nothing happens if the heap is not glibc's.
pub fn fill_gaps() {
    let Some(end) = end_of_blocks() else {
        return;
    };
    let mut len = BLOCK_BYTES_MAX;
    while len >= BLOCK_BYTES_MIN {
        // SAFETY: any length may be asked for (malloc(3)). It is hidden from the compiler, which may leave out a block
        // that nobody uses.
        let block = black_box(unsafe { libc::malloc(len) });
        if block.is_null() {
            return;
        }
        if block.addr() >= end {
            // There is no gap of this length any more.
            // SAFETY: malloc(3) has given it a moment ago, and nobody else knows of it.
            unsafe { libc::free(block) };
            len -= STEP_BYTES;
        }
    }
}

/// Where the heap has no blocks any more, after whole pages in gaps were given back to the kernel.
#[cfg(target_env = "gnu")]
fn end_of_blocks() -> Option<usize> {
    // SAFETY: these three may be called at any time (malloc_trim(3), mallinfo(3), sbrk(2)); the last one, with 0, changes
    // nothing. Whoever else allocates meanwhile makes the answer too low, so that fewer gaps are filled.
    let (kept, end) = unsafe {
        libc::malloc_trim(0);
        (libc::mallinfo().keepcost, libc::sbrk(0))
    };
    end.addr().checked_sub(usize::try_from(kept).ok()?)
}

/// Other C libraries do not tell.
#[cfg(not(target_env = "gnu"))]
fn end_of_blocks() -> Option<usize> {
    None
}
