//! The bell: every sleeper that is needed wakes up.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use stanchion_exchange::Bell;

use crate::{explore, explore_bounded, join_all, wait_for};

#[derive(Default)]
struct Work {
    bell: Bell,
    pieces: AtomicU32,
}

impl Work {
    fn add(&self, pieces: u32) {
        self.pieces.fetch_add(pieces, Ordering::Release);
    }

    fn take(&self) -> Option<()> {
        let less = |pieces: u32| pieces.checked_sub(1);
        self.pieces
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
            .ok()
            .map(|_| ())
    }

    fn sleepers<const COUNT: usize>(self: &Arc<Self>) -> [thread::JoinHandle<()>; COUNT] {
        std::array::from_fn(|_| {
            let work = Arc::clone(self);
            thread::spawn(move || wait_for(&work.bell, || work.take()))
        })
    }
}

#[test]
fn a_sleeper_and_a_ringer_do_not_miss_each_other() {
    explore(|| {
        let work = Arc::new(Work::default());
        let [sleeper] = work.sleepers();
        work.add(1);
        work.bell.ring(1);
        sleeper.join().unwrap();
    });
}

/// No bit is left behind for the only sleeper that there can be.
#[test]
fn who_sleeps_again_is_woken_again() {
    explore_bounded(3, || {
        let work = Arc::new(Work::default());
        let sleeper = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                for _ in 0..2 {
                    wait_for(&work.bell, || work.take());
                }
            })
        };
        for _ in 0..2 {
            work.add(1);
            work.bell.ring(u32::MAX);
        }
        sleeper.join().unwrap();
    });
}

#[test]
fn two_rings_wake_two_sleepers() {
    explore_bounded(3, || {
        let work = Arc::new(Work::default());
        let sleepers: [_; 2] = work.sleepers();
        for _ in 0..2 {
            work.add(1);
            work.bell.ring(1);
        }
        join_all(sleepers);
    });
}

#[test]
fn one_ring_for_two_wakes_two_sleepers() {
    explore_bounded(3, || {
        let work = Arc::new(Work::default());
        let sleepers: [_; 2] = work.sleepers();
        work.add(2);
        work.bell.ring(2);
        join_all(sleepers);
    });
}

/// The woken seat may leave instead of taking the request; it passes the wake on, as `SeatSide::wait` does, while the
/// acceptor rings for the next request.
#[test]
fn a_wake_is_not_lost_with_the_one_who_leaves() {
    explore_bounded(2, || {
        let work = Arc::new(Work::default());
        let leave = Arc::new(AtomicU32::new(0));
        let leaving = {
            let (work, leave) = (Arc::clone(&work), Arc::clone(&leave));
            thread::spawn(move || {
                wait_for(&work.bell, || {
                    (leave.load(Ordering::Acquire) != 0).then_some(())
                });
                if work.pieces.load(Ordering::Acquire) > 0 {
                    work.bell.rouse(1);
                }
            })
        };
        let staying: [_; 2] = work.sleepers();
        leave.store(1, Ordering::Release);
        for _ in 0..2 {
            work.add(1);
            work.bell.ring(1);
        }
        join_all(staying);
        // In this model no other thread would wake the sleeper; in production its signal does.
        work.bell.rouse(1);
        leaving.join().unwrap();
    });
}
