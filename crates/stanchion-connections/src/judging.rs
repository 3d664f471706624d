//! Deadlines of clients: judges connections whose client dawdles. A timer for each connection would cost more than a look,
//! four times a second, at all connections that may be overdue.

use super::connection::{Connection, DriveOutcome};
use super::judgement::{Judgement, WantedResources};
use super::phase::Phase;
use super::poller::Poller;
use stanchion_dispatch::refusal::Refusal;
use stanchion_requests::Requests;

/// The outcome of a look at a connection.
pub(super) struct Looked {
    pub fate: DriveOutcome,
    /// When to look at it again.
    pub again_us: u64,
    /// Whether it made room for other clients.
    pub made_way: bool,
}

impl Connection {
    /// Looks whether the client dawdles, and acts on it.
    pub(super) fn look(
        &mut self,
        wanted: WantedResources,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Looked {
        let _charged = self.paying.charged();
        let now_us = requests.now_us;
        let mut judged = self.judge(wanted, requests);
        let mut fate = DriveOutcome::Stays;
        if matches!(
            judged,
            Judgement::HeadTimedOut | Judgement::CallOff(_) | Judgement::Drop
        ) {
            // Bytes that came in time may be unread: other connections had their turn, or had more news than the kernel
            // reports at a time.
            self.link.transport.assume_readable();
            fate = self.drive(None, requests, poller);
            judged = match fate {
                DriveOutcome::Stays => self.judge(wanted, requests),
                DriveOutcome::Asks | DriveOutcome::Ends => Judgement::Well { until_us: now_us },
            };
        }
        let again_us = match judged {
            Judgement::Well { until_us } => until_us,
            _ => now_us,
        };
        let fate = match judged {
            Judgement::Well { .. } => fate,
            Judgement::Doubt => {
                self.link.transport.assume_readable();
                let fate = self.drive(None, requests, poller);
                let is_stalled = self.link.intake.is_stalled();
                if fate == DriveOutcome::Stays && !is_stalled && self.phase.lingers_in_vain(now_us)
                {
                    DriveOutcome::Ends
                } else {
                    fate
                }
            }
            Judgement::Close => self.close_soon(requests, poller),
            Judgement::HeadTimedOut => self.turn_away(Refusal::HeadTimeout, requests, poller),
            Judgement::FileTimedOut => {
                self.phase.give_file_up(requests);
                self.drive(None, requests, poller)
            }
            Judgement::CallOff(refusal) => self.call_off(refusal, requests, poller),
            Judgement::Drop => DriveOutcome::Ends,
            Judgement::CutOff(why) => {
                self.cut_off(why, requests);
                DriveOutcome::Ends
            }
        };
        Looked {
            fate,
            again_us,
            made_way: matches!(judged, Judgement::CallOff(_) | Judgement::CutOff(_)),
        }
    }

    fn judge(&mut self, wanted: WantedResources, requests: &Requests) -> Judgement {
        let by_intake = self.link.intake.judge(wanted.place, requests.now_us);
        let by_phase = || self.phase.judge(&self.link, wanted, requests);
        match by_intake {
            None => by_phase(),
            Some(Judgement::Well { until_us }) => match &self.phase {
                Phase::Session(_) => by_phase().at_most(until_us),
                // The kernel does not report when it has sent the last byte.
                Phase::Leaving(_) if self.link.transport.untaken() == 0 => Judgement::Doubt,
                _ => Judgement::Well { until_us },
            },
            Some(judged) => judged,
        }
    }
}
