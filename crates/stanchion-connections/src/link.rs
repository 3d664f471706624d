//! The client's side of a connection, which all its phases share: the transport, the peer, and how far the client is with
//! both.

use std::rc::Rc;

use bytes::Bytes;

use super::audience::Audience;
use super::intake::Intake;
use super::outcome::Written;
use super::pace::intake_pace;
use super::poller::Poller;
use super::transport::Transport;
use super::turns::Turns;
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::storage::clients::{Client, Share};
use stanchion_dispatch::ticket::Ticket;
use stanchion_requests::Wakes;
use stanchion_requests::lifecycle::Serving;
use stanchion_settings::Settings;

/// The transport and the peer of a connection, with their accounts.
pub(crate) struct ClientLink {
    /// The number of the connection in the table of connections.
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    pub(crate) peer: Rc<Peer>,
    pub(crate) audience: Audience,
    /// The connection's share of those that its client may have.
    pub(crate) claim: Option<Share>,
    /// How the client takes the bytes that the server writes.
    pub(crate) intake: Intake,
    pub(crate) turns: Turns,
    /// Bytes that came behind the present request.
    pub(crate) ahead: Bytes,
    /// How many requests it has had.
    pub(crate) requests: u32,
    /// The next answer is the last.
    pub(crate) closing: bool,
    /// The client may still be sending bytes that the server will not read as a request.
    pub(crate) unread: bool,
}

impl ClientLink {
    pub(crate) fn new(
        number: u32,
        transport: Transport,
        peer: Rc<Peer>,
        audience: Audience,
        claim: Option<Share>,
    ) -> Self {
        Self {
            number,
            transport,
            peer,
            audience,
            claim,
            intake: Intake::default(),
            turns: Turns::default(),
            ahead: Bytes::new(),
            requests: 0,
            closing: false,
            unread: false,
        }
    }

    /// The client, if the peer is no proxy and has an address.
    pub(crate) fn only_client(&self) -> Option<Client> {
        self.peer.limited_ip().map(Client::at)
    }

    /// Whether the connections of its client have had as many bytes in this turn of the loop as they may.
    pub(crate) fn client_has_spent(&self, wakes: &Wakes) -> bool {
        self.only_client()
            .is_some_and(|client| wakes.clients.has_spent(client))
    }

    /// Whether the client is to speak TLS, and has not begun to.
    pub(crate) fn awaits_handshake(&self) -> bool {
        // A stream comes over the TLS of its HTTP/2 connection.
        self.peer.speaks_tls && self.transport.socket().is_some()
    }

    /// Has the connection go on after others have had their turn.
    pub(crate) fn wake_later(&mut self, wakes: &Wakes, now_us: u64) {
        match self.audience {
            Audience::Clients => {
                if !std::mem::replace(&mut self.turns.is_behind, true) {
                    let (client, is_wasteful) =
                        (self.only_client(), self.turns.is_wasteful(now_us));
                    wakes.clients.stand_behind(self.number, client, is_wasteful);
                }
            }
            Audience::Operators => wakes.operators.add(self.number),
        }
    }

    /// Whether the client is gone, so that no answer can reach it. A client that has closed its direction counts as gone,
    /// unless `half_close` says otherwise.
    pub(crate) fn client_has_left(&self, settings: &Settings) -> bool {
        let half_close = settings.http.half_close;
        self.transport.is_hung_up() || (self.transport.has_ended() && !half_close)
    }

    /// Whether the connection goes on after the present answer.
    pub(crate) fn keeps(&self, ticket: &Ticket, settings: &Settings, serving: Serving) -> bool {
        let requests_max = settings.limits.keepalive_requests;
        ticket.request.head.keeps_alive()
            && settings.http.keepalive.as_duration().is_some()
            && !self.closing
            && !serving.ends_connections()
            && (requests_max == 0 || self.requests < requests_max)
    }

    /// The client's further bytes need not be a request.
    pub(crate) fn closes_unread(&mut self) {
        self.closing = true;
        self.unread = true;
    }

    /// Notes that the kernel took nothing more of what was written.
    pub(crate) fn stalls(&mut self, settings: &Settings, now_us: u64) {
        let untaken = self.transport.untaken();
        self.intake.stalled(intake_pace(settings), untaken, now_us);
    }

    /// The same, and has the kernel report when there is room.
    pub(crate) fn waits_for_room(&mut self, settings: &Settings, now_us: u64, poller: &Poller) {
        self.stalls(settings, now_us);
        self.transport.watch_room(true, poller);
    }

    /// Sends the hints that have come; false if the connection is broken. Hints that find no room go out with the answer.
    pub(crate) fn send_hints(&mut self, ticket: &Ticket, now_us: u64) -> bool {
        let sent = ticket.hints(|hints| {
            if hints.unsent().is_empty() {
                return true;
            }
            let Ok(len) = self.transport.write(hints.unsent()).len() else {
                return false;
            };
            hints.sent(len);
            self.intake.wrote(len, now_us);
            true
        });
        sent.unwrap_or(true)
    }

    /// Writes a few bytes beside answers; false if the kernel has taken only a part of them, so that the connection cannot
    /// go on. Without any room the bytes are dropped: the client has not read its last answer, so it does not wait for them.
    pub(crate) fn write_interim(&mut self, bytes: &[u8]) -> bool {
        match self.transport.write(bytes) {
            Written::Bytes(len) => len.get() == bytes.len(),
            Written::Full => true,
            Written::Failed => false,
        }
    }
}
