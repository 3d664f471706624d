//! Frames on their way to the client, of messages that the worker has written.

use std::rc::Rc;

use bytes::{Buf, Bytes};
use stanchion_exchange::AnswerEnd;
use stanchion_websocket::{Close, code};

use super::Session;
use super::ending::End;
use super::outward::{FrameEncoder, Last};
use crate::outcome::Written;
use crate::transport::Transport;
use stanchion_dispatch::outflow::Outgoing;
use stanchion_generation::tally::{Event, Tally};
use stanchion_record::{MESSAGE_HEAD_BYTES, restart};
use stanchion_requests::Requests;

/// How many bytes of a worker's messages become frames at a time. The client has to take these before there are more.
const TAKEN_BYTES: usize = 128 << 10;
/// From this size on a message goes from the worker's memory to the socket without a copy of ours. Smaller messages that
/// come together are better sent together.
const SENT_IN_PLACE_BYTES: usize = 8 << 10;

/// Bytes for the client.
pub(super) struct ToClient {
    pub(super) outward: FrameEncoder,
    /// Bytes that the kernel has not taken yet.
    pub(super) pending: Bytes,
    /// How many bytes of frames went to the client.
    pub(super) bytes: u64,
    /// How many bytes of the head and of frames the kernel has taken.
    pub(super) written: u64,
}

impl ToClient {
    /// Begins with the `pending` bytes, for a client that takes compressed messages if it `deflates`.
    pub(super) fn new(pending: Bytes, deflates: bool) -> Self {
        Self {
            outward: FrameEncoder::new(deflates),
            pending,
            bytes: 0,
            written: 0,
        }
    }

    /// Writes as many of the pending bytes as there is room for.
    fn write(&mut self, transport: &mut Transport) -> Written {
        let written = transport.write(&self.pending);
        if let Written::Bytes(len) = written {
            self.pending.advance(len.get());
            self.written += len.get() as u64;
        }
        written
    }
}

impl Session {
    /// Writes as many bytes to the client as there are, and returns the outcome.
    pub(super) fn write_to_client(
        &mut self,
        transport: &mut Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        let is_large_next = self.gather(transport.socket().is_some(), requests);
        if !self.to_client.pending.is_empty() {
            return Some(self.to_client.write(transport));
        }
        if is_large_next {
            return self.write_in_place(transport, requests);
        }
        None
    }

