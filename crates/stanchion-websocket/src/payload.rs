//! The bytes of a client's message.

use crate::frame::unmask;
use crate::pieces::Pieces;

/// How much of a text is checked at a time, so that it stays in the processor's nearest cache.
const BLOCK_BYTES: usize = 8 << 10;

/// The bytes of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload<'c> {
    /// The bytes of a message that came in several pieces, put together.
    Whole(Pieces),
    /// The bytes of a message that came in one piece, in the buffer where they arrived.
    Plain(&'c [u8]),
    /// As `Plain`, but still masked and unchecked; with the mask.
    Masked(&'c mut [u8], [u8; 4]),
}

impl<'c> Payload<'c> {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(pieces) => pieces.len(),
            Self::Plain(bytes) => bytes.len(),
            Self::Masked(bytes, _) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first piece, or all bytes, as they are in memory; and the mask with which each four of them must be combined
    /// (xor), if there is one.
    pub fn first(&self) -> (&[u8], Option<[u8; 4]>) {
        match self {
            Self::Whole(pieces) => (pieces.first(), None),
            Self::Plain(bytes) => (bytes, None),
            Self::Masked(bytes, mask) => (bytes, Some(*mask)),
        }
    }

    /// Removes the mask, and returns the bytes in their own memory, or where they arrived.
    ///
    /// # Errors
    /// The bytes are in the buffer where they arrived.
    pub fn into_plain(self) -> Result<Pieces, &'c [u8]> {
        match self {
            Self::Whole(pieces) => Ok(pieces),
            Self::Plain(bytes) => Err(bytes),
            Self::Masked(bytes, mut mask) => {
                unmask(bytes, &mut mask);
                Err(bytes)
            }
        }
    }

    /// The bytes in memory of their own, and in one piece.
    pub fn into_owned(self) -> Vec<u8> {
        self.into_plain()
            .map_or_else(<[u8]>::to_vec, Pieces::into_whole)
    }
}

/// Removes the mask from a text, and passes it to `whole_chars` on the way. Returns how much of it is whole characters
/// at most.
pub(crate) fn unmask_text<F>(
    text: &mut [u8],
    mut mask: [u8; 4],
    whole_chars: impl Fn(&[u8]) -> Result<usize, F>,
) -> Result<usize, F> {
    let (mut plain, mut checked) = (0, 0);
    while plain < text.len() {
        let end = text.len().min(plain + BLOCK_BYTES);
        unmask(&mut text[plain..end], &mut mask);
        plain = end;
        checked += whole_chars(&text[checked..plain])?;
    }
    Ok(checked)
}
