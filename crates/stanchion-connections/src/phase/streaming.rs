//! A stream on its way from its worker to the client: piece by piece through our memory, through a file, through the
//! compressor, or straight from the worker's memory to the socket.

use std::rc::Rc;

use bytes::Bytes;
use stanchion_exchange::AnswerEnd;
use stanchion_http::{CHUNK_END, CHUNK_END_AND_LAST, LAST_CHUNK, chunk_head};
use stanchion_sys::outgoing::BEFORE_MAX;

use super::compressing::Compressing;
use super::sending::{BodyRest, Fetched, Sending};
use crate::outcome::Written;
use crate::transport::Transport;
use stanchion_dispatch::outflow::{Fetchable, Outflow, Outgoing};
use stanchion_dispatch::storage::memory::Piece;
use stanchion_dispatch::ticket::Ticket;
use stanchion_requests::spooler::Spooler;
use stanchion_requests::{Requests, Storage};

impl Sending {
    /// Fetches more of a stream when the bytes fetched last are out: so the server keeps little for a slow client. Bytes
    /// that can go from the worker's memory straight to the client, `in_place`, are left there for [`Self::fetch`].
    pub(super) fn fill(&mut self, connection: u32, in_place: bool, requests: &mut Requests) {
        let (BodyRest::Stream, Some(asked)) = (&self.source, &self.asked) else {
            return;
        };
        let ticket = Rc::clone(&asked.request.ticket);
        // This is done even if nothing is fetched now: everything that comes from here on is news.
        ticket.seen();
        loop {
            if let Some(compressing) = self.compressing.take() {
                self.compress(compressing, &ticket, requests);
                if !matches!(self.source, BodyRest::Stream) {
                    return;
                }
            } else if self.pending.is_empty() {
                match ticket.next_piece() {
                    Outgoing::Piece(piece) => {
                        self.count(piece.len());
                        self.frame(piece, &requests.storage);
                    }
                    Outgoing::End(end) => self.end(end, &requests.storage),
                    Outgoing::Nothing => {}
                }
            }
            if self.has_all() {
                self.let_go(&ticket, requests);
                return;
            }
            let fetches = in_place
                && !self.is_behind
                && self.compressing.is_none()
                && matches!(self.source, BodyRest::Stream);
            if ticket.outflow(|outflow| outflow.fetches(fetches, requests.now_us)) == Some(true) {
                return;
            }
            requests.dispatch.refill(&ticket, requests.now_us);
            let spools = ticket.outflow(|outflow| outflow.is_spooling()) == Some(true);
            if !spools && self.spooler.is_none() {
                return;
            }
            let spooler = self.spooler.get_or_insert_with(|| Spooler::new(connection));
            let changed = requests.spool(spooler, &ticket);
            if !spooler.is_needed() {
                self.spooler = None;
            }
            let is_away = self
                .compressing
                .as_ref()
                .is_some_and(|compressing| compressing.is_away());
            // The thread that compresses wakes the connection. Until then a full spool would report news each time.
            if !changed || !self.pending.is_empty() || is_away {
                return;
            }
        }
    }

    /// Sends bytes of a stream from where the worker has written them.
    pub(super) fn fetch(&mut self, transport: &mut Transport, requests: &mut Requests) -> Fetched {
        let (BodyRest::Stream, Some(asked)) = (&self.source, &self.asked) else {
            return Fetched::Nothing;
        };
        if !asked.request.ticket.is_fetched() || self.pending.len() >= BEFORE_MAX {
            return Fetched::Nothing;
        }
        let ticket = Rc::clone(&asked.request.ticket);
        let there = requests.dispatch.slots.fetchable(&ticket);
        if there.len > 0
            && let Some(written) = self.send_from_worker(&ticket, there, transport, requests)
        {
            return Fetched::Sent(written);
        }
        // Nothing is there; the stream may have ended.
        if requests.dispatch.news(&ticket, requests.now_us) {
            Fetched::News
        } else {
            Fetched::Nothing
        }
    }

