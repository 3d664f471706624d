//! An answer on its way from the app into the exchange, for every interface by which an app gives it.

use std::fs::File;
use std::os::fd::AsFd;

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use stanchion_http::rules::has_body;
use stanchion_record::{
    FilePart, HINT_BYTES_MAX, HINTS_BYTES_MAX, HINTS_MAX, PREFIX_BYTES, RequestBuffer,
    RequestRecord,
};
use stanchion_server::{AnswerEnd, Gone, Seat, Taken};
use tracing::{error, warn};

use crate::head::AppHead;

/// The body of the 500 for a client whose app failed before it sent anything.
const FAILED: &[u8] = b"500 Internal Server Error: the application failed\n";

/// The stage of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnswerStage {
    /// The app has given no head.
    #[default]
    NoHead,
    /// The app has given a head, and may still replace it.
    Head,
    /// The head is in the exchange.
    Sending,
}

impl AnswerStage {
    /// Whether the app may give a head now: a second one only after an error, and none once the first is sent.
    pub(crate) fn takes_head(self, is_after_error: bool) -> bool {
        match self {
            Self::NoHead => true,
            Self::Head => is_after_error,
            Self::Sending => false,
        }
    }
}

/// The trailers of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TrailerState {
    #[default]
    Nothing,
    /// The app gives trailers, but they are not sent: the client accepts none, or the answer has no body.
    Unwanted,
    /// The trailers are sent, and so the body goes out ahead of them in pieces, each behind its prefix (`piece_prefix`).
    Trailers,
}

/// The answer to a request; the same value serves one request after another.
#[derive(Default)]
pub(crate) struct AnswerWriter {
    /// The request; `None` once the answer is complete.
    pub(crate) taken: Option<Taken<'static>>,
    pub(crate) head: AppHead,
    pub(crate) stage: AnswerStage,
    is_head_request: bool,
    /// Whether a body follows the head that was sent.
    has_body: bool,
    /// Bytes that Content-Length still promises.
    pub(crate) promised: Option<u64>,
    /// Bytes of the body that were sent.
    pub(crate) sent: u64,
    excess_is_logged: bool,
    behind: TrailerState,
    /// The hints that were sent ahead of the answer. `None` if the client accepts no hints.
    hints: Option<Hinted>,
}

/// Counts the hints that were sent ahead of an answer.
#[derive(Default)]
struct Hinted {
    count: usize,
    bytes: usize,
    excess_is_logged: bool,
}

impl Hinted {
    /// Counts a hint of `len` bytes, if the limits permit it. Else the caller drops the hint, and the first drop is logged.
    fn takes(&mut self, len: usize, taken: &Taken<'_>) -> bool {
        let (count, bytes) = (self.count + 1, self.bytes + len);
        if count <= HINTS_MAX && len <= HINT_BYTES_MAX && bytes <= HINTS_BYTES_MAX {
            (self.count, self.bytes) = (count, bytes);
            return true;
        }
        if !self.excess_is_logged {
            self.excess_is_logged = true;
            warn!(
                "an early hint of the app is dropped at {}: a request has up to {HINTS_MAX}, with {HINT_BYTES_MAX} \
                 bytes each and {HINTS_BYTES_MAX} in all",
                described(Some(taken))
            );
        }
        false
    }
}

/// Method and target of the request, for the log; read again, as few answers need them.
fn described(taken: Option<&Taken<'_>>) -> String {
    let mut buffer = RequestBuffer::default();
    let request = taken.and_then(|taken| buffer.read(taken).ok());
    request.map_or_else(|| "a request".to_owned(), |request| request.describe())
}

