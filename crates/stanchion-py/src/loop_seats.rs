//! The seats of an event loop: which of them are free, how many requests the loop takes now, and when it may sleep.
//!
//! The puller takes no more in one turn than the worker's share of the ready requests, looks a few times, and then
//! gives the tasks of the loop their turn. When a request ends it takes the next one in the same turn, without a system
//! call. A loop that is blocked takes nothing, so its share goes to the others by itself. A loop that has been late
//! takes one request at a time for ten seconds, and the next once the app was called for that one: requests that an app
//! with blocking code has taken wait for each other. gevent's hub takes requests in the same way.

use std::mem;
use std::sync::Arc;

use stanchion_server::{BEAT_US, Inbox, Seat, Taken, Worker};
use stanchion_sys::clock::monotonic_us;

/// How long a loop leaves a request to a worker that runs fewer requests.
const LEFT_US: u64 = 500;

/// A loop that turns this late runs an app that blocks it: the requests that it has taken wait for each other.
const LATE_US: u64 = 5_000;
/// For this many usual heartbeats (10 s) after a late one the loop takes one request at a time, and the next only after the app was called for that
/// one.
const CAREFUL_BEATS: u32 = 40;

/// How often a turn looks for more requests before the loop's other tasks get their turn.
pub(crate) const LOOKS_MAX: usize = 4;

/// A seat of a loop with the request that it has taken.
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
    /// The seats without a request; the last to be freed is used next.
    idle: Vec<u16>,
    /// The request that the loop has left to other workers, and since when. The acceptor calls this worker again if no worker takes the request.
    left: Option<(u64, u64)>,
    /// For this many more usual heartbeats the loop takes one request at a time.
    careful_beats: u32,
    /// The loop has taken a request in that way, and looks for the next once the app was called.
    wants_next: bool,
    /// A further turn is scheduled already.
    is_turning: bool,
    /// The loop has taken a request since the last heartbeat.
    has_taken: bool,
    pace: HeartbeatPace,
    /// The interval of heartbeats while the loop has nothing to do; it is longer, so that a host with many workers can sleep.
    rest_us: u64,
}

/// The pace of a loop, which decides when its next heartbeat comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeartbeatPace {
    /// After [`BEAT_US`].
    Usual,
    /// After `rest_us`, because the loop has nothing to do.
    Resting,
    /// The heartbeat was planned for after `rest_us`, but now the loop has work, so it has to come sooner.
    Hastening,
}

impl LoopSeats {
    /// Occupies all seats of the worker.
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
            pace: HeartbeatPace::Usual,
            rest_us: worker.rest_us(),
        }
    }

    /// How many requests to take now. The loop leaves another worker's share to that worker for a moment; if the request is still there then, the
    /// other worker's loop does not turn, and this one takes it.
    pub(crate) fn share(&mut self) -> usize {
        let now_us = monotonic_us();
        let left = self.left.take();
        let oldest = self.worker.oldest_ready();
        let share = match self.worker.fair_share(now_us) {
            // The app was not called yet for the request that was taken before.
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

    /// How many seconds the next heartbeat comes after this one, which the caller records right after this call.
    pub(crate) fn pace_s(&mut self, has_sessions: bool) -> f64 {
        let has_work = mem::take(&mut self.has_taken) || self.running() > 0 || has_sessions;
        self.pace = if has_work || self.worker.should_leave() {
            HeartbeatPace::Usual
        } else {
            HeartbeatPace::Resting
        };
        self.pace_us() as f64 / 1e6
    }

    fn pace_us(&self) -> u64 {
        match self.pace {
            HeartbeatPace::Resting => self.rest_us,
            HeartbeatPace::Usual | HeartbeatPace::Hastening => BEAT_US,
        }
    }

    /// Whether the next heartbeat has to be rescheduled, at the usual pace from now on.
    pub(crate) fn wants_beat(&mut self) -> bool {
        let is_hastening = self.pace == HeartbeatPace::Hastening;
        if is_hastening {
            self.pace = HeartbeatPace::Usual;
        }
        is_hastening
    }

    /// Records a heartbeat: the loop turns, `lag_us` later than planned.
    pub(crate) fn beat(&mut self, lag_us: u64) {
        self.inbox.beat(monotonic_us(), lag_us, self.pace_us());
        self.worker.heed_master();
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
        if self.pace == HeartbeatPace::Resting {
            self.pace = HeartbeatPace::Hastening;
            self.inbox.hastens(monotonic_us());
        }
        Some(Seated {
            number,
            seat,
            taken,
        })
    }

    /// Frees a seat whose request is over.
    pub(crate) fn is_free(&mut self, number: u16) {
        self.seats[usize::from(number)].served();
        self.idle.push(number);
    }

    /// The number of seats with a request.
    pub(crate) fn running(&self) -> usize {
        self.seats.len() - self.idle.len()
    }

    /// Whether the loop should turn again: there is a request that it has not left to another worker, or it takes the next one only once the app was
    /// called.
    pub(crate) fn has_more(&self) -> bool {
        self.wants_next
            || !self.idle.is_empty() && self.left.is_none() && self.seats[0].sees_request()
    }

    /// Begins a turn; `is_further` if the loop has asked for it.
    pub(crate) fn turns(&mut self, is_further: bool) {
        if is_further {
            self.is_turning = false;
            self.wants_next = false;
        }
        self.inbox.silence();
        self.inbox.awake();
    }

    /// Asks for a further turn; true if the caller has to schedule it.
    pub(crate) fn wants_turn(&mut self) -> bool {
        !mem::replace(&mut self.is_turning, true)
    }

    /// Announces that the loop may sleep; false if there is work for it.
    pub(crate) fn try_sleep(&self) -> bool {
        if !self.inbox.try_sleep() {
            return false;
        }
        // Looks once more, because a request that came before the announcement has woken no loop.
        let sleeps = self.is_turning || self.worker.should_leave() || !self.has_more();
        if !sleeps {
            self.inbox.awake();
        }
        sleeps
    }
}
