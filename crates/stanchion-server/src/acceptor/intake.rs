//! How a client takes what is written to it.

use std::cell::Cell;

use stanchion_sys::clock::monotonic_us;

use super::pace::{Pace, PaceLimits};
use crate::tally::Event;

/// What a connection's client has taken.
#[derive(Default)]
pub(super) struct Intake {
    /// Bytes that the kernel has taken to send, and those of them that it had sent when we last looked.
    written: Cell<u64>,
    sent: Cell<u64>,
    /// If it has ever kept us waiting.
    stall: Cell<Option<Stall>>,
}

/// Bytes wait that the kernel has no room for.
#[derive(Clone, Copy)]
pub(super) struct Stall {
    /// How fast the client has taken bytes while any waited, as far as we have looked.
    pub(super) pace: Pace,
    /// Whether it has been asked to look again.
    pub(super) in_doubt: bool,
}

/// Why a client does not get the rest of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutOff {
    /// It took nothing of it for `write_timeout`.
    TookNothing,
    /// It took it more slowly than `min_response_rate`.
    TookTooSlowly,
    /// It took it hardly faster than that, and others wait for a place.
    MadeRoom,
}

impl CutOff {
    /// What it is counted as.
    pub(super) fn event(self) -> Event {
        match self {
            Self::TookNothing => Event::CutOff,
            Self::TookTooSlowly => Event::TooSlow,
            Self::MadeRoom => Event::Shed,
        }
    }

    /// For the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TookNothing => "it took nothing of its answer in time",
            Self::TookTooSlowly => "it took its answer too slowly",
            Self::MadeRoom => "it hardly took any of its answer, and others waited for a place",
        }
    }
}

impl Intake {
    /// That bytes wait for the client now, if they do.
    pub(super) fn stall(&self) -> Option<Stall> {
        self.stall.get().filter(|stall| !stall.pace.is_held())
    }

    /// Nothing could be written, and so much of what was has not been sent. Gives whether that is new.
    pub(super) fn stalled(&self, limits: PaceLimits, unsent: u64, now_us: u64) -> bool {
        let sent = self.written.get().saturating_sub(unsent);
        let progress = sent.saturating_sub(self.sent.get());
        self.sent.set(self.sent.get() + progress);
        let is_new = self.stall().is_none();
        let mut stall = self.stall.get().unwrap_or_else(|| Stall {
            // It has not been slow yet. Where nothing at all is taken `write_timeout` decides.
            pace: Pace::begin_ahead(limits, now_us),
            in_doubt: false,
        });
        stall.pace.go_on(now_us);
        if progress > 0 {
            stall.pace.came(progress as usize, now_us);
            stall.pace.go_on(now_us);
            stall.in_doubt = false;
        }
        self.stall.set(Some(stall));
        is_new
    }

    /// It has been asked to look again.
    pub(super) fn doubt(&self, stall: Stall) {
        self.stall.set(Some(Stall {
            in_doubt: true,
            ..stall
        }));
    }

    /// So much was written. Gives whether bytes had waited.
    pub(super) fn wrote(&self, bytes: usize) -> bool {
        self.written.set(self.written.get() + bytes as u64);
        let Some(mut stall) = self.stall() else {
            return false;
        };
        stall.pace.hold(monotonic_us());
        stall.in_doubt = false;
        self.stall.set(Some(stall));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::pace::Slowness;
    use super::*;

    const S: u64 = 1_000_000;
    const LIMITS: PaceLimits = PaceLimits {
        pause: Some(Duration::from_secs(60)),
        bytes_per_s: 240,
    };

    /// Of whose answer so much was written, and nothing sent.
    fn stalled(bytes: usize) -> Intake {
        let intake = Intake::default();
        intake.wrote(bytes);
        assert!(intake.stalled(LIMITS, bytes as u64, 0));
        intake
    }

    #[test]
    fn who_takes_nothing_from_the_start_has_the_longest_pause() {
        let pace = stalled(100_000).stall().unwrap().pace;
        assert_eq!(pace.too_slow(60 * S - 1), None);
        assert_eq!(pace.too_slow(60 * S), Some(Slowness::Pause));
    }
}
