//! Inboxes: the acceptor leaves notices for a worker's event loop in one, and the loop shows its state there.
//!
//! A loop sleeps in epoll(7), not on a futex, so it is woken by an eventfd(2). The acceptor writes there only if the
//! loop has said that it sleeps, and once: a busy loop costs it no system call.
//!
//! The acceptor wakes a loop once for all news of a turn, as it wakes seats for requests (`AcceptorSide::announce`), at
//! the latest after 0.1 ms. Before the loop sleeps it says so, and then looks at the notices and at the ready ring once
//! more.
//!
//! Any worker can write over the inbox of another one. So with each heartbeat (0.25 s; 1 s while it has nothing to do)
//! a loop also looks as if it had been woken, and at a fourth of its requests whether or not there is a notice. A
//! request that has lost its slot to another one, because a process wrote there and the acceptor took the slot back, is
//! notified when the slot is used again.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use stanchion_sys::eventfd::EventFd;

use crate::layout::{InboxHead, LAG_BOUNDS_US, add};
use crate::protocol::{LoopLoad, Notices};
use crate::sync::AtomicU64;

/// The slots of a worker that have news from the acceptor (room for more of an answer, more of a body, a client that
/// has gone), and whether the worker's loop sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Inbox<'x> {
    head: &'x InboxHead,
    notices: Notices<'x>,
    wake: &'x EventFd,
}

/// How often an event loop shows that it turns, while it has work.
pub const BEAT_US: u64 = 250_000;

/// How late an event loop was for its timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopLag {
    /// Lag of the last turn.
    pub last_us: u64,
    /// Largest lag of the present worker.
    pub max_us: u64,
    /// Sum of all lags, of the present worker and its predecessors.
    pub sum_us: u64,
    /// By bound of [`LAG_BOUNDS_US`]: how often the loop was late by no more than that, and last, how often by more.
    pub counts: [u64; LAG_BOUNDS_US.len() + 1],
}

impl<'x> Inbox<'x> {
    /// The load of a loop that takes no more requests.
    pub const NO_ROOM: u32 = u32::MAX;

    pub(crate) fn new(head: &'x InboxHead, bits: &'x [AtomicU64], wake: &'x EventFd) -> Self {
        let asleep = &head.asleep;
        Self {
            head,
            notices: Notices { bits, asleep },
            wake,
        }
    }

    /// For the loop: the descriptor that becomes readable when there is news, and stays so until [`Inbox::silence`].
    pub fn fd(&self) -> BorrowedFd<'x> {
        self.wake.as_fd()
    }

    /// For the loop: makes the descriptor unreadable again. False if it was unreadable already.
    pub fn silence(&self) -> bool {
        self.wake.silence()
    }

    /// For the loop: takes every notice, calling `look` with each slot.
    pub fn sweep(&self, look: impl FnMut(u32)) {
        self.notices.sweep(look);
    }

    /// For the loop: announces that the loop is about to sleep; false if there is a notice, and the loop must look
    /// again. The loop looks at the ready ring after this call, and calls [`Inbox::awake`] if it finds a request.
    pub fn try_sleep(&self) -> bool {
        self.notices.try_sleep()
    }

    /// For the loop: the loop is awake again.
    pub fn awake(&self) {
        self.notices.awake();
    }

    /// For the loop: shows how many requests it runs, or that it takes no more ([`Inbox::NO_ROOM`]). A loop that has
    /// room looks at the ready ring after this call.
    pub fn show_load(&self, requests: u32) {
        LoopLoad(&self.head.load).show(requests);
    }

    /// For the loop: shows how many sessions it has, besides the requests that it runs.
    pub fn show_sessions(&self, sessions: u32) {
        self.head.sessions.store(sessions, Ordering::Relaxed);
    }

    /// For the loop: shows that the loop has turned, `lag_us` later than due, and that it turns again after `next_us`:
    /// usually [`BEAT_US`], longer if it has no work.
    pub fn beat(&self, now_us: u64, lag_us: u64, next_us: u64) {
        let InboxHead {
            beat_us,
            lag_us: last_us,
            lag_max_us: max_us,
            lag_sum_us: sum_us,
            lags,
            ..
        } = self.head;
        let is_in_time_until_us = now_us.saturating_add(next_us);
        beat_us.store(
            is_in_time_until_us.saturating_sub(BEAT_US),
            Ordering::Relaxed,
        );
        last_us.store(lag_us, Ordering::Relaxed);
        max_us.fetch_max(lag_us, Ordering::Relaxed);
        add(sum_us, lag_us);
        let bucket = LAG_BOUNDS_US.partition_point(|&bound_us| bound_us < lag_us);
        add(&lags[bucket], 1);
    }

    /// For the loop: shows that it turns, and calls [`beat`](Self::beat) after [`BEAT_US`], sooner than it announced.
    pub fn hastens(&self, now_us: u64) {
        self.head.beat_us.store(now_us, Ordering::Relaxed);
    }

    /// For the loop: shows that it has stopped turning on purpose, so that it does not count as late.
    pub fn rest(&self) {
        self.head.beat_us.store(0, Ordering::Relaxed);
    }

    /// How late the loop was, according to the loop.
    pub fn lag(&self) -> LoopLag {
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        LoopLag {
            last_us: load(&self.head.lag_us),
            max_us: load(&self.head.lag_max_us),
            sum_us: load(&self.head.lag_sum_us),
            counts: self.head.lags.each_ref().map(load),
        }
    }

    /// How many requests the loop runs, according to the loop.
    pub fn load(&self) -> u32 {
        LoopLoad(&self.head.load).get()
    }

    /// How many sessions the loop has, according to the loop.
    pub fn sessions(&self) -> u32 {
        self.head.sessions.load(Ordering::Relaxed)
    }

    /// When the loop last turned, according to the loop; 0 if it has not begun, or turns no more. A loop without work
    /// turns seldom and shows a time in the future: the last moment at which it would have turned at the usual pace, if
    /// it keeps its time.
    pub fn beat_us(&self) -> u64 {
        self.head.beat_us.load(Ordering::Relaxed)
    }

    /// Whether the loop sleeps, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.notices.is_asleep()
    }

    /// For the acceptor: a slot has news. The acceptor must [call](Inbox::call) the loop before it sleeps itself.
    pub fn note(&self, slot: u32) {
        self.notices.note(slot);
    }

    /// For the acceptor: requests are ready, or slots have news. True if the loop slept, and was woken.
    pub fn call(&self) -> bool {
        let sleeps = self.notices.call();
        if sleeps {
            self.wake.ring();
        }
        sleeps
    }

    /// Clears the inbox of a dead worker: it counts as awake until the next worker's loop sleeps.
    pub(crate) fn vacate(&self) {
        self.head.asleep.store(0, Ordering::Relaxed);
        self.head.load.store(0, Ordering::Relaxed);
        self.head.sessions.store(0, Ordering::Relaxed);
        self.head.beat_us.store(0, Ordering::Relaxed);
        self.head.lag_us.store(0, Ordering::Relaxed);
        self.head.lag_max_us.store(0, Ordering::Relaxed);
    }

    /// Makes the loop look, whether or not it shows that it sleeps. Async-signal-safe.
    pub fn rouse(&self) {
        self.wake.ring();
    }
}
