//! The HTTP/2 streams that a connection brings: each becomes a connection.
//!
//! Such a connection has a number of its own, and every deadline and account that a connection has. It differs only in
//! its transport (`super::stream`), so no other code knows of streams. Its head goes through the one reader of heads
//! (`stanchion_http::http2`).

use std::rc::Rc;

use h2::Reason;

use super::Connections;
use super::connection::Connection;
use super::link::ClientLink;
use super::phase::Brought;
use super::poller::{Poller, Token};
use super::stream::Http2Stream;
use super::transport::Transport;
use stanchion_generation::tally::Event;
use stanchion_requests::Requests;

impl Connections {
    /// Makes connections of the streams that this connection has brought.
    pub(super) fn begin_streams(&mut self, number: u32, requests: &mut Requests, poller: &Poller) {
        let Some(carrier) = self.table.get_mut(number) else {
            return;
        };
        for brought in carrier.phase.take_brought() {
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
        let Some(carrier) = self.table.get_mut(carrier) else {
            return;
        };
        let (peer, Some(ledger)) = (Rc::clone(&carrier.link.peer), carrier.phase.ledger()) else {
            return;
        };
        // There may be as many streams as connections, and a client may have as many streams as connections. A client whose
        // stream is refused may try again (RFC 9113 section 8.7).
        let is_full = self.streams >= requests.common.settings.limits.max_connections as usize;
        self.streams_wait |= is_full;
        let claim = requests.connection_shares.claim_stream(peer.limited_ip());
        let (false, Ok(claim)) = (is_full, claim) else {
            requests.common.tally.happened(Event::StreamRefused);
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        };
        carrier.link.requests = carrier.link.requests.wrapping_add(1);
        let (parts, body) = request.into_parts();
        let is_all = body.is_end_stream();
        let mut stream =
            Http2Stream::new(body, respond, requests.wakes.clients.waker(number), ledger);
        if stream.is_reset() {
            return;
        }
        let paying = self.payers.take();
        let charged = paying.charged();
        let transport = Transport::of_stream(stream, Token::Client(number));
        let link = ClientLink::new(number, transport, peer, self.audience, claim);
        let connection = Box::new(Connection::new(link, paying, requests.now_us));
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
