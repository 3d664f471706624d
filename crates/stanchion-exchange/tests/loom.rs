//! Every interleaving of the lock-free protocol, and every value that the memory model lets a load
//! return. A wake-up that is lost shows as a deadlock.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p stanchion-exchange --release --test loom
//! ```
//!
//! Most models are searched whole; those that say `explore_bounded` up to so many preemptions.
//! `LOOM_MAX_PREEMPTIONS` sets the bound for all.
#![cfg(loom)]
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use stanchion_exchange::{Bell, Flow, Notices, Phase, ReadyRing, Tenant, Word};

/// Loom's sleepers know no time.
const FOR_EVER: Duration = Duration::MAX;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    loom::model(model);
}

/// Up to `preemptions` in an execution; most bugs show with two, and the search grows about
/// tenfold with each.
fn explore_bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

fn join_all<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

// ---- The ready ring

/// A request: its slot and the slot's turn.
type Request = (u32, u32);

struct Slots {
    head: AtomicU64,
    tail: AtomicU64,
    entries: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
}

impl Slots {
    fn new(slots: usize, entries: usize) -> Arc<Self> {
        let zeroes = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            entries: zeroes(entries),
            words: zeroes(slots),
        })
    }

    fn ring(&self) -> ReadyRing<'_> {
        ReadyRing { head: &self.head, tail: &self.tail, entries: &self.entries }
    }

    fn has_room(&self) -> bool {
        self.ring().has_room(&self.words)
    }

    /// As the acceptor does it, which alone may.
    fn submit(&self, (slot, turn): Request) {
        self.set(slot, Phase::Filling, turn);
        self.ring().publish(&self.words, slot, turn);
    }

    fn take(&self, seat: u16) -> Option<Request> {
        self.ring().take(&self.words, Tenant { seat, tenure: 1 })
    }

    fn take_all(&self, seat: u16) -> Vec<Request> {
        std::iter::from_fn(|| self.take(seat)).collect()
    }

    /// The first half of a take, after which the worker is killed.
    fn claim_and_die(&self, (slot, turn): Request) -> bool {
        let taken = Word { phase: Phase::Taken, tenant: Tenant { seat: 9, tenure: 1 }, turn };
        self.change((slot, turn), Phase::Ready, taken)
    }

    fn withdraw(&self, (slot, turn): Request) -> bool {
        self.change((slot, turn), Phase::Ready, Word::unowned(Phase::Filling, turn))
    }

    fn change(&self, (slot, turn): Request, from: Phase, to: Word) -> bool {
        let from = Word::unowned(from, turn).pack();
        self.words[slot as usize]
            .compare_exchange(from, to.pack(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn set(&self, slot: u32, phase: Phase, turn: u32) {
        self.words[slot as usize].store(Word::unowned(phase, turn).pack(), Ordering::Release);
    }

    fn is(&self, (slot, turn): Request, phase: Phase) -> bool {
        let bits = self.words[slot as usize].load(Ordering::Acquire);
        Word::unpack(bits).is_some_and(|word| word.phase == phase && word.turn == turn)
    }
}

fn sorted(requests: impl IntoIterator<Item = Vec<Request>>) -> Vec<Request> {
    let mut all: Vec<_> = requests.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

#[test]
fn each_request_is_taken_once_and_in_order() {
    explore(|| {
        let slots = Slots::new(2, 2);
        let consumers = [0, 1].map(|seat| {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let taken: Vec<_> = slots.take(seat).into_iter().collect();
                if taken == [(1, 1)] {
                    assert!(!slots.is((0, 1), Phase::Ready), "the second jumped the queue");
                }
                taken
            })
        });
        slots.submit((0, 1));
        slots.submit((1, 1));
        let taken = join_all(consumers);
        let rest = slots.take_all(2);
        assert!(rest.is_sorted());
        assert_eq!(sorted(taken.into_iter().chain([rest])), [(0, 1), (1, 1)]);
    });
}

/// The ring is so small that the producer comes round to the entry that a slow consumer is still
/// looking at, or has taken without helping the head on.
#[test]
fn a_slow_consumer_neither_jumps_the_queue_nor_lets_others() {
    explore(|| {
        let slots = Slots::new(4, 2);
        slots.submit((0, 1));
        slots.submit((1, 1));
        let slow = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let taken = slots.take(0);
                if taken.is_some_and(|(slot, _)| slot > 1) {
                    assert!(!slots.is((1, 1), Phase::Ready), "jumped the queue");
                }
                taken
            })
        };
        let quick: Vec<_> = [slots.take(1), slots.take(1)].into_iter().flatten().collect();
        let mut submitted = vec![(0, 1), (1, 1)];
        for request in [(2, 1), (3, 1)] {
            if slots.has_room() {
                slots.submit(request);
                submitted.push(request);
            }
        }
        let slow = slow.join().unwrap().into_iter().collect();
        let rest = slots.take_all(2);
        assert!(rest.is_sorted(), "out of order");
        assert_eq!(sorted([quick, slow, rest]), submitted);
    });
}

