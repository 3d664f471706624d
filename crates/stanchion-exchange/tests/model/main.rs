//! An acceptor and seats over a real exchange, in one thread, against a plain model of the exchange.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod world;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::Index;
use stanchion_exchange::{AcceptorSide, AnswerEnd, Exchange, SeatSide, SlotState, Tenant};

use world::{GEOMETRY, RING_ENTRIES, WORKERS, World};

#[derive(Clone, Debug)]
enum Step {
    /// A request for one worker alone, or for any.
    Submit {
        worker: Option<Index>,
        len: usize,
    },
    Take {
        seat: Index,
    },
    Write {
        seat: Index,
        len: usize,
    },
    Publish {
        seat: Index,
    },
    Finish {
        seat: Index,
        ending: AnswerEnd,
    },
    /// The worker is killed at any moment, and another worker gets its seat.
    Kill {
        seat: Index,
    },
    Read {
        slot: Index,
        max: usize,
    },
    /// The acceptor takes the notices and clears up every ended request.
    Sweep,
    GiveUp {
        slot: Index,
    },
    Withdraw {
        slot: Index,
    },
    /// The acceptor is killed, and another acceptor takes over.
    TakeOver,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let ending = prop_oneof![Just(AnswerEnd::Complete), Just(AnswerEnd::Broken)];
    prop_oneof![
        7 => (of(index()), 0..=GEOMETRY.request_bytes)
            .prop_map(|(worker, len)| Step::Submit { worker, len }),
        8 => index().prop_map(|seat| Step::Take { seat }),
        8 => (index(), 0..30_usize).prop_map(|(seat, len)| Step::Write { seat, len }),
        4 => index().prop_map(|seat| Step::Publish { seat }),
        4 => (index(), ending).prop_map(|(seat, ending)| Step::Finish { seat, ending }),
        1 => index().prop_map(|seat| Step::Kill { seat }),
        8 => (index(), 0..20_usize).prop_map(|(slot, max)| Step::Read { slot, max }),
        3 => Just(Step::Sweep),
        1 => index().prop_map(|slot| Step::GiveUp { slot }),
        1 => index().prop_map(|slot| Step::Withdraw { slot }),
        1 => Just(Step::TakeOver),
    ]
}

fn perform(world: &mut World<'_>, step: &Step) {
    match *step {
        Step::Submit { worker, len } => {
            world.submit(worker.map(|worker| worker.index(WORKERS)), len);
        }
        Step::Take { seat } => world.take(seat.index(GEOMETRY.seats)),
        Step::Write { seat, len } => world.write(seat.index(GEOMETRY.seats), len),
        Step::Publish { seat } => world.publish(seat.index(GEOMETRY.seats)),
        Step::Finish { seat, ending } => world.finish(seat.index(GEOMETRY.seats), ending),
        Step::Kill { seat } => world.kill(seat.index(GEOMETRY.seats)),
        Step::Read { slot, max } => world.read(slot.index(GEOMETRY.slots()) as u32, max),
        Step::Sweep => world.sweep(),
        Step::GiveUp { slot } => world.give_up(slot.index(GEOMETRY.slots()) as u32),
        Step::Withdraw { slot } => world.withdraw(slot.index(GEOMETRY.slots()) as u32),
        Step::TakeOver => world.take_over(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_model(steps in vec(step(), 1..200)) {
        let exchange = Exchange::create(GEOMETRY).unwrap();
        let mut world = World::new(&exchange);
        for step in &steps {
            perform(&mut world, step);
            world.check();
        }
        world.wind_up();
    }
}

/// The ring may be full although slots are free. Then the acceptor refuses a request before it fills it in, and the
/// ring has room again as soon as a seat steps over the stale entries.
#[test]
fn withdrawals_behind_a_request_that_waits_fill_the_ring_and_no_more() {
    let exchange = Exchange::create(GEOMETRY).unwrap();
    let mut world = World::new(&exchange);
    world.submit(None, 1);
    for _ in 0..RING_ENTRIES {
        world.submit(None, 2);
        let latest = world.ring.back().unwrap().slot;
        if world.ring.len() < RING_ENTRIES {
            world.withdraw(latest);
        }
    }
    assert_eq!(world.ring.len(), RING_ENTRIES);
    assert!(world.acceptor.free_slots() > 0);
    world.take(0);
    world.submit(None, 3);
    assert!(world.ring.iter().any(|&entry| world.is_ready(entry)));
    world.wind_up();
}

/// A dead worker's successor finds the requests in the worker's own ring, and no other worker does.
#[test]
fn a_successor_finds_what_was_for_its_predecessor_alone() {
    let exchange = Exchange::create(GEOMETRY).unwrap();
    let mut acceptor = AcceptorSide::take_over(&exchange);
    let seat = |seat, epoch| SeatSide::new(&exchange, Tenant { seat, epoch }, 1, None);
    let first = acceptor.submit(Some(1), 0, |_| Some(0)).unwrap();
    let second = acceptor.submit(Some(1), 0, |_| Some(0)).unwrap();
    let dead = Tenant { seat: 3, epoch: 1 };
    std::mem::forget(seat(3, 1).take().unwrap());
    assert_eq!(acceptor.held_by(|tenant| tenant == dead), [first.slot]);
    acceptor.release(first.slot);
    assert!(seat(0, 1).take().is_none(), "another worker's");
    let taken = seat(3, 2).take().unwrap();
    assert_eq!(taken.ticket(), (second.slot, second.turn));
}

/// A worker that was considered dead is alive, and gives back a slot that is no longer its own.
#[test]
fn an_answer_to_an_earlier_use_of_the_slot_leaves_this_one_alone() {
    let exchange = Exchange::create(GEOMETRY).unwrap();
    let mut acceptor = AcceptorSide::take_over(&exchange);
    let seat = SeatSide::new(&exchange, Tenant { seat: 0, epoch: 1 }, 1, None);
    let before = acceptor.submit(None, 0, |_| Some(0)).unwrap();
    let taken = seat.take().unwrap();
    acceptor.release(before.slot);
    let now = acceptor.submit(None, 0, |_| Some(0)).unwrap();
    assert_eq!((now.slot, now.turn), (before.slot, before.turn + 1));
    taken.finish(AnswerEnd::Complete);
    assert_eq!(acceptor.state(now.slot), Ok(SlotState::Ready));
}
