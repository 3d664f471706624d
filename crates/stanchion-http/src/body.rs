//! How a message's body is delimited (RFC 9112 section 6), and a decoder that takes the body's bytes out of that framing.

use crate::chunked::Chunked;
use crate::fault::Fault;

/// How a client marks the end of a request's body (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// The request has no body.
    #[default]
    Empty,
    /// By `Content-Length`.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
    /// By the end of the stream that carries it: HTTP/2 (RFC 9113 section 8.1).
    ToEnd,
}

/// Takes a body's bytes out of their framing.
#[derive(Clone, Debug)]
pub struct Decoder(DecoderState);

#[derive(Clone, Debug)]
enum DecoderState {
    Length { left: u64 },
    Chunked(Chunked),
    ToEnd { is_over: bool },
}

/// The result of one call of [`Decoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'b> {
    /// Some bytes of the body; never none.
    Data(&'b [u8]),
    /// The decoder has used all input, and the body goes on.
    More,
    /// The body is over; the rest of the input does not belong to it.
    End,
}

impl Decoder {
    /// A decoder for the body of a message with this framing.
    pub fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::Empty => DecoderState::Length { left: 0 },
            Framing::Length(left) => DecoderState::Length { left },
            Framing::Chunked => DecoderState::Chunked(Chunked::default()),
            Framing::ToEnd => DecoderState::ToEnd { is_over: false },
        })
    }

    /// Notes that no more input comes. Returns whether the body is complete; if not, it was cut short.
    pub fn end(&mut self) -> bool {
        if let DecoderState::ToEnd { is_over } = &mut self.0 {
            *is_over = true;
        }
        self.is_over()
    }

    /// The next bytes of the body. The decoder takes them, and the framing before them, from the front of the input. After a fault it has no more
    /// bytes to give.
    pub fn decode<'b>(&mut self, input: &mut &'b [u8]) -> Result<Decoded<'b>, Fault> {
        if let DecoderState::Chunked(chunked) = &mut self.0 {
            chunked.skip_framing(input)?;
        }
        let len = self.plain_left().min(input.len() as u64);
        if len > 0 {
            let (data, rest) = input.split_at(len as usize);
            *input = rest;
            self.took(len);
            return Ok(Decoded::Data(data));
        }
        Ok(if self.is_over() {
            Decoded::End
        } else {
            Decoded::More
        })
    }

    /// Whether the body is over. A body with a length is over as soon as its last byte was taken.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            DecoderState::Length { left } => *left == 0,
            DecoderState::Chunked(chunked) => chunked.is_over(),
            DecoderState::ToEnd { is_over } => *is_over,
        }
    }

    /// Bytes of the body that come next, without any framing between: the caller may read that many directly to their destination, and then calls
    /// [`Decoder::took`].
    pub fn plain_left(&self) -> u64 {
        match &self.0 {
            DecoderState::Length { left } => *left,
            DecoderState::Chunked(chunked) => chunked.data_left(),
            DecoderState::ToEnd { is_over: true } => 0,
            DecoderState::ToEnd { is_over: false } => u64::MAX,
        }
    }

    /// Bytes of the body that its sender has announced and that have not come: all the rest of a body with a length, or the rest of the current
    /// chunk.
    pub fn announced(&self) -> u64 {
        match &self.0 {
            DecoderState::ToEnd { .. } => 0,
            DecoderState::Length { .. } | DecoderState::Chunked(_) => self.plain_left(),
        }
    }

    /// Notes that the caller read so many of [`Decoder::plain_left`] without this decoder.
    pub fn took(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.plain_left(), "more than was sure to come");
        match &mut self.0 {
            DecoderState::Length { left } => *left -= bytes,
            DecoderState::Chunked(chunked) => chunked.took(bytes),
            DecoderState::ToEnd { .. } => {}
        }
    }
}
