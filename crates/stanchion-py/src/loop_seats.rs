//! The seats of an event loop: which of them are free, how many requests the loop takes now, and when it may sleep.

use std::mem;
use std::sync::Arc;

use stanchion_server::{BEAT_US, Inbox, Seat, Taken, Worker};
use stanchion_sys::clock::monotonic_us;

/// So long a request is left to a worker that runs fewer.
const LEFT_US: u64 = 500;

/// A loop that turns so late runs an app that blocks it: what it has taken waits for each other.
const LATE_US: u64 = 5_000;
/// So many usual heartbeats after that it takes one request at a time, and the next once the app was called for that: 10 s.
const CAREFUL_BEATS: u32 = 40;

/// A turn looks so often whether there is more before what the loop runs has its turn.
pub(crate) const LOOKS_MAX: usize = 4;

/// One of the seats of a loop, and the request that it has taken.
pub(crate) struct Seated {
    pub(crate) number: u16,
    pub(crate) seat: Arc<Seat<'static>>,
    pub(crate) taken: Taken<'static>,
}

/// All seats of a worker that has an event loop.
pub(crate) struct LoopSeats {
    worker: &'static Worker,
    inbox: Inbox<'static>,
    seats: Vec<Arc<Seat<'static>>>,
    /// Which of them have no request; the last to be freed is taken next.
    idle: Vec<u16>,
    /// The request that was left to other workers, and since when. The acceptor calls again if nobody takes it.
    left: Option<(u64, u64)>,
    /// For so many usual heartbeats it takes one request at a time.
    careful_beats: u32,
    /// It has taken one so, and looks for the next once the app was called.
    wants_next: bool,
    /// A further turn is to come by itself.
    is_turning: bool,
    /// It has taken a request since the heartbeat before.
    has_taken: bool,
    pace: Pace,
    /// How often it shows that it turns while it has nothing to do: a host of many workers sleeps better.
    rest_us: u64,
}

/// When the next heartbeat of a loop comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// After [`BEAT_US`].
    Usual,
    /// After `rest_us`, since there is nothing to do.
    Resting,
    /// It was to come after that, and now there is something to do.
    Hastening,
}

impl LoopSeats {
    /// Sits down at all of them.
    pub(crate) fn new(worker: &'static Worker) -> Self {
        let seats: Vec<_> = worker.all_seats().into_iter().map(Arc::new).collect();
        Self {
            worker,
            inbox: worker.inbox().expect("the worker has an event loop"),
            idle: (0..seats.len() as u16).rev().collect(),
            seats,
            left: None,
            careful_beats: 0,
            wants_next: false,
            is_turning: false,
            has_taken: false,
            pace: Pace::Usual,
            rest_us: worker.rest_us(),
        }
    }

    /// How many requests to take now. What is another worker's part is left to it for a moment; if it is not taken
    /// then, whoever runs that one is not turning.
    pub(crate) fn share(&mut self) -> usize {
        let now_us = monotonic_us();
        let left = self.left.take();
        let oldest = self.worker.oldest_ready();
        let share = match self.worker.fair_share(now_us) {
            // The app is yet to be called for the one that was taken before.
            _ if self.is_careful() && self.is_turning => return 0,
            share if self.is_careful() => share.min(1),
            share => share,
        };
        let Some(oldest) = oldest.filter(|_| share == 0) else {
            return share;
        };
        let since_us = match left {
            Some((position, since_us)) if position == oldest => since_us,
            _ => now_us,
        };
        if now_us - since_us >= LEFT_US {
            return 1;
        }
        self.left = Some((oldest, since_us));
        0
    }

    /// How many seconds the next heartbeat is to come after this one, which is about to be told.
    pub(crate) fn pace_s(&mut self, has_sessions: bool) -> f64 {
        let has_work = mem::take(&mut self.has_taken) || self.running() > 0 || has_sessions;
        self.pace = if has_work || self.worker.should_leave() {
            Pace::Usual
        } else {
            Pace::Resting
        };
        self.pace_us() as f64 / 1e6
    }

    fn pace_us(&self) -> u64 {
        match self.pace {
            Pace::Resting => self.rest_us,
            Pace::Usual | Pace::Hastening => BEAT_US,
        }
    }

    /// Whether the next heartbeat is to come at the usual pace, counted from now.
    pub(crate) fn wants_beat(&mut self) -> bool {
        let is_hastening = self.pace == Pace::Hastening;
        if is_hastening {
            self.pace = Pace::Usual;
        }
        is_hastening
    }

    /// The loop turns, so much later than was planned.
    pub(crate) fn beat(&mut self, lag_us: u64) {
        self.inbox.beat(monotonic_us(), lag_us, self.pace_us());
        self.careful_beats = if lag_us >= LATE_US {
            CAREFUL_BEATS
        } else {
            let beats = self.pace_us() / BEAT_US;
            self.careful_beats.saturating_sub(beats as u32)
        };
    }

    fn is_careful(&self) -> bool {
        self.careful_beats > 0
    }

    /// Takes a request, if one is ready and a seat is free.
    pub(crate) fn take(&mut self) -> Option<Seated> {
        let number = *self.idle.last()?;
        let seat = Arc::clone(&self.seats[usize::from(number)]);
        let taken = seat.take()?;
        self.idle.pop();
        self.wants_next = self.is_careful();
        self.has_taken = true;
        if self.pace == Pace::Resting {
            self.pace = Pace::Hastening;
            self.inbox.hastens(monotonic_us());
        }
        Some(Seated {
            number,
            seat,
            taken,
        })
    }

    /// A seat is through with its request.
    pub(crate) fn is_free(&mut self, number: u16) {
        self.seats[usize::from(number)].served();
        self.idle.push(number);
    }

    /// How many have a request.
    pub(crate) fn running(&self) -> usize {
        self.seats.len() - self.idle.len()
    }

    /// Whether there is more to take than was this worker's share, or the app is to be called before there may be.
    pub(crate) fn has_more(&self) -> bool {
        self.wants_next
            || !self.idle.is_empty() && self.left.is_none() && self.seats[0].sees_request()
    }

    /// A turn begins, which had been asked for or not.
    pub(crate) fn turns(&mut self, is_further: bool) {
        if is_further {
            self.is_turning = false;
            self.wants_next = false;
        }
        self.inbox.silence();
        self.inbox.awake();
    }

    /// A further turn is wanted; true if it is to be asked for.
    pub(crate) fn wants_turn(&mut self) -> bool {
        !mem::replace(&mut self.is_turning, true)
    }

    /// Says that the loop may sleep; false if there is something for it.
    pub(crate) fn try_sleep(&self) -> bool {
        if !self.inbox.try_sleep() {
            return false;
        }
        // Looked at once more: what came in between was announced to nobody.
        let sleeps = self.is_turning || self.worker.should_leave() || !self.has_more();
        if !sleeps {
            self.inbox.awake();
        }
        sleeps
    }
}
