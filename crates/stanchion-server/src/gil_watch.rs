//! The watch over the interpreter's lock: the main thread of a worker with several threads looks a few times a second which of its seats
//! wait for the lock.
//!
//! A thread that waits for the lock sleeps in futex(2) at an address within the interpreter's own data, where only its locks are. No
//! thread need do anything for that, and the app pays nothing. A look stands for the time since the look before.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use stanchion_exchange::{Exchange, SeatMeter, SeatState};
use stanchion_sys::thread_calls::ThreadCalls;
use tracing::debug;

/// How often the watch looks while a seat has a request.
const LOOK_US: u64 = 50_000;
/// A look stands for at most so long.
const PASSED_US_MAX: u64 = 4 * LOOK_US;
/// How many seats it looks at each time: a look at one takes 7 to 40 µs. If more have a request, they take turns.
const SEATS_MAX: usize = 8;

/// The watch of one worker.
#[derive(Debug, Default)]
pub(crate) struct GilWatch {
    /// The interpreter's data; unset if no seat needs to be watched, or can be.
    data: OnceLock<Range<usize>>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    seats: Vec<WatchedSeat>,
    /// When the watch last looked, if a seat had a request then.
    looked_us: Option<u64>,
    /// The index of the seat whose turn is next.
    next: usize,
}

#[derive(Debug)]
struct WatchedSeat {
    number: u16,
    meter: Arc<SeatMeter>,
    calls: ThreadCalls,
}

impl GilWatch {
    /// Watches the seats that are added from now on. The lock lies within these addresses.
    pub(crate) fn begin(&self, data: Range<usize>) {
        // A worker begins once.
        let _ = self.data.set(data);
    }

    /// Whether and how the calling thread, which has a seat, can be watched.
    pub(crate) fn calls_of_this_thread(&self) -> Option<ThreadCalls> {
        self.data.get()?;
        match ThreadCalls::of_this_thread() {
            Ok(calls) => Some(calls),
            Err(error) => {
                debug!("the kernel does not show the calls of this thread: {error}");
                None
            }
        }
    }

    /// Adds a seat.
    pub(crate) fn add(&self, number: u16, meter: Arc<SeatMeter>, calls: ThreadCalls) {
        self.locked().seats.push(WatchedSeat {
            number,
            meter,
            calls,
        });
    }

    /// The seats are empty.
    pub(crate) fn end(&self) {
        self.locked().seats.clear();
    }

    /// Looks at the seats. Gives how long it is until the next look; `None` if no seat has a request.
    pub(crate) fn look(&self, exchange: &Exchange, now_us: u64) -> Option<Duration> {
        let data = self.data.get()?;
        let mut watched = self.locked();
        let Watched {
            seats,
            looked_us,
            next,
        } = &mut *watched;
        let (before, from_next) = seats.split_at((*next).min(seats.len()));
        let in_turn = from_next.iter().chain(before);
        let busy = in_turn.filter(|seat| exchange.seat_state(seat.number) == SeatState::Busy);
        let busy: Vec<_> = busy.collect();
        // A worker that was stopped for long does not say where its seats were meanwhile.
        let passed_us = looked_us.map_or(LOOK_US, |looked_us| now_us.saturating_sub(looked_us));
        let passed_us = passed_us.min(PASSED_US_MAX);
        *looked_us = (!busy.is_empty()).then_some(now_us);
        // A seat is looked at once in so many looks, so its look stands for all of them.
        let stands_for_us = passed_us * busy.len().div_ceil(SEATS_MAX) as u64;
        for seat in busy.iter().take(SEATS_MAX) {
            if seat.calls.futex().is_some_and(|at| data.contains(&at)) {
                seat.meter.waited_for_gil(stands_for_us);
            }
        }
        let after_last = busy.get(SEATS_MAX).map(|seat| seat.number);
        *next = seats
            .iter()
            .position(|seat| Some(seat.number) == after_last)
            .unwrap_or_default();
        looked_us.map(|_| Duration::from_micros(LOOK_US))
    }

    fn locked(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
