//! A WebSocket: its frames, between its client and its worker, until one of them closes it.

use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use stanchion_exchange::Part;
use stanchion_websocket::{Came, Close, Event, Payload, Socket, code};

use super::connection::Waiting;
use super::ending::End;
use super::inward::{Inward, Piece};
use super::judging::after;
use super::outward::{Last, Outward};
use super::pings::{Due, Pings, Seen};
use super::transport::{Transport, Written};
use super::unfinished::Unfinished;
use crate::acceptor::dispatch::collect::SWITCHING;
use crate::acceptor::dispatch::outflow::{Next, StreamEnd};
use crate::acceptor::dispatch::sessions::SessionFacts;
use crate::acceptor::dispatch::ticket::Ticket;
use crate::acceptor::requests::{Account, Requests};
use crate::acceptor::storage::memory::Held;
use crate::record::{Form, MESSAGE_HEAD_BYTES, restart};
use crate::tally::{self, CloseCode};

/// How long a client may take for its part of the closing handshake.
const CLOSING: Duration = Duration::from_secs(10);
/// So much of what a worker has written is made frames of at a time. The client has taken them before more is.
const TAKEN_BYTES: usize = 128 << 10;
/// So much of a message goes from the worker's memory to the socket without a copy of ours. Below it, messages that come
/// together are better sent together.
const SENT_IN_PLACE_BYTES: usize = 8 << 10;

