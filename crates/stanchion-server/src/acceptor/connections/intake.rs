//! How a client takes what is written to it.

use std::cell::Cell;

use super::pace::{Pace, PaceLimits, Slowness};
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
struct Stall {
    /// How fast the client has taken bytes while any waited, as far as we have looked.
    pace: Pace,
    /// It seemed too slow, and was asked to look again.
    in_doubt: bool,
}

/// What is to become of a client for which bytes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It does well until then, if it takes nothing more.
    Well {
        until_us: u64,
    },
    /// It may have taken more than we know: that is to be looked at, and then decided.
    Doubt,
    CutOff(CutOff),
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
    /// All clients together have more memory than they may, and its client has most.
    Memory,
}

impl CutOff {
    /// What it is counted as.
    pub(super) fn event(self) -> Event {
        match self {
            Self::TookNothing => Event::CutOff,
            Self::TookTooSlowly => Event::TooSlow,
            Self::MadeRoom => Event::Shed,
            Self::Memory => Event::CutForMemory,
        }
    }

    /// For the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::TookNothing => "it took nothing of its answer in time",
            Self::TookTooSlowly => "it took its answer too slowly",
            Self::MadeRoom => "it hardly took any of its answer, and others waited for a place",
            Self::Memory => {
                "clients have more memory than max_client_memory, and it was the slowest connection of the client that has most"
            }
        }
    }
}

impl Intake {
    /// Whether bytes wait for the client now.
    pub(super) fn is_stalled(&self) -> bool {
        self.stall().is_some()
    }

    /// The client is too slow then, if it takes nothing more; `None` if nothing waits for it.
    pub(super) fn due_us(&self) -> Option<u64> {
        Some(self.stall()?.pace.due_us())
    }

    fn stall(&self) -> Option<Stall> {
        self.stall.get().filter(|stall| !stall.pace.is_held())
    }

    /// What is to become of the client, if bytes wait for it; `others_wait` for its place.
    ///
    /// The kernel wakes us when a good part of its buffer is free again, which with megabytes takes an honest
    /// client minutes, and until then we know of nothing that it takes. So we look before we cut it off.
    pub(super) fn judge(&self, others_wait: bool, now_us: u64) -> Option<Verdict> {
        let mut stall = self.stall()?;
        let fault = match stall.pace.too_slow(now_us) {
            Some(Slowness::Pause) => Some(CutOff::TookNothing),
            Some(Slowness::Rate) => Some(CutOff::TookTooSlowly),
            None => (others_wait && stall.pace.drips(now_us)).then_some(CutOff::MadeRoom),
        };
        let verdict = match fault {
            None => Verdict::Well {
                until_us: stall.pace.due_us(),
            },
            Some(why) if stall.in_doubt => return Some(Verdict::CutOff(why)),
            Some(_) => Verdict::Doubt,
        };
        stall.in_doubt = verdict == Verdict::Doubt;
        self.stall.set(Some(stall));
        Some(verdict)
    }

    /// Nothing could be written, and so much of what was has not been sent.
    pub(super) fn stalled(&self, limits: PaceLimits, unsent: u64, now_us: u64) {
        let sent = self.written.get().saturating_sub(unsent);
        let progress = sent.saturating_sub(self.sent.get());
        self.sent.set(self.sent.get() + progress);
        let mut stall = self.stall.get().unwrap_or_else(|| Stall {
            // It has not been slow yet. Where nothing at all is taken `write_timeout` decides.
            pace: Pace::begin_ahead(limits, now_us),
            in_doubt: false,
        });
        stall.pace.go_on(now_us);
        if progress > 0 {
            stall.pace.came(progress as usize, now_us);
            stall.pace.go_on(now_us);
        }
        self.stall.set(Some(stall));
    }

    /// So much was written.
    pub(super) fn wrote(&self, bytes: usize, now_us: u64) {
        self.written.set(self.written.get() + bytes as u64);
        let Some(mut stall) = self.stall() else {
            return;
        };
        stall.pace.hold(now_us);
        stall.in_doubt = false;
        self.stall.set(Some(stall));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptor::connections::pace::LIMITS;
    use crate::acceptor::requests::rig::S;

    /// Of whose answer so much was written, and nothing sent.
    fn stalled(bytes: usize) -> Intake {
        let intake = Intake::default();
        intake.wrote(bytes, 0);
        intake.stalled(LIMITS, bytes as u64, 0);
        assert!(intake.is_stalled());
        intake
    }

    #[test]
    fn who_takes_nothing_from_the_start_has_the_longest_pause() {
        let intake = stalled(100_000);
        let well = Verdict::Well { until_us: 60 * S };
        assert_eq!(intake.judge(false, 60 * S - 1), Some(well));
        assert_eq!(intake.judge(false, 60 * S), Some(Verdict::Doubt));
        let cut_off = Verdict::CutOff(CutOff::TookNothing);
        assert_eq!(intake.judge(false, 60 * S), Some(cut_off));
    }

    #[test]
    fn nobody_is_cut_off_before_a_look_at_what_was_taken() {
        const MIB: usize = 1 << 20;
        // (how long nobody has looked, whether others wait, what it comes to if nothing was taken)
        for (at_s, others_wait, why) in [
            (31, true, CutOff::MadeRoom),
            (60, true, CutOff::TookNothing),
            (60, false, CutOff::TookNothing),
        ] {
            let slow = stalled(MIB);
            assert_eq!(slow.judge(others_wait, at_s * S), Some(Verdict::Doubt));
            slow.stalled(LIMITS, MIB as u64, at_s * S);
            let verdict = slow.judge(others_wait, at_s * S);
            assert_eq!(verdict, Some(Verdict::CutOff(why)), "{at_s} {others_wait}");

            let honest = stalled(MIB);
            assert_eq!(honest.judge(others_wait, at_s * S), Some(Verdict::Doubt));
            honest.stalled(LIMITS, MIB as u64 / 2, at_s * S);
            let until_us = (at_s + 60) * S;
            let verdict = honest.judge(others_wait, at_s * S);
            assert_eq!(verdict, Some(Verdict::Well { until_us }), "{at_s}");
            // And it has another look the next time.
            let verdict = honest.judge(others_wait, (at_s + 60) * S);
            assert_eq!(verdict, Some(Verdict::Doubt));
        }
        assert_eq!(Intake::default().judge(true, 100 * S), None);
    }

    #[test]
    fn a_byte_at_each_look_does_not_put_the_end_off() {
        let intake = stalled(100_000);
        let mut ended_at = None;
        for tick in 1..=4 * 120_u64 {
            let now_us = tick * S / 4;
            intake.stalled(LIMITS, 100_000 - tick, now_us);
            if let Some(Verdict::CutOff(why)) = intake.judge(false, now_us) {
                assert_eq!(why, CutOff::TookTooSlowly);
                ended_at = Some(now_us / S);
                break;
            }
        }
        assert_eq!(ended_at, Some(61));
    }
}
