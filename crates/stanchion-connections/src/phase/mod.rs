//! The phases of a connection. Each has its data and its methods, and a step of a phase uses the phase up: the [`Step`] has the
//! next one. A phase knows the phases that may follow it, and none before it; a connection that goes on to its next request
//! becomes idle by [`Phase::idle`].

mod answering;
mod body;
mod carrying;
mod compressing;
mod handshaking;
mod head;
mod leaving;
mod proxied;
mod sending;
mod session;
mod streaming;
mod upload;
mod waiting;

use std::rc::Rc;

use stanchion_http::Head;
use tracing::error;

use super::judgement::{Judgement, WantedResources};
use super::ledger::Ledger;
use super::link::ClientLink;
use super::poller::Poller;
pub(crate) use answering::answer_operator;
use body::ReadingBody;
pub(crate) use carrying::Brought;
use carrying::Carrier;
use handshaking::Handshaking;
use head::ReadingHead;
pub(crate) use head::begin_stream;
use leaving::Leaving;
pub(crate) use leaving::{LAST_WORD, leave, refuse_unread};
#[cfg(test)]
pub(crate) use leaving::{LINGER, LINGER_PAUSE};
use sending::Sending;
use session::Session;
use stanchion_dispatch::refusal::Refusal;
use stanchion_requests::Requests;
use stanchion_settings::Settings;
use waiting::Waiting;

/// The phase that a connection is in.
pub(crate) enum Phase {
    /// The server reads the head of the next request.
    Head(ReadingHead),
    /// Client and server agree on how they encrypt.
    Handshaking(Box<Handshaking>),
    /// The server reads a body.
    Body(Box<ReadingBody>),
    /// A request has arrived, and waits for its answer.
    Waiting(Waiting),
    /// An operator has asked; the loop answers at once.
    Asked(Box<Head>),
    /// An answer is being sent.
    Sending(Box<Sending>),
    /// A WebSocket is open.
    Session(Box<Session>),
    /// The connection speaks HTTP/2, and its streams are connections too.
    Carrying(Box<Carrier>),
    /// The last answer is out; the server discards what the client still sends.
    Leaving(Box<Leaving>),
    /// Nothing is left to do.
    Over,
}

/// How a connection goes on after a step.
pub(crate) enum Step {
    /// The connection goes on at once, in this phase.
    On(Phase),
    /// The connection waits for the client, a worker or the disk.
    Wait(Phase),
    /// The connection is over.
    Close,
}

/// The state of a connection, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Nothing has come yet.
    New,
    /// It has been answered, and asks for nothing.
    Idle,
    /// A request is coming.
    Reading,
    /// A request waits for its answer, or gets it.
    Busy,
    /// It is about to close.
    Leaving,
}

impl Phase {
    /// The client has connected, and sent nothing yet.
    pub(crate) fn new(since_us: u64) -> Self {
        Self::Head(ReadingHead::New { since_us })
    }

    /// Between requests.
    pub(crate) fn idle(since_us: u64) -> Self {
        Self::Head(ReadingHead::Idle { since_us })
    }

