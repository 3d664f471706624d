//! The layout of the shared memory.
//!
//! ```text
//! header | seats | words | heads | ready ring | own rings | notices | inboxes | request areas | inflow areas | response areas
//! ```
//!
//! Everything up to the areas is atomics on cache lines of their own. The areas are plain bytes; the slot's word names
//! their owner.
//!
//! ```text
//! header   acceptor number, closed, draining, ring head, ring tail, bell, asleep
//! seats    the scoreboard: pid, state, slot, started, deadline, served, busy
//! words    one atomic word a slot:   turn:32 │ epoch:12 │ seat:16 │ phase:4
//! heads    per slot: request length, times, ending; and the flow of its response ring
//! ring     slots that are ready, oldest first        ┌─────────┬─────────┬─────────┬───
//! own      such a ring for each worker, for          │ slot 3  │ slot 0  │ slot 5  │ ...
//!          requests that it alone may take           └─▲───────┴─────────┴───────▲─┴───
//! notices  a bit a slot: "acceptor, look here"    head ┘ (seats)     (acceptor) tail
//! areas    request area and response ring a slot
//! ```
//!
//! An answer that fits into the response ring (a body of 1 MiB, and its head) frees the worker at once. A longer one
//! streams, and the seat waits for room. The ring has 1 MiB because a smaller one costs more switches between the
//! processes; the ring of an event loop, which has a slot for each of thousands of clients, has 512 KiB. The head of a
//! request is limited to 64 KiB in all, since it must fit a slot. gunicorn's limits allow 800 KiB.

use std::ops::Range;

use crate::protocol::{Bell, Flow};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::word::Word;

/// The adjacent-line prefetcher of x86 fetches two lines at a time.
pub(crate) const LINE_BYTES: usize = 128;

/// Requests that may be handed to one worker alone, for each of its seats: the one it answers and one
/// ahead.
const OWN_PER_SEAT: usize = 2;
/// A ring has so many entries for each request that can be in it, so that entries left by
/// withdrawals and deaths do not fill it.
const ENTRIES_EACH: usize = 4;

/// Upper bounds of the buckets of [`crate::LoopLag::counts`], in microseconds.
pub const LAG_BOUNDS_US: [u64; 9] = [
    1_000, 2_500, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000, 10_000_000,
];

/// The sizes that the master chooses at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The largest number of seats.
    pub seats: usize,
    /// How many seats in a row belong to one worker; `seats` is a multiple of it.
    pub seats_per_worker: usize,
    /// Slots for each seat beyond the one it answers: requests that can be handed out ahead.
    pub ahead_per_seat: usize,
    /// Slots for each worker beyond these.
    pub spare_per_worker: usize,
    /// Further slots for each worker, of sessions: their seats have gone on to other requests.
    pub sessions_per_worker: usize,
    /// Each worker's seats belong to one event loop, which sleeps at its [`crate::Inbox`] and not on a bell.
    pub event_loops: bool,
    /// Bytes of an inflow ring, for what arrives behind a request's head while a seat answers it; 0 = no such ring.
    pub inflow_bytes: usize,
    /// Bytes of a request record with its body in memory.
    pub request_bytes: usize,
    /// Bytes of a response ring.
    pub response_bytes: usize,
}

impl Geometry {
    /// Slots in all.
    pub fn slots(&self) -> usize {
        self.seats * (1 + self.ahead_per_seat)
            + self.workers() * (self.spare_per_worker + self.sessions_per_worker)
    }

    /// Workers there may be at once.
    pub fn workers(&self) -> usize {
        self.seats / self.seats_per_worker
    }

    /// The seats of a worker, one for each request that it runs at once: in a thread, or in its event loop.
    pub fn seats_of(&self, worker: u16) -> Range<u16> {
        let each = self.seats_per_worker as u16;
        worker * each..(worker + 1) * each
    }

    /// The worker to which a seat belongs.
    pub fn worker_of(&self, seat: u16) -> u16 {
        seat / self.seats_per_worker as u16
    }

    /// The index of a seat among its worker's seats: with threads, the number of its thread.
    pub fn thread_of(&self, seat: u16) -> u16 {
        seat % self.seats_per_worker as u16
    }

    /// How many requests are worth handing to one worker alone at a time: for each of its seats, the one it answers and
    /// one ahead.
    pub fn own_per_worker(&self) -> usize {
        self.seats_per_worker * OWN_PER_SEAT
    }

    /// One inbox for each worker, if workers run event loops.
    pub(crate) fn inboxes(&self) -> usize {
        if self.event_loops { self.workers() } else { 0 }
    }

    pub(crate) fn ring_entries(&self) -> usize {
        (self.slots() * ENTRIES_EACH).next_power_of_two()
    }

    /// The number of entries of one worker's own ring.
    pub(crate) fn own_ring_entries(&self) -> usize {
        (self.own_per_worker() * ENTRIES_EACH).next_power_of_two()
    }

    pub(crate) fn notice_words(&self) -> usize {
        self.slots().div_ceil(64)
    }

