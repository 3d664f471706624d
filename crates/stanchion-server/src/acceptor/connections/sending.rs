//! An answer on its way out.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_http::{CHUNK_END, CHUNK_END_AND_LAST, LAST_CHUNK, chunk_head};
use stanchion_sys::outgoing::BEFORE_MAX;
use tracing::warn;

use super::connection::{Connection, Phase, Step};
use super::transport::{Transport, Written};
use crate::acceptor::dispatch::collect::Fetchable;
use crate::acceptor::dispatch::outflow::{Next, Outflow, StreamEnd};
use crate::acceptor::dispatch::ticket::Ticket;
use crate::acceptor::poller::Poller;
use crate::acceptor::requests::file::{FileBody, Stretch};
use crate::acceptor::requests::spooler::Spooler;
use crate::acceptor::requests::{Account, Requests};
use crate::acceptor::storage::memory::Piece;
use crate::tally::Outcome;

/// Pieces that are written at a time.
const PIECES_MAX: usize = 16;
/// How much of an answer is written in one go, before others have their turn.
const TURN_BYTES_MAX: usize = 1 << 20;

/// An answer that is being sent.
pub(super) struct Sending {
    /// Of the app's answers and our own; `None` for an operator's.
    pub(super) request: Option<Asked>,
    /// What the kernel has not taken yet.
    pub(super) pending: VecDeque<Piece>,
    pub(super) source: Source,
    pub(super) is_chunked: bool,
    /// The connection goes on after it.
    pub(super) keeps: bool,
    pub(super) spooler: Option<Spooler>,
    /// The kernel has not taken all of what it was given last.
    pub(super) is_behind: bool,
}

/// Whose answer it is, and what is to be told of it.
pub(super) struct Asked {
    pub(super) ticket: Rc<Ticket>,
    pub(super) account: Account,
    pub(super) status: u16,
    /// What the request is counted as once all is sent.
    pub(super) outcome: Outcome,
    /// The head, if somebody wants to know.
    pub(super) head: Vec<u8>,
    /// Bytes of the body that were given away, and those that are still to be, if that is known.
    pub(super) bytes: u64,
    pub(super) wanted: Option<u64>,
}

/// Where the rest of a body comes from.
pub(super) enum Source {
    /// There is no more.
    Over,
    /// It ends here though it is not whole.
    Broken,
    /// A worker writes it.
    Stream,
    File(FileBody),
}

impl Connection {
    /// Sends what there is of an answer: mostly all of it, at once.
    pub(super) fn start(
        &mut self,
        out: Vec<u8>,
        rest: Bytes,
        mut sending: Sending,
        requests: &mut Requests,
    ) -> Step {
        if rest.is_empty() && matches!(sending.source, Source::Over) {
            // On a unix socket it would only wake the client once more.
            let ends = !sending.keeps && self.peer.ip.is_some();
            let written = if ends {
                self.transport.write_last(&out)
            } else {
                self.transport.write(&out)
            };
            let written = match written {
                Written::Bytes(len) => len,
                Written::Full => 0,
                Written::Failed => {
                    requests.give_out(out);
                    sending.abandon(requests);
                    return Step::Close;
                }
            };
            self.intake.wrote(written, requests.now_us);
            if written == out.len() {
                requests.give_out(out);
                if ends {
                    self.transport.end();
                }
                return self.sent(sending, requests);
            }
            sending.push(Bytes::copy_from_slice(&out[written..]), requests);
            requests.give_out(out);
        } else {
            sending.push(Bytes::copy_from_slice(&out), requests);
            sending.push(rest, requests);
            requests.give_out(out);
        }
        self.phase = Phase::Sending(Box::new(sending));
        Step::On
    }

