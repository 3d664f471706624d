//! Requests that wait for a seat of an event loop while others have all of them.

use stanchion_exchange::SlotState;

use super::calling::Untaken;
use super::{Dispatch, Stage, Ticket};

/// A request that has waited for so long waits because other clients have the seats.
const PATIENCE_US: u64 = 1_000_000;

impl Dispatch {
    /// How many requests wait so, at least; to be called now and then.
    pub fn starving(&mut self, now_us: u64) -> usize {
        // If a seat is free, the request waits for a loop that is stuck: no client has a part in that.
        let are_taken = self.submitted >= self.workers.len() * self.seats_per_worker;
        if !self.exchange.geometry().event_loops || !are_taken {
            self.oldest_ready = None;
            return 0;
        }
        let oldest = self.exchange.oldest_ready();
        self.oldest_ready = Untaken::seen(self.oldest_ready, oldest, now_us);
        let is_over = |since_us: u64| now_us.saturating_sub(since_us) >= PATIENCE_US;
        let in_exchange = self.oldest_ready.is_some_and(|one| is_over(one.since_us));
        let in_line = self.line.oldest_wait_us(now_us) >= PATIENCE_US;
        usize::from(in_exchange) + if in_line { self.line.len() } else { 0 }
    }

    /// Whether a seat has this request.
    pub fn has_seat(&self, ticket: &Ticket) -> bool {
        let Stage::Submitted(submitted) = ticket.stage.get() else {
            return false;
        };
        matches!(
            self.side.state(submitted.slot),
            Ok(SlotState::Running { .. })
        )
    }
}
