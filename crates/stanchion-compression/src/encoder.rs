//! The encoder that all codings share.

use stanchion_http::Coding;

use crate::brotli::Brotli;
use crate::gzip::Gzip;
use crate::piece::{After, Failed};
use crate::zstandard::Zstandard;

/// The compressor of one body. It takes 3 MB at most for any input, because windows have 256 KiB.
pub struct Encoder(Format);

enum Format {
    Gzip(Box<Gzip>),
    Brotli(Box<Brotli>),
    Zstandard(Zstandard),
}

impl Encoder {
    /// An encoder that was given nothing yet.
    pub fn new(coding: Coding) -> Self {
        Self(match coding {
            Coding::Gzip => Format::Gzip(Box::default()),
            Coding::Brotli => Format::Brotli(Box::default()),
            Coding::Zstandard => Format::Zstandard(Zstandard::default()),
        })
    }

    /// Its memory from allocators other than Rust's.
    pub fn foreign_bytes(&self) -> usize {
        match &self.0 {
            Format::Gzip(_) | Format::Brotli(_) => 0,
            Format::Zstandard(zstandard) => zstandard.bytes(),
        }
    }

    /// Compresses a piece, and appends the output to `out`: not more than the piece and the kept parts of earlier pieces, plus a few bytes. No piece
    /// may follow the end.
    ///
    /// # Errors
    /// The compressor has failed, and the output so far is incomplete.
    pub fn encode(&mut self, piece: &[u8], after: After, out: &mut Vec<u8>) -> Result<(), Failed> {
        match &mut self.0 {
            Format::Gzip(gzip) => gzip.encode(piece, after, out),
            Format::Brotli(brotli) => brotli.encode(piece, after, out),
            Format::Zstandard(zstandard) => zstandard.encode(piece, after, out),
        }
    }
}
