//! One connection of a client, as a state machine: what it does now, and what it needs for that.

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
use super::upload::Upload;
use crate::acceptor::dispatch::refusal::Refusal;
use crate::acceptor::dispatch::request::Peer;
use crate::acceptor::dispatch::ticket::Ticket;
use crate::acceptor::poller::{Poller, Ready};
use crate::acceptor::requests::static_files::Looking;
use crate::acceptor::requests::{Account, Requests};
use crate::acceptor::storage::clients::{Client, Share};
use crate::acceptor::storage::payers::Paying;
use stanchion_http::Head;

/// Requests that one connection may have begun in one go, when they come all at once, before others have their turn.
const REQUESTS_A_TURN_MAX: u32 = 16;

/// A client's connection.
pub(crate) struct Connection {
    /// Its number among those that are here.
    pub(super) number: u32,
    pub(super) transport: Transport,
    pub(super) peer: Rc<Peer>,
    pub(super) audience: Audience,
    pub(super) phase: Phase,
    /// The body of the present request is still coming, though the request has arrived: only while it waits for its
    /// answer, or that is being sent.
    pub(super) upload: Option<Box<Upload>>,
    /// How the client takes what is written to it.
    pub(super) intake: Intake,
    /// Bytes that came behind the present request.
    pub(super) ahead: Bytes,
    /// Requests so far.
    pub(super) requests: u32,
    /// The next answer is the last.
    pub(super) closing: bool,
    /// The client may still be sending what nobody will read as a request.
    pub(super) unread: bool,
    /// What it counts for among its client's connections.
    pub(super) claim: Option<Share>,
    /// Its payer pays for its memory.
    pub(super) paying: Paying,
    /// It has used up its turn, and others go first.
    pub(super) stands_behind: bool,
}

/// Who asks on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Clients of the app.
    Clients,
    /// Whoever wants to know how the server is.
    Operators,
}

/// What a connection is doing.
pub(super) enum Phase {
    /// Connected, and nothing has come yet.
    New { since_us: u64 },
    /// Client and server agree on how they encrypt.
    Handshaking(Box<Handshaking>),
    /// Between requests.
    Idle { since_us: u64 },
    /// A part of a head has come.
    Head(Box<PartialHead>),
    /// A body is being read.
    Body(Box<ReadingBody>),
    /// A request has arrived, and waits for its answer.
    Waiting(Waiting),
    /// An operator has asked; the loop answers at once.
    Asked(Box<Head>),
    /// An answer is being sent.
    Sending(Box<Sending>),
    /// A WebSocket is open.
    Session(Box<Session>),
    /// It is one of HTTP/2, whose streams are connections too.
    Carrying(Box<Carrier>),
    /// All is said; what the client still sends is thrown away.
    Leaving(Box<Leaving>),
    /// Nothing is left to do.
    Over,
}

/// A request that waits for its answer.
pub(super) struct Waiting {
    pub(super) ticket: Rc<Ticket>,
    pub(super) account: Account,
    /// If it is not known yet whether a static file is the answer.
    pub(super) looking: Option<Looking>,
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes on at once.
    On,
    /// It waits for the client, a worker or the disk.
    Wait,
    /// It is over.
    Close,
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// An operator waits for an answer: [`Connection::asked`].
    Asks,
    Ends,
}

/// What a connection does, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    New,
    Idle,
    Reading,
    Busy,
    Leaving,
}

