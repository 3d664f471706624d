//! Two rings: a worker's own, and the shared ring.

use std::sync::Arc;

use loom::thread;
use stanchion_exchange::{Bell, SeatRings, Tenant};

use crate::ring::{Request, Ring, Slots, sorted};
use crate::{explore, explore_bounded, join_all, wait_for};

/// The shared ring with the slots, and an own ring for each of two workers.
struct Rings {
    shared: Arc<Slots>,
    own: [Ring; 2],
    bell: Bell,
}

impl Rings {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            shared: Slots::new(slots, 2),
            own: [Ring::new(1), Ring::new(1)],
            bell: Bell::default(),
        })
    }

    /// Submits as the acceptor does.
    fn submit_to(&self, worker: usize, request: Request) {
        self.shared.publish_in(&self.own[worker], request);
    }

    /// Takes as a seat of `worker` does whose own ring comes first.
    fn take(&self, worker: usize) -> Option<Request> {
        let sources = SeatRings {
            own: self.own[worker].shared(),
            shared: self.shared.ring(),
        };
        let tenant = Tenant {
            seat: worker as u16,
            epoch: 1,
        };
        let (slot, turn, _) = sources.take(&self.shared.words, tenant, true)?;
        Some((slot, turn))
    }

    fn wait(&self, worker: usize) -> Request {
        wait_for(&self.bell, || self.take(worker))
    }
}

const OWN: Request = (0, 1);

/// The bell cannot choose which seat it wakes. Whichever of the two sleeps, and for however long, the one worker gets
/// its own request, and the shared request never waits for a busy seat.
#[test]
fn a_request_of_ones_own_wakes_its_worker_and_costs_nobody_a_wake() {
    explore_bounded(3, || {
        let rings = Rings::new(3);
        let addressed = {
            let rings = Arc::clone(&rings);
            thread::spawn(move || {
                let first = rings.wait(1);
                let own = first != OWN;
                // The shared request was submitted later, so the worker's own is there already.
                let second = own.then(|| rings.take(1).expect("its own is there"));
                [Some(first), second]
            })
        };
        let other = {
            let rings = Arc::clone(&rings);
            thread::spawn(move || rings.wait(0))
        };
        rings.submit_to(1, OWN);
        rings.bell.ring(u32::MAX);
        rings.shared.submit((1, 1));
        rings.bell.ring(1);
        let addressed = addressed.join().unwrap();
        assert!(addressed.contains(&Some(OWN)));
        if addressed.contains(&Some((1, 1))) {
            rings.shared.submit((2, 1));
            rings.bell.ring(1);
        }
        assert_ne!(other.join().unwrap(), OWN);
    });
}

/// The acceptor rings the bell once for both requests, as at the end of a turn of its loop; both seats belong to one
/// worker.
#[test]
fn two_idle_seats_of_a_worker_get_its_own_and_everybodys() {
    explore_bounded(3, || {
        let rings = Rings::new(2);
        let seats = [(); 2].map(|()| {
            let rings = Arc::clone(&rings);
            thread::spawn(move || vec![rings.wait(1)])
        });
        rings.submit_to(1, OWN);
        rings.shared.submit((1, 1));
        rings.bell.ring(u32::MAX);
        assert_eq!(sorted(join_all(seats)), [OWN, (1, 1)]);
    });
}

/// A seat is slow with the entry in its own ring, while the acceptor withdraws the slot and submits it again to the
/// shared ring.
#[test]
fn a_stale_entry_of_ones_own_claims_nothing_of_everybodys() {
    explore(|| {
        let rings = Rings::new(1);
        rings.submit_to(1, OWN);
        let takers = [0, 1].map(|worker| {
            let rings = Arc::clone(&rings);
            thread::spawn(move || rings.take(worker).into_iter().collect())
        });
        let withdrawn = rings.shared.withdraw(OWN);
        if withdrawn {
            rings.shared.submit((0, 2));
        }
        let [other, addressed]: [Vec<Request>; 2] = join_all(takers).try_into().unwrap();
        assert!(!other.contains(&OWN), "another worker took it");
        let rest = rings.take(1).into_iter().collect();
        let expected = if withdrawn { (0, 2) } else { OWN };
        assert_eq!(sorted([other, addressed, rest]), [expected]);
    });
}
