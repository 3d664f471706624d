//! One connection of a client: the client's side, the present phase, and the loop that has one step of a phase follow another.
//!
//! ```text
//! New ──▶ Head ──▶ Body ──▶ Waiting ──▶ Sending ──▶ Idle ──▶ Head ...
//!  └────────┴────────┴─────────┴───────────┴──────────┴────▶ Leaving ──▶ Over
//! ```
//!
//! With TLS a new connection first comes to *Handshaking*, and is *New* once more after the handshake. After *Waiting*
//! comes a session if the app has accepted a WebSocket. The connection does not read bytes behind a request
//! (pipelining) before that request is answered, so answers go out in the order of their requests.
//!
//! To *drive* a connection is to let it do all that it can do without waiting. It looks at its whole state each time,
//! so driving it without need does no harm. It may serve a limited number of requests and bytes in one turn of the
//! loop; then the others have their turn. Code that has something for a connection (a worker's answer, a helper
//! thread's bytes) puts the connection's number into `stanchion_dispatch::storage::woken`, and knows nothing else of
//! it. The number of a connection that ended is used again in a later turn only, so an event of the old one is never
//! taken for one of the new one.

use http::request::Parts;
use stanchion_http::{Head, StreamHead};

use super::judgement::CutOff;
use super::link::ClientLink;
use super::phase::{Phase, Step, answer_operator, begin_stream, leave, refuse_unread};
use super::poller::{Poller, Ready};
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::storage::clients::Client;
use stanchion_dispatch::storage::payers::Paying;
use stanchion_requests::Requests;
use stanchion_settings::{Believed, Settings};

/// How many requests one connection may begin in one go, when they come all at once, before others have their turn.
const REQUESTS_A_TURN_MAX: u32 = 16;

/// A client's connection.
pub(crate) struct Connection {
    pub(crate) link: ClientLink,
    pub(crate) phase: Phase,
    /// The payer that the connection's memory is charged to.
    pub(crate) paying: Paying,
}

/// The outcome of driving a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveOutcome {
    /// The connection stays.
    Stays,
    /// An operator waits for an answer: [`Connections::take_asked`](super::Connections::take_asked).
    Asks,
    /// The connection ends.
    Ends,
}

impl Connection {
    pub(crate) fn new(link: ClientLink, paying: Paying, now_us: u64) -> Self {
        Self {
            link,
            phase: Phase::new(now_us),
            paying,
        }
    }

    /// Does all that can be done now. The caller drives a connection when the kernel, a worker, the disk or the clock has
    /// news for it; without any this does nothing.
    pub(crate) fn drive(
        &mut self,
        ready: Option<Ready>,
        requests: &mut Requests,
        poller: &Poller,
    ) -> DriveOutcome {
        let _charged = self.paying.charged();
        self.note_ready(ready);
        let transport = &mut self.link.transport;
        transport.poll_stream();
        // The kernel may have reported room. If the socket is broken, the next write or read finds that out.
        let _ = transport.flush();
        let fate = self.do_what_can_be_done(requests, poller);
        self.link.transport.watch_for_unsent(poller);
        fate
    }

    /// Notes what the kernel has reported of the socket.
    pub(crate) fn note_ready(&mut self, ready: Option<Ready>) {
        if let Some(ready) = ready {
            self.link.transport.note_ready(ready);
        }
    }

    fn do_what_can_be_done(&mut self, requests: &mut Requests, poller: &Poller) -> DriveOutcome {
        let link = &mut self.link;
        let requests_max = link.requests.wrapping_add(REQUESTS_A_TURN_MAX);
        link.transport.begin_turn();
        let mut phase = std::mem::replace(&mut self.phase, Phase::Over);
        loop {
            match phase.go_on(link, requests_max, requests, poller) {
                Step::On(next) => phase = next,
                Step::Wait(next) => {
                    self.phase = next;
                    return match self.phase {
                        Phase::Asked(_) => DriveOutcome::Asks,
                        _ => DriveOutcome::Stays,
                    };
                }
                Step::Close => return DriveOutcome::Ends,
            }
        }
    }

    /// Goes on after a step that the caller has taken, unless the connection is over with it.
    fn follow(&mut self, step: Step, requests: &mut Requests, poller: &Poller) -> DriveOutcome {
        match step {
            Step::On(phase) | Step::Wait(phase) => {
                self.phase = phase;
                self.drive(None, requests, poller)
            }
            Step::Close => {
                self.phase = Phase::Over;
                DriveOutcome::Ends
            }
        }
    }

