//! The C library's heap, which children share with their parent page by page, until one of them writes to a page.

use std::hint::black_box;

/// What is taken at most at once. Larger blocks may get mappings of their own, however much room there is in the heap
/// (mallopt(3), `M_MMAP_THRESHOLD`).
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Of which the sizes of all blocks are multiples, on 64 bits, with 8 for the block's own size in front of it.
const STEP_BYTES: usize = 16;
/// The smallest block.
const BLOCK_BYTES_MIN: usize = 16;
/// Free blocks that a thread keeps for itself, which mallinfo(3) takes for used: seven of each of 64 lengths up to 1,032
/// (`glibc.malloc.tcache_count` in mallopt(3)).
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Takes what is free between the blocks of the heap, for good, so that what is allocated from now on lies side by side
/// behind them. To be called before forks, on the thread that is to fork: children would else put what they allocate
/// into the gaps, and copy a page for nearly each of it.
///
/// Nothing happens if the C library is not glibc. If another allocator stands before it (`LD_PRELOAD`), that loses as
/// much as is free in glibc's heap, and 256 KiB more.
pub fn fill_gaps() {
    let Some((end, mut free_bytes)) = end_of_blocks() else {
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
        } else if free_bytes > len {
            free_bytes -= len;
        } else {
            // There were no more gaps than that: these blocks come from somewhere else.
            return;
        }
    }
}

/// Where the heap has no blocks any more, after whole pages in gaps were given back to the kernel, and how many bytes are
/// free in it.
#[cfg(target_env = "gnu")]
fn end_of_blocks() -> Option<(usize, usize)> {
    // SAFETY: these three may be called at any time (malloc_trim(3), mallinfo(3), sbrk(2)); the last one, with 0, changes
    // nothing. Whoever else allocates meanwhile makes the answer too low, so that fewer gaps are filled.
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

/// Other C libraries do not tell.
#[cfg(not(target_env = "gnu"))]
fn end_of_blocks() -> Option<(usize, usize)> {
    None
}
