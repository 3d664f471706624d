//! Deadlines of clients: judges connections whose client dawdles. A timer for each connection would cost more than a look,
//! four times a second, at all connections that may be overdue.

use std::time::Duration;

use super::carrying::Carrier;
use super::connection::{Audience, Connection, Fate, Phase};
use super::intake::{CutOff, Verdict};
use super::leaving::{LAST_WORD, LINGER, LINGER_PAUSE};
use super::pace::{Pace, Slowness};
use super::session::Session;
use crate::poller::Poller;
use stanchion_dispatch::refusal::Refusal;
use stanchion_requests::Requests;
use stanchion_requests::file::FILE_TIMEOUT;

/// While the server drains: how long a new connection may take to send its first byte.
const NEWCOMER: Duration = Duration::from_secs(1);
/// How long an operator's connection may be idle, or take for a request.
const OPERATORS_IDLE: Duration = Duration::from_secs(75);

/// The verdict on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// All is well until this time, if nothing changes.
    Well {
        until_us: u64,
    },
    /// The client may have taken, or sent, more than the acceptor knows: it looks at the socket.
    Doubt,
    /// Finish the present answer, then close.
    Close,
    /// The head took too long.
    HeadTimedOut,
    /// The disk has not found, or read, a file in time.
    FileTimedOut,
    CallOff(Refusal),
    /// Close without an answer: the client never asked.
    Drop,
    CutOff(CutOff),
}

/// The outcome of a look at a connection.
pub(super) struct Looked {
    pub fate: Fate,
    /// When to look at it again.
    pub again_us: u64,
    /// Whether it made room for other clients.
    pub made_way: bool,
}

/// A client's possessions that others wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// A place among the connections.
    pub(super) place: bool,
    /// The seat of a running request.
    pub(super) seat: bool,
}

