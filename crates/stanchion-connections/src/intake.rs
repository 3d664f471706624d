//! How a client takes the bytes that the server writes.

use super::judgement::{CutOff, Judgement};
use super::pace::{Pace, PaceLimits, Slowness};

/// The bytes that a connection's client has taken.
#[derive(Default)]
pub(super) struct Intake {
    /// How many bytes the kernel has taken from us, and how many of them it had sent when the acceptor last looked.
    written: u64,
    sent: u64,
    /// `None` until the client has once had the server wait.
    stall: Option<Stall>,
}

/// A wait for the client, while the kernel has no room for more bytes.
struct Stall {
    /// How fast the client has taken bytes while any waited, as of the last look.
    pace: Pace,
    /// The client seemed too slow, so the acceptor is to look again.
    in_doubt: bool,
}

impl Intake {
    /// Whether bytes wait for the client now.
    pub(super) fn is_stalled(&self) -> bool {
        let stall = self.stall.as_ref();
        stall.is_some_and(|stall| !stall.pace.is_held())
    }

    /// When the client is too slow if it takes nothing more; never, if no bytes wait for it.
    pub(super) fn due_us(&self) -> u64 {
        let stall = self.stall.as_ref();
        stall.map_or(u64::MAX, |stall| stall.pace.waits_until_us())
    }

    /// Judges the client, if bytes wait for it; `others_wait` for its place. A client that takes nothing more is fast enough
    /// for as long as all is well.
    ///
    /// The kernel wakes the acceptor when a good part of the socket's buffer is free again. With megabytes that takes an
    /// honest client minutes, and until then the acceptor does not see what the client takes. So the acceptor looks at the
    /// socket before it cuts the client off.
    pub(super) fn judge(&mut self, others_wait: bool, now_us: u64) -> Option<Judgement> {
        let stall = self.stall.as_mut().filter(|stall| !stall.pace.is_held())?;
        let fault = match stall.pace.too_slow(now_us) {
            Some(Slowness::Pause) => Some(CutOff::TookNothing),
            Some(Slowness::Rate) => Some(CutOff::TookTooSlowly),
            None => (others_wait && stall.pace.drips(now_us)).then_some(CutOff::MadeRoom),
        };
        let was_in_doubt = std::mem::replace(&mut stall.in_doubt, fault.is_some());
        Some(match fault {
            None => Judgement::Well {
                until_us: stall.pace.due_us(),
            },
            Some(why) if was_in_doubt => Judgement::CutOff(why),
            Some(_) => Judgement::Doubt,
        })
    }

    /// Notes that the kernel took nothing more, and that it has not sent `unsent` bytes of what it took before.
    pub(super) fn stalled(&mut self, limits: PaceLimits, unsent: u64, now_us: u64) {
        let sent = self.written.saturating_sub(unsent);
        let progress = sent.saturating_sub(self.sent);
        self.sent += progress;
        let stall = self.stall.get_or_insert_with(|| Stall {
            // The client has not been slow yet. If it takes nothing at all, `write_timeout` decides.
            pace: Pace::begin_ahead(limits, now_us),
            in_doubt: false,
        });
        stall.pace.go_on(now_us);
        if progress > 0 {
            stall.pace.came(progress as usize, now_us);
            stall.pace.go_on(now_us);
        }
    }

    /// Notes that the kernel took so many bytes.
    pub(super) fn wrote(&mut self, bytes: usize, now_us: u64) {
        self.written += bytes as u64;
        if let Some(stall) = &mut self.stall {
            stall.pace.hold(now_us);
            stall.in_doubt = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::LIMITS;
    use stanchion_requests::rig::S;

    /// The intake of a client for which so many bytes were written, of which the kernel has sent none.
    fn stalled(bytes: usize) -> Intake {
        let mut intake = Intake::default();
        intake.wrote(bytes, 0);
        intake.stalled(LIMITS, bytes as u64, 0);
        assert!(intake.is_stalled());
        intake
    }

    #[test]
    fn who_takes_nothing_from_the_start_has_the_longest_pause() {
        let mut intake = stalled(100_000);
        let well = Judgement::Well { until_us: 60 * S };
        assert_eq!(intake.judge(false, 60 * S - 1), Some(well));
        assert_eq!(intake.judge(false, 60 * S), Some(Judgement::Doubt));
        let cut_off = Judgement::CutOff(CutOff::TookNothing);
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
            let mut slow = stalled(MIB);
            assert_eq!(slow.judge(others_wait, at_s * S), Some(Judgement::Doubt));
            slow.stalled(LIMITS, MIB as u64, at_s * S);
            let verdict = slow.judge(others_wait, at_s * S);
            assert_eq!(
                verdict,
                Some(Judgement::CutOff(why)),
                "{at_s} {others_wait}"
            );

            let mut honest = stalled(MIB);
            assert_eq!(honest.judge(others_wait, at_s * S), Some(Judgement::Doubt));
            honest.stalled(LIMITS, MIB as u64 / 2, at_s * S);
            let until_us = (at_s + 60) * S;
            let verdict = honest.judge(others_wait, at_s * S);
            assert_eq!(verdict, Some(Judgement::Well { until_us }), "{at_s}");
            // The next time the client gets another look.
            let verdict = honest.judge(others_wait, (at_s + 60) * S);
            assert_eq!(verdict, Some(Judgement::Doubt));
        }
        assert_eq!(Intake::default().judge(true, 100 * S), None);
    }

    #[test]
    fn a_byte_at_each_look_does_not_put_the_end_off() {
        let mut intake = stalled(100_000);
        let mut ended_at = None;
        for tick in 1..=4 * 120_u64 {
            let now_us = tick * S / 4;
            intake.stalled(LIMITS, 100_000 - tick, now_us);
            if let Some(Judgement::CutOff(why)) = intake.judge(false, now_us) {
                assert_eq!(why, CutOff::TookTooSlowly);
                ended_at = Some(now_us / S);
                break;
            }
        }
        assert_eq!(ended_at, Some(61));
    }
}
