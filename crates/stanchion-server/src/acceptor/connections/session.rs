//! A WebSocket: its frames, between its client and its worker, until one of them closes it.

use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use stanchion_websocket::{Close, Event, Socket, code};

use super::connection::{Connection, Phase, Step, Waiting};
use super::inward::Inward;
use super::judging::after;
use super::outward::Outward;
use super::transport::{Read, Written};
use crate::acceptor::dispatch::collect::SWITCHING;
use crate::acceptor::dispatch::outflow::{Next, StreamEnd};
use crate::acceptor::dispatch::sessions::SessionFacts;
use crate::acceptor::dispatch::ticket::Ticket;
use crate::acceptor::poller::Poller;
use crate::acceptor::requests::{Account, Requests};
use crate::tally::{self, CloseCode, Outcome};

/// How long a client may take for its part of the closing handshake.
const CLOSING: Duration = Duration::from_secs(10);
/// How much is read and written in one go, before others have their turn.
const TURN_BYTES_MAX: usize = 1 << 20;
/// So much of what a worker has written is made frames of at a time. The client has taken them before more is.
const TAKEN_BYTES: usize = 128 << 10;

/// A WebSocket that is open, or being closed.
pub(super) struct Session {
    ticket: Rc<Ticket>,
    account: Account,
    /// The head of the answer, if somebody wants to know.
    head: Vec<u8>,
    socket: Socket,
    outward: Outward,
    /// What the kernel has not taken yet.
    pending: Bytes,
    /// Bytes of frames that were given away.
    bytes: u64,
    facts: SessionFacts,
    /// What has come for the worker, that it has had no room for yet.
    inward: Inward,
    /// The worker writes no more.
    is_worker_done: bool,
    /// Who closed it, once somebody has.
    end: Option<End>,
    /// The client has no more to say.
    is_client_done: bool,
    /// When a ping is sent, or, if one was, when it must have been answered.
    ping_us: u64,
    is_pinged: bool,
    /// When it ends whether or not the client takes part in it.
    closed_by_us: u64,
    /// When it is closed since the server leaves; later than ever until it does.
    restarts_us: Option<u64>,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ByApp,
    ByClient,
    /// The client has broken the protocol, or answers no pings.
    ForClient,
    /// The worker has died, or is out of its mind.
    ForWorker,
    /// The server leaves.
    Restart,
    /// Without a word.
    Cut,
}

impl End {
    fn event(self) -> tally::Event {
        match self {
            Self::ByApp => tally::Event::SessionClosedByApp,
            Self::ByClient => tally::Event::SessionClosedByClient,
            Self::ForClient | Self::ForWorker | Self::Restart => {
                tally::Event::SessionClosedByServer
            }
            Self::Cut => tally::Event::SessionCut,
        }
    }

    fn outcome(self) -> Outcome {
        match self {
            Self::ByApp | Self::ByClient => Outcome::Answered,
            Self::ForWorker => Outcome::BrokenOff,
            Self::Restart => Outcome::CutAtShutdown,
            Self::ForClient | Self::Cut => Outcome::AbandonedAnswering,
        }
    }
}

impl Connection {
    /// Goes on with a WebSocket.
    pub(super) fn attend(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        let mut turn_bytes = 0;
        if let Phase::Session(session) = &mut self.phase {
            session.ticket.seen();
            session.tick(self.number, requests);
        }
        loop {
            let Phase::Session(session) = &mut self.phase else {
                return Step::On;
            };
            session.listen(requests);
            session.pass_on(requests);
            if !session.pending.is_empty() {
                match self.transport.write(&session.pending) {
                    Written::Bytes(len) => {
                        session.pending.advance(len);
                        self.intake.wrote(len, requests.now_us);
                        turn_bytes += len;
                        if !session.pending.is_empty() && turn_bytes < TURN_BYTES_MAX {
                            // The kernel tells of room only once it was found to have none (epoll(7), EPOLLET).
                            continue;
                        }
                        if !session.pending.is_empty() {
                            self.wake_later(requests);
                            return Step::Wait;
                        }
                    }
                    Written::Full => {
                        let untaken = self.transport.untaken();
                        let pace = requests.intake_pace();
                        self.intake.stalled(pace, untaken, requests.now_us);
                        self.transport.watch_room(true, poller);
                    }
                    Written::Failed => return self.lose(requests),
                }
            }
            if session.pending.is_empty() {
                self.transport.watch_room(false, poller);
                if session.is_over(requests.now_us) {
                    return self.end_session(requests);
                }
            } else if requests.now_us >= session.closed_by_us {
                return self.lose(requests);
            }
            let Some(progress) = self.hear(requests) else {
                return self.lose(requests);
            };
            turn_bytes += progress;
            let Phase::Session(session) = &mut self.phase else {
                return Step::On;
            };
            if progress == 0 && !session.has_more_to_say(requests) {
                if self.transport.is_hung_up() {
                    return self.lose(requests);
                }
                return Step::Wait;
            }
            if turn_bytes >= TURN_BYTES_MAX {
                self.wake_later(requests);
                return Step::Wait;
            }
        }
    }