#[test]
fn a_worker_that_dies_on_its_claim_harms_nobody() {
    explore(|| {
        let slots = Slots::new(3, 2);
        slots.submit((0, 1));
        slots.submit((1, 1));
        let dying = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.claim_and_die((0, 1)))
        };
        let living = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.take(0).expect("two are ready and one other comes"))
        };
        let third = slots.has_room();
        if third {
            slots.submit((2, 1));
        }
        let died_with = dying.join().unwrap();
        let living = living.join().unwrap();
        assert!(slots.has_room() || third, "a taken entry and none after it leave room");
        let rest = slots.take_all(1);
        let mut expected = vec![(0, 1), (1, 1)];
        expected.extend(third.then_some((2, 1)));
        expected.retain(|request| !(died_with && *request == (0, 1)));
        assert_eq!(sorted([vec![living], rest]), expected);
    });
}

/// The only consumer died, nobody helps the head on: the producer does.
#[test]
fn the_dead_do_not_fill_the_ring() {
    explore(|| {
        let slots = Slots::new(2, 1);
        slots.submit((0, 1));
        let dying = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.claim_and_die((0, 1)))
        };
        let room = slots.has_room();
        if room {
            slots.submit((1, 1));
        }
        assert!(dying.join().unwrap());
        assert!(room || slots.has_room());
        assert_eq!(slots.take(0), room.then_some((1, 1)));
    });
}

#[test]
fn a_stale_entry_does_not_claim_the_next_use_of_its_slot() {
    explore(|| {
        let slots = Slots::new(1, 2);
        slots.submit((0, 1));
        let slow = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.take(0))
        };
        let quick = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let taken = slots.take(1);
                if let Some((slot, turn)) = taken {
                    slots.set(slot, Phase::Done, turn);
                }
                taken
            })
        };
        let again = slots.is((0, 1), Phase::Done) && slots.has_room();
        if again {
            slots.submit((0, 2));
        }
        let slow = slow.join().unwrap();
        let quick = quick.join().unwrap();
        let rest = slots.take_all(2);
        let taken = sorted([slow.into_iter().collect(), quick.into_iter().collect(), rest]);
        let expected: &[Request] = if again { &[(0, 1), (0, 2)] } else { &[(0, 1)] };
        assert_eq!(taken, expected);
        assert!(slots.head.load(Ordering::Relaxed) <= slots.tail.load(Ordering::Relaxed));
    });
}

#[test]
fn a_request_is_withdrawn_or_taken_but_not_both() {
    explore(|| {
        let slots = Slots::new(2, 2);
        slots.submit((0, 1));
        slots.submit((1, 1));
        let consumer = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.take(0).expect("two are ready, and one is left alone"))
        };
        let withdrawn = slots.withdraw((0, 1));
        if withdrawn && slots.has_room() {
            slots.submit((0, 2));
        }
        let first = consumer.join().unwrap();
        assert_eq!(first, if withdrawn { (1, 1) } else { (0, 1) });
        let rest: Vec<_> = slots.take_all(1);
        assert_eq!(rest.contains(&(1, 1)), !withdrawn);
        assert_eq!(rest.contains(&(0, 2)), slots.is((0, 2), Phase::Taken));
    });
}

// ---- The bell

/// Sleeps on `bell` until `look` finds something.
fn wait_for<T>(bell: &Bell, look: impl Fn() -> Option<T>) -> T {
    loop {
        let seen = bell.prepare();
        if let Some(found) = look() {
            return found;
        }
        bell.sleep(seen, FOR_EVER);
    }
}

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
        self.pieces.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).ok().map(|_| ())
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

