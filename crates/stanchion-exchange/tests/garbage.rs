//! A faulty worker writes over the shared memory. The acceptor must neither panic nor give a slot out twice. With new
//! workers, or with a new acceptor, everything must work again.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{TestRng, TestRunner};
use stanchion_exchange::{
    AcceptorSide, AnswerEnd, Area, Exchange, Geometry, SeatSide, SlotState, Taken, Tenant, Unwanted,
};

/// The exchange is small, so that a random write hits something that matters.
const GEOMETRY: Geometry = Geometry {
    seats: 4,
    seats_per_worker: 2,
    ahead_per_seat: 1,
    spare_per_worker: 0,
    sessions_per_worker: 0,
    event_loops: false,
    inflow_bytes: 0,
    request_bytes: 24,
    response_bytes: 13,
};
const SLOTS: u32 = 8;
const WORKERS: u64 = 2;

/// Writes to the mapping through proc(5)'s `mem`, past the exchange's types.
struct Scribbler {
    memory: File,
    start: u64,
    words: u64,
}

impl Scribbler {
    /// Opens the mapping of the only exchange in this process.
    fn new() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut ours = maps
            .lines()
            .filter(|line| line.contains("/memfd:stanchion-exchange"));
        let line = ours.next().unwrap();
        assert_eq!(ours.next(), None, "which of them?");
        let (start, rest) = line.split_once('-').unwrap();
        let (end, _) = rest.split_once(' ').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let memory = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem")
            .unwrap();
        Self {
            memory,
            start,
            words: (end - start) / 8,
        }
    }

    fn address(&self, rng: &mut TestRng) -> u64 {
        self.start + 8 * (rng.next_u64() % self.words)
    }

    fn scribble(&self, rng: &mut TestRng) {
        let address = self.address(rng);
        let mut word = [0; 8];
        match rng.next_u64() % 6 {
            0 => word = rng.next_u64().to_ne_bytes(),
            1 => word = [0xff; 8],
            2 => {}
            // A word copied from elsewhere: it looks plausible.
            3 => self
                .memory
                .read_exact_at(&mut word, self.address(rng))
                .unwrap(),
            // The same word, up to two more or less.
            4 => {
                self.memory.read_exact_at(&mut word, address).unwrap();
                let near = u64::from_ne_bytes(word)
                    .wrapping_add(rng.next_u64() % 5)
                    .wrapping_sub(2);
                word = near.to_ne_bytes();
            }
            _ => {
                let byte = [rng.next_u64() as u8];
                self.memory
                    .write_all_at(&byte, address + rng.next_u64() % 8)
                    .unwrap();
                return;
            }
        }
        self.memory.write_all_at(&word, address).unwrap();
    }

    fn fill(&self, byte: u8) {
        self.memory
            .write_all_at(&vec![byte; self.words as usize * 8], self.start)
            .unwrap();
    }
}

/// An acceptor, and its own record of the requests in flight.
struct Desk<'x> {
    exchange: &'x Exchange,
    side: AcceptorSide<'x>,
    in_flight: BTreeSet<u32>,
    corrupt: u32,
}

impl<'x> Desk<'x> {
    fn open(exchange: &'x Exchange) -> Self {
        let side = AcceptorSide::take_over(exchange);
        Self {
            exchange,
            side,
            in_flight: BTreeSet::new(),
            corrupt: 0,
        }
    }

