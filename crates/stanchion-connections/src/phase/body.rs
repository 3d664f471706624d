//! A request on its way in: its body.
//!
//! A chunked request gets a `Content-Length` once its body has been read, unless uploads stream, and its
//! `Transfer-Encoding` is removed, as the decoder in RFC 9112 section 7.1.3 does. gunicorn passes the request on
//! without a length; Django then reads an empty body.

use bytes::Bytes;
use stanchion_http::{Decoded, Decoder, Framing, Head};
use stanchion_sys::charge;

use super::upload::{Arrived, Early, Upload, check_len};
use super::waiting::{Waiting, arrive, refuse};
use super::{Phase, Step};
use crate::link::ClientLink;
use crate::outcome::Read;
use crate::pace::{Pace, body_pace};
use stanchion_dispatch::refusal::Refusal;
use stanchion_requests::body::{Sink, SinkState};
use stanchion_requests::{Account, Requests};
use stanchion_settings::Settings;

/// A body that the server reads, and its request.
pub(crate) struct ReadingBody {
    pub(super) head: Head,
    decoder: Decoder,
    sink: Sink,
    /// How fast the body comes.
    pub(super) pace: Pace,
    account: Account,
    started_us: u64,
    /// Whether the request joins the line before the body is whole.
    early: Early,
}

/// Bytes that have come, and are not parsed yet.
pub(super) enum UnparsedBytes<'b> {
    /// Bytes that were just read: those of a buffer that is lent, from this index on.
    Now {
        buffer: &'b mut Vec<u8>,
        from: usize,
    },
    /// Bytes that came behind the request before, and were kept.
    Before(Bytes),
}

impl<'b> UnparsedBytes<'b> {
    pub(super) fn now(buffer: &'b mut Vec<u8>) -> Self {
        Self::Now { buffer, from: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Now { buffer, from } => &buffer[*from..],
            Self::Before(bytes) => bytes,
        }
    }

    /// The bytes behind the first `len`.
    pub(super) fn behind(self, len: usize) -> Self {
        match self {
            Self::Now { buffer, from } => Self::Now {
                buffer,
                from: from + len,
            },
            Self::Before(bytes) => Self::Before(bytes.slice(len..)),
        }
    }

    /// The bytes, to be kept. They are copied once, however many requests they hold.
    pub(super) fn kept(self) -> Bytes {
        match self {
            Self::Now { buffer, from } => Bytes::copy_from_slice(&buffer[from..]),
            Self::Before(bytes) => bytes,
        }
    }

    /// Takes the first `max` bytes, or as many as there are, with the buffer that they are in. `None` if they do not fill
    /// half of it: then a copy costs less.
    fn take_with_buffer(&mut self, max: u64) -> Option<Bytes> {
        let Self::Now { buffer, from } = self else {
            return None;
        };
        let len = max.min((buffer.len() - *from) as u64) as usize;
        if len < buffer.capacity() / 2 {
            return None;
        }
        let mut taken = std::mem::take(*buffer);
        charge::take_over(&mut taken);
        let mut piece = Bytes::from(taken).split_off(*from);
        let behind = piece.split_off(len);
        *self = Self::Before(behind);
        Some(piece)
    }
}

impl ReadingBody {
    /// Begins to read the body of a request whose head has come.
    pub(super) fn new(
        head: Head,
        sink: Sink,
        account: Account,
        started_us: u64,
        settings: &Settings,
    ) -> Self {
        Self {
            decoder: Decoder::new(head.framing()),
            head,
            sink,
            pace: Pace::begin(body_pace(settings), started_us),
            account,
            started_us,
            early: Early::of(settings),
        }
    }

    /// Reads on, if the bytes before are stored.
    pub(super) fn go_on(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        let now_us = requests.now_us;
        if let Some(refusal) = requests.serving.lifecycle.refusal() {
            return self.refuse(refusal, link, requests);
        }
        match requests.storage.advance(&mut self.sink, now_us) {
            SinkState::Ready => self.pace.go_on(now_us),
            SinkState::Busy => {
                self.pace.hold(now_us);
                return Step::Wait(Phase::Body(self));
            }
            SinkState::Failed(refusal) => return self.refuse(refusal, link, requests),
        }
        if self.decoder.is_over() {
            return self.is_whole(link, requests);
        }
        if !link.ahead.is_empty() {
            let bytes = std::mem::take(&mut link.ahead);
            return self.came(UnparsedBytes::Before(bytes), link, requests);
        }
        if self.early.is_now(&self.sink, now_us) {
            return self.join_early(link, requests);
        }
        if !link.transport.is_readable() {
            let later = &mut requests.wakes.later;
            self.early.wait(&self.sink, link.number, later, now_us);
            return Step::Wait(Phase::Body(self));
        }
        if link.transport.has_had_its_turn() {
            link.wake_later(&requests.wakes, now_us);
            return Step::Wait(Phase::Body(self));
        }
        let plain = self.decoder.plain_left();
        // The body is read straight into its place, where its framing allows nothing in between.
        if let Some(place) = self.sink.place(plain) {
            match read_into_place(place, plain, link) {
                Read::Bytes(len) => {
                    self.decoder.took(len as u64);
                    self.sink.placed(len);
                    self.pace.came(len, now_us);
                }
                Read::Nothing => {}
                Read::End | Read::Failed => {
                    return self.refuse(Refusal::BodyCutShort, link, requests);
                }
            }
            return Step::On(Phase::Body(self));
        }
        match self.early.room(&self.sink) {
            Some(room) => self.read_into(&mut Vec::with_capacity(room), link, requests),
            None => {
                requests.with_scratch(|scratch, requests| self.read_into(scratch, link, requests))
            }
        }
    }

