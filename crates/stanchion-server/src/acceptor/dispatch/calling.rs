//! Event loops that are called again: the one that was woken for a request may be stuck in its app, or dead.

use super::Dispatch;

/// How long a request stands that nobody takes before every event loop with room is woken. One that turns takes it in a
/// fraction of that.
const PATIENCE_US: u64 = 1_000;

/// A request that nobody has taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untaken {
    position: u64,
    since_us: u64,
}

impl Dispatch {
    /// The last thing of a turn: wakes seats for what has come since, and notes whether a request stands though a loop with
    /// room sleeps.
    pub(crate) fn end_turn(&mut self, now_us: u64) {
        self.announce();
        let since_us = |position| {
            let before = self.untaken.filter(|before| before.position == position);
            before.map_or(now_us, |before| before.since_us)
        };
        self.untaken = self.side.untaken().map(|position| Untaken {
            position,
            since_us: since_us(position),
        });
    }

    /// When all loops are to be called, if any.
    pub(crate) fn call_due_us(&self) -> Option<u64> {
        self.untaken.map(|untaken| untaken.since_us + PATIENCE_US)
    }

    /// Calls them if it is time.
    pub(crate) fn call_if_due(&mut self, now_us: u64) {
        if self.call_due_us().is_some_and(|due_us| due_us <= now_us) {
            self.untaken = None;
            self.side.call_all();
        }
    }
}
