//! An answer that is compressed on its way: helper threads do it, a part at a time, and the next part begins when the client
//! has taken what came of the one before. So no more of it is in memory than of an answer that is not compressed.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_compression::After;
use stanchion_http::{AnswerFacts, BodyLength, LAST_CHUNK, put_varied};
use tracing::error;

use super::answering::TOGETHER_BYTES_MAX;
use super::connection::{Connection, Phase, Step};
use super::sending::{Asked, Sending, Source, advance};
use crate::acceptor::dispatch::outflow::{Next, StreamEnd};
use crate::acceptor::dispatch::ticket::Ticket;
use crate::acceptor::requests::Requests;
use crate::acceptor::requests::compressor::{BodyEncoder, Compressed, Compressor, PIECE_BYTES};
use crate::acceptor::requests::head::Ending;
use crate::acceptor::storage::disk::Job;
use crate::acceptor::storage::memory::Piece;

/// A body and its encoder.
pub(super) struct Compressing {
    compressor: Rc<Compressor>,
    connection: u32,
    /// What is to be compressed, or is just being.
    waiting: VecDeque<Piece>,
    encoder: Whereabouts,
    /// All that has gone in has come out.
    is_flushed: bool,
    /// Nothing follows what is waiting.
    has_end: bool,
}

enum Whereabouts {
    Here(BodyEncoder),
    /// With a helper thread, and so many bytes of what is waiting.
    Away(Job<Compressed>, usize),
    /// All is compressed, or cannot be.
    Gone,
}

/// An answer that is compressed as a whole, since its head tells the length.
pub(super) struct Unsent {
    wire: Vec<u8>,
    facts: AnswerFacts,
    /// What has come of its body.
    body: Vec<u8>,
    /// The head says how long that is.
    is_told: bool,
    /// The app's answer, in case that it cannot be compressed, and its head there.
    plain: (Bytes, Range<usize>),
}

impl Unsent {
    /// It goes out as the app has it.
    fn give_up(&mut self) {
        let (bytes, head) = &self.plain;
        self.wire.clear();
        put_varied(&mut self.wire, &bytes[head.clone()]);
        self.body = bytes[head.end..].to_vec();
        self.is_told = matches!(self.facts.length, BodyLength::Bytes(_));
    }
}

impl Compressing {
    pub(super) fn new(
        (compressor, encoder): (Rc<Compressor>, BodyEncoder),
        connection: u32,
    ) -> Self {
        Self {
            compressor,
            connection,
            waiting: VecDeque::new(),
            encoder: Whereabouts::Here(encoder),
            is_flushed: true,
            has_end: false,
        }
    }

    fn push(&mut self, piece: Piece) {
        self.waiting.push_back(piece);
    }

    /// Whether nothing is under way: all that has come has gone out.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.is_flushed
    }

    /// Whether a helper thread is at it, which wakes the connection when it is done.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.encoder, Whereabouts::Away(..))
    }

    fn has_room(&self) -> bool {
        self.waiting_bytes() < PIECE_BYTES && !self.has_end
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(Piece::len).sum()
    }

    /// The encoder leaves, if it is here.
    fn take_encoder(&mut self) -> Option<BodyEncoder> {
        match std::mem::replace(&mut self.encoder, Whereabouts::Gone) {
            Whereabouts::Here(encoder) => Some(encoder),
            elsewhere => {
                self.encoder = elsewhere;
                None
            }
        }
    }

    /// Has a thread compress what is waiting, if none is at it. Where no more is at hand, all of it is to come out: somebody may
    /// wait for it, and the next piece may be long in coming.
    fn go_on(&mut self) {
        if self.is_idle() && !self.has_end {
            return;
        }
        let Some(encoder) = self.take_encoder() else {
            return;
        };
        let mut part = Vec::new();
        let mut len = 0;
        for piece in &self.waiting {
            let bytes = piece.bytes();
            let taken = bytes.slice(..bytes.len().min(PIECE_BYTES - len));
            len += taken.len();
            part.push(taken);
            if len == PIECE_BYTES {
                break;
            }
        }
        let after = match self.waiting_bytes() - len {
            0 if self.has_end => After::End,
            0 if len < PIECE_BYTES => After::Flush,
            _ => After::More,
        };
        self.is_flushed = after != After::More;
        let job = self
            .compressor
            .compress(self.connection, encoder, part, after);
        self.encoder = Whereabouts::Away(job, len);
    }

    /// What has come of a part, once it is compressed. `Err`: the rest cannot be.
    fn take(&mut self) -> Option<Result<Vec<u8>, ()>> {
        let Whereabouts::Away(job, len) = &mut self.encoder else {
            return None;
        };
        let done = job.take()?;
        advance(&mut self.waiting, *len);
        self.encoder = Whereabouts::Gone;
        Some(match done {
            Ok(done) => {
                if !done.is_over {
                    self.encoder = Whereabouts::Here(done.encoder);
                }
                Ok(done.bytes)
            }
            Err(error) => {
                error!("our fault: an answer cannot be compressed to its end: {error}");
                Err(())
            }
        })
    }

    /// Whether all has come out.
    fn is_over(&self) -> bool {
        matches!(self.encoder, Whereabouts::Gone)
    }
}

