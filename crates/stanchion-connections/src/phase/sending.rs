//! A connection that sends an answer, until the client has all of it.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use stanchion_http::Head;
use tracing::warn;

use super::compressing::{Compressing, PressNews, PressedAnswer, Unsent, advance};
use super::leaving::leave;
use super::upload::Arrived;
use super::{Phase, Step};
use crate::judgement::{Judgement, WantedResources};
use crate::link::ClientLink;
use crate::outcome::Written;
use crate::pace::after;
use crate::poller::Poller;
use crate::transport::Transport;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::outflow::Outflow;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::storage::memory::Piece;
use stanchion_generation::tally::Outcome;
use stanchion_requests::file::{FILE_TIMEOUT, FileBody, Stretch};
use stanchion_requests::spooler::Spooler;
use stanchion_requests::{Record, Requests, Storage};

/// An answer up to this size goes out with its head, in one piece: a copy costs less than a second slice.
pub(super) const TOGETHER_BYTES_MAX: usize = 16 << 10;
/// How many pieces one call writes.
const PIECES_MAX: usize = 16;

/// An answer that is being sent.
pub(crate) struct Sending {
    /// The request that is answered; `None` for an operator's.
    pub(super) asked: Option<Asked>,
    /// Bytes that the kernel has not taken yet.
    pub(super) pending: VecDeque<Piece>,
    pub(super) source: BodyRest,
    pub(super) is_chunked: bool,
    /// The connection goes on after it.
    pub(super) keeps: bool,
    pub(super) spooler: Option<Spooler>,
    /// The kernel has not taken all of the last bytes.
    pub(super) is_behind: bool,
    /// Set if a stream is compressed first.
    pub(super) compressing: Option<Box<Compressing>>,
}

/// The request that is answered, and the facts that the logs need.
pub(super) struct Asked {
    pub(super) request: Arrived,
    status: u16,
    /// The outcome to count once all is sent.
    outcome: Outcome,
    /// The head of the answer, if an observer wants it.
    pub(super) head: Vec<u8>,
    /// How many bytes of the body went to the client, and how many are still to come, if that is known.
    bytes: u64,
    pub(super) wanted: Option<u64>,
}

/// The source of the rest of a body.
pub(super) enum BodyRest {
    /// No more of the body comes.
    Over,
    /// The body ends here though it is not whole.
    Broken,
    /// A worker writes the body.
    Stream,
    /// The answer goes out once all of it is compressed.
    Compressed(Box<Unsent>),
    File(FileBody),
}

/// The outcome of a look for more of a stream in its worker's memory.
pub(super) enum Fetched {
    /// Some was there, and was sent with this outcome.
    Sent(Written),
    /// The stream has other news, such as that it is over.
    News,
    /// Nothing is there, or it is not to be sent from there.
    Nothing,
}

impl Asked {
    /// An answer of which nothing was sent, and `wanted` bytes of the body are to come.
    pub(super) fn new(
        request: Arrived,
        status: u16,
        outcome: Outcome,
        wanted: Option<u64>,
    ) -> Self {
        Self {
            request,
            status,
            outcome,
            head: Vec::new(),
            bytes: 0,
            wanted,
        }
    }

    pub(super) fn count(&mut self, bytes: usize) {
        self.took(bytes);
        self.gave(bytes);
    }

    /// Notes that so many bytes of the body have come.
    pub(super) fn took(&mut self, bytes: usize) {
        if let Some(wanted) = &mut self.wanted {
            *wanted = wanted.saturating_sub(bytes as u64);
        }
    }

    /// Notes that so many bytes of the body went to the client.
    pub(super) fn gave(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Settles the account of the request, and reports it to those who keep records.
    fn over(&mut self, outcome: Outcome, record: &mut Record, now_us: u64) {
        // A refusal was counted when the server made it.
        let outcome = self.request.account.close(outcome);
        let head = std::mem::take(&mut self.head);
        let ticket = &self.request.ticket;
        record.over(ticket, self.status, outcome, head, self.bytes, now_us);
    }
}

impl Sending {
    /// Begins an answer of which nothing was sent.
    pub(super) fn new(asked: Option<Asked>, source: BodyRest, keeps: bool) -> Self {
        Self {
            asked,
            pending: VecDeque::new(),
            source,
            is_chunked: false,
            keeps,
            spooler: None,
            is_behind: false,
            compressing: None,
        }
    }

    /// Sends as much of an answer as there is: mostly all of it, at once.
    pub(super) fn start(
        mut self,
        out: Vec<u8>,
        rest: Bytes,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        if rest.is_empty() && matches!(self.source, BodyRest::Over) {
            // On a unix socket the end would only wake the client once more.
            let ends = !self.keeps && (link.peer.ip.is_some() || link.transport.is_stream());
            let written = if ends {
                link.transport.write_last(&out)
            } else {
                link.transport.write(&out)
            };
            let Ok(written) = written.len() else {
                requests.answer_heads.give_out(out);
                self.abandon(requests);
                return Step::Close;
            };
            link.intake.wrote(written, requests.now_us);
            if written == out.len() {
                requests.answer_heads.give_out(out);
                if ends {
                    link.transport.end();
                }
                return self.sent(link, requests);
            }
            self.push(Bytes::copy_from_slice(&out[written..]), &requests.storage);
        } else {
            self.push(Bytes::copy_from_slice(&out), &requests.storage);
            self.push(rest, &requests.storage);
        }
        requests.answer_heads.give_out(out);
        Step::On(Phase::Sending(Box::new(self)))
    }

