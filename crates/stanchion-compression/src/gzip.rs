//! gzip (RFC 1952), with DEFLATE (RFC 1951).

use zlib_rs::crc32::crc32;
use zlib_rs::{Deflate, DeflateFlush, Status};

use crate::piece::{After, Failed, ROOM_BYTES};

/// zlib's default.
const LEVEL: i32 = 6;
/// The largest possible window, as a power of two (RFC 1951 section 3.2.5).
const WINDOW_BITS: u8 = 15;
/// DEFLATE, no name, no time, from an unknown system (RFC 1952 section 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The compressor of one body.
pub(crate) struct Gzip {
    stream: Deflate,
    checksum: u32,
    /// The bytes of the body so far, modulo 2^32.
    len: u32,
    has_begun: bool,
}

impl Default for Gzip {
    fn default() -> Self {
        Self {
            stream: Deflate::new(LEVEL, false, WINDOW_BITS),
            checksum: 0,
            len: 0,
            has_begun: false,
        }
    }
}

impl Gzip {
    pub(crate) fn encode(
        &mut self,
        piece: &[u8],
        after: After,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.extend_from_slice(&HEADER);
        }
        self.checksum = crc32(self.checksum, piece);
        self.len = self.len.wrapping_add(piece.len() as u32);
        self.deflate(piece, after, out)?;
        if after == After::End {
            out.extend_from_slice(&self.checksum.to_le_bytes());
            out.extend_from_slice(&self.len.to_le_bytes());
        }
        Ok(())
    }

    fn deflate(&mut self, piece: &[u8], after: After, out: &mut Vec<u8>) -> Result<(), Failed> {
        let flush = match after {
            After::More => DeflateFlush::NoFlush,
            After::Flush => DeflateFlush::SyncFlush,
            After::End => DeflateFlush::Finish,
        };
        let mut rest = piece;
        loop {
            let (from, read, written) =
                (out.len(), self.stream.total_in(), self.stream.total_out());
            out.resize(from + ROOM_BYTES, 0);
            let done = self.stream.compress(rest, &mut out[from..], flush);
            let taken = (self.stream.total_in() - read) as usize;
            let came = (self.stream.total_out() - written) as usize;
            out.truncate(from + came);
            rest = &rest[taken..];
            match done {
                Ok(Status::StreamEnd) => return Ok(()),
                // The compressor left room unused, so it has output everything.
                Ok(_) if rest.is_empty() && came < ROOM_BYTES && after != After::End => {
                    return Ok(());
                }
                Ok(_) if taken + came > 0 => {}
                Ok(_) => return Err(Failed("DEFLATE makes no progress")),
                Err(error) => return Err(Failed(error.as_str())),
            }
        }
    }
}
