//! Allocations after the gaps of the heap were filled. It has no harness, since a harness's threads have heaps of their
//! own.

use stanchion_sys::heap;

const LENGTHS: [usize; 7] = [1, 24, 40, 200, 1_000, 3_000, 30_000];
const BLOCKS: usize = 200;

fn blocks_of_all_lengths() -> Vec<Box<[u8]>> {
    let blocks = (0..BLOCKS).flat_map(|_| LENGTHS.map(|len| vec![0; len].into_boxed_slice()));
    blocks.collect()
}

fn addresses(blocks: &[Box<[u8]>]) -> impl Iterator<Item = usize> {
    blocks.iter().map(|block| block.as_ptr().addr())
}

fn main() {
    let mut blocks = blocks_of_all_lengths();
    let highest = addresses(&blocks).max().expect("there are blocks");
    let mut number = 0;
    // Of every three blocks in a row one stays, so that the gaps have all lengths.
    blocks.retain(|_| {
        number += 1;
        number % 3 == 0
    });
    // Otherwise the following checks would show nothing.
    let in_gap = vec![0_u8; LENGTHS[5]].into_boxed_slice();
    assert!(in_gap.as_ptr().addr() < highest, "there are gaps");
    drop(in_gap);

    heap::fill_gaps();
    let after = blocks_of_all_lengths();
    let lowest = addresses(&after).min().expect("there are blocks");
    assert!(
        lowest > highest,
        "{lowest:#x} is in a gap below {highest:#x}"
    );
}
