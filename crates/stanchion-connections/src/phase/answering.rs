//! The answer to a request: where it comes from, how it is framed, and what the connection does after it.

use bytes::Bytes;
use stanchion_http::{BodyLength, Head, put_field};

use super::compressing::{Compressing, Unsent};
use super::sending::{Asked, BodyRest, Sending, TOGETHER_BYTES_MAX};
use super::session::Session;
use super::upload::Arrived;
use super::{Phase, Step};
use crate::link::ClientLink;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::collect::SWITCHING;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::storage::disk::OpenFile;
use stanchion_dispatch::storage::memory::Piece;
use stanchion_dispatch::ticket::{Answer, AppAnswer, BodySection, Start};
use stanchion_generation::tally::{Event, Outcome};
use stanchion_requests::Requests;
use stanchion_requests::compressor::Plan;
use stanchion_requests::file::{FileBody, put_cached};
use stanchion_requests::head::{BodyEnd, Told};

/// Begins to send the answer to a request.
pub(super) fn answer(
    request: Arrived,
    answer: Answer,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    if let Some(trace) = &request.ticket.trace {
        trace.answered_us.set(requests.now_us);
    }
    match answer {
        Answer::App(answer) if answer.facts.status == SWITCHING => {
            begin_session(request, &answer, requests)
        }
        Answer::App(answer) => answer_by_app(request, answer, Outcome::Answered, link, requests),
        Answer::Static(answer) => answer_by_app(request, answer, Outcome::Static, link, requests),
        Answer::Refused(refusal) => {
            requests.log_refusal(&request.ticket, refusal);
            let reply = refusal.reply(request.ticket.has_run());
            let reply = requests.policy.named(reply, &request.ticket);
            answer_by_us(request, &reply, refusal.outcome(), link, requests)
        }
        Answer::Ours(reply, outcome) => answer_by_us(request, &reply, outcome, link, requests),
    }
}

fn answer_by_app(
    request: Arrived,
    answer: AppAnswer,
    outcome: Outcome,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    let plan = plan(&request, &answer, outcome, requests);
    let AppAnswer {
        bytes,
        head,
        facts,
        closes,
        body,
    } = answer;
    link.closing |= closes;
    let whole = bytes.len() - head.end;
    let (length, head_has_length) = length_of(facts.length, &body, whole);
    // Trailers may still follow when the whole body is there, so the answer need not end with the last byte of the body.
    let wanted = length.filter(|_| !request.ticket.is_trailed());
    let mut asked = Asked::new(request, facts.status, outcome, wanted);
    let begin = |encoder| Box::new(Compressing::new(encoder, link.number));
    let (wire, compressing) = match (plan.wire, plan.encoder.map(begin), &body) {
        (Some(wire), Some(compressing), Start::Whole) => {
            let bytes = Bytes::from(bytes);
            let piece = Piece::new(&requests.storage.answers.memory, bytes.slice(head.end..));
            let unsent = Unsent::new(wire, facts, (bytes, head), piece, compressing);
            let sending = Sending::new(Some(asked), BodyRest::Compressed(Box::new(unsent)), false);
            return Step::On(Phase::Sending(Box::new(sending)));
        }
        (wire, compressing, _) => (wire, compressing),
    };
    let ticket = &asked.request.ticket;
    let is_old = ticket.request.head.minor_version() == 0;
    let is_framed = compressing.is_none() && length.is_some();
    let is_chunked = !is_framed && !is_old && !link.transport.is_stream();
    let settings = &requests.common.settings;
    let keeps = link.keeps(ticket, settings, requests.serving) && (is_framed || is_chunked);
    let ending = ending(is_chunked, length.filter(|_| is_framed && !head_has_length));
    let wire = wire.as_deref().unwrap_or(&bytes[head.clone()]);
    let (mut out, observed) = requests.compose_answer(ticket, wire, facts, ending, keeps);
    asked.head = observed;
    let (rest, source) = match body {
        Start::Whole if facts.length != BodyLength::Nothing => {
            let rest = asked.of_memory(&mut out, bytes, head.end, &mut requests.dispatch);
            (rest, BodyRest::Over)
        }
        Start::Whole | Start::FileUnasked => (Bytes::new(), BodyRest::Over),
        Start::Streamed(_) => (Bytes::new(), BodyRest::Stream),
        Start::File(file, sections) => (Bytes::new(), asked.of_file(&mut out, file, sections)),
    };
    let sending = Sending {
        is_chunked,
        compressing,
        ..Sending::new(Some(asked), source, keeps)
    };
    sending.start(out, rest, link, requests)
}

/// How the client finds the end of a body, whose `length` is known and not told yet.
fn ending(is_chunked: bool, length: Option<u64>) -> BodyEnd {
    match length {
        _ if is_chunked => BodyEnd::Chunked,
        Some(len) => BodyEnd::Length(len),
        None => BodyEnd::Told,
    }
}

