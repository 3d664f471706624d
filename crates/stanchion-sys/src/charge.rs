//! An allocator that charges each block of Rust's heap to a payer: the one for which its thread worked when it allocated the
//! block. The payer pays until the block is freed, by whatever thread. Control groups charge pages in the same way (cgroups(7)).
//!
//! Memory of libraries counts like the server's own, and no buffer has to say what it is for. C code does not use Rust's
//! allocator: [`Foreign`] charges its memory.
//!
//! Eight bytes in front of each block say which connection pays for it, and one count for each connection sums its
//! blocks. Buffers that count themselves would leave out the memory of h2, rustls and the compressors, which is most of
//! an idle HTTP/2 connection, and each new buffer could be forgotten. The acceptor allocates a few blocks for a
//! request, so that counting them costs less CPU than turns of the same build differ by (measured side by side: 0.94 to
//! 0.96 of the CPU time before, each turn within 10 %). Tables and buffers that all connections share are charged to no
//! payer, and a buffer from a store of spare ones changes its payer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// A header of so many bytes, which keep the block aligned, stands in front of each block. The payer is in its last bytes.
const HEADER_BYTES: usize = 8;
/// The C library's allocator adds a word to each block, and makes its length a multiple of two (malloc(3)).
const BLOCK_STEP: usize = 16;
const BLOCK_WORD: usize = 8;

/// The bytes of each payer, once there are any. The bytes that no payer pays for count from then on only.
static ROWS: OnceLock<Box<[AtomicIsize]>> = OnceLock::new();
/// The bytes of all payers together, without those that no payer pays for.
static ALL: AtomicIsize = AtomicIsize::new(0);
/// [`open`] has found that blocks have headers.
static HAS_HEADERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: Cell<Payer> = const { Cell::new(Payer::NOBODY) };
}

/// A payer of memory, by a number that its owner gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payer(u32);

impl Payer {
    /// For memory that serves all payers.
    pub const NOBODY: Self = Self(0);

    /// The payer of a number, for which [`open`] has made room.
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// How many bytes it pays for.
    pub fn bytes(self) -> usize {
        let rows = ROWS.get();
        let row = rows.and_then(|rows| rows.get(self.0 as usize));
        row.map_or(0, load)
    }