    /// Hears the client, as far as the worker has room for what it says. Gives how much has come; `None` if the
    /// connection has ended.
    fn hear(&mut self, requests: &mut Requests) -> Option<usize> {
        let Phase::Session(session) = &mut self.phase else {
            return Some(0);
        };
        if !session.hears() || session.is_client_done {
            return Some(0);
        }
        if !self.ahead.is_empty() || session.inward.has_more_behind {
            let bytes = std::mem::take(&mut self.ahead);
            let len = bytes.len();
            let left = session.came(&bytes, requests);
            self.ahead = bytes.slice(len - left..);
            // Something may have come of what came before.
            return Some((len - left).max(1));
        }
        if !self.transport.is_readable() {
            return Some(0);
        }
        let (transport, ahead) = (&mut self.transport, &mut self.ahead);
        requests.with_scratch(|scratch, requests| match transport.read(scratch) {
            Read::Bytes(len) => {
                let left = session.came(scratch, requests);
                *ahead = Bytes::copy_from_slice(&scratch[len - left..]);
                Some(len)
            }
            Read::Nothing => Some(0),
            Read::End | Read::Failed => None,
        })
    }

    /// The connection has ended without a close frame, or its client takes none.
    fn lose(&mut self, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    fn end_session(&mut self, requests: &mut Requests) -> Step {
        let Phase::Session(session) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Step::Close;
        };
        session.over(requests);
        // The server closes the connection first (RFC 6455 section 7.1.1), once the client has read all.
        self.unread = true;
        self.leave(requests)
    }
}

impl Session {
    /// One whose request is answered by what is `pending`, with `head`.
    pub(super) fn new(
        Waiting {
            ticket, account, ..
        }: Waiting,
        head: Vec<u8>,
        pending: Bytes,
        requests: &Requests,
    ) -> Self {
        let facts = SessionFacts {
            // What a seat has done since this turn began is no earlier.
            begun_us: requests.now_us.max(ticket.taken_us.get()),
            ..SessionFacts::default()
        };
        Self {
            ticket,
            account,
            head,
            socket: Socket::new(requests.common.settings.ws_max_size),
            outward: Outward::default(),
            pending,
            bytes: 0,
            facts,
            inward: Inward::default(),
            is_worker_done: false,
            end: None,
            is_client_done: false,
            ping_us: next_ping_us(requests),
            is_pinged: false,
            closed_by_us: u64::MAX,
            restarts_us: None,
        }
    }

    /// When it is to be looked at again.
    pub(super) fn due_us(&self, requests: &Requests) -> u64 {
        let now_us = requests.now_us;
        if requests.lifecycle.is_leaving() && self.restarts_us.is_none() {
            return now_us;
        }
        let restarts_us = self.restarts_us.filter(|_| self.end.is_none());
        let closed_by_us = restarts_us.unwrap_or(u64::MAX).min(self.closed_by_us);
        self.ping_us.min(closed_by_us)
    }

