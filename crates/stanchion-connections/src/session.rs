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
use super::pace::body_pace;
use super::pings::{Due, Pings, Seen};
use super::transport::{Transport, Written};
use super::unfinished::Unfinished;
use stanchion_dispatch::collect::SWITCHING;
use stanchion_dispatch::outflow::{Next, StreamEnd};
use stanchion_dispatch::sessions::SessionFacts;
use stanchion_dispatch::storage::memory::Held;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally::{self, CloseCode};
use stanchion_record::{Form, MESSAGE_HEAD_BYTES, restart};
use stanchion_requests::{Account, Requests};

/// How long a client may take for its part of the closing handshake.
const CLOSING: Duration = Duration::from_secs(10);
/// How many bytes of a worker's messages become frames at a time. The client has to take these before there are more.
const TAKEN_BYTES: usize = 128 << 10;
/// From this size on a message goes from the worker's memory to the socket without a copy of ours. Smaller messages that
/// come together are better sent together.
const SENT_IN_PLACE_BYTES: usize = 8 << 10;

/// A WebSocket that is open, or being closed.
pub(super) struct Session {
    pub(super) ticket: Rc<Ticket>,
    account: Account,
    /// The head of the answer, if an observer wants it.
    head: Vec<u8>,
    pub(super) socket: Socket,
    outward: Outward,
    /// Bytes that the kernel has not taken yet.
    pub(super) pending: Bytes,
    /// The worker has so much of a message ready that it goes to the socket from where it stands.
    is_large_next: bool,
    /// How many bytes of frames went to the client.
    bytes: u64,
    pub(super) facts: SessionFacts,
    /// How many bytes of the head and of frames the kernel has taken.
    written: u64,
    /// The message for the worker for which it has had no room yet.
    pub(super) inward: Inward,
    /// The account of the client's bytes that are in memory.
    held: Held,
    pub(super) unfinished: Unfinished,
    /// The worker writes no more.
    is_worker_done: bool,
    /// How it was closed, once it was.
    end: Option<End>,
    /// The client sends no more.
    pub(super) is_client_done: bool,
    pings: Pings,
    /// When the session ends whether or not the client takes part in it.
    pub(super) closed_by_us: u64,
    /// When the server closes it because the server leaves; `None` until it does.
    restarts_us: Option<u64>,
}