    /// Goes on with an answer.
    pub(super) fn send(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        let mut turn_bytes = 0;
        if let Err(refusal) = self.take_in(requests) {
            return self.call_off(refusal, requests);
        }
        loop {
            let Phase::Sending(sending) = &mut self.phase else {
                return Step::On;
            };
            sending.fill(self.number, requests);
            if let Some(written) = sending.fetch(&self.transport, requests) {
                match written {
                    // It is the end; or what is there is kept for a client that is behind, or its worker would have to
                    // wait for it.
                    Written::Bytes(0) | Written::Full => {}
                    Written::Bytes(bytes) => {
                        self.intake.wrote(bytes, requests.now_us);
                        turn_bytes += bytes;
                    }
                    Written::Failed => return self.broke(requests),
                }
            } else if sending.pending.is_empty() {
                match &mut sending.source {
                    Source::Over | Source::Broken => {
                        let idle = Phase::Idle {
                            since_us: requests.now_us,
                        };
                        let Phase::Sending(sending) = std::mem::replace(&mut self.phase, idle)
                        else {
                            return Step::On;
                        };
                        self.transport.watch_room(false, poller);
                        return self.sent(*sending, requests);
                    }
                    Source::Stream => return self.wait_for_more(requests),
                    Source::File(file) => match file.next(&requests.disk, self.number) {
                        Stretch::Over => sending.source = Source::Over,
                        Stretch::Broken => sending.break_off(),
                        Stretch::Waits => return self.wait_for_more(requests),
                        Stretch::Text(bytes) => {
                            sending.count(bytes.len());
                            sending.push(bytes, requests);
                        }
                        Stretch::Bytes {
                            file: bytes,
                            offset,
                            len,
                        } => match self.transport.send_file(bytes, offset, len) {
                            Ok(Written::Bytes(len)) if file.sent(len) => {
                                self.intake.wrote(len, requests.now_us);
                                turn_bytes += len;
                                sending.count(len);
                            }
                            Ok(Written::Bytes(_)) => sending.break_off(),
                            Ok(Written::Full) => return self.stall(requests, poller),
                            Ok(Written::Failed) => return self.broke(requests),
                            Err(error) => {
                                warn!("a file cannot be sent whole: {error}");
                                sending.break_off();
                            }
                        },
                    },
                }
            } else {
                match sending.write(&mut self.transport) {
                    Written::Bytes(bytes) => {
                        self.intake.wrote(bytes, requests.now_us);
                        turn_bytes += bytes;
                    }
                    Written::Full => return self.stall(requests, poller),
                    Written::Failed => return self.broke(requests),
                }
            }
            if turn_bytes >= TURN_BYTES_MAX {
                self.wake_later(requests);
                return Step::Wait;
            }
        }
    }

    fn broke(&mut self, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    /// A worker or the disk is waited for.
    fn wait_for_more(&mut self, requests: &mut Requests) -> Step {
        if self.client_has_left(requests) {
            return self.broke(requests);
        }
        Step::Wait
    }

    /// The client is waited for.
    fn stall(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        if self.client_has_left(requests) {
            return self.broke(requests);
        }
        let untaken = self.transport.untaken();
        self.intake
            .stalled(requests.intake_pace(), untaken, requests.now_us);
        self.transport.watch_room(true, poller);
        Step::Wait
    }

    /// An answer is out.
    fn sent(&mut self, sending: Sending, requests: &mut Requests) -> Step {
        self.upload = None;
        let Sending {
            request,
            source,
            keeps,
            ..
        } = sending;
        let is_whole = !matches!(source, Source::Broken);
        if let Some(asked) = request {
            let outcome = asked.account.close(if is_whole {
                asked.outcome
            } else {
                Outcome::BrokenOff
            });
            asked.over(outcome, requests);
            requests.reuse(asked.ticket);
        }
        if keeps && is_whole {
            self.phase = Phase::Idle {
                since_us: requests.now_us,
            };
            return Step::On;
        }
        if !is_whole {
            // Only a connection that just ends shows the client that there should have been more.
            return Step::Close;
        }
        self.leave(requests)
    }
}

impl Asked {
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(wanted) = &mut self.wanted {
            *wanted = wanted.saturating_sub(bytes as u64);
        }
    }

    fn over(&self, outcome: Outcome, requests: &Requests) {
        // A refusal was counted when it was made.
        requests.over(&self.ticket, self.status, outcome, &self.head, self.bytes);
    }
}

impl Sending {
    /// Puts bytes behind what is pending.
    fn push(&mut self, bytes: Bytes, requests: &Requests) {
        if !bytes.is_empty() {
            self.pending
                .push_back(Piece::new(&requests.answers.memory, bytes));
        }
    }

    fn count(&mut self, bytes: usize) {
        if let Some(asked) = &mut self.request {
            asked.count(bytes);
        }
    }

    /// Fetches more of a stream, when what was fetched last is out: so little is kept for a client that is slow.
    fn fill(&mut self, connection: u32, requests: &mut Requests) {
        let (Source::Stream, Some(asked)) = (&self.source, &self.request) else {
            return;
        };
        let ticket = Rc::clone(&asked.ticket);
        // Also when nothing is fetched now: whatever is brought from here on is news.
        ticket.seen();
        loop {
            if self.pending.is_empty() {
                match ticket.next_piece() {
                    Next::Piece(piece) => self.frame(piece, requests),
                    Next::End(end) => self.end(end, requests),
                    Next::Nothing => {}
                }
            }
            if self.has_all() {
                self.let_go(&ticket, requests);
                return;
            }
            let fetches = !self.is_behind && matches!(self.source, Source::Stream);
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
            if !changed || !self.pending.is_empty() {
                return;
            }
        }
    }

    /// Sends what a worker has written of a stream from where it stands. `None` if there is nothing, or it is not to be
    /// fetched.
    fn fetch(&mut self, transport: &Transport, requests: &mut Requests) -> Option<Written> {
        let (Source::Stream, Some(asked)) = (&self.source, &self.request) else {
            return None;
        };
        if !asked.ticket.is_fetched() || self.pending.len() >= BEFORE_MAX {
            return None;
        }
        let ticket = Rc::clone(&asked.ticket);
        let there = requests.dispatch.fetchable(&ticket);
        if there.len > 0
            && let Some(written) = self.send_from_worker(&ticket, there, transport, requests)
        {
            return Some(written);
        }
        // Nothing is there; perhaps it is the end.
        ticket.expects();
        requests.dispatch.look_for(&ticket, requests.now_us);
        ticket.seen();
        let has_news = ticket.outflow(|outflow| outflow.has_news()) == Some(true);
        has_news.then_some(Written::Bytes(0))
    }