    /// What the clock asks for.
    fn tick(&mut self, number: u32, requests: &mut Requests) {
        let now_us = requests.now_us;
        if requests.lifecycle.is_leaving() && self.restarts_us.is_none() {
            self.restarts_us = Some(restarts_us(number, requests));
        }
        if self.end.is_some() {
            self.ping_us = u64::MAX;
            return;
        }
        let is_told = requests.lifecycle.is_refusing();
        if is_told || self.restarts_us.is_some_and(|at_us| now_us >= at_us) {
            let close = Close::new(code::RESTART, "the server restarts");
            self.close(End::Restart, &close, requests);
        } else if now_us >= self.ping_us && self.is_pinged && !self.hears() {
            // It may have answered, behind what nobody takes yet.
            let timeout = requests.common.settings.ws_ping_timeout.duration();
            self.ping_us = after(now_us, timeout);
        } else if now_us >= self.ping_us && self.is_pinged {
            let close = Close::new(code::FAILED, "a ping was not answered");
            self.close(End::ForClient, &close, requests);
        } else if now_us >= self.ping_us {
            self.socket.ping();
            self.is_pinged = true;
            let timeout = requests.common.settings.ws_ping_timeout.as_duration();
            self.ping_us = timeout.map_or(u64::MAX, |timeout| after(now_us, timeout));
        }
    }