    /// The error says what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        const BYTES_MAX: usize = u32::MAX as usize;
        if !(1..=Word::SEATS_MAX).contains(&self.seats) {
            return Err("the number of seats is not between 1 and 65535");
        }
        if self.seats_per_worker == 0 || !self.seats.is_multiple_of(self.seats_per_worker) {
            return Err("the seats are not a multiple of a worker's");
        }
        if !(1..=BYTES_MAX).contains(&self.request_bytes) {
            return Err("the request area is not between 1 byte and 4 GiB");
        }
        if self.inflow_bytes > BYTES_MAX {
            return Err("the inflow ring is more than 4 GiB");
        }
        if !(1..=BYTES_MAX).contains(&self.response_bytes) {
            return Err("the response ring is not between 1 byte and 4 GiB");
        }
        Ok(())
    }
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct RegionHeader {
    /// The number of the acceptor at work; it counts up when an acceptor is replaced.
    pub(crate) acceptor: AtomicU64,
    /// 1 once the master has closed the exchange.
    pub(crate) closed: AtomicU32,
    /// 1 once the acceptor drains.
    pub(crate) draining: AtomicU32,
    pub(crate) head: Padded<AtomicU64>,
    pub(crate) tail: Padded<AtomicU64>,
    pub(crate) bell: Padded<Bell>,
    pub(crate) asleep: Padded<AtomicU32>,
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// Head and tail of one worker's own ring. They lie on a line that changes only while that worker's own requests come
/// and go, so its seats look at them at no cost otherwise.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct OwnPositions {
    pub(crate) head: AtomicU64,
    pub(crate) tail: AtomicU64,
}

/// The scoreboard's entry for a seat: the seat shows its work to the master, and to operators who look.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct SeatFigures {
    /// The worker's pid, 0 while the seat is empty.
    pub pid: AtomicU32,
    /// A [`SeatState`].
    pub state: AtomicU32,
    /// The slot it works on while busy.
    pub slot: AtomicU32,
    /// When it took that slot, in microseconds of the monotonic clock.
    pub started_us: AtomicU64,
    /// When its time for that request is up; 0 = never.
    pub deadline_us: AtomicU64,
    /// Requests answered in this epoch.
    pub served: AtomicU64,
    /// Time spent on requests in this epoch, in microseconds.
    pub busy_us: AtomicU64,
}

/// Adds to a figure that one process alone writes, so that adding takes no locked instruction.
pub(crate) fn add(figure: &AtomicU64, more: u64) {
    let sum = figure.load(Ordering::Relaxed).wrapping_add(more);
    figure.store(sum, Ordering::Relaxed);
}

/// The activity of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SeatState {
    /// No worker has the seat, or its worker is booting.
    Empty = 0,
    /// The seat looks for work, or sleeps.
    Idle = 1,
    /// The seat answers a request.
    Busy = 2,
}

impl SeatState {
    pub(crate) fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Self::Idle,
            2 => Self::Busy,
            _ => Self::Empty,
        }
    }
}

/// A slot's small figures. The slot's word lies elsewhere, because all seats look at it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct SlotHead {
    /// Bytes of the request record; written while Filling.
    pub(crate) request_len: AtomicU32,
    /// An [`crate::AnswerEnd`]: whether the seat completed the answer.
    pub(crate) ending: AtomicU32,
    /// When the request had arrived in full; written while Filling.
    pub(crate) arrived_us: AtomicU64,
    pub(crate) taken_us: AtomicU64,
    pub(crate) done_us: AtomicU64,
    /// The words of a [`crate::RunTimes`]; written with `done_us`.
    pub(crate) run_times: [AtomicU32; 3],
    /// The answer's flow. It lies on a line of its own, because the acceptor writes it while the seat reads the fields
    /// above.
    pub(crate) flow: Padded<Flow>,
    /// The inflow's flow: here the acceptor produces, and `gone` is an [`crate::Inflow`].
    pub(crate) inflow: Padded<Flow>,
}

/// The state that an event loop shows, and whether it sleeps.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct InboxHead {
    pub(crate) asleep: AtomicU32,
    /// Requests that the loop runs; only the worker writes it.
    pub(crate) load: AtomicU32,
    /// Sessions that the loop has; only the worker writes it.
    pub(crate) sessions: AtomicU32,
    /// When the loop last turned, in microseconds of the monotonic clock. Only the worker writes this and the following
    /// fields.
    pub(crate) beat_us: AtomicU64,
    /// Lag of that turn, largest lag, and the sum of all lags.
    pub(crate) lag_us: AtomicU64,
    pub(crate) lag_max_us: AtomicU64,
    pub(crate) lag_sum_us: AtomicU64,
    /// By bound of [`LAG_BOUNDS_US`]: how often the lag was no more than that, and last, how often more.
    pub(crate) lags: [AtomicU64; LAG_BOUNDS_US.len() + 1],
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_seat_is_one_threads_of_one_worker() {
        for (workers, threads) in [
            (1, 1),
            (3, 1),
            (1, 4),
            (5, 3),
            (1024, 4),
            (1, 4096),
            (65, 1000),
        ] {
            let geometry = Geometry {
                seats: workers * threads,
                seats_per_worker: threads,
                ahead_per_seat: 1,
                spare_per_worker: 0,
                sessions_per_worker: 0,
                event_loops: false,
                inflow_bytes: 0,
                request_bytes: 1,
                response_bytes: 1,
            };
            assert_eq!(geometry.check(), Ok(()));
            let all = (0..workers as u16).flat_map(|worker| geometry.seats_of(worker));
            assert!(all.eq(0..geometry.seats as u16), "{workers} of {threads}");
            for worker in 0..workers as u16 {
                for (thread, seat) in (0..).zip(geometry.seats_of(worker)) {
                    let found = (geometry.worker_of(seat), geometry.thread_of(seat));
                    assert_eq!(found, (worker, thread), "seat {seat}, {threads} each");
                }
            }
        }
    }
}
