//! The accounting: every request that arrived ends in exactly one of these counts.

use tracing::info;

/// Requests since this acceptor started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Heads that were read.
    pub(super) arrived: u64,
    /// Answered by the app.
    pub(super) answered: u64,
    /// Answered by us, with the reason in the log.
    pub(super) refused: u64,
    /// The client left before the head of an answer was there.
    pub(super) abandoned: u64,
}

impl Tally {
    /// For the log, when the acceptor leaves; one that nobody came to has nothing to say.
    pub(super) fn report(&self) {
        if self.arrived == 0 {
            return;
        }
        let Self {
            arrived,
            answered,
            refused,
            abandoned,
        } = self;
        info!(
            "requests arrived={arrived} answered={answered} refused={refused} abandoned={abandoned}"
        );
        if *arrived != answered + refused + abandoned {
            tracing::error!("the counts of requests do not add up: our fault");
        }
    }
}
