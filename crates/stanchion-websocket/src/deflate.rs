//! Messages that are compressed with DEFLATE (RFC 7692 section 7.2), each by itself.

use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

use crate::socket::{Close, Fault, Kind};

/// The largest window that there is, as a power of two (RFC 1951 section 3.2.5).
pub(crate) const WINDOW_BITS_MAX: u8 = 15;
/// Of JSON a third of the time that zlib's usual level, 6, takes, for a result that is a twelfth longer. An event loop
/// waits for it.
const LEVEL: i32 = 2;
/// What compressed messages end with and is not sent: of an empty block, all but the header.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// An empty last block. Where the message ends, the stream does: so one that is cut is not taken for a whole one.
const END: [u8; 2] = [3, 0];
/// How much longer a message is, as a first guess.
const FIRST_TIMES: usize = 4;

/// So much of a message is decompressed at a time.
const PIECE_BYTES: usize = 16 << 10;
/// A message may have so many bytes of which nothing comes, and a sixteenth of what comes of the others: compressors add
/// less. A client could else have a worker read blocks that hold nothing for seconds.
const WASTE_BYTES_MAX: usize = 64 << 10;
const WASTE_PART: usize = 16;
/// A window that fits those who want a smaller one than the largest, as they do who want a larger one than this
/// (RFC 7692 section 7.1.2.1). With a still smaller one a message takes several times as long.
const NARROW_BITS: u8 = 12;

/// Compresses messages and decompresses them. What that takes, 0.3 MB for each window, is kept for the next message, of whichever WebSocket:
/// if each took it anew, it would leave holes in the heap between what messages leave behind.
#[derive(Default)]
pub struct Codec {
    /// With the largest window.
    wide: Option<Deflate>,
    /// With one of [`NARROW_BITS`].
    narrow: Option<Deflate>,
    inflate: Option<Inflate>,
}

impl Codec {
    /// Compresses a message for a client whose window has so many bits, 9 to 15; `None` if that does not make it shorter, or
    /// takes too long.
    pub fn deflate(&mut self, message: &[u8], window_bits: u8) -> Option<Vec<u8>> {
        let (stream, bits) = match window_bits {
            WINDOW_BITS_MAX => (&mut self.wide, WINDOW_BITS_MAX),
            NARROW_BITS.. => (&mut self.narrow, NARROW_BITS),
            _ => return None,
        };
        let stream = stream.get_or_insert_with(|| Deflate::new(LEVEL, false, bits));
        stream.reset();
        let mut deflated = vec![0; message.len()];
        stream
            .compress(message, &mut deflated, DeflateFlush::SyncFlush)
            .ok()?;
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        // Where there is room left, it has written all.
        if read < message.len() || written >= deflated.len() {
            return None;
        }
        deflated.truncate(written.checked_sub(TAIL.len())?);
        Some(deflated)
    }

    /// Decompresses a message, which may have `size_max` bytes then.
    ///
    /// # Errors
    /// What the client is to be told, which has sent what is no such message.
    pub fn inflate(
        &mut self,
        kind: Kind,
        deflated: Vec<u8>,
        size_max: usize,
    ) -> Result<Vec<u8>, Close> {
        let anew = || Inflate::new(false, WINDOW_BITS_MAX);
        let stream = self.inflate.get_or_insert_with(anew);
        stream.reset(false);
        let message = inflate(stream, deflated, size_max).map_err(|fault| fault.close())?;
        if kind == Kind::Text && std::str::from_utf8(&message).is_err() {
            return Err(Fault::NotUtf8.close());
        }
        Ok(message)
    }
}

fn inflate(stream: &mut Inflate, mut deflated: Vec<u8>, size_max: usize) -> Result<Vec<u8>, Fault> {
    // An empty message is to be one byte (RFC 7692 section 7.2.3.6). Who sends none is understood by others, since zlib finds
    // nothing wrong with the tail alone.
    if deflated.is_empty() {
        return Ok(deflated);
    }
    let guess = deflated.len().saturating_mul(FIRST_TIMES);
    deflated.reserve_exact(TAIL.len() + END.len());
    deflated.extend_from_slice(&TAIL);
    deflated.extend_from_slice(&END);
    // One more shows that it is too long.
    let len_max = size_max.saturating_add(1);
    let mut message = vec![0; guess.clamp(1, len_max)];
    let (mut rest, mut len) = (&deflated[..], 0);
    loop {
        let (read, written) = (stream.total_in(), stream.total_out());
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        let status = stream.decompress(piece, &mut message[len..], InflateFlush::SyncFlush);
        let status = status.map_err(|_| Fault::NotDeflated)?;
        let (read, written) = (stream.total_in() - read, stream.total_out() - written);
        (rest, len) = (&rest[read as usize..], len + written as usize);
        if len > size_max {
            return Err(Fault::TooBig);
        }
        if deflated.len() - rest.len() > WASTE_BYTES_MAX + len + len / WASTE_PART {
            return Err(Fault::NotDeflated);
        }
        match status {
            Status::StreamEnd if rest.is_empty() => break,
            // A client may end the stream within a message, and goes on behind that (RFC 7692 section 7.2.1).
            Status::StreamEnd => stream.reset(false),
            Status::Ok | Status::BufError if len == message.len() => {
                message.resize((2 * len).min(len_max), 0);
            }
            Status::Ok | Status::BufError if read > 0 && !rest.is_empty() => {}
            // There was room, and all is read.
            Status::Ok | Status::BufError => return Err(Fault::NotDeflated),
        }
    }
    message.truncate(len);
    Ok(message)
}