    /// Takes the head of the request of an HTTP/2 stream, whose body has come if `is_all`.
    pub(crate) fn take_request(
        &mut self,
        parts: &Parts,
        is_all: bool,
        requests: &mut Requests,
        poller: &Poller,
    ) -> DriveOutcome {
        let _charged = self.paying.charged();
        let fields = parts.headers.iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            .collect();
        let mut head = requests.buffers.heads.take();
        let list_bytes_max = requests.common.settings.http.http2_max_header_list_size as usize;
        let rules = &requests.policy.rules;
        let stream_head = stream_head(parts, is_all);
        let step = match stream_head.read(&fields, list_bytes_max, rules, &mut head) {
            Ok(()) => begin_stream(head, &mut self.link, requests),
            Err(fault) => refuse_unread(&mut self.link, fault.into(), requests),
        };
        self.follow(step, requests, poller)
    }

    /// Refuses to serve a client on this connection, whatever it asks.
    pub(crate) fn turn_away(
        &mut self,
        refusal: Refusal,
        requests: &mut Requests,
        poller: &Poller,
    ) -> DriveOutcome {
        let _charged = self.paying.charged();
        let link = &mut self.link;
        if link.awaits_handshake() {
            // The client would not understand a refusal in clear text.
            let (address, now_us) = (&link.peer.address, requests.now_us);
            requests.record.refused_unread(refusal, address, now_us);
            link.transport.reset();
            return DriveOutcome::Ends;
        }
        let step = refuse_unread(link, refusal, requests);
        self.follow(step, requests, poller)
    }

    /// Refuses the request whose body the client sends too slowly.
    pub(crate) fn call_off(
        &mut self,
        refusal: Refusal,
        requests: &mut Requests,
        poller: &Poller,
    ) -> DriveOutcome {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let step = phase.call_off(refusal, &mut self.link, requests);
        self.follow(step, requests, poller)
    }

    /// Ends the connection with its present request; at once if it has none.
    pub(crate) fn close_soon(&mut self, requests: &mut Requests, poller: &Poller) -> DriveOutcome {
        let _charged = self.paying.charged();
        // A request that has come by now is served like any other.
        self.link.closing = true;
        self.link.transport.assume_readable();
        let fate = self.drive(None, requests, poller);
        if fate != DriveOutcome::Stays || !self.phase.is_idle() {
            return fate;
        }
        let step = leave(&mut self.link, &mut requests.buffers, requests.now_us);
        self.follow(step, requests, poller)
    }

    /// Resets the connection of a client that does not take its answer: else the kernel would keep the unsent bytes for
    /// minutes.
    pub(crate) fn cut_off(&mut self, why: CutOff, requests: &mut Requests) {
        let (address, now_us) = (&self.link.peer.address, requests.now_us);
        let record = &requests.record;
        record.cut_off(why.event(), why.reason(), address, now_us);
        self.link.transport.reset();
        self.abandon(requests);
    }

    /// Ends the connection, whatever it is in the middle of, and settles the accounts of its request.
    pub(crate) fn abandon(&mut self, requests: &mut Requests) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        phase.abandon(requests);
    }

    /// Takes the request of an operator, which [`Self::reply`] is to answer.
    pub(crate) fn take_asked(&mut self, now_us: u64) -> Option<Box<Head>> {
        match std::mem::replace(&mut self.phase, Phase::idle(now_us)) {
            Phase::Asked(head) => Some(head),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Answers an operator, whose request had this head.
    pub(crate) fn reply(&mut self, head: &Head, reply: &Reply, requests: &mut Requests) {
        self.phase = match answer_operator(head, reply, &mut self.link, requests) {
            Step::On(phase) | Step::Wait(phase) => phase,
            Step::Close => Phase::Over,
        };
    }

    /// Whether the connection can be spared, and its client has taken all that was written. A stream takes no place from
    /// other connections.
    pub(crate) fn is_spare(&self) -> bool {
        let is_spare = self.phase.spare_since_us().is_some() && !self.link.intake.is_stalled();
        is_spare && !self.link.transport.is_stream()
    }

    /// The client that the connection's memory counts for: the peer, or the client that the present request is from, as a
    /// proxy reports it.
    pub(crate) fn client(&self, believed: &Believed) -> Option<Client> {
        let of_request = || {
            let head = self.phase.request_head()?;
            self.link.peer.client(head, believed)
        };
        self.link.only_client().or_else(of_request)
    }

    /// When the client is too slow if it does not move.
    pub(crate) fn due_us(&self, settings: &Settings) -> u64 {
        let takes_by_us = self.link.intake.due_us();
        self.phase.sends_by_us(settings).min(takes_by_us)
    }
}

fn stream_head(parts: &Parts, is_all: bool) -> StreamHead<'_> {
    let path = parts.uri.path_and_query();
    let authority = parts.uri.authority();
    StreamHead {
        method: parts.method.as_str().as_bytes(),
        path: path.map(|path| path.as_str().as_bytes()),
        authority: authority.map(|name| name.as_str().as_bytes()),
        is_all,
        is_websocket: is_websocket(parts),
    }
}

/// Whether the request asks for a WebSocket (RFC 8441 section 4).
fn is_websocket(parts: &Parts) -> bool {
    let protocol = parts.extensions.get::<h2::ext::Protocol>();
    protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}