impl Connection {
    /// Looks whether the client dawdles, and acts on it.
    pub(super) fn look(
        &mut self,
        wanted: Wanted,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Looked {
        let _charged = self.paying.charged();
        let now_us = requests.now_us;
        let mut look = self.judge(wanted, requests);
        let mut fate = Fate::Stays;
        if matches!(look, Look::HeadTimedOut | Look::CallOff(_) | Look::Drop) {
            // Bytes that came in time may be unread: other connections had their turn, or had more news than the kernel
            // reports at a time.
            self.transport.glance();
            fate = self.drive(None, requests, poller);
            look = match fate {
                Fate::Stays => self.judge(wanted, requests),
                Fate::Asks | Fate::Ends => Look::Well { until_us: now_us },
            };
        }
        let again_us = match look {
            Look::Well { until_us } => until_us,
            _ => now_us,
        };
        let fate = match look {
            Look::Well { .. } => fate,
            Look::Doubt => {
                self.transport.glance();
                match (self.drive(None, requests, poller), &self.phase) {
                    (Fate::Stays, Phase::Leaving(leaving))
                        if leaving.last_us != now_us && !self.intake.is_stalled() =>
                    {
                        Fate::Ends
                    }
                    (fate, _) => fate,
                }
            }
            Look::Close => self.close_soon(requests, poller),
            Look::HeadTimedOut => self.turn_away(Refusal::HeadTimeout, requests, poller),
            Look::FileTimedOut => {
                self.give_file_up(requests);
                self.drive(None, requests, poller)
            }
            Look::CallOff(refusal) => {
                self.call_off(refusal, requests);
                self.drive(None, requests, poller)
            }
            Look::Drop => Fate::Ends,
            Look::CutOff(why) => {
                self.cut_off(why, requests);
                Fate::Ends
            }
        };
        Looked {
            fate,
            again_us,
            made_way: matches!(look, Look::CallOff(_) | Look::CutOff(_)),
        }
    }

    fn judge(&self, wanted: Wanted, requests: &Requests) -> Look {
        let now_us = requests.now_us;
        let settings = &requests.common.settings;
        match self.intake.judge(wanted.place, now_us) {
            Some(Verdict::Well { until_us }) => {
                return match &self.phase {
                    Phase::Session(session) => judge_session(session, until_us, requests),
                    // The kernel does not report when it has sent the last byte.
                    Phase::Leaving(_) if self.transport.untaken() == 0 => Look::Doubt,
                    _ => Look::Well { until_us },
                };
            }
            Some(Verdict::Doubt) => return Look::Doubt,
            Some(Verdict::CutOff(why)) => return Look::CutOff(why),
            None => {}
        }
        let past = |since_us: u64, limit: Option<Duration>, look: Look| {
            let until_us = limit.map_or(u64::MAX, |limit| after(since_us, limit));
            if now_us < until_us {
                Look::Well { until_us }
            } else {
                look
            }
        };
        let is_closing = requests.serving.lifecycle.is_closing();
        if self.audience == Audience::Operators {
            let is_leaving = requests.serving.lifecycle.is_leaving();
            let newcomer = if is_leaving { NEWCOMER } else { OPERATORS_IDLE };
            return match &self.phase {
                Phase::New { since_us } => past(*since_us, Some(newcomer), Look::Drop),
                Phase::Idle { since_us } => past(*since_us, Some(OPERATORS_IDLE), Look::Drop),
                Phase::Head(head) => past(head.since_us, Some(newcomer), Look::Drop),
                Phase::Leaving(_) => self.judge_leaving(now_us),
                _ => Look::Well { until_us: u64::MAX },
            };
        }
        match &self.phase {
            Phase::New { .. } | Phase::Handshaking(_) => {
                let since_us = self.new_since_us();
                let newcomer = is_closing.then_some(NEWCOMER);
                let limit = newcomer.or(settings.header_timeout.as_duration());
                past(since_us, limit, Look::Drop)
            }
            Phase::Idle { .. } if is_closing => Look::Close,
            Phase::Idle { since_us } => {
                past(*since_us, settings.keepalive.as_duration(), Look::Close)
            }
            Phase::Head(head) => {
                let limit = settings.header_timeout.as_duration();
                match (
                    past(head.since_us, limit, Look::HeadTimedOut),
                    head.dozes_until_us,
                ) {
                    (Look::Well { .. }, Some(doze_us)) if doze_us <= now_us => Look::Doubt,
                    (Look::Well { until_us }, Some(doze_us)) => Look::Well {
                        until_us: until_us.min(doze_us),
                    },
                    (look, _) => look,
                }
            }
            Phase::Body(body) => judge_body(&body.pace, wanted.place, now_us),
            Phase::Leaving(_) => self.judge_leaving(now_us),
            Phase::Session(session) => judge_session(session, u64::MAX, requests),
            Phase::Carrying(carrier) => self.judge_carrier(carrier, requests),
            Phase::Waiting(_) | Phase::Sending(_) => self.judge_busy(wanted, requests),
            Phase::Asked(_) | Phase::Over => Look::Well { until_us: u64::MAX },
        }
    }

    /// Judges a connection whose request is being answered: its body may still be coming, and a file system may be slow.
    fn judge_busy(&self, wanted: Wanted, requests: &Requests) -> Look {
        let now_us = requests.now_us;
        let file_since_us = match &self.phase {
            Phase::Waiting(waiting) => {
                let arrived_us = waiting.ticket.request.arrived_us;
                waiting.looking.as_ref().map(|_| arrived_us)
            }
            Phase::Sending(sending) => sending.waits_for_file_since_us(),
            _ => None,
        };
        let file_by_us = file_since_us.map_or(u64::MAX, |since_us| after(since_us, FILE_TIMEOUT));
        if file_by_us <= now_us {
            return Look::FileTimedOut;
        }
        let Some(upload) = &self.upload else {
            return Look::Well {
                until_us: file_by_us,
            };
        };
        let has_seat = || requests.dispatch.slots.has_seat(&upload.ticket);
        let others_wait = wanted.place || (wanted.seat && has_seat());
        judge_body(&upload.pace, others_wait, now_us)
    }

    /// Judges an HTTP/2 connection: its streams have deadlines of their own, and without any stream it is idle.
    fn judge_carrier(&self, carrier: &Carrier, requests: &Requests) -> Look {
        let settings = &requests.common.settings;
        let Some(since_us) = carrier.idle_since_us() else {
            let until_us = u64::MAX;
            return if carrier.has_streams() {
                Look::Well { until_us }
            } else {
                Look::Doubt
            };
        };
        if let Some(until_us) = carrier.heard_by_us() {
            return if requests.now_us < until_us {
                Look::Well { until_us }
            } else {
                Look::Doubt
            };
        }
        let is_closing = requests.serving.lifecycle.is_closing();
        let (limit, look) = if carrier.begins() {
            let newcomer = is_closing.then_some(NEWCOMER);
            let limit = newcomer.or(settings.header_timeout.as_duration());
            (limit, Look::Drop)
        } else if is_closing {
            return Look::Close;
        } else if self.requests == 0 {
            (settings.header_timeout.as_duration(), Look::Close)
        } else {
            (settings.keepalive.as_duration(), Look::Close)
        };
        match limit.map_or(u64::MAX, |limit| after(since_us, limit)) {
            until_us if requests.now_us < until_us => Look::Well { until_us },
            _ => look,
        }
    }

    /// Waits for a file no longer.
    fn give_file_up(&mut self, requests: &mut Requests) {
        match &mut self.phase {
            Phase::Waiting(waiting) => {
                waiting.looking = None;
                requests.give_up_looking(&waiting.ticket);
            }
            Phase::Sending(sending) => sending.break_off(),
            _ => {}
        }
    }

    fn judge_leaving(&self, now_us: u64) -> Look {
        let Phase::Leaving(leaving) = &self.phase else {
            return Look::Well { until_us: u64::MAX };
        };
        let limit = if leaving.last_word.is_empty() {
            LINGER
        } else {
            LAST_WORD
        };
        let end_us = after(leaving.since_us, limit);
        let pause_us = after(leaving.last_us, LINGER_PAUSE);
        if now_us >= end_us {
            return Look::Drop;
        }
        if now_us >= pause_us {
            // A few bytes do not wake the connection, but they do keep it.
            return Look::Doubt;
        }
        Look::Well {
            until_us: end_us.min(pause_us),
        }
    }
}

/// Judges a session, which has deadlines of its own. The client's reading is well until `until_us`.
fn judge_session(session: &Session, until_us: u64, requests: &Requests) -> Look {
    match session.due_us(requests) {
        due_us if due_us <= requests.now_us => Look::Doubt,
        due_us => Look::Well {
            until_us: due_us.min(until_us),
        },
    }
}

fn judge_body(pace: &Pace, others_wait: bool, now_us: u64) -> Look {
    match pace.too_slow(now_us) {
        None if others_wait && pace.drips(now_us) => Look::CallOff(Refusal::BodyTooSlow),
        None => Look::Well { until_us: now_us },
        Some(Slowness::Pause) => Look::CallOff(Refusal::BodyTimeout),
        Some(Slowness::Rate) => Look::CallOff(Refusal::BodyTooSlow),
    }
}

/// The moment so long after another one.
pub fn after(since_us: u64, time: Duration) -> u64 {
    u64::try_from(time.as_micros()).map_or(u64::MAX, |us| since_us.saturating_add(us))
}