    /// Sends bytes of a message from where the worker has written them.
    fn write_in_place(
        &mut self,
        transport: &mut Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        let socket = transport.socket()?;
        let readable = requests.dispatch.slots.messages_len(&self.ticket);
        let outward = &self.to_client.outward;
        let (head, len) = outward.next_frame(readable.min(TAKEN_BYTES))?;
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
            self.to_client.pending = Bytes::from(out);
            return Some(written);
        };
        let sent_before = self.to_client.outward.sent.count;
        self.to_client.outward.sent_in_place(len);
        self.count_sent(sent_before, &requests.common.tally);
        self.to_client.bytes += (head.len() + len) as u64;
        self.to_client.written += bytes.get() as u64;
        if bytes.get() < head.len() {
            self.to_client.pending = Bytes::from([&head[bytes.get()..], &left].concat());
        } else if left.is_empty() {
            requests.dispatch.buffers.keep(left);
        } else {
            self.to_client.pending = Bytes::from(left);
        }
        Some(written)
    }

    /// Takes messages from the worker, once the client has taken those before. A large message may be sent `in_place`. Gives
    /// whether one comes next.
    fn gather(&mut self, in_place: bool, requests: &mut Requests) -> bool {
        if !self.to_client.pending.is_empty() {
            return false;
        }
        // The pong comes before the worker's messages: a message may be the worker's answer to one that came behind the
        // ping, and the server sends a pong as soon as it can (RFC 6455 section 5.5.2).
        let mut out = std::mem::take(self.socket.out());
        let is_large_next =
            !self.ending.is_closed() && self.take_messages(in_place, requests, &mut out);
        // The close comes last if the worker has closed the session, whatever the worker has written behind it.
        out.append(self.socket.out());
        self.to_client.pending = Bytes::from(out);
        is_large_next
    }

    /// Makes frames of the worker's next messages, or gives whether a large one is to be sent in place.
    fn take_messages(
        &mut self,
        in_place: bool,
        requests: &mut Requests,
        out: &mut Vec<u8>,
    ) -> bool {
        let ticket = Rc::clone(&self.ticket);
        for has_looked in [false, true] {
            match ticket.next_piece() {
                Outgoing::Piece(piece) => {
                    self.take_records(piece.as_slice(), out, requests);
                    return false;
                }
                Outgoing::End(end) => {
                    self.worker_is_done(end, requests.now_us);
                    return false;
                }
                Outgoing::Nothing => {}
            }
            ticket.outflow(|outflow| outflow.fetches(true, requests.now_us));
            if in_place && self.finds_large(out, requests) {
                return true;
            }
            if self.take_some(out, requests) {
                return false;
            }
            // Nothing is there; the stream may have ended, or a message has come meanwhile. Messages that come later wake the
            // connection.
            if has_looked || !requests.dispatch.news(&ticket, requests.now_us) {
                return false;
            }
        }
        false
    }

    /// Counts the messages that were sent since there were `before`.
    fn count_sent(&self, before: u64, tally: &Tally) {
        let sent = self.to_client.outward.sent.count - before;
        tally.happened_times(Event::SessionSent, sent);
    }

    /// Whether the worker has so much of a message ready that it is better sent from where it stands.
    fn finds_large(&mut self, out: &mut Vec<u8>, requests: &mut Requests) -> bool {
        let readable = requests.dispatch.slots.messages_len(&self.ticket);
        if readable < MESSAGE_HEAD_BYTES + SENT_IN_PLACE_BYTES {
            return false;
        }
        if let Some(len) = self.to_client.outward.missing_head() {
            let mut head = Vec::new();
            let (dispatch, ticket) = (&mut requests.dispatch, &self.ticket);
            dispatch.slots.take_messages(ticket, len, &mut head);
            self.take_records(&head, out, requests);
        }
        let outward = &self.to_client.outward;
        let part = outward.next_frame(readable - MESSAGE_HEAD_BYTES);
        let is_large = part.is_some_and(|(_, len)| len >= SENT_IN_PLACE_BYTES);
        is_large && out.is_empty() && !self.ending.is_worker_done
    }

    /// Makes frames of some of the worker's messages; false if there are none.
    fn take_some(&mut self, out: &mut Vec<u8>, requests: &mut Requests) -> bool {
        let mut bytes = requests.dispatch.buffers.take();
        let (dispatch, ticket) = (&mut requests.dispatch, &self.ticket);
        let len = dispatch
            .slots
            .take_messages(ticket, TAKEN_BYTES, &mut bytes);
        self.take_records(&bytes, out, requests);
        requests.dispatch.buffers.keep(bytes);
        len > 0
    }

    fn take_records(&mut self, bytes: &[u8], out: &mut Vec<u8>, requests: &mut Requests) {
        if self.ending.is_worker_done {
            return;
        }
        let (before, sent_before) = (out.len(), self.to_client.outward.sent.count);
        let taken = self.to_client.outward.take(bytes, out);
        self.to_client.bytes += (out.len() - before) as u64;
        self.count_sent(sent_before, &requests.common.tally);
        let now_us = requests.now_us;
        match taken {
            Ok(None) => {}
            Ok(Some(last)) => {
                self.ending.is_worker_done = true;
                match last {
                    Last::Close(close) => self.close(End::ByApp, &close, now_us),
                    Last::Fault(close) => self.close(End::ForClient, &close, now_us),
                    Last::Restart => self.close(End::Restart, &restart(), now_us),
                }
            }
            Err(corrupt) => {
                let ticket = Rc::clone(&self.ticket);
                requests.dispatch.slots.distrust(&ticket, corrupt);
                self.worker_is_done(AnswerEnd::Broken, now_us);
            }
        }
    }

    /// Closes a session whose worker has given the slot back, or is dead, without a close.
    fn worker_is_done(&mut self, end: AnswerEnd, now_us: u64) {
        self.ending.is_worker_done = true;
        self.to_worker.inward.clear();
        let why = match end {
            AnswerEnd::Complete if self.to_client.outward.is_between() => {
                Close::new(code::NORMAL, "")
            }
            AnswerEnd::Complete | AnswerEnd::Broken => {
                Close::new(code::FAILED, "the app has failed")
            }
        };
        self.close(End::ForWorker, &why, now_us);
    }

    /// Whether the worker may have more messages, for which there is room.
    pub(super) fn has_more_for_client(
        &mut self,
        transport: &Transport,
        requests: &mut Requests,
    ) -> bool {
        if !self.to_client.pending.is_empty() {
            return false;
        }
        let is_large_next = self.gather(transport.socket().is_some(), requests);
        !self.to_client.pending.is_empty() || is_large_next
    }
}