    /// Closes it, unless somebody has: the client is told, and the app if it was not the app.
    fn close(&mut self, end: End, close: &Close, requests: &mut Requests) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        self.facts.code = Some(close.code);
        self.closed_by_us = after(requests.now_us, CLOSING);
        self.socket.close(close);
        if !self.is_worker_done && end != End::ByApp {
            self.inward.put_close(close);
        }
    }

    /// Takes what the worker says, once the client has taken what it said before.
    fn listen(&mut self, requests: &mut Requests) {
        if !self.pending.is_empty() {
            return;
        }
        let mut out = Vec::new();
        if self.end.is_none() {
            self.take_messages(requests, &mut out);
            self.bytes += out.len() as u64;
        }
        // A close comes last, whatever the worker writes behind it.
        out.append(self.socket.out());
        self.pending = Bytes::from(out);
    }

    fn take_messages(&mut self, requests: &mut Requests, out: &mut Vec<u8>) {
        let ticket = Rc::clone(&self.ticket);
        for _ in 0..2 {
            match ticket.next_piece() {
                Next::Piece(piece) => {
                    self.said(piece.as_slice(), out, requests);
                    return;
                }
                Next::End(end) => return self.worker_is_done(end, requests),
                Next::Nothing => {}
            }
            ticket.outflow(|outflow| outflow.fetches(true, requests.now_us));
            let mut bytes = requests.dispatch.spare();
            let len = requests
                .dispatch
                .take_messages(&ticket, TAKEN_BYTES, &mut bytes);
            if len > 0 {
                self.said(&bytes, out, requests);
                requests.recycle(bytes);
                return;
            }
            // Nothing is there; perhaps it is the end.
            ticket.expects();
            requests.dispatch.look_for(&ticket, requests.now_us);
            ticket.seen();
        }
    }

    fn said(&mut self, bytes: &[u8], out: &mut Vec<u8>, requests: &mut Requests) {
        if self.is_worker_done {
            return;
        }
        let before = self.outward.sent.count;
        let taken = self.outward.take(bytes, out);
        let sent = self.outward.sent.count - before;
        let tally = &requests.common.tally;
        tally.happened_times(tally::Event::SessionSent, sent);
        match taken {
            Ok(None) => {}
            Ok(Some(close)) => {
                self.is_worker_done = true;
                let end = if close.code == code::RESTART {
                    End::Restart
                } else {
                    End::ByApp
                };
                self.close(end, &close, requests);
            }
            Err(corrupt) => {
                let ticket = Rc::clone(&self.ticket);
                requests.dispatch.distrust(&ticket, corrupt);
                self.worker_is_done(StreamEnd::Broken, requests);
            }
        }
    }

    /// The worker has given the slot back, or is dead, without a close.
    fn worker_is_done(&mut self, end: StreamEnd, requests: &mut Requests) {
        self.is_worker_done = true;
        self.inward.clear();
        let why = match end {
            StreamEnd::Complete if self.outward.is_between() => Close::new(code::NORMAL, ""),
            StreamEnd::Complete | StreamEnd::Broken => {
                Close::new(code::FAILED, "the app has failed")
            }
        };
        self.close(End::ForWorker, &why, requests);
    }

    /// Whether the worker may have more, for which there is room.
    fn has_more_to_say(&mut self, requests: &mut Requests) -> bool {
        if !self.pending.is_empty() {
            return false;
        }
        self.listen(requests);
        !self.pending.is_empty()
    }

    /// Bytes of the client's; gives how many are left for when the worker has room.
    fn came(&mut self, bytes: &[u8], requests: &mut Requests) -> usize {
        let mut left = bytes;
        self.inward.has_more_behind = true;
        while self.inward.is_empty() {
            let Some(event) = self.socket.next(&mut left) else {
                self.inward.has_more_behind = false;
                break;
            };
            match event {
                Event::Message(kind, message) => {
                    if self.end.is_none() {
                        self.facts.received.add(message.len());
                        requests
                            .common
                            .tally
                            .happened(tally::Event::SessionReceived);
                        self.inward.put(kind, message);
                    }
                }
                Event::Pong => {
                    self.is_pinged = false;
                    self.ping_us = next_ping_us(requests);
                }
                Event::Acknowledged => self.is_client_done = true,
                Event::Closed(close) => {
                    self.is_client_done = true;
                    self.close(End::ByClient, &close, requests);
                }
                Event::Failed(close) => {
                    self.is_client_done = true;
                    self.close(End::ForClient, &close, requests);
                }
            }
            self.pass_on(requests);
        }
        left.len()
    }

    /// Whether its client is heard. Not while the worker takes nothing; and who does not take what is said to it is
    /// not heard either: it may ping without end.
    fn hears(&self) -> bool {
        self.pending.is_empty() && self.inward.is_empty()
    }

    /// Gives the worker what it has room for.
    fn pass_on(&mut self, requests: &mut Requests) {
        if self.is_worker_done {
            self.inward.clear();
        }
        // If the slot makes no sense, or is gone, that is found out when the worker is listened to.
        let mut pour = |part: &[u8]| requests.dispatch.pour(&self.ticket, part);
        self.inward.pour(|part| pour(part).unwrap_or(part.len()));
    }

    /// Whether all is said, and heard by who is to hear it.
    fn is_over(&self, now_us: u64) -> bool {
        let is_said = self.end.is_some() && self.socket.is_closing();
        is_said && (now_us >= self.closed_by_us || (self.is_client_done && self.inward.is_empty()))
    }

    /// It is over, and whoever keeps records is told.
    fn over(mut self, requests: &mut Requests) {
        let end = self.end.unwrap_or(End::Cut);
        self.facts.sent = self.outward.sent;
        let code = CloseCode::of(self.facts.code);
        requests.common.tally.closed_by(code);
        // It is over once.
        let _ = self.ticket.session.set(Box::new(self.facts));
        requests.dispatch.abandon(&self.ticket, requests.now_us);
        requests.common.tally.happened(end.event());
        let outcome = self.account.close(end.outcome());
        requests.over(&self.ticket, SWITCHING, outcome, &self.head, self.bytes);
    }

    /// The connection has ended.
    pub(super) fn abandon(mut self, requests: &mut Requests) {
        // What it was told it has not got.
        if !self.pending.is_empty() || !self.socket.out().is_empty() {
            self.end = None;
            self.facts.code = None;
        }
        self.over(requests);
    }
}

/// When the next ping is sent.
fn next_ping_us(requests: &Requests) -> u64 {
    let interval = requests.common.settings.ws_ping_interval.as_duration();
    interval.map_or(u64::MAX, |interval| after(requests.now_us, interval))
}

/// When a session is closed, of those that all are to be: they are spread over `session_grace`.
fn restarts_us(number: u32, requests: &Requests) -> u64 {
    let spread = requests.common.settings.session_spread();
    // Fibonacci hashing spreads numbers that follow one another.
    let share = number.wrapping_mul(0x9e37_79b9);
    let spread_us = (spread.as_micros() as u64 * u64::from(share)) >> 32;
    requests.now_us.saturating_add(spread_us)
}
