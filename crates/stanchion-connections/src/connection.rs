//! One connection of a client, as a state machine: its present phase, and the state that the phase needs.
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

use std::rc::Rc;

use bytes::Bytes;

use super::carrying::Carrier;
use super::handshaking::Handshaking;
use super::intake::{CutOff, Intake};
use super::leaving::Leaving;
use super::reading::{PartialHead, ReadingBody};
use super::sending::Sending;
use super::session::Session;
use super::transport::Transport;
use super::turns::Turns;
use super::upload::Upload;
use crate::poller::{Poller, Ready};
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::storage::clients::{Client, Share};
use stanchion_dispatch::storage::payers::Paying;
use stanchion_dispatch::ticket::Ticket;
use stanchion_http::Head;
use stanchion_requests::static_files::Looking;
use stanchion_requests::{Account, Requests};

/// How many requests one connection may begin in one go, when they come all at once, before others have their turn.
const REQUESTS_A_TURN_MAX: u32 = 16;

/// A client's connection.
pub(super) struct Connection {
    /// Its number in the table of connections.
    pub(super) number: u32,
    pub(super) transport: Transport,
    pub(super) peer: Rc<Peer>,
    pub(super) audience: Audience,
    pub(super) phase: Phase,
    /// The body of the present request is still coming, though the request has arrived: only while it waits for its answer,
    /// or the answer is being sent.
    pub(super) upload: Option<Box<Upload>>,
    /// How the client takes the bytes that the server writes.
    pub(super) intake: Intake,
    /// Bytes that came behind the present request.
    pub(super) ahead: Bytes,
    /// How many requests it has had.
    pub(super) requests: u32,
    /// The next answer is the last.
    pub(super) closing: bool,
    /// The client may still be sending bytes that the server will not read as a request.
    pub(super) unread: bool,
    /// The connection's share of those that its client may have.
    pub(super) claim: Option<Share>,
    /// The payer that the connection's memory is charged to.
    pub(super) paying: Paying,
    pub(super) turns: Turns,
}

/// The side from which a connection comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Clients of the app.
    Clients,
    /// Operators at the admin listener.
    Operators,
}

/// The phase that a connection is in.
pub(super) enum Phase {
    /// The client has connected, and sent nothing yet.
    New { since_us: u64 },
    /// Client and server agree on how they encrypt.
    Handshaking(Box<Handshaking>),
    /// Between requests.
    Idle { since_us: u64 },
    /// A part of a head has come.
    Head(Box<PartialHead>),
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

/// A request that waits for its answer.
pub(super) struct Waiting {
    pub(super) ticket: Rc<Ticket>,
    pub(super) account: Account,
    /// The look for a static file that may be the answer, until its outcome is known.
    pub(super) looking: Option<Looking>,
}

/// How a connection goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The connection goes on at once.
    On,
    /// The connection waits for the client, a worker or the disk.
    Wait,
    /// The connection is over.
    Close,
}

/// The outcome of driving a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The connection stays.
    Stays,
    /// An operator waits for an answer: `Connection::asked`.
    Asks,
    /// The connection ends.
    Ends,
}

/// The state of a connection, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
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

impl Connection {
    pub(super) fn new(
        number: u32,
        transport: Transport,
        peer: Rc<Peer>,
        audience: Audience,
        claim: Option<Share>,
        paying: Paying,
        now_us: u64,
    ) -> Self {
        Self {
            number,
            transport,
            peer,
            audience,
            phase: Phase::New { since_us: now_us },
            upload: None,
            intake: Intake::default(),
            ahead: Bytes::new(),
            requests: 0,
            closing: false,
            unread: false,
            claim,
            paying,
            turns: Turns::default(),
        }
    }