    /// Sends what is pending and what is `there` of a stream behind it, in its frame: with the last chunk, if it is the
    /// end, since a segment of its own would wake the client again.
    fn send_from_worker(
        &mut self,
        ticket: &Ticket,
        there: Fetchable,
        transport: &Transport,
        requests: &mut Requests,
    ) -> Option<Written> {
        let len = there.len;
        // Of a body whose length is promised, that is the end of it: `has_all`.
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
        let mut left = requests.dispatch.spare();
        let dispatch = &mut requests.dispatch;
        let sent = dispatch.send(ticket, len, transport.as_fd(), (before, end), &mut left)?;
        let written = transport.wrote(sent);
        let Written::Bytes(bytes) = written else {
            self.is_behind = true;
            return Some(written);
        };
        self.count(len);
        let unsent = (head.len() + len + end.len()).saturating_sub(self.advance(bytes));
        let head_left = unsent.saturating_sub(len + end.len());
        let end_left = unsent.min(end.len());
        self.push(
            Bytes::copy_from_slice(&head[head.len() - head_left..]),
            requests,
        );
        if left.is_empty() {
            requests.recycle(left);
        } else {
            self.push(Bytes::from(left), requests);
        }
        self.push(
            Bytes::copy_from_slice(&end[end.len() - end_left..]),
            requests,
        );
        self.is_behind = !self.pending.is_empty();
        if is_last {
            self.let_go(ticket, requests);
        }
        Some(written)
    }

    /// The client is given all that there is of a stream. Its worker may be through with it.
    fn let_go(&mut self, ticket: &Ticket, requests: &mut Requests) {
        requests.dispatch.look_for(ticket, requests.now_us);
        self.source = Source::Over;
        ticket.pour(Outflow::give_up);
        requests.dispatch.abandon(ticket, requests.now_us);
    }

    /// Whether a stream is as long as its head says.
    fn has_all(&self) -> bool {
        let wanted = self.request.as_ref().and_then(|asked| asked.wanted);
        matches!(self.source, Source::Stream) && wanted == Some(0)
    }

    fn frame(&mut self, piece: Piece, requests: &Requests) {
        let len = piece.len();
        self.count(len);
        if self.is_chunked {
            self.push(Bytes::copy_from_slice(&chunk_head(len)), requests);
            self.pending.push_back(piece);
            self.push(Bytes::from_static(CHUNK_END), requests);
        } else {
            self.pending.push_back(piece);
        }
    }

    fn end(&mut self, end: StreamEnd, requests: &Requests) {
        match end {
            StreamEnd::Complete => {
                self.source = Source::Over;
                if self.is_chunked {
                    self.push(Bytes::from_static(LAST_CHUNK), requests);
                }
            }
            StreamEnd::Broken => self.break_off(),
        }
    }

    fn break_off(&mut self) {
        self.source = Source::Broken;
        if let Some(asked) = &self.request {
            asked.account.close(Outcome::BrokenOff);
        }
    }

    fn write(&mut self, transport: &mut Transport) -> Written {
        let slices: Vec<IoSlice<'_>> = self
            .pending
            .iter()
            .take(PIECES_MAX)
            .map(|piece| IoSlice::new(piece.as_slice()))
            .collect();
        // Else the head of a file would go out by itself, and wake the client twice.
        let more = matches!(&self.source, Source::File(file) if !file.is_over());
        let written = transport.write_all_of(&slices, more);
        if let Written::Bytes(len) = written {
            self.advance(len);
        }
        self.is_behind = written == Written::Full || !self.pending.is_empty();
        written
    }

    /// So many bytes are out, of what was pending first. Gives how many of them were not pending.
    fn advance(&mut self, bytes: usize) -> usize {
        let mut left = bytes;
        while let Some(piece) = self.pending.front_mut() {
            let taken = left.min(piece.len());
            piece.advance(taken);
            left -= taken;
            if piece.len() > 0 {
                break;
            }
            self.pending.pop_front();
        }
        left
    }

    /// The client does not get the rest.
    pub(super) fn abandon(self, requests: &mut Requests) {
        let Some(asked) = self.request else { return };
        if matches!(self.source, Source::Stream) {
            asked.ticket.pour(Outflow::give_up);
            requests.dispatch.abandon(&asked.ticket, requests.now_us);
        }
        let is_given = matches!(self.source, Source::Over) || asked.wanted == Some(0);
        let outcome = asked.account.close(if is_given {
            asked.outcome
        } else if requests.lifecycle.is_refusing() {
            Outcome::CutAtShutdown
        } else {
            Outcome::AbandonedAnswering
        });
        asked.over(outcome, requests);
    }
}
