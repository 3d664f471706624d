//! Each request is counted once.

use stanchion_generation::tally::{Outcome, Tally};

/// Counts a request once, however it ends.
pub struct Account {
    tally: &'static Tally,
    closed: Option<Outcome>,
}

impl Account {
    /// Counts a request that has begun to arrive.
    pub(crate) fn open(tally: &'static Tally) -> Self {
        tally.arrived();
        Self {
            tally,
            closed: None,
        }
    }

    /// Counts how the request has ended, unless it has ended before. Gives how it ended.
    pub fn close(&mut self, outcome: Outcome) -> Outcome {
        let tally = self.tally;
        *self.closed.get_or_insert_with(|| {
            tally.ended(outcome);
            outcome
        })
    }
}

impl Drop for Account {
    /// Each end after the body was read closes the account, so this request was given up while it was read.
    fn drop(&mut self) {
        self.close(Outcome::AbandonedReading);
    }
}
