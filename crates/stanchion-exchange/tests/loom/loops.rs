//! Event loops that sleep while requests become ready, and the acceptor that calls some of them.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use stanchion_exchange::LoopLoad;

use crate::notices::Desk;
use crate::{explore_bounded, join_all, wait_for};

/// Two loops, each with room for one request.
#[derive(Default)]
struct Server {
    desks: [Desk; 2],
    loads: [AtomicU32; 2],
    ready: AtomicU32,
}

impl Server {
    /// Both loops are full.
    fn full() -> Arc<Self> {
        let server = Self::default();
        for load in &server.loads {
            LoopLoad(load).show(1);
        }
        Arc::new(server)
    }

    fn take(&self) -> bool {
        let less = |ready: u32| ready.checked_sub(1);
        let taken = self
            .ready
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }

    /// Calls loops as the acceptor does for each request: of the loops that sleep and have room, the one that runs the
    /// fewest.
    fn submit(&self) {
        self.ready.fetch_add(1, Ordering::Release);
        LoopLoad::settle();
        let loads = self.loads.iter().map(|load| LoopLoad(load).get());
        let sleepers = self.desks.iter().zip(loads);
        let sleepers = sleepers.filter(|(desk, load)| desk.notices().is_asleep() && *load < 1);
        if let Some((desk, _)) = sleepers.min_by_key(|(_, load)| *load) {
            desk.call();
        }
    }

    /// Acts as a loop that has room again: shows its load, takes a request, and sleeps as long as there is none.
    fn take_one(&self, which: usize) {
        let desk = &self.desks[which];
        LoopLoad(&self.loads[which]).show(0);
        while !self.take() {
            if !desk.notices().try_sleep() {
                continue;
            }
            if self.ready.load(Ordering::Acquire) == 0 {
                wait_for(&desk.doorbell, || desk.was_rung().then_some(()));
            }
            desk.notices().awake();
        }
        LoopLoad(&self.loads[which]).show(1);
    }
}

/// The loop that is called for a request may find that the other loop has taken it, and may go to sleep while the next
/// request comes.
#[test]
fn two_loops_take_two_requests_whoever_of_them_is_called() {
    explore_bounded(2, || {
        let server = Server::full();
        let loops = [0, 1].map(|which| {
            let server = Arc::clone(&server);
            thread::spawn(move || server.take_one(which))
        });
        server.submit();
        server.submit();
        join_all(loops);
    });
}

/// The acceptor does not wait for a loop that stays full.
#[test]
fn a_request_is_taken_by_the_loop_that_has_room() {
    explore_bounded(3, || {
        let server = Server::full();
        let with_room = {
            let server = Arc::clone(&server);
            thread::spawn(move || server.take_one(1))
        };
        // The full loop sleeps too, until its requests are answered.
        assert!(server.desks[0].notices().try_sleep());
        server.submit();
        with_room.join().unwrap();
    });
}
