//! How a client takes the bytes that the server writes.

use std::cell::Cell;

use super::pace::{Pace, PaceLimits, Slowness};
use stanchion_generation::tally::Event;

/// The bytes that a connection's client has taken.
#[derive(Default)]
pub(super) struct Intake {
    /// How many bytes the kernel has taken from us, and how many of them it had sent when the acceptor last looked.
    written: Cell<u64>,
    sent: Cell<u64>,
    /// `None` until the client has once had the server wait.
    stall: Cell<Option<Stall>>,
}

/// A wait for the client, while the kernel has no room for more bytes.
#[derive(Clone, Copy)]
struct Stall {
    /// How fast the client has taken bytes while any waited, as of the last look.
    pace: Pace,
    /// The client seemed too slow, so the acceptor is to look again.
    in_doubt: bool,
}

/// The verdict on a client for which bytes wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The client is fast enough until this time, even if it takes nothing more.
    Well {
        until_us: u64,
    },
    /// The client may have taken more than the acceptor knows: the caller looks at the socket, and judges again.
    Doubt,
    CutOff(CutOff),
}

/// Why the server cuts a client off from the rest of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutOff {
    /// The client took nothing for `write_timeout`.
    TookNothing,
    /// The client took its answer more slowly than `min_response_rate`.
    TookTooSlowly,
    /// The client took its answer hardly faster than that, and others wait for a place.
    MadeRoom,
    /// All clients together have more memory than they may, and this client has most.
    Memory,
}

impl CutOff {
    /// The event that the server counts.
    pub(super) fn event(self) -> Event {
        match self {
            Self::TookNothing => Event::CutOff,
            Self::TookTooSlowly => Event::TooSlow,
            Self::MadeRoom => Event::Shed,
            Self::Memory => Event::CutForMemory,
        }
    }

    /// The reason in the log.
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

    /// When the client is too slow if it takes nothing more; `None` if no bytes wait for it.
    pub(super) fn due_us(&self) -> Option<u64> {
        Some(self.stall()?.pace.due_us())
    }

    fn stall(&self) -> Option<Stall> {
        self.stall.get().filter(|stall| !stall.pace.is_held())
    }

    /// Judges the client, if bytes wait for it; `others_wait` for its place.
    ///
    /// The kernel wakes the acceptor when a good part of the socket's buffer is free again. With megabytes that takes an
    /// honest client minutes, and until then the acceptor does not see what the client takes. So the acceptor looks at the
    /// socket before it cuts the client off.
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

    /// Notes that the kernel took nothing more, and that it has not sent `unsent` bytes of what it took before.
    pub(super) fn stalled(&self, limits: PaceLimits, unsent: u64, now_us: u64) {
        let sent = self.written.get().saturating_sub(unsent);
        let progress = sent.saturating_sub(self.sent.get());
        self.sent.set(self.sent.get() + progress);
        let mut stall = self.stall.get().unwrap_or_else(|| Stall {
            // The client has not been slow yet. If it takes nothing at all, `write_timeout` decides.
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

    /// Notes that the kernel took so many bytes.
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
    use crate::pace::LIMITS;
    use stanchion_requests::rig::S;

    /// The intake of a client for which so many bytes were written, of which the kernel has sent none.
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
        // (when the acceptor looks for the first time, whether others wait, the verdict on a client that took nothing)
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
            // The next time the client gets another look.
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
