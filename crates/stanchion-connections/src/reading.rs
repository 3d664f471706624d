//! A request on its way in: its head, and its body.
//!
//! If a head arrives byte by byte, not every byte wakes the loop: the kernel collects bytes (`SO_RCVLOWAT`), and the
//! check of deadlines (`super::judging`) reads them, each time after half of the time that the head has taken so far.
//!
//! A chunked request gets a `Content-Length` once its body has been read, unless uploads stream, and its
//! `Transfer-Encoding` is removed, as the decoder in RFC 9112 section 7.1.3 does. gunicorn passes the request on
//! without a length; Django then reads an empty body.

use bytes::Bytes;
use stanchion_http::{Decoded, Decoder, Framing, Head, HeadRules, Permits};
use stanchion_sys::charge;

use super::connection::{Audience, Connection, Phase, Step, Waiting};
use super::form::HeadForm;
use super::pace::{Pace, body_pace, doze_us};
use super::transport::{DRIPPED_BYTES, Read};
use super::turns::WHOLE_BYTES;
use super::upload::Early;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::Body;
use stanchion_requests::body::{Sink, SinkState};
use stanchion_requests::{Account, Requests};

/// The rules for heads of operators' requests.
const OPERATORS_RULES: HeadRules = HeadRules {
    line_bytes: 8 << 10,
    field_bytes: 8 << 10,
    fields: 100,
    head_bytes: 16 << 10,
    permits: Permits::NONE,
};
/// RFC 9110 section 15.2.1.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A head of which a part has come.
pub(super) struct PartialHead {
    pub(super) since_us: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) form: HeadForm,
    pub(super) head: Head,
    /// Until when the connection stays asleep although a few bytes of the head come.
    pub(super) dozes_until_us: Option<u64>,
}

/// A body that the server reads, and its request.
pub(super) struct ReadingBody {
    pub(super) head: Head,
    pub(super) decoder: Decoder,
    pub(super) sink: Sink,
    /// How fast the body comes.
    pub(super) pace: Pace,
    pub(super) account: Account,
    pub(super) started_us: u64,
    /// Whether the request joins the line before the body is whole.
    early: Early,
}

/// Bytes that have come, and are not parsed yet.
enum Came<'b> {
    /// Bytes that were just read: those of a buffer that is lent, from this index on.
    Now {
        buffer: &'b mut Vec<u8>,
        from: usize,
    },
    /// Bytes that came behind the request before, and were kept.
    Before(Bytes),
}

