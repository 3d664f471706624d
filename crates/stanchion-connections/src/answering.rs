//! The answer to a request: where it comes from, how it is framed, and what the connection does after it.

use bytes::Bytes;
use stanchion_http::{BodyLength, put_field};

use super::compressing::Compressing;
use super::connection::{Audience, Connection, Phase, Step, Waiting};
use super::sending::{Asked, Sending, Source};
use super::session::Session;
use super::transport::Written;
use stanchion_dispatch::collect::SWITCHING;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::storage::disk::OpenFile;
use stanchion_dispatch::ticket::{Answer, AppAnswer, Section, Start, Ticket};
use stanchion_generation::tally::{Event, Outcome};
use stanchion_requests::Requests;
use stanchion_requests::compressor::Plan;
use stanchion_requests::file::{FileBody, put_cached};
use stanchion_requests::head::{Ending, Extras};

/// An answer up to this size goes out with its head, in one piece: a copy costs less than a second slice.
pub(super) const TOGETHER_BYTES_MAX: usize = 16 << 10;

impl Connection {
    /// Begins to send the answer to a request.
    pub(super) fn answer(
        &mut self,
        waiting: Waiting,
        answer: Answer,
        requests: &mut Requests,
    ) -> Step {
        if let Some(trace) = &waiting.ticket.trace {
            trace.answered_us.set(requests.now_us);
        }
        match answer {
            Answer::App(answer) => self.answer_by_app(waiting, answer, Outcome::Answered, requests),
            Answer::Static(answer) => {
                self.answer_by_app(waiting, answer, Outcome::Static, requests)
            }
            Answer::Refused(refusal) => {
                requests.log_refusal(&waiting.ticket, refusal);
                let reply = requests.policy.named(refusal.reply(), &waiting.ticket);
                self.answer_by_us(waiting, &reply, refusal.outcome(), requests)
            }
            Answer::Ours(reply, outcome) => self.answer_by_us(waiting, &reply, outcome, requests),
        }
    }

    fn answer_by_app(
        &mut self,
        waiting: Waiting,
        answer: AppAnswer,
        outcome: Outcome,
        requests: &mut Requests,
    ) -> Step {
        if answer.facts.status == SWITCHING {
            return self.begin_session(waiting, &answer, requests);
        }
        let Waiting {
            ticket, account, ..
        } = waiting;
        let AppAnswer {
            bytes,
            head,
            facts,
            closes,
            body,
        } = answer;
        self.closing |= closes;
        let whole = bytes.len() - head.end;
        let plan: Option<Plan> = match outcome {
            Outcome::Answered => requests.compressor.as_ref().map(|compressor| {
                compressor.plan(&ticket, &bytes[head.clone()], facts, &body, whole)
            }),
            // A static file may have a compressed variant on disk already.
            _ => None,
        };
        let plan = plan.unwrap_or_default();
        let (length, is_told) = length_of(facts.length, &body, whole);
        // Trailers may still follow when the whole body is there, so the answer need not end with the last byte of the body.
        let wanted = length.filter(|_| !ticket.is_trailed());
        let mut asked = Asked {
            ticket,
            account,
            status: facts.status,
            outcome,
            head: Vec::new(),
            bytes: 0,
            wanted,
        };
        let begin = |encoder| Box::new(Compressing::new(encoder, self.number));
        let (wire, compressing) = match (plan.wire, plan.encoder.map(begin), &body) {
            (Some(wire), Some(compressing), Start::Whole) => {
                let plain = (Bytes::from(bytes), head);
                return self.compress_whole((wire, facts), plain, compressing, asked, requests);
            }
            (wire, compressing, _) => (wire, compressing),
        };
        let is_old = asked.ticket.request.head.minor_version() == 0;
        let is_framed = compressing.is_none() && length.is_some();
        let is_chunked = !is_framed && !is_old && !self.transport.is_stream();
        let keeps = self.keeps(&asked.ticket, requests) && (is_framed || is_chunked);
        let ending = match length {
            _ if is_chunked => Ending::Chunked,
            Some(len) if !is_told && is_framed => Ending::Length(len),
            _ => Ending::Told,
        };
        let wire = wire.as_deref().unwrap_or(&bytes[head.clone()]);
        let (mut out, told) = requests.compose_answer(&asked.ticket, wire, facts, ending, keeps);
        asked.head = told;
        let (rest, source) = match body {
            Start::Whole if facts.length == BodyLength::Nothing => (Bytes::new(), Source::Over),
            Start::FileUnasked => (Bytes::new(), Source::Over),
            Start::Whole => (
                asked.of_memory(&mut out, bytes, head.end, requests),
                Source::Over,
            ),
            Start::Streamed(_) => (Bytes::new(), Source::Stream),
            Start::File(file, sections) => (Bytes::new(), asked.of_file(&mut out, file, sections)),
        };
        let sending = Sending {
            is_chunked,
            compressing,
            ..Sending::new(Some(asked), source, keeps)
        };
        self.start(out, rest, sending, requests)
    }

