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
use stanchion_http::{AnswerFacts, BodyLength, put_varied};
use tracing::error;

use stanchion_dispatch::storage::disk::Job;
use stanchion_dispatch::storage::memory::Piece;
use stanchion_requests::compressor::{BodyEncoder, Compressed, Compressor, PIECE_BYTES};
use stanchion_requests::head::BodyEnd;

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
    pub(super) has_end: bool,
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
    head_has_length: bool,
    /// The app's answer as it is, in case it cannot be compressed, and the range of its head.
    plain: (Bytes, Range<usize>),
    compressing: Box<Compressing>,
}

/// The news of an answer that is compressed as a whole.
pub(super) enum PressNews {
    Nothing,
    /// The next part is being compressed.
    Part,
    /// The answer can be sent.
    Whole(PressedAnswer),
}

/// An answer that is compressed as a whole, or as the app has made it if it cannot be.
pub(super) struct PressedAnswer {
    pub(super) wire: Vec<u8>,
    pub(super) facts: AnswerFacts,
    pub(super) ending: BodyEnd,
    pub(super) body: Vec<u8>,
}

impl Unsent {
    /// Has helper threads compress `plain`, an answer that is there as a whole, whose body is `piece`. Its head will be `wire`.
    pub(super) fn new(
        wire: Vec<u8>,
        facts: AnswerFacts,
        plain: (Bytes, Range<usize>),
        piece: Piece,
        mut compressing: Box<Compressing>,
    ) -> Self {
        compressing.push(piece);
        compressing.has_end = true;
        compressing.go_on();
        Self {
            wire,
            facts,
            body: Vec::new(),
            head_has_length: false,
            plain,
            compressing,
        }
    }

    /// Takes what is compressed by now, and has the next part compressed.
    pub(super) fn go_on(&mut self) -> PressNews {
        match self.compressing.take() {
            Some(Ok(bytes)) => self.body.extend_from_slice(&bytes),
            Some(Err(())) => self.give_up(),
            None => return PressNews::Nothing,
        }
        if !self.compressing.is_over() {
            self.compressing.go_on();
            return PressNews::Part;
        }
        let body = std::mem::take(&mut self.body);
        PressNews::Whole(PressedAnswer {
            wire: std::mem::take(&mut self.wire),
            facts: self.facts,
            ending: if self.head_has_length {
                BodyEnd::Told
            } else {
                BodyEnd::Length(body.len() as u64)
            },
            body,
        })
    }

    /// Sends the answer as the app has made it.
    fn give_up(&mut self) {
        let (bytes, head) = &self.plain;
        self.wire.clear();
        put_varied(&mut self.wire, &bytes[head.clone()]);
        self.body = bytes[head.end..].to_vec();
        self.head_has_length = matches!(self.facts.length, BodyLength::Bytes(_));
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

    pub(super) fn push(&mut self, piece: Piece) {
        self.waiting.push_back(piece);
    }

    /// Whether nothing is under way: all input has come out.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.is_flushed
    }

    /// Whether a helper thread has the encoder; it wakes the connection when it is done.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.encoder, Whereabouts::Away(..))
    }

    /// Whether the encoder can take the next part.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.encoder, Whereabouts::Here(_))
    }

    pub(super) fn has_room(&self) -> bool {
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
    pub(super) fn go_on(&mut self) {
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
    pub(super) fn take(&mut self) -> Option<Result<Vec<u8>, ()>> {
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
    pub(super) fn is_over(&self) -> bool {
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
