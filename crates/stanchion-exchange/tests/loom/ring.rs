//! The ready ring.

use std::sync::{Arc, Mutex};

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use stanchion_exchange::{Bell, Published, ReadyRing, RingEntry, SlotPhase, Tenant, Word};

use crate::{explore, explore_bounded, join_all, wait_for};

/// A request: its slot and the slot's turn.
pub(crate) type Request = (u32, u32);

pub(crate) struct Slots {
    ring: Ring,
    pub(crate) words: Vec<AtomicU64>,
}

pub(crate) struct Ring {
    head: AtomicU64,
    tail: AtomicU64,
    entries: Vec<AtomicU64>,
    /// Only the producer locks it, so no thread waits for it.
    mine: Mutex<Published>,
}

impl Ring {
    pub(crate) fn new(entries: usize) -> Self {
        let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
        let entries: Vec<_> = (0..entries).map(|_| AtomicU64::new(0)).collect();
        let shared = ReadyRing {
            head: &head,
            tail: &tail,
            entries: &entries,
        };
        let mine = Mutex::new(shared.take_over());
        Self {
            head,
            tail,
            entries,
            mine,
        }
    }

    pub(crate) fn shared(&self) -> ReadyRing<'_> {
        ReadyRing {
            head: &self.head,
            tail: &self.tail,
            entries: &self.entries,
        }
    }
}

impl Slots {
    pub(crate) fn new(slots: usize, entries: usize) -> Arc<Self> {
        Arc::new(Self {
            ring: Ring::new(entries),
            words: (0..slots).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    pub(crate) fn ring(&self) -> ReadyRing<'_> {
        self.ring.shared()
    }

    fn has_room(&self) -> bool {
        let mine = self.ring.mine.lock().unwrap();
        self.ring().has_room(&mine, &self.words).unwrap()
    }

    /// Submits a request, as only the acceptor may.
    pub(crate) fn submit(&self, request: Request) -> RingEntry {
        self.publish_in(&self.ring, request)
    }

    /// Submits a request in another ring, for these slots.
    pub(crate) fn publish_in(&self, ring: &Ring, (slot, turn): Request) -> RingEntry {
        self.set(slot, SlotPhase::Filling, turn);
        let mut mine = ring.mine.lock().unwrap();
        let position = ring.shared().publish(&mut mine, &self.words, slot, turn);
        RingEntry {
            slot,
            turn,
            position,
        }
    }

    fn take(&self, seat: u16) -> Option<Request> {
        self.ring().take(&self.words, Tenant { seat, epoch: 1 })
    }

    fn take_all(&self, seat: u16) -> Vec<Request> {
        std::iter::from_fn(|| self.take(seat)).collect()
    }

    /// Does the first half of a take, as a worker that is killed after it.
    fn claim_and_die(&self, (slot, turn): Request) -> bool {
        let taken = Word {
            phase: SlotPhase::Taken,
            tenant: Tenant { seat: 9, epoch: 1 },
            turn,
        };
        self.change((slot, turn), SlotPhase::Ready, taken)
    }

    pub(crate) fn withdraw(&self, (slot, turn): Request) -> bool {
        self.change(
            (slot, turn),
            SlotPhase::Ready,
            Word::unowned(SlotPhase::Filling, turn),
        )
    }

    fn change(&self, (slot, turn): Request, from: SlotPhase, to: Word) -> bool {
        let from = Word::unowned(from, turn).pack();
        self.words[slot as usize]
            .compare_exchange(from, to.pack(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn set(&self, slot: u32, phase: SlotPhase, turn: u32) {
        self.words[slot as usize].store(Word::unowned(phase, turn).pack(), Ordering::Release);
    }

    fn is(&self, (slot, turn): Request, phase: SlotPhase) -> bool {
        let bits = self.words[slot as usize].load(Ordering::Acquire);
        Word::unpack(bits).is_some_and(|word| word.phase == phase && word.turn == turn)
    }
}

pub(crate) fn sorted(requests: impl IntoIterator<Item = Vec<Request>>) -> Vec<Request> {
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
                    assert!(
                        !slots.is((0, 1), SlotPhase::Ready),
                        "the second jumped the queue"
                    );
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

/// The ring is so small that the producer comes round to an entry at which a slow consumer still looks, or which it has
/// taken without moving the head on.
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
                    assert!(!slots.is((1, 1), SlotPhase::Ready), "jumped the queue");
                }
                taken
            })
        };
        let quick = slots.take(1).into_iter().collect();
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
        assert!(
            slots.has_room() || third,
            "a taken entry and none after it leave room"
        );
        let rest = slots.take_all(1);
        let mut expected = vec![(0, 1), (1, 1)];
        expected.extend(third.then_some((2, 1)));
        expected.retain(|request| !(died_with && *request == (0, 1)));
        assert_eq!(sorted([vec![living], rest]), expected);
    });
}