    fn submit(&mut self, worker: Option<u16>) -> Option<u32> {
        let fill = |mut area: Area<'_>| {
            area.put(0, &vec![7; area.len()]);
            Some(area.len())
        };
        let submitted = self.side.submit(worker, 0, fill)?;
        self.side.announce();
        assert!(
            self.in_flight.insert(submitted.slot),
            "a slot in use was given out"
        );
        Some(submitted.slot)
    }

    /// The acceptor does one thing at random.
    fn act(&mut self, rng: &mut TestRng) {
        let slot = (rng.next_u64() % u64::from(SLOTS)) as u32;
        match rng.next_u64() % 8 {
            0 => drop(self.submit(None)),
            6 if rng.next_u64().is_multiple_of(4) => drop(self.side.mend()),
            7 => drop(self.submit(Some((rng.next_u64() % WORKERS) as u16))),
            1 => {
                self.side.try_sleep();
                self.side.awake();
                let mut news = Vec::new();
                self.side.sweep(|slot| news.push(slot));
                for slot in news {
                    assert!(slot < SLOTS, "news of a slot that does not exist");
                    self.look(slot);
                }
            }
            2 => self.look(slot),
            3 if self.in_flight.contains(&slot) => self.side.give_up(slot, Unwanted::ClientGone),
            4 if self.in_flight.contains(&slot) && self.side.withdraw(slot) => {
                self.in_flight.remove(&slot);
            }
            5 => self.bury(|tenant| u64::from(tenant.seat) == u64::from(slot) / 2),
            _ => self.watch(),
        }
        assert!(self.side.free_slots() + self.in_flight.len() <= SLOTS as usize);
    }

    fn look(&mut self, slot: u32) {
        if !self.in_flight.contains(&slot) {
            self.side.settle_orphan(slot, false);
            return;
        }
        let mut out = Vec::new();
        let read = self.side.read(slot, usize::MAX, &mut out);
        assert_eq!(out.len(), read.unwrap_or(0));
        assert!(out.len() <= GEOMETRY.response_bytes);
        let state = self.side.state(slot);
        if read.is_err() || state.is_err() {
            self.corrupt += 1;
        }
        if read.is_err() || !matches!(state, Ok(SlotState::Ready | SlotState::Running { .. })) {
            self.side.release(slot);
            self.in_flight.remove(&slot);
        }
    }

    fn bury(&mut self, is_theirs: impl Fn(Tenant) -> bool) {
        for slot in self.side.held_by(is_theirs) {
            if !self.side.settle_orphan(slot, true) {
                assert!(self.in_flight.remove(&slot), "a held slot is not free");
                self.side.release(slot);
            }
        }
    }

    /// The master reads the scoreboard.
    fn watch(&self) {
        for seat in 0..GEOMETRY.seats as u16 {
            self.exchange.seat_state(seat);
            self.exchange.overdue_us(seat, u64::MAX / 2);
        }
        for slot in 0..SLOTS {
            self.exchange.busy_seat_of(slot);
        }
    }
}

fn sit_down(exchange: &Exchange, epoch: u16) -> Vec<SeatSide<'_>> {
    let seat = |seat| SeatSide::new(exchange, Tenant { seat, epoch }, 1, None);
    (0..GEOMETRY.seats as u16).map(seat).collect()
}

/// Submits some requests, and brings them honestly into different phases.
fn honest_start<'x>(
    desk: &mut Desk<'x>,
    seats: &[SeatSide<'x>],
    rng: &mut TestRng,
) -> Vec<Taken<'x>> {
    while !rng.next_u64().is_multiple_of(6) && desk.submit(None).is_some() {}
    let mut all: Vec<_> = seats.iter().filter_map(SeatSide::take).collect();
    for taken in &mut all {
        taken
            .write(&[1; 13][..rng.next_u64() as usize % 14])
            .unwrap();
        if rng.next_u64().is_multiple_of(2) {
            taken.publish();
        }
    }
    if rng.next_u64().is_multiple_of(2)
        && let Some(taken) = all.pop()
    {
        taken.finish(AnswerEnd::Complete);
    }
    all
}

/// The acceptor and the workers go on, whether or not they can make sense of the requests that workers still take. Once
/// the acceptor has looked a few times, no seat holds a request.
fn assert_settles(desk: &mut Desk<'_>, seats: &[SeatSide<'_>]) {
    // The first look may find damage; the second must find none.
    let _ = desk.side.mend();
    assert_eq!(desk.side.mend(), Ok(()));
    // The seats that may take a ready request find it.
    for seat in seats.iter().cycle().take(seats.len() * SLOTS as usize) {
        if let Some(taken) = seat.take() {
            taken.finish(AnswerEnd::Complete);
            seat.rest();
        }
    }
    for slot in desk.in_flight.clone() {
        if desk.side.is_stray(slot) {
            desk.side.release(slot);
            desk.in_flight.remove(&slot);
        } else {
            desk.look(slot);
        }
    }
    for slot in &desk.in_flight {
        let state = desk.side.state(*slot);
        assert!(
            matches!(state, Ok(SlotState::Running { .. })),
            "slot {slot} is forgotten: {state:?}"
        );
    }
}

/// All workers are killed and the acceptor goes on: everything works again.
fn assert_goes_on(mut desk: Desk<'_>, epoch: u16) {
    let _ = desk.side.mend();
    let exchange = desk.exchange;
    // New workers take the requests that no seat had taken; the others are lost with the workers that held them.
    let seats = sit_down(exchange, epoch);
    assert_settles(&mut desk, &seats);
    desk.bury(|_| true);
    assert_eq!(
        (desk.side.free_slots(), desk.side.orphans()),
        (SLOTS as usize, 0)
    );
    desk.corrupt = 0;
    assert_serves(desk, &seats);
}

/// All workers are killed and the acceptor is replaced: everything works again.
fn assert_recovers(exchange: &Exchange, epoch: u16) {
    let mut desk = Desk::open(exchange);
    desk.bury(|_| true);
    assert_eq!(desk.side.free_slots(), SLOTS as usize);
    desk.side.sweep(|_| ());
    let seats = sit_down(exchange, epoch);
    assert_serves(desk, &seats);
}