/// The one who is woken may leave instead of taking what there is; it passes the wake on, as
/// `SeatSide::wait` does, while the acceptor rings for the next piece.
#[test]
fn a_wake_is_not_lost_with_the_one_who_leaves() {
    explore_bounded(2, || {
        let work = Arc::new(Work::default());
        let leave = Arc::new(AtomicU32::new(0));
        let leaving = {
            let (work, leave) = (Arc::clone(&work), Arc::clone(&leave));
            thread::spawn(move || {
                wait_for(&work.bell, || (leave.load(Ordering::Acquire) != 0).then_some(()));
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
        // Nobody else would wake it here; outside, its signal does.
        work.bell.rouse(1);
        leaving.join().unwrap();
    });
}

/// The whole way: ring and bell together, as the acceptor and two workers use them.
#[test]
fn two_idle_workers_get_a_request_each() {
    explore_bounded(3, || {
        let slots = Slots::new(2, 2);
        let bell = Arc::new(Bell::default());
        let workers = [0, 1].map(|seat| {
            let (slots, bell) = (Arc::clone(&slots), Arc::clone(&bell));
            thread::spawn(move || vec![wait_for(&bell, || slots.take(seat))])
        });
        slots.submit((0, 1));
        slots.submit((1, 1));
        bell.ring(2);
        assert_eq!(sorted(join_all(workers)), [(0, 1), (1, 1)]);
    });
}

// ---- The notices

/// The notices, and an eventfd to sleep on.
#[derive(Default)]
struct Desk {
    bits: [AtomicU64; 1],
    asleep: AtomicU32,
    doorbell: Bell,
    rung: AtomicU32,
}

impl Desk {
    fn notices(&self) -> Notices<'_> {
        Notices { bits: &self.bits, asleep: &self.asleep }
    }

    /// As a seat does it: true if it had to wake the acceptor.
    fn notify(&self, slot: u32) -> bool {
        let wakes = self.notices().post(slot);
        if wakes {
            self.rung.fetch_add(1, Ordering::Release);
            self.doorbell.rouse(1);
        }
        wakes
    }

    /// As the acceptor's loop does it: sweeps and sleeps until it has seen `wanted` slots.
    fn sweep_until(&self, wanted: u64) {
        let mut seen = 0;
        loop {
            self.notices().sweep(|slot| seen |= 1 << slot);
            if seen == wanted {
                return;
            }
            if self.notices().try_sleep() {
                wait_for(&self.doorbell, || {
                    let rung = self.rung.swap(0, Ordering::Acquire);
                    (rung > 0).then_some(())
                });
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

/// What a notice announces is there when it is swept.
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
        desk.notices().sweep(|_| assert_eq!(answer.load(Ordering::Relaxed), 7));
        seat.join().unwrap();
    });
}

// ---- The flow of an answer

/// Writes `bytes` through a ring of `capacity`, noting each byte's position in it; false if the
/// client went first. As `Taken::write` does it.
fn produce(flow: &Flow, ring: &[AtomicU32], bytes: u64) -> bool {
    let capacity = ring.len() as u64;
    for position in 0..bytes {
        if flow.wait_for_room(position, capacity, FOR_EVER, || false).is_none() {
            return false;
        }
        let byte = position as u32 + 1;
        ring[(position % capacity) as usize].store(byte, Ordering::Relaxed);
        flow.produced.store(position + 1, Ordering::Release);
    }
    true
}

struct Answer {
    flow: Flow,
    ring: Vec<AtomicU32>,
}

impl Answer {
    fn of_two_bytes_through_one() -> (Arc<Self>, thread::JoinHandle<bool>) {
        let answer = Arc::new(Self { flow: Flow::default(), ring: vec![AtomicU32::new(0)] });
        let seat = {
            let answer = Arc::clone(&answer);
            thread::spawn(move || produce(&answer.flow, &answer.ring, 2))
        };
        (answer, seat)
    }

    /// Reads what there is, up to one byte.
    fn read(&self, consumed: u64) -> u64 {
        if self.flow.produced.load(Ordering::Acquire) == consumed {
            return consumed;
        }
        let byte = self.ring[0].load(Ordering::Relaxed);
        assert_eq!(u64::from(byte), consumed + 1, "read before it was written, or after the next");
        self.flow.consume(consumed + 1);
        consumed + 1
    }
}

#[test]
fn a_writer_goes_on_once_there_is_room() {
    explore(|| {
        let (answer, seat) = Answer::of_two_bytes_through_one();
        let mut consumed = 0;
        while consumed < 2 {
            let before = consumed;
            consumed = answer.read(before);
            if consumed == before {
                thread::yield_now();
            }
        }
        assert!(seat.join().unwrap());
    });
}

#[test]
fn a_writer_hears_that_its_client_has_gone() {
    explore(|| {
        let (answer, seat) = Answer::of_two_bytes_through_one();
        let consumed = answer.read(0);
        answer.flow.give_up();
        assert!(answer.flow.is_gone());
        let whole = seat.join().unwrap();
        assert!(!whole || consumed == 1, "wrote over what was not read");
    });
}