    /// Goes on with an answer.
    pub(super) fn go_on(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Step {
        if let Some(asked) = &mut self.asked
            && let Err(refusal) = asked.request.take_in(link, requests)
        {
            return self.call_off(refusal, requests);
        }
        loop {
            let in_place = link.transport.socket().is_some();
            self.fill(link.number, in_place, requests);
            match self.fetch(&mut link.transport, requests) {
                // Either the stream has news, such as its end; or the client is behind, and the server keeps the bytes,
                // since the worker would have to wait for the client otherwise.
                Fetched::News | Fetched::Sent(Written::Full) => {}
                Fetched::Sent(Written::Bytes(len)) => {
                    link.intake.wrote(len.get(), requests.now_us);
                }
                Fetched::Sent(Written::Failed) => return self.broke(requests),
                Fetched::Nothing if self.pending.is_empty() => {
                    match self.proceed(link, requests, poller) {
                        Ok(same) => self = same,
                        Err(step) => return step,
                    }
                }
                Fetched::Nothing => match self.write(&mut link.transport) {
                    Written::Bytes(len) => link.intake.wrote(len.get(), requests.now_us),
                    Written::Full => return self.stall(link, requests, poller),
                    Written::Failed => return self.broke(requests),
                },
            }
            if link.transport.has_had_its_turn() {
                link.wake_later(&requests.wakes, requests.now_us);
                return Step::Wait(Phase::Sending(self));
            }
        }
    }

    /// Goes on once all pending bytes are out. The error is the next step, if that is not to send.
    fn proceed(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Result<Box<Self>, Step> {
        let file = match &mut self.source {
            BodyRest::Over | BodyRest::Broken => {
                link.transport.watch_room(false, poller);
                return Err(self.sent(link, requests));
            }
            BodyRest::Stream => return Err(self.wait_for_more(link, requests)),
            BodyRest::Compressed(unsent) => {
                return Err(match unsent.go_on() {
                    PressNews::Nothing => self.wait_for_more(link, requests),
                    PressNews::Part => Step::Wait(Phase::Sending(self)),
                    PressNews::Whole(pressed) => self.start_pressed(pressed, link, requests),
                });
            }
            BodyRest::File(file) => file,
        };
        match file.next(&requests.storage.disk, link.number, requests.now_us) {
            Stretch::Over => self.source = BodyRest::Over,
            Stretch::Broken => self.break_off(),
            Stretch::Waits => return Err(self.wait_for_more(link, requests)),
            Stretch::Text(bytes) => {
                self.count(bytes.len());
                self.push(bytes, &requests.storage);
            }
            Stretch::Bytes {
                file: bytes,
                offset,
                len,
            } => match link.transport.send_file(bytes, offset, len) {
                Ok(Written::Bytes(len)) => {
                    file.sent(len.get());
                    link.intake.wrote(len.get(), requests.now_us);
                    self.count(len.get());
                }
                Ok(Written::Full) => return Err(self.stall(link, requests, poller)),
                Ok(Written::Failed) => return Err(self.broke(requests)),
                Err(error) => {
                    warn!("an answer breaks off, as its file cannot be sent: {error}");
                    self.break_off();
                }
            },
        }
        Ok(self)
    }

    /// Sends an answer that was compressed as a whole.
    fn start_pressed(
        mut self: Box<Self>,
        pressed: PressedAnswer,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        let PressedAnswer {
            wire,
            facts,
            ending,
            body,
        } = pressed;
        self.source = BodyRest::Over;
        let Some(asked) = &mut self.asked else {
            return Step::Close;
        };
        let ticket = &asked.request.ticket;
        let settings = &requests.common.settings;
        self.keeps = link.keeps(ticket, settings, requests.serving);
        let (mut out, observed) = requests.compose_answer(ticket, &wire, facts, ending, self.keeps);
        asked.head = observed;
        asked.wanted = Some(body.len() as u64);
        asked.count(body.len());
        let rest = if body.len() > TOGETHER_BYTES_MAX {
            Bytes::from(body)
        } else {
            out.extend_from_slice(&body);
            Bytes::new()
        };
        self.start(out, rest, link, requests)
    }

    fn broke(self: Box<Self>, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    /// Waits for a worker or the disk, unless the client has left.
    fn wait_for_more(self: Box<Self>, link: &ClientLink, requests: &mut Requests) -> Step {
        if link.client_has_left(&requests.common.settings) {
            return self.broke(requests);
        }
        Step::Wait(Phase::Sending(self))
    }

    /// Waits for the client to read, unless it has left.
    fn stall(
        self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Step {
        let settings = &requests.common.settings;
        if link.client_has_left(settings) {
            return self.broke(requests);
        }
        link.waits_for_room(settings, requests.now_us, poller);
        Step::Wait(Phase::Sending(self))
    }

    /// Ends an answer: settles its account, and decides how the connection goes on.
    fn sent(self, link: &mut ClientLink, requests: &mut Requests) -> Step {
        let now_us = requests.now_us;
        let is_whole = !matches!(self.source, BodyRest::Broken);
        if let Some(mut asked) = self.asked {
            let outcome = if is_whole {
                asked.outcome
            } else {
                Outcome::BrokenOff
            };
            asked.over(outcome, &mut requests.record, now_us);
            let ticket = asked.request.ticket;
            if is_whole && let Some(trailers) = ticket.take_trailers() {
                link.transport.put_trailers(&trailers);
            }
            requests.buffers.heads.keep(ticket);
        }
        if !is_whole {
            // The client sees only by the end of the connection that the answer is not whole.
            return Step::Close;
        }
        if self.keeps {
            return Step::On(Phase::idle(now_us));
        }
        leave(link, &mut requests.buffers, now_us)
    }

    /// The rest of the request's body will not come. The answer has begun, and cannot become another one.
    pub(super) fn call_off(self: Box<Self>, refusal: Refusal, requests: &mut Requests) -> Step {
        if let Some(asked) = &self.asked {
            requests.log_refusal(&asked.request.ticket, refusal);
        }
        self.broke(requests)
    }

    /// Gives up the rest of an answer, because the client is gone.
    pub(super) fn abandon(self, requests: &mut Requests) {
        let Some(mut asked) = self.asked else {
            return;
        };
        if matches!(self.source, BodyRest::Stream) {
            let ticket = &asked.request.ticket;
            ticket.pour(Outflow::give_up);
            requests.dispatch.abandon(ticket, requests.now_us);
        }
        let is_compressed =
            self.compressing.is_some() || matches!(self.source, BodyRest::Compressed(_));
        let is_given =
            matches!(self.source, BodyRest::Over) || (asked.wanted == Some(0) && !is_compressed);
        let outcome = if is_given {
            asked.outcome
        } else if requests.serving.lifecycle.is_refusing() {
            Outcome::CutAtShutdown
        } else {
            Outcome::AbandonedAnswering
        };
        asked.over(outcome, &mut requests.record, requests.now_us);
    }

    /// Ends the body here, though it is not whole.
    pub(super) fn break_off(&mut self) {
        self.source = BodyRest::Broken;
        if let Some(asked) = &mut self.asked {
            asked.request.account.close(Outcome::BrokenOff);
        }
    }

    /// Puts bytes behind the pending ones.
    pub(super) fn push(&mut self, bytes: Bytes, storage: &Storage) {
        if !bytes.is_empty() {
            self.pending
                .push_back(Piece::new(&storage.answers.memory, bytes));
        }
    }

    pub(super) fn count(&mut self, bytes: usize) {
        if let Some(asked) = &mut self.asked {
            asked.count(bytes);
        }
    }

    fn write(&mut self, transport: &mut Transport) -> Written {
        let slices: Vec<IoSlice<'_>> = self
            .pending
            .iter()
            .take(PIECES_MAX)
            .map(|piece| IoSlice::new(piece.as_slice()))
            .collect();
        // Otherwise the head of a file would go out by itself, and wake the client twice.
        let more = matches!(&self.source, BodyRest::File(file) if !file.is_over());
        let written = transport.write_all_of(&slices, more);
        if let Written::Bytes(len) = written {
            self.advance(len.get());
        }
        self.is_behind = written == Written::Full || !self.pending.is_empty();
        written
    }

    /// Drops so many bytes, which are out, from the pending ones. Gives how many of them were not pending.
    pub(super) fn advance(&mut self, bytes: usize) -> usize {
        advance(&mut self.pending, bytes)
    }

    /// The head of the request that is answered; `None` for an operator's.
    pub(super) fn request_head(&self) -> Option<&Head> {
        let asked = self.asked.as_ref();
        asked.map(|asked| &asked.request.ticket.request.head)
    }

    /// When the rest of the request's body comes too slowly if nothing more comes of it.
    pub(super) fn sends_by_us(&self) -> u64 {
        let asked = self.asked.as_ref();
        asked.map_or(u64::MAX, |asked| asked.request.sends_by_us())
    }

    /// Judges the client by the body that is still coming, and the file system by the time that it takes to read a file.
    pub(super) fn judge(
        &self,
        wanted: WantedResources,
        dispatch: &Dispatch,
        now_us: u64,
    ) -> Judgement {
        let file_since_us = match &self.source {
            BodyRest::File(file) => file.waits_since_us(),
            BodyRest::Over | BodyRest::Broken | BodyRest::Stream | BodyRest::Compressed(_) => None,
        };
        let until_us = file_since_us.map_or(u64::MAX, |since_us| after(since_us, FILE_TIMEOUT));
        if until_us <= now_us {
            return Judgement::FileTimedOut;
        }
        match &self.asked {
            Some(asked) => asked
                .request
                .judge_upload(until_us, wanted, dispatch, now_us),
            None => Judgement::Well { until_us },
        }
    }
}
