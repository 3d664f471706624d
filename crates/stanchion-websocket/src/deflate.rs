//! Messages compressed with DEFLATE (RFC 7692 section 7.2), each by itself.

use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateFlush, Status};

use crate::message::MessageKind;
use crate::socket::{Close, Violation};

/// The largest window that there is, as a power of two (RFC 1951 section 3.2.5).
pub(crate) const WINDOW_BITS_MAX: u8 = 15;
/// With JSON this level takes a third of the time of zlib's usual level, 6, for a result that is a twelfth longer. An
/// event loop waits for it.
const LEVEL: i32 = 2;
/// The end of every compressed message, which the sender leaves out: an empty block without its header.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// An empty last block. It makes the stream end with the message, so that a message that was cut does not count as
/// whole.
const END: [u8; 2] = [3, 0];
/// A first guess at how many times longer a message is decompressed.
const FIRST_TIMES: usize = 4;
/// How much of a longer message is compressed first. If that did not become shorter, as with a picture, the rest
/// usually does not either, and is not tried.
const TRIED_BYTES: usize = 16 << 10;

/// How much of a message is decompressed at a time.
const PIECE_BYTES: usize = 16 << 10;
/// By how many bytes a compressed message may be longer than its content, besides a sixteenth of the content:
/// compressors add less. Otherwise a client could make a worker read blocks without content for seconds.
const WASTE_BYTES_MAX: usize = 64 << 10;
const WASTE_PART: usize = 16;
/// A window for clients that want a smaller one than the largest: a client that wants any window down to this size can
/// read it (RFC 7692 section 7.1.2.1). With a still smaller window a message takes several times as long.
const NARROW_BITS: u8 = 12;

/// Compresses and decompresses messages. It keeps its memory, 0.3 MB for each window, for the next message of any
/// WebSocket: if each message allocated it again, it would leave holes in the heap between the data that messages leave
/// behind.
#[derive(Default)]
pub struct Codec {
    /// Compresses with the largest window.
    wide: Option<Deflate>,
    /// Compresses with a window of [`NARROW_BITS`].
    narrow: Option<Deflate>,
    inflate: Option<Inflate>,
}

impl Codec {
    /// Compresses a message for a client whose window has so many bits, 9 to 15; `None` if the message, or its start,
    /// does not become shorter, or if it would take too long.
    pub fn deflate(&mut self, message: &[u8], window_bits: u8) -> Option<Vec<u8>> {
        let (stream, bits) = match window_bits {
            WINDOW_BITS_MAX => (&mut self.wide, WINDOW_BITS_MAX),
            NARROW_BITS.. => (&mut self.narrow, NARROW_BITS),
            _ => return None,
        };
        let stream = stream.get_or_insert_with(|| Deflate::new(LEVEL, false, bits));
        stream.reset();
        let mut deflated = vec![0; message.len()];
        if message.len() > TRIED_BYTES {
            let (tried, room) = (&message[..TRIED_BYTES], &mut deflated[..TRIED_BYTES]);
            // `Block` ends a block, so that everything but some bits is written.
            stream.compress(tried, room, DeflateFlush::Block).ok()?;
            shorter_bytes(stream, TRIED_BYTES)?;
        }
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        let (rest, room) = (&message[read..], &mut deflated[written..]);
        stream.compress(rest, room, DeflateFlush::SyncFlush).ok()?;
        let written = shorter_bytes(stream, message.len())?;
        deflated.truncate(written.checked_sub(TAIL.len())?);
        Some(deflated)
    }

    /// Decompresses a message to at most `size_max` bytes.
    ///
    /// # Errors
    /// The close frame for a client that has sent no such message.
    pub fn inflate(
        &mut self,
        kind: MessageKind,
        deflated: Vec<u8>,
        size_max: usize,
    ) -> Result<Vec<u8>, Close> {
        let anew = || Inflate::new(false, WINDOW_BITS_MAX);
        let stream = self.inflate.get_or_insert_with(anew);
        stream.reset(false);
        let message = inflate(stream, deflated, size_max).map_err(|fault| fault.close())?;
        if kind == MessageKind::Text && std::str::from_utf8(&message).is_err() {
            return Err(Violation::NotUtf8.close());
        }
        Ok(message)
    }
}