impl AnswerWriter {
    /// Resets the answer for a request, but keeps the head's memory.
    pub(crate) fn begin(&mut self, taken: Taken<'static>, request: &RequestRecord<'_>) {
        self.taken = Some(taken);
        self.stage = AnswerStage::NoHead;
        self.is_head_request = request.method == b"HEAD";
        self.hints = request.facts.takes_hints.then(Hinted::default);
        self.has_body = false;
        self.promised = None;
        self.sent = 0;
        self.excess_is_logged = false;
        self.behind = TrailerState::Nothing;
    }

    /// Whether hints may still be sent ahead of the answer.
    pub(crate) fn takes_hints(&self) -> bool {
        self.hints.is_some() && self.stage != AnswerStage::Sending && self.taken.is_some()
    }

    /// Sends a hint ahead of the answer at once, if hints may still be sent. A hint over a limit is dropped, which is logged.
    pub(crate) fn hint(&mut self, hint: &mut AppHead) -> Result<(), Gone> {
        if !self.takes_hints() {
            return Ok(());
        }
        let (Some(taken), Some(hinted)) = (&mut self.taken, &mut self.hints) else {
            return Ok(());
        };
        let whole = hint.whole_hints();
        if !hinted.takes(whole.len() - PREFIX_BYTES, taken) {
            return Ok(());
        }
        // The slot always has room for the few bytes of hints, so this writes all of them.
        taken.write_some(whole)?;
        taken.publish();
        Ok(())
    }

    /// Sends the head by `write` before the first byte of the body. `body_len` is the whole body's length, if it is known.
    pub(crate) fn put_head(
        &mut self,
        body_len: Option<u64>,
        file: Option<FilePart>,
        write: impl FnOnce(&mut Option<Taken<'static>>, &[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        match self.stage {
            AnswerStage::Head => {}
            AnswerStage::Sending => return Ok(()),
            AnswerStage::NoHead => {
                return Err(PyAssertionError::new_err(
                    "the app gave a body before it called start_response",
                ));
            }
        }
        let has_body = has_body(self.head.status);
        if self.head.content_length.is_none() && has_body {
            // For HEAD an app may give no body at all, so an empty body does not mean that the length is 0.
            let is_known = !self.is_head_request || body_len.is_some_and(|len| len > 0);
            if let Some(len) = body_len.filter(|_| is_known) {
                self.head.tell_length(len);
            }
        }
        self.has_body = has_body && !self.is_head_request;
        self.promised = self.head.content_length.filter(|_| self.has_body);
        if self.is_trailed() && !self.has_body {
            self.behind = TrailerState::Unwanted;
        }
        let whole = if self.is_trailed() {
            self.head.whole_before_pieces()?
        } else {
            self.head.whole(file)?
        };
        self.stage = AnswerStage::Sending;
        write(&mut self.taken, whole)
    }