    /// Sends the pending bytes, and those that are `there` of a stream behind them, in their frame: at the end of the stream
    /// with the last chunk, since a segment of its own would wake the client again.
    fn send_from_worker(
        &mut self,
        ticket: &Ticket,
        there: Fetchable,
        transport: &mut Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        let (socket, len) = (transport.socket()?, there.len);
        // A body of a known length ends without a last chunk: `has_all`.
        let is_last = there.is_last && self.is_chunked;
        let head = chunk_head(len);
        let (head, end): (&[u8], &[u8]) = match self.is_chunked {
            true if is_last => (&head, CHUNK_END_AND_LAST),
            true => (&head, CHUNK_END),
            false => Default::default(),
        };
        let mut before = [&[] as &[u8]; BEFORE_MAX];
        let pieces = self.pending.iter().map(Piece::as_slice).chain([head]);
        for (part, piece) in before.iter_mut().zip(pieces) {
            *part = piece;
        }
        let before = &before[..=self.pending.len()];
        let mut left = requests.dispatch.buffers.take();
        let dispatch = &mut requests.dispatch;
        let sent = dispatch
            .slots
            .send(ticket, len, socket, (before, end), &mut left)?;
        let written = transport.wrote(sent);
        let Written::Bytes(bytes) = written else {
            self.is_behind = true;
            return Some(written);
        };
        self.count(len);
        let unsent = (head.len() + len + end.len()).saturating_sub(self.advance(bytes.get()));
        let head_left = unsent.saturating_sub(len + end.len());
        let end_left = unsent.min(end.len());
        let head_left = Bytes::copy_from_slice(&head[head.len() - head_left..]);
        self.push(head_left, &requests.storage);
        if left.is_empty() {
            requests.dispatch.buffers.keep(left);
        } else {
            self.push(Bytes::from(left), &requests.storage);
        }
        let end_left = Bytes::copy_from_slice(&end[end.len() - end_left..]);
        self.push(end_left, &requests.storage);
        self.is_behind = !self.pending.is_empty();
        if is_last {
            self.let_go(ticket, requests);
        }
        Some(written)
    }

    /// Takes nothing more of a stream, because the client gets no more of it. Its worker may have finished with it.
    fn let_go(&mut self, ticket: &Ticket, requests: &mut Requests) {
        requests.dispatch.look_for(ticket, requests.now_us);
        self.source = BodyRest::Over;
        ticket.pour(Outflow::give_up);
        requests.dispatch.abandon(ticket, requests.now_us);
    }

    /// Whether a stream has given as many bytes as its head says.
    fn has_all(&self) -> bool {
        let wanted = self.asked.as_ref().and_then(|asked| asked.wanted);
        let is_plain = matches!(self.source, BodyRest::Stream) && self.compressing.is_none();
        is_plain && wanted == Some(0)
    }

    fn frame(&mut self, piece: Piece, storage: &Storage) {
        if self.is_chunked {
            self.push(Bytes::copy_from_slice(&chunk_head(piece.len())), storage);
            self.pending.push_back(piece);
            self.push(Bytes::from_static(CHUNK_END), storage);
        } else {
            self.pending.push_back(piece);
        }
    }

    fn end(&mut self, end: AnswerEnd, storage: &Storage) {
        match end {
            AnswerEnd::Complete => {
                self.source = BodyRest::Over;
                if self.is_chunked {
                    self.push(Bytes::from_static(LAST_CHUNK), storage);
                }
            }
            AnswerEnd::Broken => self.break_off(),
        }
    }

    /// Goes on with a stream that is compressed: compressed bytes go to the client, and when it has taken them, the next
    /// input goes to the encoder.
    fn compress(
        &mut self,
        mut compressing: Box<Compressing>,
        ticket: &Ticket,
        requests: &mut Requests,
    ) {
        match compressing.take() {
            Some(Ok(bytes)) => self.frame_compressed(Bytes::from(bytes), &requests.storage),
            Some(Err(())) => {
                // The worker may still be writing the stream.
                self.let_go(ticket, requests);
                return self.break_off();
            }
            None => {}
        }
        if compressing.is_over() {
            if self.is_chunked {
                self.push(Bytes::from_static(LAST_CHUNK), &requests.storage);
            }
            return self.let_go(ticket, requests);
        }
        if self.pending.is_empty() && compressing.is_here() {
            if !self.gather(&mut compressing, ticket) {
                return self.break_off();
            }
            compressing.go_on();
        }
        self.compressing = Some(compressing);
    }

    /// Takes as much of a body as is there; false if the body breaks off here.
    fn gather(&mut self, compressing: &mut Compressing, ticket: &Ticket) -> bool {
        while compressing.has_room() {
            match ticket.next_piece() {
                Outgoing::Piece(piece) => {
                    if let Some(asked) = &mut self.asked {
                        asked.took(piece.len());
                        compressing.has_end = asked.wanted == Some(0);
                    }
                    compressing.push(piece);
                }
                Outgoing::End(AnswerEnd::Complete) => compressing.has_end = true,
                // The pieces before the break go out first.
                Outgoing::End(AnswerEnd::Broken) => return !compressing.is_idle(),
                Outgoing::Nothing => break,
            }
        }
        true
    }

    fn frame_compressed(&mut self, bytes: Bytes, storage: &Storage) {
        if let Some(asked) = &mut self.asked {
            asked.gave(bytes.len());
        }
        if !bytes.is_empty() {
            self.frame(Piece::new(&storage.answers.memory, bytes), storage);
        }
    }
}
