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

/// Compresses messages and decompresses them. What that takes, 0.3 MB, is kept for the next message, of whichever WebSocket:
/// if each took it anew, it would leave holes in the heap between what messages leave behind.
#[derive(Default)]
pub struct Codec {
    /// With its window.
    deflate: Option<(u8, Deflate)>,
    inflate: Option<Inflate>,
}

impl Codec {
    /// Compresses a message with a window of so many bits, 9 to 15; `None` if that does not make it shorter.
    pub fn deflate(&mut self, message: &[u8], window_bits: u8) -> Option<Vec<u8>> {
        let kept = self.deflate.take();
        let kept = kept.filter(|(bits, _)| *bits == window_bits);
        let anew = || (window_bits, Deflate::new(LEVEL, false, window_bits));
        let (_, stream) = self.deflate.insert(kept.unwrap_or_else(anew));
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
    let guess = deflated.len().saturating_mul(FIRST_TIMES);
    deflated.extend_from_slice(&TAIL);
    deflated.extend_from_slice(&END);
    // One more shows that it is too long.
    let len_max = size_max.saturating_add(1);
    let mut message = vec![0; guess.clamp(1, len_max)];
    let (mut rest, mut len) = (&deflated[..], 0);
    loop {
        let (read, written) = (stream.total_in(), stream.total_out());
        let status = stream.decompress(rest, &mut message[len..], InflateFlush::SyncFlush);
        let status = status.map_err(|_| Fault::NotDeflated)?;
        let (read, written) = (stream.total_in() - read, stream.total_out() - written);
        (rest, len) = (&rest[read as usize..], len + written as usize);
        if len > size_max {
            return Err(Fault::TooBig);
        }
        match status {
            Status::StreamEnd if rest.is_empty() => break,
            // A client may end the stream within a message, and goes on behind that (RFC 7692 section 7.2.1).
            Status::StreamEnd => stream.reset(false),
            Status::Ok | Status::BufError if len == message.len() => {
                message.resize((2 * len).min(len_max), 0);
            }
            // There was room, and all is read.
            Status::Ok | Status::BufError => return Err(Fault::NotDeflated),
        }
    }
    message.truncate(len);
    Ok(message)
}
