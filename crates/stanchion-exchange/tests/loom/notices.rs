//! The notices, and the acceptor that sleeps until there is one.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use stanchion_exchange::{Bell, LoopLoad, Notices};

use crate::{explore, explore_bounded, join_all, wait_for};

/// The notices, and a stand-in for the acceptor's eventfd.
#[derive(Default)]
pub(crate) struct Desk {
    bits: [AtomicU64; 1],
    asleep: AtomicU32,
    pub(crate) doorbell: Bell,
    rung: AtomicU32,
}

impl Desk {
    pub(crate) fn notices(&self) -> Notices<'_> {
        Notices {
            bits: &self.bits,
            asleep: &self.asleep,
        }
    }

    /// Posts as a seat does: true if the seat had to wake the acceptor.
    fn notify(&self, slot: u32) -> bool {
        let wakes = self.notices().post(slot);
        if wakes {
            self.rung.fetch_add(1, Ordering::Release);
            self.doorbell.rouse(1);
        }
        wakes
    }

    /// Calls a chosen event loop, as the acceptor does.
    pub(crate) fn call(&self) {
        if self.notices().call() {
            self.rung.fetch_add(1, Ordering::Release);
            self.doorbell.rouse(1);
        }
    }

    /// Whether the reader was woken since the last call of this.
    pub(crate) fn was_rung(&self) -> bool {
        self.rung.swap(0, Ordering::Acquire) > 0
    }

    /// Acts as the acceptor's loop: sweeps and sleeps until it has seen `wanted` slots.
    fn sweep_until(&self, wanted: u64) {
        let mut seen = 0;
        loop {
            self.notices().sweep(|slot| seen |= 1 << slot);
            if seen == wanted {
                return;
            }
            if self.notices().try_sleep() {
                wait_for(&self.doorbell, || self.was_rung().then_some(()));
                self.notices().awake();
            }
        }
    }
}

fn posters<const COUNT: usize>(desk: &Arc<Desk>) -> [thread::JoinHandle<bool>; COUNT] {
    std::array::from_fn(|slot| {
        let desk = Arc::clone(desk);
        thread::spawn(move || desk.notify(slot as u32))
    })
}

#[test]
fn the_acceptor_does_not_sleep_over_a_notice() {
    explore(|| {
        let desk = Arc::new(Desk::default());
        let [poster] = posters(&desk);
        desk.sweep_until(0b1);
        poster.join().unwrap();
    });
}

#[test]
fn the_acceptor_sees_two_notices() {
    explore_bounded(3, || {
        let desk = Arc::new(Desk::default());
        let posters: [_; 2] = posters(&desk);
        desk.sweep_until(0b11);
        join_all(posters);
    });
}

/// Acts as the acceptor in its turn: notes all news, and calls the loop once.
#[test]
fn an_event_loop_does_not_sleep_over_notices_that_it_is_called_for_once() {
    explore(|| {
        let desk = Arc::new(Desk::default());
        let acceptor = {
            let desk = Arc::clone(&desk);
            thread::spawn(move || {
                desk.notices().note(0);
                desk.notices().note(1);
                desk.call();
            })
        };
        desk.sweep_until(0b11);
        acceptor.join().unwrap();
    });
}

#[test]
fn of_two_posters_one_wakes_the_sleeping_acceptor() {
    explore(|| {
        let desk = Arc::new(Desk::default());
        assert!(desk.notices().try_sleep());
        let posters: [_; 2] = posters(&desk);
        let woke = join_all(posters);
        assert_eq!(woke.iter().filter(|woke| **woke).count(), 1);
    });
}

/// A reader that sweeps a notice also sees the data that was written before it.
#[test]
fn a_notice_carries_what_was_written_before_it() {
    explore(|| {
        let desk = Arc::new(Desk::default());
        let answer = Arc::new(AtomicU32::new(0));
        let seat = {
            let (desk, answer) = (Arc::clone(&desk), Arc::clone(&answer));
            thread::spawn(move || {
                answer.store(7, Ordering::Relaxed);
                desk.notify(0);
            })
        };
        desk.notices()
            .sweep(|_| assert_eq!(answer.load(Ordering::Relaxed), 7));
        seat.join().unwrap();
    });
}

/// Acts as a worker's event loop, which sleeps over notices and over the ready ring: it announces its sleep, and only
/// then looks at the ring for the last time.
fn wait_for_request(desk: &Desk, ready: &AtomicU32) {
    loop {
        desk.notices().sweep(|_| ());
        if desk.notices().try_sleep() {
            if ready.load(Ordering::Acquire) > 0 {
                desk.notices().awake();
                return;
            }
            wait_for(&desk.doorbell, || desk.was_rung().then_some(()));
            desk.notices().awake();
        }
    }
}

/// Acts as the acceptor for a request: makes it ready, then calls.
fn call(desk: &Desk, ready: &AtomicU32) {
    ready.store(1, Ordering::Release);
    desk.call();
}

#[test]
fn an_event_loop_does_not_sleep_over_a_request() {
    explore(|| {
        let (desk, ready) = (Arc::new(Desk::default()), Arc::new(AtomicU32::new(0)));
        let acceptor = {
            let (desk, ready) = (Arc::clone(&desk), Arc::clone(&ready));
            thread::spawn(move || call(&desk, &ready))
        };
        wait_for_request(&desk, &ready);
        acceptor.join().unwrap();
    });
}

#[test]
fn an_event_loop_does_not_sleep_over_a_request_that_comes_with_a_notice() {
    explore_bounded(3, || {
        let (desk, ready) = (Arc::new(Desk::default()), Arc::new(AtomicU32::new(0)));
        let acceptor = {
            let (desk, ready) = (Arc::clone(&desk), Arc::clone(&ready));
            thread::spawn(move || {
                desk.notify(0);
                call(&desk, &ready);
            })
        };
        wait_for_request(&desk, &ready);
        acceptor.join().unwrap();
    });
}

/// A full loop gets room again while a request becomes ready. Either the acceptor, which calls no full loop, sees that
/// it has room, or the loop sees the request.
#[test]
fn a_loop_that_has_room_again_is_called_or_sees_what_is_ready() {
    explore(|| {
        let (load, ready) = (Arc::new(AtomicU32::new(1)), Arc::new(AtomicU32::new(0)));
        let acceptor = {
            let (load, ready) = (Arc::clone(&load), Arc::clone(&ready));
            thread::spawn(move || {
                ready.store(1, Ordering::Release);
                LoopLoad::settle();
                LoopLoad(&load).get() == 0
            })
        };
        LoopLoad(&load).show(0);
        let sees = ready.load(Ordering::Acquire) == 1;
        let calls = acceptor.join().unwrap();
        assert!(calls || sees);
    });
}