    /// Sends the head that accepts a WebSocket; from then on the request is a session.
    fn begin_session(
        &mut self,
        waiting: Waiting,
        answer: &AppAnswer,
        requests: &mut Requests,
    ) -> Step {
        let mut head = answer.bytes[answer.head.clone()].to_vec();
        put_field(&mut head, b"Upgrade", b"websocket");
        put_field(&mut head, b"Connection", b"Upgrade");
        if let Some(handshaken) = &waiting.ticket.request.websocket {
            let accept = handshaken.accept.as_bytes();
            put_field(&mut head, b"Sec-WebSocket-Accept", accept);
            if let Some(deflate) = handshaken.deflate {
                let agreed = deflate.answer();
                put_field(&mut head, b"Sec-WebSocket-Extensions", agreed.as_bytes());
            }
        }
        let mut out = requests.answer_heads.take_out();
        let extras = Extras {
            facts: Some(answer.facts),
            ending: Ending::Told,
            keeps: true,
            is_old: false,
            timing: requests
                .answer_heads
                .timing_of(&waiting.ticket, requests.now_us),
        };
        requests.answer_heads.compose(&mut out, &head, &extras);
        let pending = Bytes::copy_from_slice(&out);
        let told = requests.record.observed(&out);
        requests.answer_heads.give_out(out);
        requests.common.tally.happened(Event::SessionBegun);
        let session = Session::new(waiting, told, pending, requests);
        self.phase = Phase::Session(Box::new(session));
        Step::On
    }

    fn answer_by_us(
        &mut self,
        waiting: Waiting,
        reply: &Reply,
        outcome: Outcome,
        requests: &mut Requests,
    ) -> Step {
        let Waiting {
            ticket, account, ..
        } = waiting;
        // The server counts its own answers when it makes them, whatever the client reads of them.
        account.close(outcome);
        let request = &ticket.request.head;
        let (is_old, is_head) = (request.minor_version() == 0, request.method() == "HEAD");
        let keeps = !reply.closes && self.keeps(&ticket, requests);
        let mut out = requests.answer_heads.take_out();
        ticket.hints(|hints| hints.put(&mut out));
        let hinted = out.len();
        let timing = requests.answer_heads.timing_of(&ticket, requests.now_us);
        requests
            .answer_heads
            .compose_reply(&mut out, reply, is_old, keeps, timing);
        let head = requests.record.observed(&out[hinted..]);
        let len = if is_head { 0 } else { reply.body.len() };
        out.extend_from_slice(&reply.body[..len]);
        let mut asked = Asked {
            ticket,
            account,
            status: reply.status,
            outcome,
            head,
            bytes: 0,
            wanted: Some(len as u64),
        };
        asked.count(len);
        let sending = Sending::new(Some(asked), Source::Over, keeps);
        self.start(out, Bytes::new(), sending, requests)
    }

    /// Answers an operator.
    pub(super) fn reply(&mut self, reply: &Reply, requests: &mut Requests) {
        let now_us = requests.now_us;
        let idle = Phase::Idle { since_us: now_us };
        let Phase::Asked(head) = std::mem::replace(&mut self.phase, idle) else {
            return;
        };
        let is_old = head.minor_version() == 0;
        let keeps = head.keeps_alive() && !self.closing && !reply.closes;
        let mut out = requests.answer_heads.take_out();
        requests
            .answer_heads
            .compose_reply(&mut out, reply, is_old, keeps, None);
        let rest = if head.method() == "HEAD" {
            Bytes::new()
        } else {
            reply.body.clone()
        };
        let sending = Sending::new(None, Source::Over, keeps);
        if self.start(out, rest, sending, requests) == Step::Close {
            self.phase = Phase::Over;
        }
    }