/// The only consumer died before it moved the head on: the producer moves it.
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
                    slots.set(slot, SlotPhase::Done, turn);
                }
                taken
            })
        };
        let again = slots.is((0, 1), SlotPhase::Done) && slots.has_room();
        if again {
            slots.submit((0, 2));
        }
        let slow = slow.join().unwrap();
        let quick = quick.join().unwrap();
        let rest = slots.take_all(2);
        let taken = sorted([
            slow.into_iter().collect(),
            quick.into_iter().collect(),
            rest,
        ]);
        let expected: &[Request] = if again { &[(0, 1), (0, 2)] } else { &[(0, 1)] };
        assert_eq!(taken, expected);
        let Ring { head, tail, .. } = &slots.ring;
        assert!(head.load(Ordering::Relaxed) <= tail.load(Ordering::Relaxed));
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
        assert_eq!(rest.contains(&(0, 2)), slots.is((0, 2), SlotPhase::Taken));
    });
}

/// Ring and bell together, as the acceptor and two workers use them.
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

impl Slots {
    /// Mends, as the acceptor does from time to time: true if it put something right.
    fn mend(&self, handed_over: &mut [RingEntry]) -> bool {
        let mut mine = self.ring.mine.lock().unwrap();
        let spoilt = self.ring().check(&mine, &self.words, handed_over).is_err();
        if spoilt {
            self.ring().renew(&mut mine, &self.words, handed_over);
        }
        spoilt
    }
}

/// A worker writes over the ring while another worker takes from it and the acceptor mends it. Once the faulty worker
/// has stopped, a few looks of the acceptor are enough: no request is taken twice, and none is lost.
fn assert_mends(spoil: fn(&Ring)) {
    explore_bounded(3, move || {
        let slots = Slots::new(2, 4);
        let mut handed_over = [slots.submit((0, 1)), slots.submit((1, 1))];
        let mad = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || spoil(&slots.ring))
        };
        let honest = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.take(0).into_iter().collect::<Vec<_>>())
        };
        slots.mend(&mut handed_over);
        mad.join().unwrap();
        let mut taken = vec![honest.join().unwrap()];
        slots.mend(&mut handed_over);
        taken.push(slots.take_all(1));
        assert_eq!(sorted(taken), [(0, 1), (1, 1)]);
        assert!(!slots.mend(&mut handed_over), "it is as it was left");
        assert!(slots.has_room());
    });
}

#[test]
fn a_head_beyond_the_tail_is_mended() {
    assert_mends(|ring| ring.head.store(7, Ordering::Relaxed));
}

#[test]
fn a_head_far_back_is_mended() {
    assert_mends(|ring| ring.head.store(u64::MAX - 1, Ordering::Relaxed));
}

#[test]
fn a_head_one_too_far_is_mended() {
    assert_mends(|ring| {
        ring.head.fetch_add(1, Ordering::Relaxed);
    });
}

#[test]
fn a_tail_beyond_its_place_is_mended() {
    assert_mends(|ring| ring.tail.store(1 << 40, Ordering::Relaxed));
}

#[test]
fn a_tail_that_hides_what_is_there_is_mended() {
    assert_mends(|ring| ring.tail.store(0, Ordering::Relaxed));
}

#[test]
fn an_entry_that_is_another_is_mended() {
    assert_mends(|ring| ring.entries[1].store(u64::MAX, Ordering::Relaxed));
}