    fn read_into(
        mut self: Box<Self>,
        buffer: &mut Vec<u8>,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        match link.transport.read(buffer) {
            Read::Bytes(_) => self.came(UnparsedBytes::now(buffer), link, requests),
            // The transport is not readable any more.
            Read::Nothing => Step::On(Phase::Body(self)),
            // The body ends where the client's bytes end.
            Read::End if self.decoder.end() => {
                self.sink.end();
                Step::On(Phase::Body(self))
            }
            Read::End | Read::Failed => self.refuse(Refusal::BodyCutShort, link, requests),
        }
    }

    /// Takes bytes of the body, and keeps those behind it.
    pub(super) fn came(
        mut self: Box<Self>,
        mut came: UnparsedBytes<'_>,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        let body_max = requests.common.settings.limits.limit_request_body;
        match self.take(&mut came, body_max, requests.now_us) {
            Ok(None) => Step::On(Phase::Body(self)),
            Ok(Some(len)) => {
                self.sink.end();
                link.ahead = came.behind(len).kept();
                Step::On(Phase::Body(self))
            }
            Err(refusal) => self.refuse(refusal, link, requests),
        }
    }

    /// Takes bytes of the body. Gives how many of `came` these were, if the body is over.
    fn take(
        &mut self,
        came: &mut UnparsedBytes<'_>,
        body_max: u64,
        now_us: u64,
    ) -> Result<Option<usize>, Refusal> {
        if let Some(piece) = came.take_with_buffer(self.decoder.plain_left()) {
            self.decoder.took(piece.len() as u64);
            self.pace.came(piece.len(), now_us);
            self.sink.add_piece(piece);
            self.check_len(body_max)?;
        }
        let mut rest = came.bytes();
        loop {
            match self.decoder.decode(&mut rest) {
                Ok(Decoded::Data(data)) => {
                    self.sink.add(data);
                    self.check_len(body_max)?;
                    self.pace.came(data.len(), now_us);
                }
                Ok(Decoded::More) => {
                    self.check_len(body_max)?;
                    return Ok(None);
                }
                Ok(Decoded::End) => return Ok(Some(came.bytes().len() - rest.len())),
                Err(fault) => return Err(Refusal::of_body(fault)),
            }
        }
    }

    fn check_len(&self, body_max: u64) -> Result<(), Refusal> {
        check_len(self.sink.len(), &self.decoder, body_max)
    }

    fn is_whole(self: Box<Self>, link: &ClientLink, requests: &mut Requests) -> Step {
        let Self {
            mut head,
            sink,
            account,
            started_us,
            early,
            ..
        } = *self;
        // The length of a whole body is known, and the fields tell it instead of chunks (RFC 9112 section 7.1.3). Where some
        // requests join the line before their bodies are whole, apps find the fields of all requests as they were sent.
        let was_unknown = matches!(head.framing(), Framing::Chunked | Framing::ToEnd);
        if was_unknown && early == Early::Never {
            head.remove("transfer-encoding");
            head.set("content-length", sink.len().to_string().as_bytes());
        }
        let body = sink.into_body();
        arrive(head, body, account, started_us, link, requests)
    }

    /// Has a request join the line with as much of its body as is there.
    fn join_early(self: Box<Self>, link: &ClientLink, requests: &mut Requests) -> Step {
        let Self {
            head,
            decoder,
            sink,
            pace,
            account,
            started_us,
            ..
        } = *self;
        let (len, start) = (sink.len(), sink.into_start());
        let (ticket, looking) = requests.join(head, start, &link.peer, started_us, link.number);
        let request = Arrived {
            ticket,
            account,
            upload: Some(Box::new(Upload::new(decoder, len, pace))),
        };
        Step::On(Phase::Waiting(Waiting { request, looking }))
    }

    /// Refuses the request while its body comes. The rest of the body is not read.
    pub(super) fn refuse(
        self: Box<Self>,
        refusal: Refusal,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        let Self {
            head,
            account,
            started_us,
            ..
        } = *self;
        refuse(refusal, head, account, started_us, link, requests)
    }
}

/// Reads the next bytes of a body behind those in `place`. Further bytes than the `plain` ones that are missing are kept.
fn read_into_place(place: &mut Vec<u8>, plain: u64, link: &mut ClientLink) -> Read {
    let before = place.len();
    let read = link.transport.read(place);
    let Read::Bytes(len) = read else {
        return read;
    };
    let extra = (len as u64).saturating_sub(plain) as usize;
    let kept = place.len() - extra;
    link.ahead = Bytes::copy_from_slice(&place[kept..]);
    place.truncate(kept);
    Read::Bytes(kept - before)
}
