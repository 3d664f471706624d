//! The acceptor wakes all event loops when a request stands: the loop that it woke for the request may be stuck in its
//! app, or dead.

use super::Dispatch;

/// How long a request stands untaken before the acceptor wakes every event loop with room. A loop that turns takes it
/// in a fraction of that.
const PATIENCE_US: u64 = 1_000;

/// A request that no seat has taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untaken {
    position: u64,
    pub(super) since_us: u64,
}

impl Untaken {
    /// Notes that the oldest such request is at this position now; if it was there `before` too, it keeps its time.
    pub(super) fn seen(before: Option<Self>, position: Option<u64>, now_us: u64) -> Option<Self> {
        let position = position?;
        let before = before.filter(|before| before.position == position);
        let since_us = before.map_or(now_us, |before| before.since_us);
        Some(Self { position, since_us })
    }
}

impl Dispatch {
    /// Ends a turn: wakes seats for the requests that came in it, and notes whether a request stands though a loop with
    /// room sleeps.
    pub fn end_turn(&mut self, now_us: u64) {
        self.announce();
        self.untaken = Untaken::seen(self.untaken, self.side.untaken(), now_us);
    }

    /// When the acceptor is to wake all loops, if a request stands.
    pub fn call_due_us(&self) -> Option<u64> {
        self.untaken.map(|untaken| untaken.since_us + PATIENCE_US)
    }

    /// Wakes all loops if it is time.
    pub fn call_if_due(&mut self, now_us: u64) {
        if self.call_due_us().is_some_and(|due_us| due_us <= now_us) {
            self.untaken = None;
            self.side.call_all();
        }
    }
}
