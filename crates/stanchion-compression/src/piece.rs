//! A piece of a body: what follows it, and why it cannot be compressed.

use std::fmt;

/// The room that is added to the output at a time.
pub(crate) const ROOM_BYTES: usize = 16 << 10;

/// The caller's plan after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// More follows, and no client waits for this piece alone.
    More,
    /// Nothing follows for a while: the encoder has to output everything that it was given.
    Flush,
    /// The body is over.
    End,
}

/// A body cannot be compressed: memory is short, or a compressor misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed(pub(crate) &'static str);

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a body cannot be compressed: {}", self.0)
    }
}

impl std::error::Error for Failed {}
