//! The HTTP/2 streams that a connection brings: each becomes a connection.
//!
//! Such a connection has a number of its own, and every deadline and account that a connection has. It differs only in
//! its transport (`super::stream`), so no other code knows of streams. Its head goes through the one reader of heads
//! (`stanchion_http::http2`).

use std::rc::Rc;

use h2::Reason;
use h2::ext::Protocol;
use http::request::Parts;
use stanchion_http::StreamHead;

use super::Connections;
use super::carrying::Brought;
use super::connection::{Connection, Fate, Phase, Step};
use super::ledger::Ledger;
use super::stream::Stream;
use super::transport::Transport;
use crate::poller::{Poller, Source};
use stanchion_dispatch::request::Peer;
use stanchion_generation::tally::Event;
use stanchion_requests::Requests;

impl Connections {
    /// Makes connections of the streams that this connection has brought.
    pub(super) fn begin_streams(&mut self, number: u32, requests: &mut Requests, poller: &Poller) {
        let Some(carrier) = self.table.get_mut(number) else {
            return;
        };
        for brought in carrier.take_brought() {
            self.begin_stream(number, brought, requests, poller);
        }
    }

    fn begin_stream(
        &mut self,
        carrier: u32,
        brought: Brought,
        requests: &mut Requests,
        poller: &Poller,
    ) {
        let Brought {
            request,
            mut respond,
        } = brought;
        let number = self.table.next_number();
        let Some((peer, ledger)) = self.table.get_mut(carrier).and_then(|one| one.lends()) else {
            return;
        };
        // There may be as many streams as connections, and a client may have as many streams as connections. A client whose
        // stream is refused may try again (RFC 9113 section 8.7).
        let is_full = self.streams >= requests.common.settings.max_connections as usize;
        self.streams_wait |= is_full;
        let claim = requests.connection_shares.claim_stream(peer.limited_ip());
        let (false, Ok(claim)) = (is_full, claim) else {
            requests.common.tally.happened(Event::StreamRefused);
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        };
        if let Some(carrier) = self.table.get_mut(carrier) {
            carrier.requests = carrier.requests.wrapping_add(1);
        }
        let (parts, body) = request.into_parts();
        let is_all = body.is_end_stream();
        let mut stream = Stream::new(body, respond, requests.wakes.clients.waker(number), ledger);
        if stream.is_reset() {
            return;
        }
        let paying = self.payers.take();
        let charged = paying.charged();
        let transport = Transport::of_stream(stream, Source::Client(number));
        let (audience, now_us) = (self.audience, requests.now_us);
        let connection = Connection::new(number, transport, peer, audience, claim, paying, now_us);
        let connection = Box::new(connection);
        drop(charged);
        self.table.add(connection);
        self.streams += 1;
        let Some(connection) = self.table.get_mut(number) else {
            return;
        };
        let fate = connection.take_request(&parts, is_all, requests, poller);
        self.settle(number, fate, requests, poller);
    }
}

impl Connection {
    fn take_brought(&mut self) -> Vec<Brought> {
        match &mut self.phase {
            Phase::Carrying(carrier) => carrier.take_brought(),
            _ => Vec::new(),
        }
    }

    /// The peer and the ledger that the streams of this connection share.
    fn lends(&mut self) -> Option<(Rc<Peer>, Rc<Ledger>)> {
        let Phase::Carrying(carrier) = &self.phase else {
            return None;
        };
        Some((Rc::clone(&self.peer), carrier.ledger()))
    }

    /// Takes the head of the stream's request.
    fn take_request(
        &mut self,
        parts: &Parts,
        is_all: bool,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Fate {
        let _charged = self.paying.charged();
        let path = parts
            .uri
            .path_and_query()
            .map(|path| path.as_str().as_bytes());
        let authority = parts.uri.authority().map(|name| name.as_str().as_bytes());
        let stream_head = StreamHead {
            method: parts.method.as_str().as_bytes(),
            path,
            authority,
            is_all,
            is_websocket: is_websocket(parts),
        };
        let fields = parts.headers.iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            .collect();
        let mut head = requests.buffers.heads.take();
        let list_bytes_max = requests.common.settings.http2_max_header_list_size as usize;
        let rules = &requests.policy.rules;
        let step = match stream_head.read(&fields, list_bytes_max, rules, &mut head) {
            Ok(()) => self.begin_stream(head, requests),
            Err(fault) => self.refuse_unread(fault.into(), requests),
        };
        match step {
            Step::Close => Fate::Ends,
            Step::On | Step::Wait => self.drive(None, requests, poller),
        }
    }
}

/// Whether the request asks for a WebSocket (RFC 8441 section 4).
fn is_websocket(parts: &Parts) -> bool {
    let protocol = parts.extensions.get::<Protocol>();
    protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}
