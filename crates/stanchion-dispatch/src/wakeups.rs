//! When the acceptor wakes seats for the requests in the exchange.

use stanchion_exchange::AcceptorSide;

/// The acceptor wakes sleeping seats once per turn of its loop, at the end. In a long turn it wakes them this long
/// after it has seen requests for them, at the latest.
const UNANNOUNCED_US_MAX: u64 = 100;
/// How long a request stands untaken before the acceptor wakes every event loop with room: the loop that it woke for the
/// request may be stuck in its app, or dead. A loop that turns takes the request in a fraction of that.
const PATIENCE_US: u64 = 1_000;

/// A request that no seat has taken yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untaken {
    position: u64,
    pub(crate) since_us: u64,
}

impl Untaken {
    /// Notes that the oldest such request is at this position now; if it was there `before` too, it keeps its time.
    pub(crate) fn seen(before: Option<Self>, position: Option<u64>, now_us: u64) -> Option<Self> {
        let position = position?;
        let before = before.filter(|before| before.position == position);
        let since_us = before.map_or(now_us, |before| before.since_us);
        Some(Self { position, since_us })
    }
}

/// The requests for which seats are to be woken.
#[derive(Default)]
pub(crate) struct Wakeups {
    /// When [`Wakeups::announce_if_late`] first saw requests for which no seat has been woken.
    unannounced_since_us: Option<u64>,
    /// The oldest request that no event loop has taken, though one with room for it sleeps.
    untaken: Option<Untaken>,
}

impl Wakeups {
    /// Wakes seats for the requests that the dispatch has handed out since the last call.
    pub(crate) fn announce(&mut self, side: &mut AcceptorSide<'_>) {
        self.unannounced_since_us = None;
        side.announce();
    }

    /// Does the same in the middle of a turn, if the turn has become a long one. It asks `clock` for the time only if
    /// there are seats to wake.
    pub(crate) fn announce_if_late(
        &mut self,
        side: &mut AcceptorSide<'_>,
        clock: impl FnOnce() -> u64,
    ) {
        if !side.is_unannounced() {
            return;
        }
        let now_us = clock();
        let since_us = *self.unannounced_since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) > UNANNOUNCED_US_MAX {
            self.announce(side);
        }
    }

    /// Ends a turn: wakes seats for the requests that came in it, and notes whether a request stands though a loop with
    /// room sleeps.
    pub(crate) fn end_turn(&mut self, side: &mut AcceptorSide<'_>, now_us: u64) {
        self.announce(side);
        self.untaken = Untaken::seen(self.untaken, side.untaken(), now_us);
    }

    /// When to wake all loops, if a request stands.
    pub(crate) fn call_due_us(&self) -> Option<u64> {
        self.untaken.map(|untaken| untaken.since_us + PATIENCE_US)
    }

    /// Wakes all loops if it is time.
    pub(crate) fn call_if_due(&mut self, side: &AcceptorSide<'_>, now_us: u64) {
        if self.call_due_us().is_some_and(|due_us| due_us <= now_us) {
            self.untaken = None;
            side.call_all();
        }
    }
}