impl Drop for Compressing {
    fn drop(&mut self) {
        if let Some(encoder) = self.take_encoder() {
            self.compressor.discard(encoder);
        }
    }
}

impl Sending {
    /// Goes on with a stream that is compressed: what has come out is for the client, and when that has taken it, what is
    /// there of the rest goes in.
    pub(super) fn compress(&mut self, ticket: &Ticket, requests: &mut Requests) {
        let Some(mut compressing) = self.compressing.take() else {
            return;
        };
        match compressing.take() {
            Some(Ok(bytes)) => self.frame_compressed(Bytes::from(bytes), requests),
            Some(Err(())) => {
                // The worker is not through with it yet, perhaps.
                self.let_go(ticket, requests);
                return self.break_off();
            }
            None => {}
        }
        if compressing.is_over() {
            if self.is_chunked {
                self.push(Bytes::from_static(LAST_CHUNK), requests);
            }
            return self.let_go(ticket, requests);
        }
        if self.pending.is_empty() && matches!(compressing.encoder, Whereabouts::Here(_)) {
            if !self.gather(&mut compressing, ticket) {
                return self.break_off();
            }
            compressing.go_on();
        }
        self.compressing = Some(compressing);
    }

    /// Takes what is there of a body; false if it ends here without being whole.
    fn gather(&mut self, compressing: &mut Compressing, ticket: &Ticket) -> bool {
        while compressing.has_room() {
            match ticket.next_piece() {
                Next::Piece(piece) => {
                    if let Some(asked) = &mut self.request {
                        asked.took(piece.len());
                        compressing.has_end = asked.wanted == Some(0);
                    }
                    compressing.push(piece);
                }
                Next::End(StreamEnd::Complete) => compressing.has_end = true,
                // What came before it goes out first.
                Next::End(StreamEnd::Broken) => return !compressing.is_idle(),
                Next::Nothing => break,
            }
        }
        true
    }

    fn frame_compressed(&mut self, bytes: Bytes, requests: &Requests) {
        if let Some(asked) = &mut self.request {
            asked.gave(bytes.len());
        }
        if !bytes.is_empty() {
            self.frame(Piece::new(&requests.answers.memory, bytes), requests);
        }
    }
}

impl Connection {
    /// Has an answer compressed that is there as a whole, `plain`. Its head goes out with what comes of its body.
    pub(super) fn compress_whole(
        &mut self,
        (wire, facts): (Vec<u8>, AnswerFacts),
        plain: (Bytes, Range<usize>),
        mut compressing: Box<Compressing>,
        asked: Asked,
        requests: &Requests,
    ) -> Step {
        let body = plain.0.slice(plain.1.end..);
        compressing.push(Piece::new(&requests.answers.memory, body));
        compressing.has_end = true;
        compressing.go_on();
        let unsent = Box::new(Unsent {
            wire,
            facts,
            body: Vec::new(),
            is_told: false,
            plain,
        });
        let sending = Sending {
            compressing: Some(compressing),
            ..Sending::new(Some(asked), Source::Compressed(unsent), false)
        };
        self.phase = Phase::Sending(Box::new(sending));
        Step::On
    }

    /// Sends an answer that is compressed as a whole, once it is.
    pub(super) fn send_compressed(&mut self, requests: &mut Requests) -> Step {
        let Phase::Sending(sending) = &mut self.phase else {
            return Step::On;
        };
        let (Source::Compressed(unsent), Some(compressing)) =
            (&mut sending.source, &mut sending.compressing)
        else {
            return Step::On;
        };
        match compressing.take() {
            Some(Ok(bytes)) => unsent.body.extend_from_slice(&bytes),
            Some(Err(())) => unsent.give_up(),
            None => return self.wait_for_more(requests),
        }
        if !compressing.is_over() {
            compressing.go_on();
            return Step::Wait;
        }
        let idle = Phase::Idle {
            since_us: requests.now_us,
        };
        match std::mem::replace(&mut self.phase, idle) {
            Phase::Sending(sending) => self.start_compressed(*sending, requests),
            _ => Step::Close,
        }
    }

    fn start_compressed(&mut self, mut sending: Sending, requests: &mut Requests) -> Step {
        sending.compressing = None;
        let source = std::mem::replace(&mut sending.source, Source::Over);
        let (Source::Compressed(unsent), Some(asked)) = (source, &mut sending.request) else {
            return Step::Close;
        };
        let Unsent {
            wire,
            facts,
            body,
            is_told,
            ..
        } = *unsent;
        sending.keeps = self.keeps(&asked.ticket, requests);
        let ending = if is_told {
            Ending::Told
        } else {
            Ending::Length(body.len() as u64)
        };
        let (mut out, told) =
            requests.compose_answer(&asked.ticket, &wire, facts, ending, sending.keeps);
        asked.head = told;
        asked.wanted = Some(body.len() as u64);
        asked.count(body.len());
        let rest = if body.len() > TOGETHER_BYTES_MAX {
            Bytes::from(body)
        } else {
            out.extend_from_slice(&body);
            Bytes::new()
        };
        self.start(out, rest, sending, requests)
    }
}
