//! The allocator `Charging` charges each block to its payer.

use std::alloc::Layout;
use std::hint::black_box;
use std::thread;

use stanchion_sys::charge::{self, Charging, Foreign, Payer};

#[global_allocator]
static ALLOCATOR: Charging = Charging;

/// All in one test, since all tests of a process share its counts.
#[test]
fn a_payer_pays_for_blocks_that_a_thread_allocated_for_it_until_they_are_freed() {
    assert!(charge::open(100));
    let [one, other] = [Payer::new(7), Payer::new(100)];
    let near = |payer: Payer, bytes: usize| {
        let has = payer.bytes();
        assert!((bytes..bytes + 64).contains(&has), "{has} of {bytes}");
    };
    let mut mine = {
        let _charged = charge::to(one);
        let nested = charge::to(other);
        let theirs = vec![1_u8; 5_000];
        near(other, 5_000);
        drop(nested);
        let mine = vec![2_u8; 10_000];
        near(one, 10_000);
        drop(theirs);
        mine
    };
    assert_eq!(other.bytes(), 0);
    // A block that grows keeps its payer.
    mine.resize(40_000, 3);
    near(one, 40_000);
    mine.shrink_to(20_000);
    mine.truncate(20_000);
    mine.shrink_to_fit();
    near(one, 20_000);
    let near_all = charge::all();
    assert!((20_000..20_064).contains(&near_all), "{near_all}");

    {
        let _charged = charge::to(other);
        charge::take_over(&mut mine);
    }
    near(other, 20_000);
    assert_eq!(one.bytes(), 0);
    // Any thread frees it for its payer.
    assert_eq!(mine[..10_000], [2; 10_000]);
    thread::spawn(move || drop(mine)).join().unwrap();
    assert_eq!((one.bytes(), other.bytes(), charge::all()), (0, 0, 0));

    let _charged = charge::to(one);
    let mut foreign = Foreign::default();
    foreign.set(300);
    foreign.set(200);
    assert_eq!(one.bytes(), 200);
    drop(foreign);
    assert_eq!(one.bytes(), 0);
    charge::take_over(&mut Vec::<u64>::new());

    // The alignment is kept, whatever stands in front of the block, and zeroed memory stays zeroed.
    for align in [1, 2, 8, 16, 64, 4096] {
        let layout = Layout::from_size_align(align * 3, align).unwrap();
        // SAFETY: the layout has a length, the bytes are written within it, and the block is given back with the layout
        // it was asked with.
        unsafe {
            let block = std::alloc::alloc_zeroed(layout);
            assert!(block.addr().is_multiple_of(align));
            assert!((0..align * 3).all(|at| block.add(at).read() == 0));
            block.write_bytes(9, align * 3);
            let block = std::alloc::realloc(block, layout, align * 5);
            assert!(block.addr().is_multiple_of(align));
            assert!((0..align * 3).all(|at| block.add(at).read() == 9));
            let longer = Layout::from_size_align(align * 5, align).unwrap();
            std::alloc::dealloc(block, longer);
        }
        assert_eq!(one.bytes(), 0);
    }
    // A payer past the last row pays nothing, and does no harm.
    let _charged = charge::to(Payer::new(101));
    assert_eq!(black_box(vec![0_u8; 100]).len() + charge::all(), 100);
}