impl Session {
    /// Begins a session: the connection answers the request with the `pending` bytes, whose head for the logs is `head`.
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
            // The seat may have taken the request after this turn began. The session begins no earlier.
            begun_us: requests.now_us.max(ticket.taken_us()),
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
            held: requests.storage.messages.held(),
            unfinished: Unfinished::default(),
            is_worker_done: false,
            end: None,
            is_client_done: false,
            pings: Pings::new(&requests.common.settings, requests.now_us),
            closed_by_us: u64::MAX,
            restarts_us: None,
        }
    }

    /// When the acceptor has to look at it again.
    pub(super) fn due_us(&self, requests: &Requests) -> u64 {
        if self.end.is_some() {
            // The server asks nothing else of the client any more.
            return self.closed_by_us;
        }
        if requests.serving.lifecycle.is_leaving() && self.restarts_us.is_none() {
            return requests.now_us;
        }
        let due_us = self.pings.due_us().min(self.unfinished.due_us());
        due_us.min(self.restarts_us.unwrap_or(u64::MAX))
    }

    /// Closes the session in its time when the server leaves, whatever its client does.
    pub(super) fn retire(&mut self, number: u32, requests: &mut Requests) {
        if self.end.is_some() {
            return;
        }
        let now_us = requests.now_us;
        if requests.serving.lifecycle.is_leaving() && self.restarts_us.is_none() {
            self.restarts_us = Some(restarts_us(number, requests));
        }
        let is_told = requests.serving.lifecycle.is_refusing();
        if is_told || self.restarts_us.is_some_and(|at_us| now_us >= at_us) {
            self.close(End::Restart, &restart(), requests);
        }
    }

    /// Does what is due by the clock; true if there is something to write. The caller reads all that has come before: bytes
    /// that came in time, while others had their turn, are not late.
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
            // This saves a call to the kernel: the acceptor looks at a session with each message.
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

    /// Closes the session, unless it is closed: the client gets a close frame, and so does the app if it did not close itself.
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

    /// Writes as many bytes to the client as there are, and returns the outcome.
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

    /// Sends bytes of a message from where the worker has written them.
    fn say_in_place(
        &mut self,
        transport: &mut Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        let socket = transport.socket()?;
        let readable = requests.dispatch.slots.messages_len(&self.ticket);
        let (head, len) = self.outward.next_frame(readable.min(TAKEN_BYTES))?;
        let (dispatch, ticket) = (&mut requests.dispatch, &self.ticket);
        let mut left = dispatch.buffers.take();
        let sent = dispatch
            .slots
            .send(ticket, len, socket, (&[&head], b""), &mut left)?;
        let written = transport.wrote(sent);
        let Written::Bytes(bytes) = written else {
            // The socket is full, or broken: the message is kept until there is room.
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
            requests.dispatch.recycle(left);
        } else {
            self.pending = Bytes::from(left);
        }
        Some(written)
    }

    /// Takes messages from the worker, once the client has taken those before. A large message may be sent `in_place`.
    fn listen(&mut self, in_place: bool, requests: &mut Requests) {
        if !self.pending.is_empty() {
            return;
        }
        // The pong comes before the worker's messages: a message may be the worker's answer to one that came behind the
        // ping, and the server sends a pong as soon as it can (RFC 6455 section 5.5.2).
        let mut out = std::mem::take(self.socket.out());
        // In a closed session there is no message to send in place.
        self.is_large_next = false;
        if self.end.is_none() {
            self.take_messages(in_place, requests, &mut out);
        }
        // The close comes last if the worker has closed the session, whatever the worker has written behind it.
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
            // Nothing is there; the stream may have ended, or a message has come meanwhile. Messages that come later wake the
            // connection.
            if has_looked || !requests.dispatch.news(&ticket, requests.now_us) {
                return;
            }
        }
    }

    /// Counts the messages that were sent since there were `before`.
    fn count_sent(&self, before: u64, requests: &Requests) {
        let sent = self.outward.sent.count - before;
        let tally = &requests.common.tally;
        tally.happened_times(tally::Event::SessionSent, sent);
    }

    /// Whether the worker has so much of a message ready that it is better sent from where it stands.
    fn finds_large(&mut self, out: &mut Vec<u8>, requests: &mut Requests) -> bool {
        let readable = requests.dispatch.slots.messages_len(&self.ticket);
        if readable < MESSAGE_HEAD_BYTES + SENT_IN_PLACE_BYTES {
            return false;
        }
        if let Some(len) = self.outward.missing_head() {
            let mut head = Vec::new();
            let (slots, ticket) = (&mut requests.dispatch.slots, &self.ticket);
            slots.take_messages(ticket, len, &mut head);
            self.said(&head, out, requests);
        }
        let part = self.outward.next_frame(readable - MESSAGE_HEAD_BYTES);
        let is_large = part.is_some_and(|(_, len)| len >= SENT_IN_PLACE_BYTES);
        self.is_large_next = is_large && out.is_empty() && !self.is_worker_done;
        self.is_large_next
    }

    /// Makes frames of some of the worker's messages; false if there are none.
    fn take_some(&mut self, out: &mut Vec<u8>, requests: &mut Requests) -> bool {
        let mut bytes = requests.dispatch.buffers.take();
        let (slots, ticket) = (&mut requests.dispatch.slots, &self.ticket);
        let len = slots.take_messages(ticket, TAKEN_BYTES, &mut bytes);
        self.said(&bytes, out, requests);
        requests.dispatch.recycle(bytes);
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
                requests.dispatch.slots.distrust(&ticket, corrupt);
                self.worker_is_done(StreamEnd::Broken, requests);
            }
        }
    }

    /// Closes a session whose worker has given the slot back, or is dead, without a close.
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

    /// Whether the worker may have more messages, for which there is room.
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

    /// Takes bytes of the client. Gives how many are left, for when the worker has room or more frames may be begun.
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

    /// Hands the worker a message of the client: as much of its first piece as finds room goes from where it was read.
    fn hand_over(&mut self, form: Form, message: Payload<'_>, requests: &mut Requests) {
        if self.is_worker_done {
            return;
        }
        self.inward
            .put(form, message, |pieces| pour(&self.ticket, pieces, requests));
    }

    /// Whether the server reads from the client. It does not while the worker takes nothing. Nor does it read from a client
    /// that does not take its frames: such a client may ping without end.
    pub(super) fn hears(&self) -> bool {
        self.pending.is_empty() && self.inward.is_empty()
    }

    /// Gives the worker as many bytes as it has room for, and returns how many these were.
    pub(super) fn pass_on(&mut self, requests: &mut Requests) -> usize {
        if self.is_worker_done {
            self.inward.clear();
        }
        // If the slot makes no sense, or is gone, the next read from the worker shows it.
        self.inward
            .pour(|pieces| pour(&self.ticket, pieces, requests))
    }

    /// Counts the client's bytes that are in memory, `ahead` of them not parsed yet. If all clients together may not have so
    /// many, closes the session.
    pub(super) fn count(&mut self, ahead: usize, requests: &mut Requests) {
        let (came, held) = (self.socket.unfinished_bytes(), self.socket.held_bytes());
        let now_us = requests.now_us;
        self.unfinished
            .has(came, held, body_pace(&requests.common.settings), now_us);
        self.unfinished.waits(self.hears(), now_us);
        let bytes = held + self.inward.held_bytes() + ahead;
        // A session that is closed already is not closed again.
        if !requests
            .storage
            .messages
            .hold(&mut self.held, bytes, requests.now_us)
            && self.end.is_none()
        {
            let close = Close::new(code::TRY_LATER, "no memory is left for messages");
            self.close(End::ForMemory, &close, requests);
        }
    }

    /// Whether both sides have the last byte that is for them.
    pub(super) fn is_over(&self, now_us: u64) -> bool {
        let is_said = self.end.is_some() && self.socket.is_closing();
        is_said && (now_us >= self.closed_by_us || (self.is_client_done && self.inward.is_empty()))
    }

    /// Ends the session, and reports it to those who keep records.
    pub(super) fn over(mut self, requests: &mut Requests) {
        let end = self.end.unwrap_or(End::Cut);
        self.facts.sent = self.outward.sent;
        let code = CloseCode::of(self.facts.code);
        requests.common.tally.ended_by(code);
        // The session ends once, so this is set once.
        let _ = self.ticket.session.set(Box::new(self.facts));
        requests.dispatch.abandon(&self.ticket, requests.now_us);
        requests.common.tally.happened(end.event());
        let outcome = self.account.close(end.outcome());
        requests.record.over(
            &self.ticket,
            SWITCHING,
            outcome,
            self.head,
            self.bytes,
            requests.now_us,
        );
    }

    /// The connection has ended.
    pub(super) fn abandon(mut self, requests: &mut Requests) {
        // The client has not got all pending bytes, so the session counts as cut.
        if !self.pending.is_empty() || !self.socket.out().is_empty() {
            self.end = None;
            self.facts.code = None;
        }
        self.over(requests);
    }
}

/// Hands pieces to the worker, and takes masks off them on the way.
fn pour(ticket: &Ticket, pieces: [Piece<'_>; 2], requests: &mut Requests) -> Option<usize> {
    let parts = pieces.map(|(bytes, mask)| Part::new(bytes, mask));
    requests.dispatch.slots.pour(ticket, &parts)
}

/// When this session closes, if all are to: the server spreads them over `session_grace`.
fn restarts_us(number: u32, requests: &Requests) -> u64 {
    let spread = requests.common.settings.session_spread();
    // Fibonacci hashing spreads consecutive numbers.
    let share = number.wrapping_mul(0x9e37_79b9);
    let spread_us = (spread.as_micros() as u64 * u64::from(share)) >> 32;
    requests.now_us.saturating_add(spread_us)
}
