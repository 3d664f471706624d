//! A WebSocket: its frames, between its client and its worker, until one of them closes it.
//!
//! When the app accepts a WebSocket, the seat takes another request, and the slot stays with the session. The
//! connection reads the frames, so pings, closing, fragments and limits need no worker. Whole messages cross the
//! exchange in both directions, each behind its kind and length (`stanchion_record`): to the worker through the slot's
//! inflow, back through the response ring. While either is full its sender waits: the acceptor reads the socket no
//! further, or `send()` of the app waits.

mod ending;
mod inward;
mod outward;
mod pings;
mod to_client;
mod to_worker;
mod unfinished;

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use stanchion_websocket::{Close, Socket, code};

use super::leaving::leave;
use super::{Phase, Step};
use crate::judgement::Judgement;
use crate::link::ClientLink;
use crate::outcome::Written;
use crate::pace::after;
use crate::poller::Poller;
use crate::transport::Transport;
use ending::End;
use pings::{Due, Observations, Pings};
use stanchion_dispatch::collect::SWITCHING;
use stanchion_dispatch::sessions::SessionFacts;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally::CloseCode;
use stanchion_record::restart;
use stanchion_requests::lifecycle::Lifecycle;
use stanchion_requests::{Account, Requests};
use stanchion_settings::Settings;
use to_client::ToClient;
use to_worker::ToWorker;

/// How long a client may take for its part of the closing handshake.
const CLOSING: Duration = Duration::from_secs(10);

/// A WebSocket that is open, or being closed.
pub(crate) struct Session {
    pub(crate) ticket: Rc<Ticket>,
    account: Account,
    /// The head of the answer, if an observer wants it.
    head: Vec<u8>,
    facts: SessionFacts,
    socket: Socket,
    pings: Pings,
    to_client: ToClient,
    to_worker: ToWorker,
    ending: SessionEnd,
}

/// How far a session is in its end.
#[derive(Default)]
struct SessionEnd {
    /// How it was closed, once it was.
    how: Option<End>,
    /// The worker writes no more.
    is_worker_done: bool,
    /// The client sends no more.
    is_client_done: bool,
    /// When the session ends whether or not the client takes part in it, once it was closed.
    closed_by_us: Option<u64>,
    /// When the server closes it because the server leaves; `None` until it does.
    restarts_us: Option<u64>,
}

impl SessionEnd {
    fn is_closed(&self) -> bool {
        self.how.is_some()
    }

    /// Whether the client has not taken part in the end in time.
    fn is_late(&self, now_us: u64) -> bool {
        self.closed_by_us.is_some_and(|by_us| now_us >= by_us)
    }
}

impl Session {
    /// Begins a session: the connection answers the request with the `pending` bytes, whose head for the logs is `head`.
    pub(super) fn new(
        ticket: Rc<Ticket>,
        account: Account,
        head: Vec<u8>,
        pending: Bytes,
        requests: &Requests,
    ) -> Self {
        let (settings, now_us) = (&requests.common.settings, requests.now_us);
        let deflates = ticket.request.deflate().is_some();
        let facts = SessionFacts {
            // The seat may have taken the request after this turn began. The session begins no earlier.
            begun_us: now_us.max(ticket.taken_us()),
            ..SessionFacts::default()
        };
        Self {
            ticket,
            account,
            head,
            facts,
            socket: Socket::new(settings.event_loop.ws_max_size, deflates),
            pings: Pings::new(settings, now_us),
            to_client: ToClient::new(pending, deflates),
            to_worker: ToWorker::new(&requests.storage.messages),
            ending: SessionEnd::default(),
        }
    }

