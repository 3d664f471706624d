//! The bytes of a client's message.

use crate::frame::unmask;
use crate::pieces::Pieces;

/// A text is looked at so much at a time, so that it stays in the processor's nearest cache meanwhile.
const BLOCK_BYTES: usize = 8 << 10;

/// The bytes of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload<'c> {
    /// Put together of the pieces that it came in.
    Whole(Pieces),
    /// Where they came, in one piece.
    Plain(&'c [u8]),
    /// Likewise, with the mask that is still to be taken away. Nobody has looked at them.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first piece of it, or all, as the bytes are; and the mask that each four of them are to be combined with (xor), if
    /// there is one.
    pub fn first(&self) -> (&[u8], Option<[u8; 4]>) {
        match self {
            Self::Whole(pieces) => (pieces.first(), None),
            Self::Plain(bytes) => (bytes, None),
            Self::Masked(bytes, mask) => (bytes, Some(*mask)),
        }
    }

    /// Without a mask: memory of its own, or where they came.
    ///
    /// # Errors
    /// They have no memory of their own.
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

    /// In memory of their own, and in one piece.
    pub fn into_owned(self) -> Vec<u8> {
        self.into_plain()
            .map_or_else(<[u8]>::to_vec, Pieces::into_whole)
    }
}

/// Takes the mask away from a text, and has `whole_chars` look at it on the way: gives how much of it is whole
/// characters at most.
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
