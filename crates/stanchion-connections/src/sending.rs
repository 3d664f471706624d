//! An answer on its way out.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_http::{CHUNK_END, CHUNK_END_AND_LAST, LAST_CHUNK, chunk_head};
use stanchion_sys::outgoing::BEFORE_MAX;

use super::compressing::{Compressing, Unsent};
use super::transport::{Transport, Written};
use stanchion_dispatch::outflow::{Fetchable, Next, Outflow, StreamEnd};
use stanchion_dispatch::storage::memory::Piece;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally::Outcome;
use stanchion_requests::file::FileBody;
use stanchion_requests::spooler::Spooler;
use stanchion_requests::{Account, Requests};

/// How many pieces one call writes.
const PIECES_MAX: usize = 16;

/// An answer that is being sent.
pub(super) struct Sending {
    /// The request that is answered; `None` for an operator's.
    pub(super) request: Option<Asked>,
    /// Bytes that the kernel has not taken yet.
    pub(super) pending: VecDeque<Piece>,
    pub(super) source: Source,
    pub(super) is_chunked: bool,
    /// The connection goes on after it.
    pub(super) keeps: bool,
    pub(super) spooler: Option<Spooler>,
    /// The kernel has not taken all of the last bytes.
    pub(super) is_behind: bool,
    /// Set if the body is compressed first.
    pub(super) compressing: Option<Box<Compressing>>,
}

/// The request that is answered, and the facts that the logs need.
pub(super) struct Asked {
    pub(super) ticket: Rc<Ticket>,
    pub(super) account: Account,
    pub(super) status: u16,
    /// The outcome to count once all is sent.
    pub(super) outcome: Outcome,
    /// The head of the answer, if an observer wants it.
    pub(super) head: Vec<u8>,
    /// How many bytes of the body went to the client, and how many are still to come, if that is known.
    pub(super) bytes: u64,
    pub(super) wanted: Option<u64>,
}

/// The source of the rest of a body.
pub(super) enum Source {
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

    pub(super) fn over(&mut self, outcome: Outcome, requests: &mut Requests) {
        // A refusal was counted when the server made it.
        let head = std::mem::take(&mut self.head);
        requests.record.over(
            &self.ticket,
            self.status,
            outcome,
            head,
            self.bytes,
            requests.now_us,
        );
    }
}

impl Sending {
    /// Begins an answer of which nothing was sent.
    pub(super) fn new(request: Option<Asked>, source: Source, keeps: bool) -> Self {
        Self {
            request,
            pending: VecDeque::new(),
            source,
            is_chunked: false,
            keeps,
            spooler: None,
            is_behind: false,
            compressing: None,
        }
    }

    /// Puts bytes behind the pending ones.
    pub(super) fn push(&mut self, bytes: Bytes, requests: &Requests) {
        if !bytes.is_empty() {
            self.pending
                .push_back(Piece::new(&requests.storage.answers.memory, bytes));
        }
    }

    pub(super) fn count(&mut self, bytes: usize) {
        if let Some(asked) = &mut self.request {
            asked.count(bytes);
        }
    }