fn assert_serves(mut desk: Desk<'_>, seats: &[SeatSide<'_>]) {
    assert_eq!(desk.side.mend(), Ok(()));
    for round in 0..20_u8 {
        // Of four requests, one is for each worker alone, and two are in the shared ring.
        let whose = [None, Some(0), None, Some(1)];
        let mut whose = whose.into_iter().cycle();
        let slots: Vec<_> = std::iter::from_fn(|| desk.submit(whose.next()?)).collect();
        assert_eq!(slots.len(), SLOTS as usize, "round {round}");
        let mut slots: BTreeSet<_> = slots.into_iter().collect();
        // Each seat takes one request from its worker's own ring and one from the shared ring.
        for seat in seats.iter().chain(seats) {
            let mut taken = seat.take().unwrap();
            let slot = taken.ticket().0;
            assert!(slots.remove(&slot), "not one that was submitted");
            assert_eq!(taken.request(), [7; GEOMETRY.request_bytes]);
            taken.write(&[round; 13]).unwrap();
            taken.finish(AnswerEnd::Complete);
            let mut out = Vec::new();
            assert_eq!(desk.side.read(slot, usize::MAX, &mut out), Ok(13));
            assert_eq!(out, [round; 13]);
            assert!(matches!(desk.side.state(slot), Ok(SlotState::Done { .. })));
            desk.look(slot);
        }
    }
    assert_eq!((desk.side.free_slots(), desk.corrupt), (SLOTS as usize, 0));
    assert_eq!(desk.side.mend(), Ok(()));
}

/// All in one test, because each part looks for the only exchange that is mapped.
#[test]
fn a_worker_gone_mad_spoils_answers_and_nothing_else() {
    let mut corrupt = 0;
    // The test uses proptest's generator without its shrinking, since each step depends on the ones before.
    let mut runner = TestRunner::deterministic();
    for _ in 0..300 {
        let mut rng = runner.new_rng();
        corrupt += one_by_one(&mut rng);
    }
    assert!(
        corrupt > 100,
        "too few random writes hit a field that matters: {corrupt}"
    );
    for byte in [0x00, 0x5a, 0xff] {
        wiped(byte, &mut runner.new_rng());
    }
    at_the_same_time(&mut runner);
}

/// The acceptor acts, the worker scribbles, and so on; the acceptor may be replaced meanwhile.
fn one_by_one(rng: &mut TestRng) -> u32 {
    let exchange = Exchange::create(GEOMETRY).unwrap();
    let mut desk = Desk::open(&exchange);
    let seats = sit_down(&exchange, 1);
    std::mem::forget(honest_start(&mut desk, &seats, rng));
    let scribbler = Scribbler::new();
    for _ in 0..200 {
        (0..rng.next_u64() % 8).for_each(|_| scribbler.scribble(rng));
        desk.act(rng);
        if rng.next_u64().is_multiple_of(64) {
            desk = Desk {
                corrupt: desk.corrupt,
                ..Desk::open(&exchange)
            };
        }
    }
    let corrupt = desk.corrupt;
    if rng.next_u64().is_multiple_of(4) {
        assert_recovers(&exchange, 2);
    } else {
        assert_goes_on(desk, 2);
    }
    corrupt
}

fn wiped(byte: u8, rng: &mut TestRng) {
    let exchange = Exchange::create(GEOMETRY).unwrap();
    let mut desk = Desk::open(&exchange);
    let seats = sit_down(&exchange, 1);
    std::mem::forget(honest_start(&mut desk, &seats, rng));
    Scribbler::new().fill(byte);
    (0..100).for_each(|_| desk.act(rng));
    assert_goes_on(desk, 2);
    assert_recovers(&exchange, 3);
}

/// The worker scribbles between any two of the acceptor's instructions.
fn at_the_same_time(runner: &mut TestRunner) {
    let exchange = Exchange::create(GEOMETRY).unwrap();
    let scribbler = Scribbler::new();
    let stop = AtomicBool::new(false);
    let [mut rng, mut mad] = [runner.new_rng(), runner.new_rng()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                scribbler.scribble(&mut mad);
            }
        });
        for _ in 0..100 {
            let mut desk = Desk::open(&exchange);
            (0..1_000).for_each(|_| desk.act(&mut rng));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_recovers(&exchange, 2);
    let desk = Desk::open(&exchange);
    let desk = scribbled_over_while_acting(desk, &scribbler, &mut rng, &mut mad);
    assert_goes_on(desk, 3);
}

fn scribbled_over_while_acting<'x>(
    mut desk: Desk<'x>,
    scribbler: &Scribbler,
    rng: &mut TestRng,
    mad: &mut TestRng,
) -> Desk<'x> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                scribbler.scribble(mad);
            }
        });
        (0..5_000).for_each(|_| desk.act(rng));
        stop.store(true, Ordering::Relaxed);
    });
    desk
}