impl<'b> Came<'b> {
    fn now(buffer: &'b mut Vec<u8>) -> Self {
        Self::Now { buffer, from: 0 }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Now { buffer, from } => &buffer[*from..],
            Self::Before(bytes) => bytes,
        }
    }

    /// The bytes behind the first `len`.
    fn behind(self, len: usize) -> Self {
        match self {
            Self::Now { buffer, from } => Self::Now {
                buffer,
                from: from + len,
            },
            Self::Before(bytes) => Self::Before(bytes.slice(len..)),
        }
    }

    /// The bytes, to be kept. They are copied once, however many requests they hold.
    fn kept(self) -> Bytes {
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

impl Connection {
    pub(super) fn read_head(&mut self, requests: &mut Requests) -> Step {
        if !self.ahead.is_empty() {
            let bytes = std::mem::take(&mut self.ahead);
            return self.head_came(Came::Before(bytes), requests);
        }
        if !self.transport.is_readable() {
            self.doze(requests);
            return Step::Wait;
        }
        requests.with_scratch(|scratch, requests| match self.transport.read(scratch) {
            Read::Bytes(_) => self.head_came(Came::now(scratch), requests),
            // Only records without plaintext have come.
            Read::Nothing if self.transport.has_had_its_turn() => {
                self.wake_later(requests);
                Step::Wait
            }
            Read::Nothing => {
                self.doze(requests);
                Step::Wait
            }
            // In the middle of a head there is nothing to answer.
            Read::End | Read::Failed => Step::Close,
        })
    }

    fn head_came(&mut self, came: Came<'_>, requests: &mut Requests) -> Step {
        let (now_us, bytes) = (requests.now_us, came.bytes());
        if let Some(step) = self.is_http2(bytes, requests) {
            return step;
        }
        if matches!(self.phase, Phase::New { .. })
            && let Some(refusal) = self.unfit(bytes, requests)
        {
            return self.refuse_unread(refusal, requests);
        }
        let rules = match self.audience {
            Audience::Clients => requests.policy.rules,
            Audience::Operators => OPERATORS_RULES,
        };
        if let Phase::Head(partial) = &mut self.phase {
            partial.bytes.extend_from_slice(bytes);
            let PartialHead {
                bytes, form, head, ..
            } = &mut **partial;
            return match form.read(bytes, &rules, head) {
                Ok(None) => Step::On,
                Ok(Some(len)) => {
                    let Phase::Head(partial) =
                        std::mem::replace(&mut self.phase, Phase::Idle { since_us: now_us })
                    else {
                        return Step::Close;
                    };
                    self.transport.wake_at(1);
                    let rest = Bytes::copy_from_slice(&partial.bytes[len..]);
                    self.begin(partial.head, Came::Before(rest), requests)
                }
                Err(fault) if !form.is_whole() => self.refuse_unread(fault.into(), requests),
                Err(fault) => {
                    let head = std::mem::take(head);
                    self.refuse_head(fault.into(), head, requests)
                }
            };
        }
        let mut form = self.form();
        let mut head = requests.buffers.heads.take();
        match form.read(bytes, &rules, &mut head) {
            Ok(Some(len)) => self.begin(head, came.behind(len), requests),
            Ok(None) => {
                self.phase = Phase::Head(Box::new(PartialHead {
                    since_us: now_us,
                    bytes: bytes.to_vec(),
                    form,
                    head,
                    dozes_until_us: None,
                }));
                Step::On
            }
            Err(fault) if !form.is_whole() => self.refuse_unread(fault.into(), requests),
            Err(fault) => self.refuse_head(fault.into(), head, requests),
        }
    }

    /// Begins the request of an HTTP/2 stream, whose head has come.
    pub(super) fn begin_stream(&mut self, head: Head, requests: &mut Requests) -> Step {
        self.begin(head, Came::Before(Bytes::new()), requests)
    }

    /// Refuses a request whose head has come whole, but is wrong.
    fn refuse_head(&mut self, refusal: Refusal, head: Head, requests: &mut Requests) -> Step {
        if self.audience == Audience::Operators {
            return self.refuse_unread(refusal, requests);
        }
        self.requests = self.requests.wrapping_add(1);
        let (account, started_us) = (requests.record.arrives(), requests.now_us);
        self.refuse(refusal, head, account, started_us, requests)
    }

    /// Bytes of a head came, or the loop looked for some. Bytes that drip are left to gather: to wake the connection for
    /// each of them would cost as much as a request.
    fn doze(&mut self, requests: &Requests) {
        let now_us = requests.now_us;
        let Phase::Head(partial) = &mut self.phase else {
            return;
        };
        let since_us = partial.since_us;
        let took_us = now_us.saturating_sub(since_us);
        let limit = requests.common.settings.header_timeout.as_duration();
        partial.dozes_until_us = doze_us(partial.bytes.len() as u64, took_us)
            .map(|doze_us| now_us + doze_us)
            .filter(|until_us| {
                limit.is_none_or(|limit| u128::from(until_us - since_us) < limit.as_micros())
            });
        let dozes = partial.dozes_until_us.is_some();
        self.transport
            .wake_at(if dozes { DRIPPED_BYTES } else { 1 });
    }

    /// Begins a request whose head has come whole, with the bytes `rest` behind it.
    fn begin(&mut self, head: Head, rest: Came<'_>, requests: &mut Requests) -> Step {
        self.requests = self.requests.wrapping_add(1);
        // A request pays for what earlier connections of the client have wasted.
        self.turns.count(0, 0, WHOLE_BYTES, requests.now_us);
        self.closing |= self.transport.is_worn();
        if self.audience == Audience::Operators {
            self.ahead = rest.kept();
            // Operators' requests need no body; the server does not read one.
            self.closing |= head.framing() != Framing::Empty;
            self.phase = Phase::Asked(Box::new(head));
            return Step::On;
        }
        if self.peer.sends_packets
            && let Some(step) = self.is_of_packet(&head, requests)
        {
            return step;
        }
        let account = requests.record.arrives();
        let started_us = requests.now_us;
        let framing = head.framing();
        if framing == Framing::Empty {
            self.ahead = rest.kept();
            return self.arrive(head, Body::Empty, account, started_us, requests);
        }
        if requests.policy.sends_on(&head, &self.peer) {
            self.closing = true;
            self.unread = true;
            return self.arrive(head, Body::Empty, account, started_us, requests);
        }
        let body_max = requests.common.settings.limit_request_body;
        if let Framing::Length(len) = framing
            && body_max > 0
            && len > body_max
        {
            return self.refuse(Refusal::BodyTooLarge, head, account, started_us, requests);
        }
        if let Some(refusal) = requests.serving.lifecycle.refusal() {
            return self.refuse(refusal, head, account, started_us, requests);
        }
        let has_begun = !rest.bytes().is_empty();
        if head.expects_continue() && !has_begun && !self.write_interim(CONTINUE) {
            return Step::Close;
        }
        let sink = requests.sink(&self.peer, &head, framing, self.number);
        self.phase = Phase::Body(Box::new(ReadingBody {
            head,
            decoder: Decoder::new(framing),
            sink,
            pace: Pace::begin(body_pace(&requests.common.settings), started_us),
            account,
            started_us,
            early: Early::of(&requests.common.settings),
        }));
        if has_begun {
            return self.body_came(rest, requests);
        }
        Step::On
    }

    pub(super) fn read_body(&mut self, requests: &mut Requests) -> Step {
        let Phase::Body(body) = &mut self.phase else {
            return Step::On;
        };
        if let Some(refusal) = requests.serving.lifecycle.refusal() {
            return self.refuse_body(refusal, requests);
        }
        match requests.storage.advance(&mut body.sink, requests.now_us) {
            SinkState::Ready => body.pace.go_on(requests.now_us),
            SinkState::Busy => {
                body.pace.hold(requests.now_us);
                return Step::Wait;
            }
            SinkState::Failed(refusal) => return self.refuse_body(refusal, requests),
        }
        if body.decoder.is_over() {
            return self.body_is_whole(requests);
        }
        if !self.ahead.is_empty() {
            let bytes = std::mem::take(&mut self.ahead);
            return self.body_came(Came::Before(bytes), requests);
        }
        if body.early.is_now(&body.sink, requests.now_us) {
            return self.join_early(requests);
        }
        if !self.transport.is_readable() {
            body.early.wait(&body.sink, self.number, requests);
            return Step::Wait;
        }
        if self.transport.has_had_its_turn() {
            self.wake_later(requests);
            return Step::Wait;
        }
        // The body is read straight into its place, where its framing allows nothing in between.
        let (plain, room) = (body.decoder.plain_left(), body.early.room(&body.sink));
        if let Some(place) = body.sink.place(plain) {
            let before = place.len();
            let read = self.transport.read(place);
            let extra = match read {
                Read::Bytes(len) => {
                    let extra = (len as u64).saturating_sub(plain) as usize;
                    let kept = place.len() - extra;
                    self.ahead = Bytes::copy_from_slice(&place[kept..]);
                    place.truncate(kept);
                    kept - before
                }
                Read::Nothing => return Step::On,
                Read::End | Read::Failed => {
                    return self.refuse_body(Refusal::BodyCutShort, requests);
                }
            };
            body.decoder.took(extra as u64);
            body.sink.placed(extra);
            body.pace.came(extra, requests.now_us);
            return Step::On;
        }
        let mut come = |buffer: &mut Vec<u8>, requests: &mut Requests| {
            match self.transport.read(buffer) {
                Read::Bytes(_) => self.body_came(Came::now(buffer), requests),
                // The transport is not readable any more.
                Read::Nothing => Step::On,
                Read::End if self.is_body_at_end() => Step::On,
                Read::End | Read::Failed => self.refuse_body(Refusal::BodyCutShort, requests),
            }
        };
        match room {
            Some(room) => come(&mut Vec::with_capacity(room), requests),
            None => requests.with_scratch(come),
        }
    }

    /// Whether the body ends where the client's bytes end.
    fn is_body_at_end(&mut self) -> bool {
        let Phase::Body(body) = &mut self.phase else {
            return false;
        };
        let is_whole = body.decoder.end();
        if is_whole {
            body.sink.end();
        }
        is_whole
    }

    fn body_came(&mut self, mut came: Came<'_>, requests: &mut Requests) -> Step {
        let body_max = requests.common.settings.limit_request_body;
        // A chunk counts as its head announces it: the connection would wait for the rest of it in vain.
        let is_too_long = |sink: &Sink, decoder: &Decoder| {
            body_max > 0 && sink.len().saturating_add(decoder.announced()) > body_max
        };
        let Phase::Body(body) = &mut self.phase else {
            return Step::On;
        };
        if let Some(piece) = came.take_with_buffer(body.decoder.plain_left()) {
            body.decoder.took(piece.len() as u64);
            body.pace.came(piece.len(), requests.now_us);
            body.sink.add_piece(piece);
            if is_too_long(&body.sink, &body.decoder) {
                return self.refuse_body(Refusal::BodyTooLarge, requests);
            }
        }
        let mut rest = came.bytes();
        loop {
            match body.decoder.decode(&mut rest) {
                Ok(Decoded::Data(data)) => {
                    body.sink.add(data);
                    if is_too_long(&body.sink, &body.decoder) {
                        return self.refuse_body(Refusal::BodyTooLarge, requests);
                    }
                    body.pace.came(data.len(), requests.now_us);
                }
                Ok(Decoded::More) if is_too_long(&body.sink, &body.decoder) => {
                    return self.refuse_body(Refusal::BodyTooLarge, requests);
                }
                Ok(Decoded::More) => return Step::On,
                Ok(Decoded::End) => {
                    let len = came.bytes().len() - rest.len();
                    body.sink.end();
                    self.ahead = came.behind(len).kept();
                    return Step::On;
                }
                Err(fault) => return self.refuse_body(Refusal::of_body(fault), requests),
            }
        }
    }

    fn body_is_whole(&mut self, requests: &mut Requests) -> Step {
        let now_us = requests.now_us;
        let idle = Phase::Idle { since_us: now_us };
        let Phase::Body(body) = std::mem::replace(&mut self.phase, idle) else {
            return Step::On;
        };
        let ReadingBody {
            mut head,
            sink,
            account,
            started_us,
            early,
            ..
        } = *body;
        // The length of a whole body is known, and the fields tell it instead of chunks (RFC 9112 section 7.1.3). Where some
        // requests join the line before their bodies are whole, apps find the fields of all requests as they were sent.
        let was_unknown = matches!(head.framing(), Framing::Chunked | Framing::ToEnd);
        if was_unknown && early == Early::Never {
            head.remove("transfer-encoding");
            head.set("content-length", sink.len().to_string().as_bytes());
        }
        self.arrive(head, sink.into_body(), account, started_us, requests)
    }

    /// A request has arrived whole, and joins the line.
    fn arrive(
        &mut self,
        head: Head,
        body: Body,
        account: Account,
        started_us: u64,
        requests: &mut Requests,
    ) -> Step {
        let (ticket, looking) = requests.join(head, body, &self.peer, started_us, self.number);
        self.phase = Phase::Waiting(Waiting {
            ticket,
            account,
            looking,
        });
        Step::On
    }

    /// Refuses a request while its body comes. The rest of the body is not read.
    pub(super) fn refuse_body(&mut self, refusal: Refusal, requests: &mut Requests) -> Step {
        let over = Phase::Over;
        let Phase::Body(body) = std::mem::replace(&mut self.phase, over) else {
            return Step::On;
        };
        let ReadingBody {
            head,
            account,
            started_us,
            ..
        } = *body;
        self.refuse(refusal, head, account, started_us, requests)
    }

    /// Refuses a request of which a part was not read.
    fn refuse(
        &mut self,
        refusal: Refusal,
        head: Head,
        account: Account,
        started_us: u64,
        requests: &mut Requests,
    ) -> Step {
        self.closing = true;
        self.unread = true;
        let ticket = requests.refused(refusal, head, &self.peer, started_us, self.number);
        self.phase = Phase::Waiting(Waiting {
            ticket,
            account,
            looking: None,
        });
        Step::On
    }
}