    fn pays(self, bytes: isize) {
        let Some(row) = ROWS.get().and_then(|rows| rows.get(self.0 as usize)) else {
            return;
        };
        row.fetch_add(bytes, Ordering::Relaxed);
        if self != Self::NOBODY {
            ALL.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

fn load(count: &AtomicIsize) -> usize {
    usize::try_from(count.load(Ordering::Relaxed)).unwrap_or(0)
}

/// How many bytes all payers pay for, without those of [`Payer::NOBODY`].
pub fn all() -> usize {
    load(&ALL)
}

/// Begins to count in this process, for [`Payer::NOBODY`] and for payers 1 to `payers_max`. False if [`Charging`] is not its
/// allocator: then it counts nothing. The first call decides how many payers there are.
pub fn open(payers_max: u32) -> bool {
    // A block that this allocates shows whether the allocator counts.
    let probe = Payer(1);
    let rows = (0..=payers_max.max(1)).map(|_| AtomicIsize::new(0));
    let _opened = ROWS.set(rows.collect());
    let before = probe.bytes();
    let block = {
        let _charged = to(probe);
        black_box(Box::new(0_u64))
    };
    let counts = probe.bytes() > before;
    drop(block);
    HAS_HEADERS.store(counts, Ordering::Relaxed);
    counts
}

/// Whether this process counts.
pub fn is_open() -> bool {
    HAS_HEADERS.load(Ordering::Relaxed)
}

/// The payer of all that this thread allocates now.
pub fn current() -> Payer {
    CURRENT.get()
}

/// The allocator charges all that this thread allocates to `payer`, until the guard is dropped.
pub fn to(payer: Payer) -> Charged {
    let before = CURRENT.replace(payer);
    Charged {
        before,
        thread: PhantomData,
    }
}

/// No payer pays for what this thread allocates until the guard is dropped, such as an entry of a table that all share.
pub fn to_nobody() -> Charged {
    to(Payer::NOBODY)
}

/// See [`to`].
#[must_use]
pub struct Charged {
    before: Payer,
    thread: PhantomData<*const ()>,
}

impl Drop for Charged {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Charges a buffer to the present payer of this thread, such as one from a store of spare buffers.
pub fn take_over<T>(buffer: &mut Vec<T>) {
    let Ok(layout) = Layout::array::<T>(buffer.capacity()) else {
        return;
    };
    if layout.size() == 0 || !is_open() {
        return;
    }
    let block = buffer.as_mut_ptr().cast::<u8>();
    let header = header_of(block);
    // SAFETY: `open` has found that the allocator of this process is `Charging`, so a buffer that has memory has it from
    // there, with its header in front. We have borrowed the buffer for writing, so no other thread uses it.
    let before = unsafe { header.replace(CURRENT.get()) };
    let len = block_bytes(layout);
    before.pays(-len);
    CURRENT.get().pays(len);
}

/// Charges a buffer to [`Payer::NOBODY`], such as one that goes to a store of spare buffers.
pub fn give_back<T>(buffer: &mut Vec<T>) {
    let _charged = to_nobody();
    take_over(buffer);
}

/// Memory that C code has allocated. The present payer pays for it when it is set.
#[derive(Debug, Default)]
pub struct Foreign {
    payer: Payer,
    bytes: isize,
}

impl Foreign {
    /// Sets how many bytes C code has allocated in all.
    pub fn set(&mut self, bytes: usize) {
        self.payer.pays(-self.bytes);
        self.payer = CURRENT.get();
        self.bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
        self.payer.pays(self.bytes);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.payer.pays(-self.bytes);
    }
}

/// The allocator that charges: the system's, with a header in front of each block.
pub struct Charging;

/// The bytes that a block with this layout takes of the heap, with its header.
fn block_bytes(layout: Layout) -> isize {
    let len = front(layout) + layout.size() + BLOCK_WORD;
    len.next_multiple_of(BLOCK_STEP).cast_signed()
}

/// How far before the block its memory begins.
fn front(layout: Layout) -> usize {
    layout.align().max(HEADER_BYTES)
}

/// The layout of block and header; `None` if it is too large for any address space.
fn whole(layout: Layout) -> Option<Layout> {
    let len = front(layout).checked_add(layout.size())?;
    Layout::from_size_align(len, front(layout)).ok()
}

/// The place of a block's payer. `black_box` hides the header from the compiler, which takes the block for the whole
/// allocation.
#[allow(
    clippy::cast_ptr_alignment,
    reason = "a block begins at a multiple of eight bytes"
)]
fn header_of(block: *mut u8) -> *mut Payer {
    black_box(block)
        .wrapping_sub(size_of::<Payer>())
        .cast::<Payer>()
}

/// Writes the header, and returns the block behind it.
///
/// # Safety
/// `base` is null, or has the memory of the whole layout.
unsafe fn begin(base: *mut u8, layout: Layout) -> *mut u8 {
    if base.is_null() {
        return base;
    }
    let payer = CURRENT.get();
    // SAFETY: the whole layout is longer than its front, which ends at a multiple of eight bytes.
    let block = unsafe { base.add(front(layout)) };
    // SAFETY: the header lies in front of the block, in memory that the caller has just got.
    unsafe { header_of(block).write(payer) };
    payer.pays(block_bytes(layout));
    block
}

// SAFETY: each block lies in a longer block of the system's allocator: longer by its front, a multiple of the alignment, so
// the block is aligned as asked. It is given back with the layout it was asked with. The counts have no destructor and
// allocate nothing.
unsafe impl GlobalAlloc for Charging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(whole) = whole(layout) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the layout's size is not zero.
        let base = unsafe { System.alloc(whole) };
        // SAFETY: `base` is null, or has the memory of the whole layout.
        unsafe { begin(base, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(whole) = whole(layout) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the layout's size is not zero.
        let base = unsafe { System.alloc_zeroed(whole) };
        // SAFETY: `base` is null, or has the memory of the whole layout.
        unsafe { begin(base, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        let (Some(old), Ok(new)) = (whole(layout), Layout::from_size_align(len, layout.align()))
        else {
            return std::ptr::null_mut();
        };
        let Some(new_whole) = whole(new) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the caller has this block from this allocator, so its header is there and names the payer.
        let payer = unsafe { header_of(block).read() };
        let base = black_box(block).wrapping_sub(front(layout));
        // SAFETY: the system's allocator has given `base` with the layout `old`.
        let base = unsafe { System.realloc(base, old, new_whole.size()) };
        if base.is_null() {
            return base;
        }
        payer.pays(block_bytes(new) - block_bytes(layout));
        // SAFETY: `base` has the memory of the whole new layout.
        unsafe { base.add(front(new)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(whole) = whole(layout) else {
            return;
        };
        // SAFETY: the caller has this block from this allocator, so its header is there.
        let payer = unsafe { header_of(block).read() };
        payer.pays(-block_bytes(layout));
        let base = black_box(block).wrapping_sub(front(layout));
        // SAFETY: the system's allocator has given `base` with the layout `whole`.
        unsafe { System.dealloc(base, whole) };
    }
}
