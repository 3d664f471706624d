//! An answer that the server compresses on its way. Helper threads compress a part at a time, and the next part begins when
//! the client has taken the output of the one before. So no more of it is in memory than of an answer that is not
//! compressed.
//!
//! A connection compresses between the ticket's outflow and the bytes that wait for the socket. So an outflow fills,
//! goes to a file, and holds or frees its worker as without compression, and code below a connection does not know of
//! it; only the fetch of long answers from the exchange in place does not happen. TLS and streams of HTTP/2 get
//! compressed bytes as any others.
//!
//! A part that takes all bytes that have come is flushed, since the app may be silent for long; while more bytes wait,
//! nothing is flushed. A body that is at hand as a whole is one part, and its head is written after it, since the head
//! has the length.

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
use stanchion_dispatch::outflow::{Next, StreamEnd};
use stanchion_dispatch::storage::disk::Job;
use stanchion_dispatch::storage::memory::Piece;
use stanchion_dispatch::ticket::Ticket;
use stanchion_requests::Requests;
use stanchion_requests::compressor::{BodyEncoder, Compressed, Compressor, PIECE_BYTES};
use stanchion_requests::head::Ending;

/// A body and its encoder.
pub(super) struct Compressing {
    compressor: Rc<Compressor>,
    connection: u32,
    /// Pieces to be compressed, or just being compressed.
    waiting: VecDeque<Piece>,
    encoder: Whereabouts,
    /// All bytes that have gone into the encoder have come out.
    is_flushed: bool,
    /// No piece follows those in `waiting`.
    has_end: bool,
}

enum Whereabouts {
    Here(BodyEncoder),
    /// A helper thread has the encoder, and so many of the bytes in `waiting`.
    Away(Job<Compressed>, usize),
    /// All is compressed, or cannot be.
    Gone,
}

/// An answer that is compressed as a whole before it is sent, since its head tells the length.
pub(super) struct Unsent {
    wire: Vec<u8>,
    facts: AnswerFacts,
    /// The compressed body, as far as it has come.
    body: Vec<u8>,
    /// Whether the head tells the body's length already.
    is_told: bool,
    /// The app's answer as it is, in case it cannot be compressed, and the range of its head.
    plain: (Bytes, Range<usize>),
}

impl Unsent {
    /// Sends the answer as the app has made it.
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

    /// Whether nothing is under way: all input has come out.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.is_flushed
    }

    /// Whether a helper thread has the encoder; it wakes the connection when it is done.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.encoder, Whereabouts::Away(..))
    }

    fn has_room(&self) -> bool {
        self.waiting_bytes() < PIECE_BYTES && !self.has_end
    }

    fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(Piece::len).sum()
    }

    /// Takes the encoder out, unless a helper thread has it.
    fn take_encoder(&mut self) -> Option<BodyEncoder> {
        match std::mem::replace(&mut self.encoder, Whereabouts::Gone) {
            Whereabouts::Here(encoder) => Some(encoder),
            elsewhere => {
                self.encoder = elsewhere;
                None
            }
        }
    }

    /// Has a thread compress what is waiting, unless one is at it. If no more input is at hand, the encoder flushes: the
    /// client may wait for this piece, and the next one may be long in coming.
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

    /// Takes the output of a part, once it is compressed. `Err`: the rest cannot be compressed.
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
                error!(
                    "our fault: the rest of an answer cannot be compressed, so the answer breaks off or goes out as it is: {error}"
                );
                Err(())
            }
        })
    }

    /// Whether all output has come.
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
    /// Goes on with a stream that is compressed: compressed bytes go to the client, and when it has taken them, the next
    /// input goes to the encoder.
    pub(super) fn compress(&mut self, ticket: &Ticket, requests: &mut Requests) {
        let Some(mut compressing) = self.compressing.take() else {
            return;
        };
        match compressing.take() {
            Some(Ok(bytes)) => self.frame_compressed(Bytes::from(bytes), requests),
            Some(Err(())) => {
                // The worker may still be writing the stream.
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

    /// Takes as much of a body as is there; false if the body breaks off here.
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
                // The pieces before the break go out first.
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
            self.frame(
                Piece::new(&requests.storage.answers.memory, bytes),
                requests,
            );
        }
    }
}

impl Connection {
    /// Has helper threads compress `plain`, an answer that is there as a whole. Its head goes out with the compressed body.
    pub(super) fn compress_whole(
        &mut self,
        (wire, facts): (Vec<u8>, AnswerFacts),
        plain: (Bytes, Range<usize>),
        mut compressing: Box<Compressing>,
        asked: Asked,
        requests: &Requests,
    ) -> Step {
        let body = plain.0.slice(plain.1.end..);
        compressing.push(Piece::new(&requests.storage.answers.memory, body));
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

    /// Sends an answer that is compressed as a whole, once all of it is.
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