    /// Fetches more of a stream when the bytes fetched last are out: so the server keeps little for a slow client. Bytes
    /// that can go from the worker's memory straight to the client, `in_place`, are left there for [`Self::fetch`].
    pub(super) fn fill(&mut self, connection: u32, in_place: bool, requests: &mut Requests) {
        let (Source::Stream, Some(asked)) = (&self.source, &self.request) else {
            return;
        };
        let ticket = Rc::clone(&asked.ticket);
        // This is done even if nothing is fetched now: everything that comes from here on is news.
        ticket.seen();
        loop {
            if self.compressing.is_some() {
                self.compress(&ticket, requests);
                if !matches!(self.source, Source::Stream) {
                    return;
                }
            } else if self.pending.is_empty() {
                match ticket.next_piece() {
                    Next::Piece(piece) => {
                        self.count(piece.len());
                        self.frame(piece, requests);
                    }
                    Next::End(end) => self.end(end, requests),
                    Next::Nothing => {}
                }
            }
            if self.has_all() {
                self.let_go(&ticket, requests);
                return;
            }
            let fetches = in_place
                && !self.is_behind
                && self.compressing.is_none()
                && matches!(self.source, Source::Stream);
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
        let (Source::Stream, Some(asked)) = (&self.source, &self.request) else {
            return Fetched::Nothing;
        };
        if !asked.ticket.is_fetched() || self.pending.len() >= BEFORE_MAX {
            return Fetched::Nothing;
        }
        let ticket = Rc::clone(&asked.ticket);
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
        let slots = &mut requests.dispatch.slots;
        let sent = slots.send(ticket, len, socket, (before, end), &mut left)?;
        let written = transport.wrote(sent);
        let Written::Bytes(bytes) = written else {
            self.is_behind = true;
            return Some(written);
        };
        self.count(len);
        let unsent = (head.len() + len + end.len()).saturating_sub(self.advance(bytes.get()));
        let head_left = unsent.saturating_sub(len + end.len());
        let end_left = unsent.min(end.len());
        self.push(
            Bytes::copy_from_slice(&head[head.len() - head_left..]),
            requests,
        );
        if left.is_empty() {
            requests.dispatch.recycle(left);
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

    /// Takes nothing more of a stream, because the client gets no more of it. Its worker may have finished with it.
    pub(super) fn let_go(&mut self, ticket: &Ticket, requests: &mut Requests) {
        requests.dispatch.look_for(ticket, requests.now_us);
        self.source = Source::Over;
        ticket.pour(Outflow::give_up);
        requests.dispatch.abandon(ticket, requests.now_us);
    }

    /// Whether a stream has given as many bytes as its head says.
    fn has_all(&self) -> bool {
        let wanted = self.request.as_ref().and_then(|asked| asked.wanted);
        let is_plain = matches!(self.source, Source::Stream) && self.compressing.is_none();
        is_plain && wanted == Some(0)
    }

    pub(super) fn frame(&mut self, piece: Piece, requests: &Requests) {
        if self.is_chunked {
            self.push(Bytes::copy_from_slice(&chunk_head(piece.len())), requests);
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

    /// Since when the answer waits for a helper thread that reads a file, if it does.
    pub(super) fn waits_for_file_since_us(&self) -> Option<u64> {
        match &self.source {
            Source::File(file) => file.waits_since_us(),
            Source::Over | Source::Broken | Source::Stream | Source::Compressed(_) => None,
        }
    }

    pub(super) fn break_off(&mut self) {
        self.source = Source::Broken;
        if let Some(asked) = &self.request {
            asked.account.close(Outcome::BrokenOff);
        }
    }

    pub(super) fn write(&mut self, transport: &mut Transport) -> Written {
        let slices: Vec<IoSlice<'_>> = self
            .pending
            .iter()
            .take(PIECES_MAX)
            .map(|piece| IoSlice::new(piece.as_slice()))
            .collect();
        // Otherwise the head of a file would go out by itself, and wake the client twice.
        let more = matches!(&self.source, Source::File(file) if !file.is_over());
        let written = transport.write_all_of(&slices, more);
        if let Written::Bytes(len) = written {
            self.advance(len.get());
        }
        self.is_behind = written == Written::Full || !self.pending.is_empty();
        written
    }

    /// Drops so many bytes, which are out, from the pending ones. Gives how many of them were not pending.
    fn advance(&mut self, bytes: usize) -> usize {
        advance(&mut self.pending, bytes)
    }

    /// Gives up the rest of an answer, because the client is gone.
    pub(super) fn abandon(self, requests: &mut Requests) {
        let Some(mut asked) = self.request else {
            return;
        };
        if matches!(self.source, Source::Stream) {
            asked.ticket.pour(Outflow::give_up);
            requests.dispatch.abandon(&asked.ticket, requests.now_us);
        }
        let is_given = matches!(self.source, Source::Over)
            || (asked.wanted == Some(0) && self.compressing.is_none());
        let outcome = asked.account.close(if is_given {
            asked.outcome
        } else if requests.serving.lifecycle.is_refusing() {
            Outcome::CutAtShutdown
        } else {
            Outcome::AbandonedAnswering
        });
        asked.over(outcome, requests);
    }
}

/// Drops so many bytes from the front. Gives how many of them were not there.
pub(super) fn advance(pieces: &mut VecDeque<Piece>, bytes: usize) -> usize {
    let mut left = bytes;
    while let Some(piece) = pieces.front_mut() {
        let taken = left.min(piece.len());
        piece.advance(taken);
        left -= taken;
        if piece.len() > 0 {
            break;
        }
        pieces.pop_front();
    }
    left
}