    /// Does all that can be done now. The caller drives a connection when the kernel, a worker, the disk or the clock has
    /// news for it; without any this does nothing.
    pub(super) fn drive(
        &mut self,
        ready: Option<Ready>,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Fate {
        let _charged = self.paying.charged();
        self.told(ready);
        self.transport.ask();
        // The kernel may have reported room. If the socket is broken, the next write or read finds that out.
        let _ = self.transport.flush();
        let fate = self.do_what_can_be_done(requests, poller);
        self.transport.watch_for_unsent(poller);
        fate
    }

    /// Notes what the kernel has reported of the socket.
    pub(super) fn told(&mut self, ready: Option<Ready>) {
        if let Some(ready) = ready {
            self.transport.told(ready);
        }
    }

    fn do_what_can_be_done(&mut self, requests: &mut Requests, poller: &Poller) -> Fate {
        let last = self.requests.wrapping_add(REQUESTS_A_TURN_MAX);
        self.transport.begin_turn();
        loop {
            let step = match &self.phase {
                Phase::New { .. } if self.peer.sends_proxy_header => {
                    self.read_proxy_header(requests)
                }
                Phase::New { .. } if self.awaits_handshake() => self.begin_handshake(requests),
                Phase::Handshaking(_) => self.shake_hands(requests),
                Phase::New { .. } | Phase::Idle { .. } if self.requests == last => {
                    self.wake_later(requests);
                    Step::Wait
                }
                Phase::New { .. } | Phase::Idle { .. } | Phase::Head(_) => self.read_head(requests),
                Phase::Body(_) => self.read_body(requests),
                Phase::Waiting(_) => self.wait(requests),
                Phase::Asked(_) => return Fate::Asks,
                Phase::Sending(_) => self.send(requests, poller),
                Phase::Session(_) => self.attend(requests, poller),
                Phase::Carrying(_) => self.carry(requests, poller),
                Phase::Leaving(_) => self.see_out(requests, poller),
                Phase::Over => Step::Close,
            };
            match step {
                Step::On => {}
                Step::Wait => return Fate::Stays,
                Step::Close => {
                    self.phase = Phase::Over;
                    return Fate::Ends;
                }
            }
        }
    }

    /// The client, if the peer is no proxy and has an address.
    pub(super) fn only_client(&self) -> Option<Client> {
        self.peer.limited_ip().map(Client::at)
    }

    /// Whether the connections of its client have had as many bytes in this turn of the loop as they may.
    pub(super) fn client_has_spent(&self, requests: &Requests) -> bool {
        self.only_client()
            .is_some_and(|client| requests.wakes.clients.has_spent(client))
    }

    /// Has the connection go on after others have had their turn.
    pub(super) fn wake_later(&mut self, requests: &Requests) {
        match self.audience {
            Audience::Clients => {
                if !std::mem::replace(&mut self.turns.is_behind, true) {
                    let (client, is_wasteful) =
                        (self.only_client(), self.turns.is_wasteful(requests.now_us));
                    requests
                        .wakes
                        .clients
                        .stand_behind(self.number, client, is_wasteful);
                }
            }
            Audience::Operators => requests.wakes.operators.add(self.number),
        }
    }

    /// Since when the connection can be spared, if it can: no request has begun, and no answer is being sent.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        match &self.phase {
            Phase::New { since_us } | Phase::Idle { since_us } => Some(*since_us),
            Phase::Handshaking(handshaking) => handshaking.spare_since_us(),
            Phase::Leaving(leaving) => Some(leaving.since_us),
            Phase::Carrying(carrier) => carrier.spare_since_us(),
            _ => None,
        }
    }

    /// Whether the connection can be spared, and its client has taken all that was written. A stream takes no place from
    /// other connections.
    pub(super) fn is_spare(&self) -> bool {
        let is_spare = self.spare_since_us().is_some() && !self.intake.is_stalled();
        is_spare && !self.transport.is_stream()
    }

    /// Until when the connection stays asleep although a few bytes of a head that drips come.
    pub(super) fn dozes_until_us(&self) -> Option<u64> {
        match &self.phase {
            Phase::Head(head) => head.dozes_until_us,
            _ => None,
        }
    }

    /// Refuses to serve a client on this connection, whatever it asks.
    pub(super) fn turn_away(
        &mut self,
        refusal: Refusal,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Fate {
        let _charged = self.paying.charged();
        if self.awaits_handshake() {
            // The client would not understand a refusal in clear text.
            requests
                .record
                .refused_unread(refusal, &self.peer.address, requests.now_us);
            self.transport.reset();
            return Fate::Ends;
        }
        match self.refuse_unread(refusal, requests) {
            Step::Close => Fate::Ends,
            Step::On | Step::Wait => self.drive(None, requests, poller),
        }
    }

    pub(super) fn doing(&self) -> Doing {
        match &self.phase {
            Phase::New { .. } | Phase::Handshaking(_) => Doing::New,
            Phase::Carrying(carrier) if carrier.has_streams() => Doing::Busy,
            Phase::Carrying(carrier) if carrier.is_told() => Doing::Leaving,
            Phase::Idle { .. } | Phase::Carrying(_) => Doing::Idle,
            Phase::Head(_) => Doing::Reading,
            Phase::Body(_)
            | Phase::Waiting(_)
            | Phase::Asked(_)
            | Phase::Sending(_)
            | Phase::Session(_) => Doing::Busy,
            Phase::Leaving(_) | Phase::Over => Doing::Leaving,
        }
    }

    /// Ends the connection with its present request; at once if it has none.
    pub(super) fn close_soon(&mut self, requests: &mut Requests, poller: &Poller) -> Fate {
        let _charged = self.paying.charged();
        // A request that has come by now is served like any other.
        self.closing = true;
        self.transport.glance();
        match self.drive(None, requests, poller) {
            Fate::Stays if matches!(self.phase, Phase::Idle { .. }) => match self.leave(requests) {
                Step::Close => Fate::Ends,
                Step::On | Step::Wait => self.drive(None, requests, poller),
            },
            fate => fate,
        }
    }

    /// Resets the connection of a client that does not take its answer: else the kernel would keep the unsent bytes for
    /// minutes.
    pub(super) fn cut_off(&mut self, why: CutOff, requests: &mut Requests) {
        requests.record.cut_off(
            why.event(),
            why.reason(),
            &self.peer.address,
            requests.now_us,
        );
        self.transport.reset();
        self.abandon(requests);
    }

    /// Ends the connection, whatever it is in the middle of, and settles the accounts of its request.
    pub(super) fn abandon(&mut self, requests: &mut Requests) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Waiting(waiting) => requests.client_gone(&waiting.ticket, &waiting.account),
            Phase::Sending(sending) => sending.abandon(requests),
            Phase::Session(session) => session.abandon(requests),
            // The account of a request that is being read settles itself; other phases have none.
            _ => {}
        }
    }

    /// The request of an operator.
    pub(super) fn asked(&self) -> Option<&Head> {
        match &self.phase {
            Phase::Asked(head) => Some(head),
            _ => None,
        }
    }

    fn wait(&mut self, requests: &mut Requests) -> Step {
        let Phase::Waiting(waiting) = &mut self.phase else {
            return Step::On;
        };
        let ticket = &waiting.ticket;
        waiting
            .looking
            .take_if(|looking| !requests.look_again(ticket, looking));
        if let Some(answer) = waiting.ticket.take_answer() {
            let Phase::Waiting(waiting) = std::mem::replace(&mut self.phase, Phase::Over) else {
                return Step::Close;
            };
            self.answers_early();
            return self.answer(waiting, answer, requests);
        }
        let ticket = Rc::clone(ticket);
        if !self.hint(&ticket, requests) {
            self.abandon(requests);
            return Step::Close;
        }
        let taken_in = self.take_in(requests);
        if self.client_has_left(requests) {
            self.abandon(requests);
            return Step::Close;
        }
        match taken_in {
            Ok(()) => Step::Wait,
            Err(refusal) => self.call_off(refusal, requests),
        }
    }

    /// Whether the client is gone, so that no answer can reach it. A client that has closed its direction counts as gone,
    /// unless `half_close` says otherwise.
    pub(super) fn client_has_left(&self, requests: &Requests) -> bool {
        let half_close = requests.common.settings.half_close;
        self.transport.is_hung_up() || (self.transport.has_ended() && !half_close)
    }
}