    /// Whether the connection goes on after the present answer.
    pub(super) fn keeps(&self, ticket: &Ticket, requests: &Requests) -> bool {
        let settings = &requests.common.settings;
        let requests_max = settings.keepalive_requests;
        ticket.request.head.keeps_alive()
            && settings.keepalive.as_duration().is_some()
            && !self.closing
            && !requests.serving.ends_connections()
            && (requests_max == 0 || self.requests < requests_max)
    }
}

/// How long a body is, if that is known, and whether the app's head says so.
fn length_of(told: BodyLength, body: &Start, whole: usize) -> (Option<u64>, bool) {
    let known = match (told, body) {
        (BodyLength::Bytes(len), _) => return (Some(len), true),
        (BodyLength::Nothing, _) => return (Some(0), true),
        (BodyLength::Unknown, Start::Whole) => Some(whole as u64),
        (BodyLength::Unknown, Start::Streamed(whole)) => *whole,
        (BodyLength::Unknown, Start::FileUnasked) => Some(0),
        (BodyLength::Unknown, Start::File(_, sections)) => {
            Some(sections.iter().map(Section::len).sum())
        }
    };
    (known, known.is_none())
}

impl Asked {
    /// Takes `bytes` from `from` on as the body. A small body goes out with its head; returns a large one, to be sent behind
    /// it.
    fn of_memory(
        &mut self,
        out: &mut Vec<u8>,
        bytes: Vec<u8>,
        from: usize,
        requests: &mut Requests,
    ) -> Bytes {
        let body = &bytes[from..];
        self.count(body.len());
        if body.len() > TOGETHER_BYTES_MAX {
            return Bytes::from(bytes).slice(from..);
        }
        out.extend_from_slice(body);
        requests.dispatch.recycle(bytes);
        Bytes::new()
    }

    /// Returns the source of a file's content. A small file in the page cache goes out with its head: that saves two system
    /// calls and a packet.
    fn of_file(&mut self, out: &mut Vec<u8>, file: OpenFile, sections: Vec<Section>) -> Source {
        let len: u64 = sections.iter().map(Section::len).sum();
        if len <= TOGETHER_BYTES_MAX as u64 && put_cached(out, &file, &sections) {
            self.count(len as usize);
            return Source::Over;
        }
        Source::File(FileBody::new(file, sections))
    }
}

impl Connection {
    /// Sends the hints that have come; false if the connection is broken. Hints that find no room go out with the answer.
    pub(super) fn hint(&mut self, ticket: &Ticket, requests: &Requests) -> bool {
        let sent = ticket.hints(|hints| {
            if hints.unsent().is_empty() {
                return true;
            }
            let Ok(len) = self.transport.write(hints.unsent()).len() else {
                return false;
            };
            hints.sent(len);
            self.intake.wrote(len, requests.now_us);
            true
        });
        sent.unwrap_or(true)
    }

    /// Writes a few bytes beside answers; false if the kernel has taken only a part of them, so that the connection cannot
    /// go on. Without any room the bytes are dropped: the client has not read its last answer, so it does not wait for them.
    pub(super) fn write_interim(&mut self, bytes: &[u8]) -> bool {
        match self.transport.write(bytes) {
            Written::Bytes(len) => len.get() == bytes.len(),
            Written::Full => true,
            Written::Failed => false,
        }
    }

    /// Refuses a request of which no head was read: the client gets the refusal, and the connection ends.
    pub(super) fn refuse_unread(&mut self, refusal: Refusal, requests: &mut Requests) -> Step {
        if self.audience == Audience::Clients {
            requests
                .record
                .refused_unread(refusal, &self.peer.address, requests.now_us);
        }
        let mut out = requests.answer_heads.take_out();
        let reply = refusal.reply();
        requests
            .answer_heads
            .compose_reply(&mut out, &reply, false, false, None);
        out.extend_from_slice(&reply.body);
        let step = self.say_last(&out, requests);
        requests.answer_heads.give_out(out);
        step
    }
}
