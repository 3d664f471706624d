//! The outcomes of reading and writing.

use std::num::NonZeroUsize;

/// The outcome of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Bytes(usize),
    /// Nothing is there now.
    Nothing,
    /// The client sends no more.
    End,
    /// The connection is broken.
    Failed,
}

/// The outcome of writing something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// So many bytes were taken, which is progress: a loop that tries again after none would have no end.
    Bytes(NonZeroUsize),
    /// There is no room now.
    Full,
    /// The connection is broken.
    Failed,
}

impl Written {
    pub(crate) fn of(len: usize) -> Self {
        NonZeroUsize::new(len).map_or(Self::Full, Self::Bytes)
    }

    /// How many bytes were taken.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn len(&self) -> Result<usize, Broken> {
        match self {
            Self::Bytes(len) => Ok(len.get()),
            Self::Full => Ok(0),
            Self::Failed => Err(Broken),
        }
    }
}

/// A connection is broken: nothing more can be written to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;
