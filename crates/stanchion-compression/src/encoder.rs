//! What the codings have in common.

use std::fmt;

use stanchion_http::Coding;

use crate::brotli::Brotli;
use crate::gzip::Gzip;
use crate::zstandard::Zstandard;

/// Room that is made at a time for what comes out.
pub(crate) const ROOM_BYTES: usize = 16 << 10;

/// The compressor of one body. It takes 3 MB at most, whatever goes in: windows have 256 KiB.
pub struct Encoder(Format);

enum Format {
    Gzip(Box<Gzip>),
    Brotli(Box<Brotli>),
    Zstandard(Zstandard),
}

/// What follows a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// More, and nobody waits for this piece alone.
    More,
    /// Nothing for a while: all that has gone in is to come out.
    Flush,
    /// Nothing any more.
    End,
}

/// A body cannot be compressed: there is no memory, or a compressor does what it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed(pub(crate) &'static str);

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a body cannot be compressed: {}", self.0)
    }
}

impl std::error::Error for Failed {}

impl Encoder {
    /// One that has nothing yet.
    pub fn new(coding: Coding) -> Self {
        Self(match coding {
            Coding::Gzip => Format::Gzip(Box::default()),
            Coding::Brotli => Format::Brotli(Box::default()),
            Coding::Zstandard => Format::Zstandard(Zstandard::default()),
        })
    }

    /// Memory that is not from Rust's allocator.
    pub fn foreign_bytes(&self) -> usize {
        match &self.0 {
            Format::Gzip(_) | Format::Brotli(_) => 0,
            Format::Zstandard(zstandard) => zstandard.bytes(),
        }
    }

    /// Compresses a piece, and appends what comes of it to `out`: not more than the piece and what was kept of those before,
    /// but for a few bytes. Nothing may follow the end.
    ///
    /// # Errors
    /// What has come out is not whole then.
    pub fn encode(&mut self, piece: &[u8], after: After, out: &mut Vec<u8>) -> Result<(), Failed> {
        match &mut self.0 {
            Format::Gzip(gzip) => gzip.encode(piece, after, out),
            Format::Brotli(brotli) => brotli.encode(piece, after, out),
            Format::Zstandard(zstandard) => zstandard.encode(piece, after, out),
        }
    }
}
