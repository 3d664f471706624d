//! How a message's body is delimited (RFC 9112 section 6), and its bytes without that.

use crate::chunked::Chunked;
use crate::fault::Fault;

/// How the end of a request's body is told (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    #[default]
    Empty,
    /// By `Content-Length`.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
    /// By the end of what it comes in: a stream of HTTP/2 (RFC 9113 section 8.1).
    ToEnd,
}

/// Takes a body's bytes out of their framing.
#[derive(Clone, Debug)]
pub struct Decoder(State);

#[derive(Clone, Debug)]
enum State {
    Length { left: u64 },
    Chunked(Chunked),
    ToEnd { is_over: bool },
}

/// What a turn of a [`Decoder`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'b> {
    /// Some bytes of the body; never none.
    Data(&'b [u8]),
    /// All input is used, and there is more to come.
    More,
    /// The body is over; what is left of the input is none of it.
    End,
}

impl Decoder {
    /// For the body of a message that is framed so.
    pub fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::Empty => State::Length { left: 0 },
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::Chunked(Chunked::default()),
            Framing::ToEnd => State::ToEnd { is_over: false },
        })
    }

    /// Nothing comes any more. Gives whether that is the end of the body; else it is cut short.
    pub fn end(&mut self) -> bool {
        if let State::ToEnd { is_over } = &mut self.0 {
            *is_over = true;
        }
        self.is_over()
    }

    /// The next bytes of the body; they are taken from the front of the input, and with them whatever
    /// framing stands before them. After a fault there is no more to be had.
    pub fn decode<'b>(&mut self, input: &mut &'b [u8]) -> Result<Decoded<'b>, Fault> {
        if let State::Chunked(chunked) = &mut self.0 {
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

    /// Whether the body is over. One by length is, as soon as its last byte was taken.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            State::Length { left } => *left == 0,
            State::Chunked(chunked) => chunked.is_over(),
            State::ToEnd { is_over } => *is_over,
        }
    }

    /// Bytes of the body that are sure to come next, without any framing between: the caller may read so
    /// many straight to where they shall be, and then says so ([`Decoder::took`]).
    pub fn plain_left(&self) -> u64 {
        match &self.0 {
            State::Length { left } => *left,
            State::Chunked(chunked) => chunked.data_left(),
            State::ToEnd { is_over: true } => 0,
            State::ToEnd { is_over: false } => u64::MAX,
        }
    }

    /// Bytes of the body that its sender has promised and that have not come: all that are left, or of chunks the rest of this
    /// one.
    pub fn announced(&self) -> u64 {
        match &self.0 {
            State::ToEnd { .. } => 0,
            State::Length { .. } | State::Chunked(_) => self.plain_left(),
        }
    }

    /// So many of [`Decoder::plain_left`] were read past this decoder.
    pub fn took(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.plain_left(), "more than was sure to come");
        match &mut self.0 {
            State::Length { left } => *left -= bytes,
            State::Chunked(chunked) => chunked.took(bytes),
            State::ToEnd { .. } => {}
        }
    }
}