impl Connection {
    pub(crate) fn new(
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
            stands_behind: false,
        }
    }

    /// Does what can be done now. To be called when the kernel, a worker, the disk or the clock has news for it; without
    /// any it does nothing.
    pub(crate) fn drive(
        &mut self,
        ready: Option<Ready>,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Fate {
        let _charged = self.paying.charged();
        self.told(ready);
        self.transport.ask();
        // It may have told of room; if that is of no use any more, whoever writes or reads next finds out.
        let _ = self.transport.flush();
        let fate = self.do_what_can_be_done(requests, poller);
        self.transport.watch_for_unsent(poller);
        fate
    }

    /// The kernel has told this of its socket.
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

    /// The client, if the connection is not of a proxy and has an address.
    pub(super) fn only_client(&self) -> Option<Client> {
        self.peer.limited_ip().map(Client::at)
    }

    /// Others have their turn first.
    pub(super) fn wake_later(&mut self, requests: &Requests) {
        match self.audience {
            Audience::Clients => {
                if !std::mem::replace(&mut self.stands_behind, true) {
                    requests.woken.stand_behind(self.number, self.only_client());
                }
            }
            Audience::Operators => requests.operators_woken.add(self.number),
        }
    }

    /// Since when nobody would miss it, if so: nothing is being asked and nothing being told.
    pub(crate) fn spare_since_us(&self) -> Option<u64> {
        match &self.phase {
            Phase::New { since_us } | Phase::Idle { since_us } => Some(*since_us),
            Phase::Handshaking(handshaking) => handshaking.spare_since_us(),
            Phase::Leaving(leaving) => Some(leaving.since_us),
            Phase::Carrying(carrier) => carrier.spare_since_us(),
            _ => None,
        }
    }

    /// Whether nobody would miss it, and it has taken all that it was told. A stream takes no place from others.
    pub(super) fn is_spare(&self) -> bool {
        let is_spare = self.spare_since_us().is_some() && !self.intake.is_stalled();
        is_spare && !self.transport.is_stream()
    }

    /// Until when nobody is woken for a few bytes of a head that drips.
    pub(super) fn dozes_until_us(&self) -> Option<u64> {
        match &self.phase {
            Phase::Head(head) => head.dozes_until_us,
            _ => None,
        }
    }

    /// Tells a client that it is not served on this connection, whatever it asks.
    pub(super) fn turn_away(
        &mut self,
        refusal: Refusal,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Fate {
        let _charged = self.paying.charged();
        if self.awaits_handshake() {
            // What could be said it would not understand.
            requests.refused_unread(refusal, &self.peer.address);
            self.transport.reset();
            return Fate::Ends;
        }
        match self.refuse_unread(refusal, requests) {
            Step::Close => Fate::Ends,
            Step::On | Step::Wait => self.drive(None, requests, poller),
        }
    }

    pub(crate) fn doing(&self) -> Doing {
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

    /// Has it end with its present request; at once if it has none.
    pub(crate) fn close_soon(&mut self, requests: &mut Requests, poller: &Poller) -> Fate {
        let _charged = self.paying.charged();
        // What has come by now is a request like any other.
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

    /// Gives its client up, which does not take its answer: or the kernel would go on keeping what it has for it for
    /// minutes.
    pub(crate) fn cut_off(&mut self, why: CutOff, requests: &mut Requests) {
        requests.cut_off(why.event(), why.reason(), &self.peer.address);
        self.transport.reset();
        self.abandon(requests);
    }

    /// It ends here, whatever it is in the middle of: what is left to be said of its request is said.
    pub(crate) fn abandon(&mut self, requests: &mut Requests) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Waiting(waiting) => requests.client_gone(&waiting.ticket, &waiting.account),
            Phase::Sending(sending) => sending.abandon(requests),
            Phase::Session(session) => session.abandon(requests),
            // Reading, which its account says by itself; or nothing.
            _ => {}
        }
    }

    /// What an operator has asked.
    pub(crate) fn asked(&self) -> Option<&Head> {
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

    /// Whether nobody is there any more to hear an answer: who has closed its direction is taken for gone, unless
    /// `half_close` says otherwise.
    pub(super) fn client_has_left(&self, requests: &Requests) -> bool {
        let half_close = requests.common.settings.half_close;
        self.transport.is_hung_up() || (self.transport.has_ended() && !half_close)
    }
}