    /// Does what can be done now. A connection that has had `requests_max` requests begins no further one for now.
    pub(crate) fn go_on(
        self,
        link: &mut ClientLink,
        requests_max: u32,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Step {
        match self {
            Self::Head(head) => head.go_on(link, requests_max, requests),
            Self::Handshaking(handshaking) => handshaking.go_on(link, requests),
            Self::Body(body) => body.go_on(link, requests),
            Self::Waiting(waiting) => waiting.go_on(link, requests),
            Self::Asked(head) => Step::Wait(Self::Asked(head)),
            Self::Sending(sending) => sending.go_on(link, requests, poller),
            Self::Session(session) => session.go_on(link, requests, poller),
            Self::Carrying(carrier) => carrier.go_on(link, requests, poller),
            Self::Leaving(leaving) => leaving.go_on(link, requests, poller),
            Self::Over => Step::Close,
        }
    }

    /// Gives the phase up, whatever it is in the middle of, and settles the accounts of its request.
    pub(crate) fn abandon(self, requests: &mut Requests) {
        match self {
            Self::Waiting(waiting) => waiting.abandon(requests),
            Self::Sending(sending) => sending.abandon(requests),
            Self::Session(session) => session.abandon(requests),
            // The account of a request that is being read settles itself; other phases have none.
            _ => {}
        }
    }

    /// Whether the client dawdles.
    pub(crate) fn judge(
        &self,
        link: &ClientLink,
        wanted: WantedResources,
        requests: &Requests,
    ) -> Judgement {
        let (settings, now_us) = (&requests.common.settings, requests.now_us);
        let lifecycle = requests.serving.lifecycle;
        let deadlines = || link.audience.head_deadlines(settings, lifecycle);
        match self {
            Self::Head(head) => head.judge(&deadlines(), now_us),
            Self::Handshaking(handshaking) => handshaking.judge(&deadlines(), now_us),
            Self::Body(body) => Judgement::of_body(&body.pace, wanted.place, now_us),
            Self::Waiting(waiting) => waiting.judge(wanted, &requests.dispatch, now_us),
            Self::Sending(sending) => sending.judge(wanted, &requests.dispatch, now_us),
            Self::Session(session) => session.judge(lifecycle, now_us),
            Self::Carrying(carrier) => carrier.judge(link.requests, settings, lifecycle, now_us),
            Self::Leaving(leaving) => leaving.judge(now_us),
            Self::Asked(_) | Self::Over => Judgement::WELL,
        }
    }

    /// Refuses a request whose body came too slowly, or is not as announced. The rest is not read.
    pub(crate) fn call_off(
        self,
        refusal: Refusal,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        match self {
            Self::Body(body) => body.refuse(refusal, link, requests),
            Self::Waiting(waiting) => waiting.call_off(refusal, link, requests),
            Self::Sending(sending) => sending.call_off(refusal, requests),
            other => {
                // Only the phases above give such a verdict.
                our_fault("a request without a body is called off");
                Step::On(other)
            }
        }
    }

    /// Waits for a file no longer.
    pub(crate) fn give_file_up(&mut self, requests: &mut Requests) {
        match self {
            Self::Waiting(waiting) => waiting.give_file_up(requests),
            Self::Sending(sending) => sending.break_off(),
            // Only the phases above give such a verdict.
            _ => our_fault("a connection without a file waits for one"),
        }
    }

    pub(crate) fn doing(&self) -> ConnectionState {
        match self {
            Self::Head(head) => head.doing(),
            Self::Handshaking(_) => ConnectionState::New,
            Self::Carrying(carrier) => carrier.doing(),
            Self::Body(_)
            | Self::Waiting(_)
            | Self::Asked(_)
            | Self::Sending(_)
            | Self::Session(_) => ConnectionState::Busy,
            Self::Leaving(_) | Self::Over => ConnectionState::Leaving,
        }
    }

    /// Whether the client has been answered, and has asked for nothing more.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Self::Head(ReadingHead::Idle { .. }))
    }

    /// Since when the connection can be spared, if it can: no request has begun, and no answer is being sent.
    pub(crate) fn spare_since_us(&self) -> Option<u64> {
        match self {
            Self::Head(head) => head.spare_since_us(),
            Self::Handshaking(handshaking) => handshaking.spare_since_us(),
            Self::Leaving(leaving) => Some(leaving.since_us),
            Self::Carrying(carrier) => carrier.spare_since_us(),
            _ => None,
        }
    }

    /// Until when the connection stays asleep although a few bytes of a head that drips come.
    pub(crate) fn dozes_until_us(&self) -> Option<u64> {
        match self {
            Self::Head(head) => head.dozes_until_us(),
            _ => None,
        }
    }

    /// The head of the present request, once it has come.
    pub(crate) fn request_head(&self) -> Option<&Head> {
        match self {
            Self::Body(body) => Some(&body.head),
            Self::Waiting(waiting) => Some(&waiting.request.ticket.request.head),
            Self::Sending(sending) => sending.request_head(),
            Self::Session(session) => Some(&session.ticket.request.head),
            _ => None,
        }
    }

    /// When the client sends too slowly if nothing more comes of it.
    pub(crate) fn sends_by_us(&self, settings: &Settings) -> u64 {
        let limit = settings.limits.header_timeout.as_duration();
        match self {
            Self::Head(head) => head.sends_by_us(limit),
            Self::Handshaking(handshaking) => handshaking.sends_by_us(limit),
            Self::Body(body) => body.pace.waits_until_us(),
            Self::Waiting(waiting) => waiting.request.sends_by_us(),
            Self::Sending(sending) => sending.sends_by_us(),
            Self::Session(session) => session.sends_by_us(),
            Self::Asked(_) | Self::Carrying(_) | Self::Leaving(_) | Self::Over => u64::MAX,
        }
    }

    /// Whether the connection is about to close, and its client has sent nothing just now.
    pub(crate) fn lingers_in_vain(&self, now_us: u64) -> bool {
        matches!(self, Self::Leaving(leaving) if leaving.last_us != now_us)
    }

    /// Takes the requests that have come on streams.
    pub(crate) fn take_brought(&mut self) -> Vec<Brought> {
        match self {
            Self::Carrying(carrier) => carrier.take_brought(),
            _ => Vec::new(),
        }
    }

    /// The ledger that the streams of this connection share, if it has any.
    pub(crate) fn ledger(&self) -> Option<Rc<Ledger>> {
        match self {
            Self::Carrying(carrier) => Some(carrier.ledger()),
            _ => None,
        }
    }
}

/// Logs a verdict that no such phase gets. The connection goes on.
fn our_fault(what: &str) {
    error!("our fault: {what}");
    debug_assert!(false, "{what}");
}