/// How many bytes the first `len` have become, if that is less. If there is room left, all of them are written.
fn shorter_bytes(stream: &Deflate, len: usize) -> Option<usize> {
    let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
    (read == len && written < len).then_some(written)
}

fn inflate(
    stream: &mut Inflate,
    mut deflated: Vec<u8>,
    size_max: usize,
) -> Result<Vec<u8>, Violation> {
    // An empty message should be one byte (RFC 7692 section 7.2.3.6). Other servers accept a client that sends no byte
    // at all, since zlib accepts the tail alone, so this does too.
    if deflated.is_empty() {
        return Ok(deflated);
    }
    let guess = deflated.len().saturating_mul(FIRST_TIMES);
    deflated.reserve_exact(TAIL.len() + END.len());
    deflated.extend_from_slice(&TAIL);
    deflated.extend_from_slice(&END);
    // One byte more than allowed shows that the message is too long.
    let len_max = size_max.saturating_add(1);
    let mut message = vec![0; guess.clamp(1, len_max)];
    let (mut rest, mut len) = (&deflated[..], 0);
    loop {
        let (read, written) = (stream.total_in(), stream.total_out());
        let piece = &rest[..rest.len().min(PIECE_BYTES)];
        let status = stream.decompress(piece, &mut message[len..], InflateFlush::SyncFlush);
        let status = status.map_err(|_| Violation::NotDeflated)?;
        let (read, written) = (stream.total_in() - read, stream.total_out() - written);
        (rest, len) = (&rest[read as usize..], len + written as usize);
        if len > size_max {
            return Err(Violation::TooBig);
        }
        if deflated.len() - rest.len() > WASTE_BYTES_MAX + len + len / WASTE_PART {
            return Err(Violation::NotDeflated);
        }
        match status {
            Status::StreamEnd if rest.is_empty() => break,
            // A client may end the stream within a message, and go on behind the end (RFC 7692 section 7.2.1).
            Status::StreamEnd => stream.reset(false),
            Status::Ok | Status::BufError if len == message.len() => {
                message.resize((2 * len).min(len_max), 0);
            }
            Status::Ok | Status::BufError if read > 0 && !rest.is_empty() => {}
            // There was room, and every byte was read, but the stream has not ended.
            Status::Ok | Status::BufError => return Err(Violation::NotDeflated),
        }
    }
    message.truncate(len);
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without repetition (xorshift).
    fn unlike(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        bytes.take(len).collect()
    }

    #[test]
    fn a_message_is_read_no_further_than_it_takes_to_see_that_it_does_not_become_shorter() {
        let alike = b"what comes again ".repeat(TRIED_BYTES);
        let pictures = unlike(1 << 20);
        for (message, is_shorter, read) in [
            (pictures.clone(), false, TRIED_BYTES),
            (pictures[..=TRIED_BYTES].to_vec(), false, TRIED_BYTES),
            // The message is too short for a trial of its start.
            (pictures[..TRIED_BYTES].to_vec(), false, TRIED_BYTES),
            (pictures[..1000].to_vec(), false, 1000),
            (
                [&pictures[..TRIED_BYTES], &alike].concat(),
                false,
                TRIED_BYTES,
            ),
            (alike.clone(), true, alike.len()),
            (alike[..=TRIED_BYTES].to_vec(), true, TRIED_BYTES + 1),
        ] {
            for bits in [NARROW_BITS, WINDOW_BITS_MAX] {
                let mut codec = Codec::default();
                let deflated = codec.deflate(&message, bits);
                assert_eq!(deflated.is_some(), is_shorter, "{} {bits}", message.len());
                let stream = codec.wide.or(codec.narrow).expect("it was used");
                assert_eq!(stream.total_in(), read as u64, "{} {bits}", message.len());
            }
        }
    }
}