/// How the server compresses an answer. A static file may have a compressed variant on disk already.
fn plan(request: &Arrived, answer: &AppAnswer, outcome: Outcome, requests: &Requests) -> Plan {
    let compressor = requests.compressor.as_ref();
    let Some(compressor) = compressor.filter(|_| outcome == Outcome::Answered) else {
        return Plan::default();
    };
    compressor.plan(&request.ticket, answer, &requests.policy.believed)
}

/// Sends the head that accepts a WebSocket; from then on the request is a session.
fn begin_session(request: Arrived, answer: &AppAnswer, requests: &mut Requests) -> Step {
    let Arrived {
        ticket, account, ..
    } = request;
    let mut head = answer.bytes[answer.head.clone()].to_vec();
    put_field(&mut head, b"Upgrade", b"websocket");
    put_field(&mut head, b"Connection", b"Upgrade");
    if let Some(handshaken) = &ticket.request.websocket {
        let accept = handshaken.accept.as_bytes();
        put_field(&mut head, b"Sec-WebSocket-Accept", accept);
        if let Some(deflate) = handshaken.deflate {
            let agreed = deflate.answer();
            put_field(&mut head, b"Sec-WebSocket-Extensions", agreed.as_bytes());
        }
    }
    let (out, observed) =
        requests.compose_answer(&ticket, &head, answer.facts, BodyEnd::Told, true);
    let pending = Bytes::copy_from_slice(&out);
    requests.answer_heads.give_out(out);
    requests.common.tally.happened(Event::SessionBegun);
    let session = Session::new(ticket, account, observed, pending, requests);
    Step::On(Phase::Session(Box::new(session)))
}

fn answer_by_us(
    mut request: Arrived,
    reply: &Reply,
    outcome: Outcome,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    let ticket = &request.ticket;
    // The server counts its own answers when it makes them, whatever the client reads of them.
    request.account.close(outcome);
    let head = &ticket.request.head;
    let (is_old, is_head) = (head.minor_version() == 0, head.method() == "HEAD");
    let settings = &requests.common.settings;
    let keeps = !reply.closes && link.keeps(ticket, settings, requests.serving);
    let heads = &mut requests.answer_heads;
    let mut out = heads.take_out();
    ticket.hints(|hints| hints.put(&mut out));
    let hinted = out.len();
    let told = heads.told_of(ticket, reply.status, requests.now_us);
    heads.compose_reply(&mut out, reply, is_old, keeps, told);
    let observed = requests.record.observed(&out[hinted..]);
    let len = if is_head { 0 } else { reply.body.len() };
    out.extend_from_slice(&reply.body[..len]);
    let mut asked = Asked::new(request, reply.status, outcome, Some(len as u64));
    asked.head = observed;
    asked.count(len);
    let sending = Sending::new(Some(asked), BodyRest::Over, keeps);
    sending.start(out, Bytes::new(), link, requests)
}

/// Answers an operator, whose request has this head.
pub(crate) fn answer_operator(
    head: &Head,
    reply: &Reply,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    let is_old = head.minor_version() == 0;
    let keeps = head.keeps_alive() && !link.closing && !reply.closes;
    let mut out = requests.answer_heads.take_out();
    requests
        .answer_heads
        .compose_reply(&mut out, reply, is_old, keeps, Told::default());
    let rest = if head.method() == "HEAD" {
        Bytes::new()
    } else {
        reply.body.clone()
    };
    Sending::new(None, BodyRest::Over, keeps).start(out, rest, link, requests)
}

/// How long a body is, if that is known, and whether the app's head says so.
fn length_of(promised: BodyLength, body: &Start, whole: usize) -> (Option<u64>, bool) {
    let known = match (promised, body) {
        (BodyLength::Bytes(len), _) => return (Some(len), true),
        (BodyLength::Nothing, _) => return (Some(0), true),
        (BodyLength::Unknown, Start::Whole) => Some(whole as u64),
        (BodyLength::Unknown, Start::Streamed(whole)) => *whole,
        (BodyLength::Unknown, Start::FileUnasked) => Some(0),
        (BodyLength::Unknown, Start::File(_, sections)) => {
            Some(sections.iter().map(BodySection::len).sum())
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
        dispatch: &mut Dispatch,
    ) -> Bytes {
        let body = &bytes[from..];
        self.count(body.len());
        if body.len() > TOGETHER_BYTES_MAX {
            return Bytes::from(bytes).slice(from..);
        }
        out.extend_from_slice(body);
        dispatch.buffers.keep(bytes);
        Bytes::new()
    }

    /// Returns the source of a file's content. A small file in the page cache goes out with its head: that saves two system
    /// calls and a packet.
    fn of_file(
        &mut self,
        out: &mut Vec<u8>,
        file: OpenFile,
        sections: Vec<BodySection>,
    ) -> BodyRest {
        let len: u64 = sections.iter().map(BodySection::len).sum();
        if len <= TOGETHER_BYTES_MAX as u64 && put_cached(out, &file, &sections) {
            self.count(len as usize);
            return BodyRest::Over;
        }
        BodyRest::File(FileBody::new(file, sections))
    }
}