    /// Has the acceptor send a file, behind the head that `write` sends. A HEAD request gets the same head alone. Returns false if the file's bytes
    /// must go through the exchange.
    pub(crate) fn send_file(
        &mut self,
        seat: &Seat<'_>,
        file: &File,
        part: FilePart,
        write: impl FnOnce(&mut Option<Taken<'static>>, &[u8]) -> PyResult<()>,
    ) -> PyResult<bool> {
        let Self {
            taken: Some(taken),
            head,
            stage: AnswerStage::Head,
            is_head_request,
            behind: TrailerState::Nothing,
            ..
        } = self
        else {
            return Ok(false);
        };
        let len = head
            .content_length
            .map_or(part.len, |promised| promised.min(part.len));
        let is_whole = head
            .content_length
            .is_none_or(|promised| promised <= part.len);
        let is_asked = !*is_head_request;
        let can_be_sent = has_body(head.status) && is_whole && len > 0;
        if !can_be_sent || is_asked && !seat.send_file(taken, file.as_fd()) {
            return Ok(false);
        }
        let sent = FilePart {
            offset: part.offset,
            len: if is_asked { len } else { 0 },
        };
        self.put_head(Some(len), Some(sent), write)?;
        self.promised = Some(0);
        self.sent = sent.len;
        self.complete();
        Ok(true)
    }

    /// The part of a piece of the body that may be sent: nothing if the answer has no body, and no more than Content-Length promises.
    pub(crate) fn owed_of<'c>(&mut self, chunk: &'c [u8]) -> &'c [u8] {
        if !self.has_body {
            return &[];
        }
        let mut chunk = chunk;
        if let Some(promised) = &mut self.promised {
            let len = usize::try_from(*promised)
                .unwrap_or(usize::MAX)
                .min(chunk.len());
            if len < chunk.len() && !self.excess_is_logged {
                self.excess_is_logged = true;
                error!(
                    "the app's body is longer than its Content-Length, and the rest is not sent, at {}",
                    described(self.taken.as_ref())
                );
            }
            chunk = &chunk[..len];
            *promised -= len as u64;
        }
        self.sent += chunk.len() as u64;
        chunk
    }

    /// How many bytes of a file, which is the whole body, are to be sent; they count as sent.
    pub(crate) fn owed_of_file(&mut self, len: u64) -> u64 {
        if !self.has_body {
            return 0;
        }
        let owed = self.promised.map_or(len, |promised| promised.min(len));
        self.promised = self.promised.map(|promised| promised - owed);
        self.sent += owed;
        owed
    }

    /// Whether the client waits for no more of the answer: it has as much of the body as Content-Length promises, or the answer has no body, and no
    /// trailers are sent. The app may still go on.
    pub(crate) fn is_given(&self) -> bool {
        let has_all = !self.has_body || self.promised == Some(0);
        self.stage == AnswerStage::Sending && has_all && !self.is_trailed()
    }

    /// Notes that the app gives trailers behind the body. `are_taken` says whether the client accepts trailers.
    pub(crate) fn promise_trailers(&mut self, are_taken: bool) {
        self.behind = if are_taken {
            TrailerState::Trailers
        } else {
            TrailerState::Unwanted
        };
    }

    /// Whether the app gives trailers.
    pub(crate) fn promises_trailers(&self) -> bool {
        self.behind != TrailerState::Nothing
    }

    /// Whether trailers are sent, and the body in pieces.
    pub(crate) fn is_trailed(&self) -> bool {
        self.behind == TrailerState::Trailers
    }

    /// Ends the answer: the app gives no more.
    pub(crate) fn complete(&mut self) {
        let Some(taken) = self.taken.take() else {
            return;
        };
        match self.promised {
            Some(missing) if missing > 0 => {
                error!(
                    "the app's body is {missing} bytes shorter than its Content-Length, and the answer breaks off, at {}",
                    described(Some(&taken))
                );
                taken.finish(AnswerEnd::Broken);
            }
            _ => taken.finish(AnswerEnd::Complete),
        }
    }

    /// Ends the answer after a failure of the app: with a 500 if nothing was sent yet, else in a way that shows the client that its answer is
    /// incomplete.
    pub(crate) fn fail(
        &mut self,
        py: Python<'_>,
        write: impl Fn(&mut Option<Taken<'static>>, &[u8]) -> PyResult<()>,
    ) {
        if self.stage == AnswerStage::Sending {
            if let Some(taken) = self.taken.take() {
                taken.finish(AnswerEnd::Broken);
            }
            return;
        }
        self.head.become_failure(py);
        self.behind = TrailerState::Nothing;
        self.stage = AnswerStage::Head;
        let sent = self.put_head(Some(FAILED.len() as u64), None, &write);
        let sent = sent.and_then(|()| {
            let body = self.owed_of(FAILED);
            write(&mut self.taken, body)
        });
        match sent {
            Ok(()) => self.complete(),
            Err(_) => {
                // The client gets nothing, and dropping the request frees its slot. The error is not logged, because formatting it would run Python
                // code under a lock.
                tracing::debug!("a 500 could not be sent");
                self.taken = None;
            }
        }
    }
}
