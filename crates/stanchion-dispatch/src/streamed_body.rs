//! A body that a worker writes in pieces, held to what its head says: a longer one would be taken for the start of another
//! answer, and for the rest of a shorter one the client would wait.

use std::rc::Rc;

use bytes::Bytes;
use stanchion_exchange::{AnswerEnd, Corrupt};
use stanchion_http::BodyLength;

use crate::outflow::{Limits, Outflow};
use crate::trailers::Trailed;

/// A body that comes in pieces.
pub(crate) struct StreamedBody {
    pub(crate) outflow: Outflow,
    /// How far the body has come, if trailers come behind it.
    pub(crate) trailed: Option<Trailed>,
    /// Bytes of the body that the head promises and that have not come, if it promises a number.
    pub(crate) owed: Option<u64>,
}

impl StreamedBody {
    /// Begins a body with its first piece. To begin with more than the head promised is an error.
    pub(crate) fn new(
        limits: &Rc<Limits>,
        promised: BodyLength,
        first: Bytes,
        has_trailers: bool,
    ) -> Result<Self, Corrupt> {
        let mut body = Self {
            outflow: Outflow::new(limits),
            trailed: has_trailers.then(Trailed::default),
            owed: bytes_of(promised),
        };
        body.push(first)?;
        Ok(body)
    }

    /// Appends what the worker has written.
    pub(crate) fn push(&mut self, written: Bytes) -> Result<(), Corrupt> {
        let piece = match &mut self.trailed {
            Some(trailed) => trailed.take(&written)?,
            None => written,
        };
        self.owed = left_of(self.owed, piece.len())?;
        self.outflow.push(piece);
        Ok(())
    }

    /// Ends the body. To end it as complete with fewer bytes than its head says is an error.
    pub(crate) fn end(&mut self, end: AnswerEnd) -> Result<(), Corrupt> {
        if end == AnswerEnd::Complete {
            if self.owed.is_some_and(|owed| owed > 0) {
                return Err(Corrupt("an answer is shorter than it says"));
            }
            if let Some(trailed) = &mut self.trailed {
                trailed.check()?;
            }
        }
        self.outflow.end(end);
        Ok(())
    }
}

/// How many bytes a body has, if that is known.
pub(crate) fn bytes_of(length: BodyLength) -> Option<u64> {
    match length {
        BodyLength::Nothing => Some(0),
        BodyLength::Bytes(bytes) => Some(bytes),
        BodyLength::Unknown => None,
    }
}

/// How many bytes are owed after so many more.
pub(crate) fn left_of(owed: Option<u64>, bytes: usize) -> Result<Option<u64>, Corrupt> {
    let Some(owed) = owed else { return Ok(None) };
    let left = owed.checked_sub(bytes as u64);
    let left = left.ok_or(Corrupt("an answer is longer than it says"))?;
    Ok(Some(left))
}