    /// Goes on with a WebSocket.
    pub(super) fn go_on(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Step {
        let (settings, now_us) = (&requests.common.settings, requests.now_us);
        self.ticket.seen();
        self.retire(link.number, settings, requests.serving.lifecycle, now_us);
        loop {
            let written = self.write_to_client(&mut link.transport, requests);
            let given = self.give_to_worker(&mut requests.dispatch);
            link.transport.add_to_turn(given);
            self.count(link.ahead.len(), settings, &requests.storage, now_us);
            match written {
                Some(Written::Bytes(len)) => {
                    link.intake.wrote(len.get(), now_us);
                    if !self.to_client.pending.is_empty() {
                        if link.transport.has_had_its_turn() {
                            break;
                        }
                        // With EPOLLET the kernel reports room only after it has reported that there is none (epoll(7)).
                        continue;
                    }
                }
                Some(Written::Full) => link.waits_for_room(settings, now_us, poller),
                Some(Written::Failed) => return self.lose(requests),
                None => {}
            }
            if self.to_client.pending.is_empty() {
                link.transport.watch_room(false, poller);
                if self.is_over(now_us) {
                    return self.end(link, requests);
                }
            } else if self.ending.is_late(now_us) {
                return self.lose(requests);
            }
            let Some(progress) = self.read_from_client(link, requests) else {
                return self.lose(requests);
            };
            let has_more = self.to_worker.inward.goes_on()
                || self.has_more_for_client(&link.transport, requests);
            if progress == 0 && !has_more {
                if link.transport.is_hung_up() {
                    return self.lose(requests);
                }
                if self.tick(&link.transport, settings, now_us) {
                    continue;
                }
                return Step::Wait(Phase::Session(self));
            }
            if link.transport.has_had_its_turn() {
                break;
            }
        }
        link.wake_later(&requests.wakes, now_us);
        Step::Wait(Phase::Session(self))
    }

    /// Closes the session in its time when the server leaves, whatever its client does.
    fn retire(&mut self, number: u32, settings: &Settings, lifecycle: Lifecycle, now_us: u64) {
        if self.ending.is_closed() {
            return;
        }
        if lifecycle.is_leaving() && self.ending.restarts_us.is_none() {
            self.ending.restarts_us = Some(restarts_us(number, settings, now_us));
        }
        let is_refusing = lifecycle.is_refusing();
        let is_due = |at_us| now_us >= at_us;
        if is_refusing || self.ending.restarts_us.is_some_and(is_due) {
            self.close(End::Restart, &restart(), now_us);
        }
    }

    /// When the acceptor has to look at it again.
    pub(crate) fn due_us(&self, lifecycle: Lifecycle, now_us: u64) -> u64 {
        if let Some(by_us) = self.ending.closed_by_us {
            // The server asks nothing else of the client any more.
            return by_us;
        }
        if lifecycle.is_leaving() && self.ending.restarts_us.is_none() {
            return now_us;
        }
        let due_us = self.pings.due_us().min(self.sends_by_us());
        due_us.min(self.ending.restarts_us.unwrap_or(u64::MAX))
    }

    /// When the rest of a message comes too slowly if nothing more comes of it.
    pub(super) fn sends_by_us(&self) -> u64 {
        self.to_worker.unfinished.due_us()
    }

    /// Judges the client by the deadlines of its session.
    pub(crate) fn judge(&self, lifecycle: Lifecycle, now_us: u64) -> Judgement {
        match self.due_us(lifecycle, now_us) {
            due_us if due_us <= now_us => Judgement::Doubt,
            until_us => Judgement::Well { until_us },
        }
    }

    /// Does what is due by the clock; true if there is something to write. The caller reads all that has come before: bytes
    /// that came in time, while others had their turn, are not late.
    fn tick(&mut self, transport: &Transport, settings: &Settings, now_us: u64) -> bool {
        if self.ending.is_closed() {
            return false;
        }
        if self.to_worker.unfinished.is_too_slow(now_us) {
            let close = Close::new(code::POLICY, "the rest of a message came too slowly");
            self.close(End::ForClient, &close, now_us);
            return true;
        }
        if now_us < self.pings.due_us() {
            // This saves a call to the kernel: the acceptor looks at a session with each message.
            return false;
        }
        let written = self.to_client.written;
        let seen = Observations {
            written,
            taken: written.saturating_sub(transport.untaken()),
            is_behind: !self.to_client.pending.is_empty(),
            is_read: self.may_read(),
        };
        let due = self.pings.tick(seen, settings, now_us);
        match due {
            Some(Due::Ping) => self.socket.ping(),
            Some(Due::Close) => {
                let close = Close::new(code::FAILED, "a ping was not answered");
                self.close(End::ForClient, &close, now_us);
            }
            None => {}
        }
        due.is_some()
    }

    /// Closes the session, unless it is closed: the client gets a close frame, and so does the app if it did not close itself.
    fn close(&mut self, end: End, close: &Close, now_us: u64) {
        if self.ending.is_closed() {
            return;
        }
        self.ending.how = Some(end);
        self.ending.closed_by_us = Some(after(now_us, CLOSING));
        self.facts.code = Some(close.code);
        self.socket.close(close);
        if !self.ending.is_worker_done && end != End::ByApp {
            self.to_worker.inward.put_close(close);
        }
    }

    /// Whether both sides have the last byte that is for them.
    fn is_over(&self, now_us: u64) -> bool {
        let ending = &self.ending;
        let is_said = ending.is_closed() && self.socket.is_closing();
        let has_all = ending.is_client_done && self.to_worker.inward.is_empty();
        is_said && (ending.is_late(now_us) || has_all)
    }

    fn end(self: Box<Self>, link: &mut ClientLink, requests: &mut Requests) -> Step {
        self.over(requests);
        // The server closes the connection first (RFC 6455 section 7.1.1), once the client has read all.
        link.unread = true;
        leave(link, &mut requests.buffers, requests.now_us)
    }

    /// The connection has ended without a close frame, or its client reads none.
    fn lose(self: Box<Self>, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    /// The connection has ended.
    pub(super) fn abandon(mut self, requests: &mut Requests) {
        // The client has not got all pending bytes, so the session counts as cut.
        if !self.to_client.pending.is_empty() || !self.socket.out().is_empty() {
            self.ending.how = None;
            self.facts.code = None;
        }
        self.over(requests);
    }

    /// Ends the session, and reports it to those who keep records.
    fn over(mut self, requests: &mut Requests) {
        let (ticket, now_us) = (&self.ticket, requests.now_us);
        let end = self.ending.how.unwrap_or(End::Cut);
        self.facts.sent = self.to_client.outward.sent;
        let code = CloseCode::of(self.facts.code);
        let tally = &requests.common.tally;
        tally.ended_by(code);
        tally.happened(end.event());
        // The session ends once, so this is set once.
        let _ = ticket.session.set(Box::new(self.facts));
        requests.dispatch.abandon(ticket, now_us);
        let outcome = self.account.close(end.outcome());
        let bytes = self.to_client.bytes;
        requests
            .record
            .over(ticket, SWITCHING, outcome, self.head, bytes, now_us);
    }
}

/// When this session closes, if all are to: the server spreads them over `session_grace`.
fn restarts_us(number: u32, settings: &Settings, now_us: u64) -> u64 {
    let spread = settings.session_spread();
    // Fibonacci hashing spreads consecutive numbers.
    let share = number.wrapping_mul(0x9e37_79b9);
    let spread_us = (spread.as_micros() as u64 * u64::from(share)) >> 32;
    now_us.saturating_add(spread_us)
}