/// A WebSocket that is open, or being closed.
pub(super) struct Session {
    pub(super) ticket: Rc<Ticket>,
    account: Account,
    /// The head of the answer, if somebody wants to know.
    head: Vec<u8>,
    socket: Socket,
    outward: Outward,
    /// What the kernel has not taken yet.
    pub(super) pending: Bytes,
    /// The worker has so much of a message ready that it is sent from where it stands.
    is_large_next: bool,
    /// Bytes of frames that were given away.
    bytes: u64,
    facts: SessionFacts,
    /// Bytes of these, and of the head, that the kernel has taken.
    written: u64,
    /// What has come for the worker, that it has had no room for yet.
    pub(super) inward: Inward,
    /// What is in memory of what the client has sent.
    held: Held,
    pub(super) unfinished: Unfinished,
    /// The worker writes no more.
    is_worker_done: bool,
    /// Who closed it, once somebody has.
    end: Option<End>,
    /// The client has no more to say.
    pub(super) is_client_done: bool,
    pings: Pings,
    /// When it ends whether or not the client takes part in it.
    pub(super) closed_by_us: u64,
    /// When it is closed since the server leaves; later than ever until it does.
    restarts_us: Option<u64>,
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
        let deflates = ticket.request.deflate().is_some();
        let facts = SessionFacts {
            // What a seat has done since this turn began is no earlier.
            begun_us: requests.now_us.max(ticket.taken_us.get()),
            ..SessionFacts::default()
        };
        Self {
            ticket,
            account,
            head,
            socket: Socket::new(requests.common.settings.ws_max_size, deflates),
            outward: Outward::new(deflates),
            pending,
            is_large_next: false,
            bytes: 0,
            facts,
            written: 0,
            inward: Inward::default(),
            held: requests.messages.held(),
            unfinished: Unfinished::default(),
            is_worker_done: false,
            end: None,
            is_client_done: false,
            pings: Pings::new(&requests.common.settings, requests.now_us),
            closed_by_us: u64::MAX,
            restarts_us: None,
        }
    }

    /// When it is to be looked at again.
    pub(super) fn due_us(&self, requests: &Requests) -> u64 {
        if self.end.is_some() {
            // Nothing else is asked of its client any more.
            return self.closed_by_us;
        }
        if requests.lifecycle.is_leaving() && self.restarts_us.is_none() {
            return requests.now_us;
        }
        let due_us = self.pings.due_us().min(self.unfinished.due_us());
        due_us.min(self.restarts_us.unwrap_or(u64::MAX))
    }

    /// Closes it in its time when the server leaves, whatever its client does.
    pub(super) fn retire(&mut self, number: u32, requests: &mut Requests) {
        if self.end.is_some() {
            return;
        }
        let now_us = requests.now_us;
        if requests.lifecycle.is_leaving() && self.restarts_us.is_none() {
            self.restarts_us = Some(restarts_us(number, requests));
        }
        let is_told = requests.lifecycle.is_refusing();
        if is_told || self.restarts_us.is_some_and(|at_us| now_us >= at_us) {
            self.close(End::Restart, &restart(), requests);
        }
    }

    /// What the clock asks of the client; true if that is to be said. All that has come is heard before: what came in
    /// time, while others had their turn, is not late.
    pub(super) fn tick(&mut self, transport: &Transport, requests: &mut Requests) -> bool {
        let now_us = requests.now_us;
        if self.end.is_some() {
            return false;
        }
        if self.unfinished.is_too_slow(now_us) {
            let close = Close::new(code::POLICY, "the rest of a message came too slowly");
            self.close(End::ForClient, &close, requests);
            return true;
        }
        if now_us < self.pings.due_us() {
            // The kernel is not asked for nothing: a session is looked at with each message.
            return false;
        }
        let seen = Seen {
            written: self.written,
            taken: self.written.saturating_sub(transport.untaken()),
            is_behind: !self.pending.is_empty(),
            is_heard: self.hears(),
        };
        let settings = &requests.common.settings;
        let due = self.pings.tick(seen, settings, now_us);
        match due {
            Some(Due::Ping) => self.socket.ping(),
            Some(Due::Close) => {
                let close = Close::new(code::FAILED, "a ping was not answered");
                self.close(End::ForClient, &close, requests);
            }
            None => {}
        }
        due.is_some()
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

    /// Writes what there is for the client, and tells what has come of it.
    pub(super) fn say(
        &mut self,
        transport: &mut Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        self.listen(transport.socket().is_some(), requests);
        if self.pending.is_empty() && std::mem::take(&mut self.is_large_next) {
            return self.say_in_place(transport, requests);
        }
        if self.pending.is_empty() {
            return None;
        }
        let written = transport.write(&self.pending);
        if let Written::Bytes(len) = written {
            self.pending.advance(len.get());
            self.written += len.get() as u64;
        }
        Some(written)
    }

    /// Sends what the worker has written of a message from where it stands.
    fn say_in_place(
        &mut self,
        transport: &mut Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        let socket = transport.socket()?;
        let readable = requests.dispatch.messages_len(&self.ticket);
        let (head, len) = self.outward.next_frame(readable.min(TAKEN_BYTES))?;
        let (dispatch, ticket) = (&mut requests.dispatch, &self.ticket);
        let mut left = dispatch.spare();
        let sent = dispatch.send(ticket, len, socket, (&[&head], b""), &mut left)?;
        let written = transport.wrote(sent);
        let Written::Bytes(bytes) = written else {
            // The socket is full, or broken: it is kept until there is room.
            let mut out = Vec::new();
            self.take_some(&mut out, requests);
            self.pending = Bytes::from(out);
            return Some(written);
        };
        let sent_before = self.outward.sent.count;
        self.outward.sent_in_place(len);
        self.count_sent(sent_before, requests);
        self.bytes += (head.len() + len) as u64;
        self.written += bytes.get() as u64;
        if bytes.get() < head.len() {
            self.pending = Bytes::from([&head[bytes.get()..], &left].concat());
        } else if left.is_empty() {
            requests.recycle(left);
        } else {
            self.pending = Bytes::from(left);
        }
        Some(written)
    }

    /// Takes what the worker says, once the client has taken what it said before. A large message may be sent `in_place`.
    fn listen(&mut self, in_place: bool, requests: &mut Requests) {
        if !self.pending.is_empty() {
            return;
        }
        // What the client has asked with a ping comes before what the worker says: that may be its answer to what came behind
        // the ping, and a pong is sent as soon as it can be (RFC 6455 section 5.5.2).
        let mut out = std::mem::take(self.socket.out());
        // Once it is closed, nothing is.
        self.is_large_next = false;
        if self.end.is_none() {
            self.take_messages(in_place, requests, &mut out);
        }
        // If the worker has closed it, that comes last, whatever it writes behind that.
        out.append(self.socket.out());
        self.pending = Bytes::from(out);
    }

    fn take_messages(&mut self, in_place: bool, requests: &mut Requests, out: &mut Vec<u8>) {
        let ticket = Rc::clone(&self.ticket);
        for has_looked in [false, true] {
            match ticket.next_piece() {
                Next::Piece(piece) => {
                    self.said(piece.as_slice(), out, requests);
                    return;
                }
                Next::End(end) => return self.worker_is_done(end, requests),
                Next::Nothing => {}
            }
            ticket.outflow(|outflow| outflow.fetches(true, requests.now_us));
            if (in_place && self.finds_large(out, requests)) || self.take_some(out, requests) {
                return;
            }
            if has_looked {
                return;
            }
            // Nothing is there; perhaps it is the end. What this brings is no news, so it is looked for once more; what
            // comes after that wakes the connection.
            ticket.expects();
            requests.dispatch.look_for(&ticket, requests.now_us);
            ticket.seen();
        }
    }

    /// Messages were sent since there were so many.
    fn count_sent(&self, before: u64, requests: &Requests) {
        let sent = self.outward.sent.count - before;
        let tally = &requests.common.tally;
        tally.happened_times(tally::Event::SessionSent, sent);
    }

    /// Whether the worker has so much of a message ready that it is better sent from where it stands.
    fn finds_large(&mut self, out: &mut Vec<u8>, requests: &mut Requests) -> bool {
        let readable = requests.dispatch.messages_len(&self.ticket);
        if readable < MESSAGE_HEAD_BYTES + SENT_IN_PLACE_BYTES {
            return false;
        }
        if let Some(len) = self.outward.missing_head() {
            let mut head = Vec::new();
            let (dispatch, ticket) = (&mut requests.dispatch, &self.ticket);
            dispatch.take_messages(ticket, len, &mut head);
            self.said(&head, out, requests);
        }
        let part = self.outward.next_frame(readable - MESSAGE_HEAD_BYTES);
        let is_large = part.is_some_and(|(_, len)| len >= SENT_IN_PLACE_BYTES);
        self.is_large_next = is_large && out.is_empty() && !self.is_worker_done;
        self.is_large_next
    }

    /// Makes frames of some of what the worker has written; false if that is nothing.
    fn take_some(&mut self, out: &mut Vec<u8>, requests: &mut Requests) -> bool {
        let mut bytes = requests.dispatch.spare();
        let (dispatch, ticket) = (&mut requests.dispatch, &self.ticket);
        let len = dispatch.take_messages(ticket, TAKEN_BYTES, &mut bytes);
        self.said(&bytes, out, requests);
        requests.recycle(bytes);
        len > 0
    }

    fn said(&mut self, bytes: &[u8], out: &mut Vec<u8>, requests: &mut Requests) {
        if self.is_worker_done {
            return;
        }
        let (before, sent_before) = (out.len(), self.outward.sent.count);
        let taken = self.outward.take(bytes, out);
        self.bytes += (out.len() - before) as u64;
        self.count_sent(sent_before, requests);
        match taken {
            Ok(None) => {}
            Ok(Some(last)) => {
                self.is_worker_done = true;
                match last {
                    Last::Close(close) => self.close(End::ByApp, &close, requests),
                    Last::Fault(close) => self.close(End::ForClient, &close, requests),
                    Last::Restart => self.close(End::Restart, &restart(), requests),
                }
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
    pub(super) fn has_more_to_say(
        &mut self,
        transport: &Transport,
        requests: &mut Requests,
    ) -> bool {
        if !self.pending.is_empty() {
            return false;
        }
        self.listen(transport.socket().is_some(), requests);
        !self.pending.is_empty() || self.is_large_next
    }

    /// Bytes of the client's; gives how many are left, for when the worker has room or more frames may be begun.
    pub(super) fn came(&mut self, mut left: Came<'_>, requests: &mut Requests) -> usize {
        self.inward.has_more_behind = true;
        while self.inward.is_empty() {
            let Some(event) = self.socket.next(&mut left) else {
                self.inward.has_more_behind = false;
                break;
            };
            match event {
                Event::Message(form, message) => {
                    self.unfinished.end();
                    if self.end.is_none() {
                        self.facts.received.add(message.len());
                        let tally = &requests.common.tally;
                        tally.happened(tally::Event::SessionReceived);
                        self.hand_over(form, message, requests);
                    }
                }
                Event::Pong => {
                    let settings = &requests.common.settings;
                    self.pings.answered(settings, requests.now_us);
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

    /// A message of the client's: as much of its first piece as there is room for goes to the worker where it came.
    fn hand_over(&mut self, form: Form, message: Payload<'_>, requests: &mut Requests) {
        if self.is_worker_done {
            return;
        }
        self.inward
            .put(form, message, |pieces| pour(&self.ticket, pieces, requests));
    }

    /// Whether its client is heard. Not while the worker takes nothing; and who does not take what is said to it is
    /// not heard either: it may ping without end.
    pub(super) fn hears(&self) -> bool {
        self.pending.is_empty() && self.inward.is_empty()
    }

    /// Gives the worker some of what it has room for, and tells how much that was.
    pub(super) fn pass_on(&mut self, requests: &mut Requests) -> usize {
        if self.is_worker_done {
            self.inward.clear();
        }
        // If the slot makes no sense, or is gone, that is found out when the worker is listened to.
        self.inward
            .pour(|pieces| pour(&self.ticket, pieces, requests))
    }

    /// Counts what is in memory of what the client has sent, with what of it is `ahead`. If all clients together may
    /// not have so much, it is closed.
    pub(super) fn count(&mut self, ahead: usize, requests: &mut Requests) {
        let (came, held) = (self.socket.unfinished_bytes(), self.socket.held_bytes());
        let now_us = requests.now_us;
        self.unfinished
            .has(came, held, requests.body_pace(), now_us);
        self.unfinished.waits(self.hears(), now_us);
        let bytes = held + self.inward.held_bytes() + ahead;
        // Who is being closed gets no more.
        if !requests
            .messages
            .hold(&mut self.held, bytes, requests.now_us)
            && self.end.is_none()
        {
            let close = Close::new(code::TRY_LATER, "no memory is left for messages");
            self.close(End::ForMemory, &close, requests);
        }
    }

    /// Whether all is said, and heard by who is to hear it.
    pub(super) fn is_over(&self, now_us: u64) -> bool {
        let is_said = self.end.is_some() && self.socket.is_closing();
        is_said && (now_us >= self.closed_by_us || (self.is_client_done && self.inward.is_empty()))
    }

    /// It is over, and whoever keeps records is told.
    pub(super) fn over(mut self, requests: &mut Requests) {
        let end = self.end.unwrap_or(End::Cut);
        self.facts.sent = self.outward.sent;
        let code = CloseCode::of(self.facts.code);
        requests.common.tally.ended_by(code);
        // It is over once.
        let _ = self.ticket.session.set(Box::new(self.facts));
        requests.dispatch.abandon(&self.ticket, requests.now_us);
        requests.common.tally.happened(end.event());
        let outcome = self.account.close(end.outcome());
        requests.over(&self.ticket, SWITCHING, outcome, self.head, self.bytes);
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

/// Hands pieces to the worker: what has a mask is freed of it on the way.
fn pour(ticket: &Ticket, pieces: [Piece<'_>; 2], requests: &mut Requests) -> Option<usize> {
    let parts = pieces.map(|(bytes, mask)| Part::new(bytes, mask));
    requests.dispatch.pour(ticket, &parts)
}

/// When a session is closed, of those that all are to be: they are spread over `session_grace`.
fn restarts_us(number: u32, requests: &Requests) -> u64 {
    let spread = requests.common.settings.session_spread();
    // Fibonacci hashing spreads numbers that follow one another.
    let share = number.wrapping_mul(0x9e37_79b9);
    let spread_us = (spread.as_micros() as u64 * u64::from(share)) >> 32;
    requests.now_us.saturating_add(spread_us)
}
