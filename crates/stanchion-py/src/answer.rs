//! An answer on its way from the app into the exchange, whatever the interface by which the app gives it.

use std::fs::File;
use std::os::fd::AsFd;

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use stanchion_http::rules::has_body;
use stanchion_server::record::{
    FilePart, HINT_BYTES_MAX, HINTS_BYTES_MAX, HINTS_MAX, PREFIX_BYTES, RequestRecord,
};
use stanchion_server::{Ending, Gone, Seat, Taken};
use tracing::{error, warn};

use crate::head::Head;

/// What is said to a client whose app has failed before it said anything.
const FAILED: &[u8] = b"500 Internal Server Error: the application failed\n";

/// How far an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The app has given no head.
    #[default]
    NoHead,
    /// It has, and may still replace what it gave.
    Head,
    /// The head is in the exchange.
    Sending,
}

impl Stage {
    /// Whether the app may give a head: only after an error one in place of another, and none for what is out.
    pub(crate) fn takes_head(self, is_after_error: bool) -> bool {
        match self {
            Self::NoHead => true,
            Self::Head => is_after_error,
            Self::Sending => false,
        }
    }
}

/// What comes behind the body of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Behind {
    #[default]
    Nothing,
    /// The app gives trailers, and the client takes none.
    Unwanted,
    /// Trailers go out, and the body ahead of them in pieces, each behind its prefix (`piece_prefix`).
    Trailers,
}

/// The answer to one request after the other.
#[derive(Default)]
pub(crate) struct Answer {
    /// `None` once the answer is whole.
    pub(crate) taken: Option<Taken<'static>>,
    pub(crate) head: Head,
    pub(crate) stage: Stage,
    is_head_request: bool,
    /// Whether a body goes out with the head that is out.
    has_body: bool,
    /// Bytes that Content-Length still promises.
    pub(crate) promised: Option<u64>,
    /// Bytes of the body that were given away.
    pub(crate) sent: u64,
    excess_is_logged: bool,
    behind: Behind,
    /// What has gone ahead of it. `None` if the client takes no hints.
    hints: Option<Hinted>,
}

/// The hints that went ahead of an answer.
struct Hinted {
    count: usize,
    bytes: usize,
    excess_is_logged: bool,
    /// Method and target of the request, for the log.
    what: String,
}

impl Hinted {
    fn new(request: &RequestRecord<'_>) -> Self {
        Self {
            count: 0,
            bytes: 0,
            excess_is_logged: false,
            what: request.describe(),
        }
    }

    /// Counts one of so many bytes, if it may go there. Else it is to be dropped, which is logged once.
    fn takes(&mut self, len: usize) -> bool {
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
                self.what
            );
        }
        false
    }
}

impl Answer {
    /// As it was at first, but for what can be used again: the head's memory.
    pub(crate) fn begin(&mut self, taken: Taken<'static>, request: &RequestRecord<'_>) {
        self.taken = Some(taken);
        self.stage = Stage::NoHead;
        self.is_head_request = request.method == b"HEAD";
        self.hints = request.facts.takes_hints.then(|| Hinted::new(request));
        self.has_body = false;
        self.promised = None;
        self.sent = 0;
        self.excess_is_logged = false;
        self.behind = Behind::Nothing;
    }

    /// Whether hints may still go ahead of it.
    pub(crate) fn takes_hints(&self) -> bool {
        self.hints.is_some() && self.stage != Stage::Sending && self.taken.is_some()
    }

    /// Sends a hint ahead of it, if it may still go there, at once. One over a limit is dropped, which is logged.
    pub(crate) fn hint(&mut self, hint: &mut Head) -> Result<(), Gone> {
        if !self.takes_hints() {
            return Ok(());
        }
        let (Some(taken), Some(hinted)) = (&mut self.taken, &mut self.hints) else {
            return Ok(());
        };
        let whole = hint.whole_hints();
        if !hinted.takes(whole.len() - PREFIX_BYTES) {
            return Ok(());
        }
        // There is always room for so few, so that all of it goes at once.
        taken.write_some(whole)?;
        taken.publish();
        Ok(())
    }

    /// Sends the head by `write` before the first byte of the body. `body_len` is the whole body's length,
    /// where it is known.
    pub(crate) fn put_head(
        &mut self,
        body_len: Option<u64>,
        file: Option<FilePart>,
        write: impl FnOnce(&mut Option<Taken<'static>>, &[u8]) -> PyResult<()>,
    ) -> PyResult<()> {
        match self.stage {
            Stage::Head => {}
            Stage::Sending => return Ok(()),
            Stage::NoHead => {
                return Err(PyAssertionError::new_err(
                    "the app gave a body before it called start_response",
                ));
            }
        }
        let has_body = has_body(self.head.status);
        if self.head.content_length.is_none() && has_body {
            // A HEAD request's app may well give no body at all; that tells nothing of its length.
            let is_known = !self.is_head_request || body_len.is_some_and(|len| len > 0);
            if let Some(len) = body_len.filter(|_| is_known) {
                self.head.tell_length(len);
            }
        }
        self.has_body = has_body && !self.is_head_request;
        self.promised = self.head.content_length.filter(|_| self.has_body);
        if self.is_trailed() && !self.has_body {
            self.behind = Behind::Unwanted;
        }
        let whole = if self.is_trailed() {
            self.head.whole_before_pieces()?
        } else {
            self.head.whole(file)?
        };
        self.stage = Stage::Sending;
        write(&mut self.taken, whole)
    }

    /// Has the acceptor send a file, behind the head that `write` sends, which is the same if only that is asked for;
    /// false if its bytes must go through the exchange after all.
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
            stage: Stage::Head,
            is_head_request,
            behind: Behind::Nothing,
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

    /// What of a piece of the body is to be sent: nothing of what must not be.
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
                error!("the app's body is longer than its Content-Length; the rest is not sent");
            }
            chunk = &chunk[..len];
            *promised -= len as u64;
        }
        self.sent += chunk.len() as u64;
        chunk
    }

    /// How much of a file that is all of the body is to be sent; it is taken for sent.
    pub(crate) fn owed_of_file(&mut self, len: u64) -> u64 {
        if !self.has_body {
            return 0;
        }
        let owed = self.promised.map_or(len, |promised| promised.min(len));
        self.promised = self.promised.map(|promised| promised - owed);
        self.sent += owed;
        owed
    }

    /// Whether the client is owed no more of a body, nor behind it: it has what Content-Length promises, or is to have
    /// none. The app may have more to say all the same.
    pub(crate) fn is_given(&self) -> bool {
        let has_all = !self.has_body || self.promised == Some(0);
        self.stage == Stage::Sending && has_all && !self.is_trailed()
    }

    /// The app gives trailers behind the body, which are for a client that takes some.
    pub(crate) fn promise_trailers(&mut self, are_taken: bool) {
        self.behind = if are_taken {
            Behind::Trailers
        } else {
            Behind::Unwanted
        };
    }

    /// Whether it does.
    pub(crate) fn promises_trailers(&self) -> bool {
        self.behind != Behind::Nothing
    }

    /// Whether they go out, and the body in pieces.
    pub(crate) fn is_trailed(&self) -> bool {
        self.behind == Behind::Trailers
    }

    /// There is nothing more.
    pub(crate) fn complete(&mut self) {
        let Some(taken) = self.taken.take() else {
            return;
        };
        match self.promised {
            Some(missing) if missing > 0 => {
                error!("the app's body is {missing} bytes shorter than its Content-Length");
                taken.finish(Ending::Broken);
            }
            _ => taken.finish(Ending::Complete),
        }
    }

    /// The app has failed: 500 if nothing is out yet, else the client must see that what it got
    /// is not whole.
    pub(crate) fn fail(
        &mut self,
        py: Python<'_>,
        write: impl Fn(&mut Option<Taken<'static>>, &[u8]) -> PyResult<()>,
    ) {
        if self.stage == Stage::Sending {
            if let Some(taken) = self.taken.take() {
                taken.finish(Ending::Broken);
            }
            return;
        }
        self.head.become_failure(py);
        self.behind = Behind::Nothing;
        self.stage = Stage::Head;
        let sent = self.put_head(Some(FAILED.len() as u64), None, &write);
        let sent = sent.and_then(|()| {
            let body = self.owed_of(FAILED);
            write(&mut self.taken, body)
        });
        match sent {
            Ok(()) => self.complete(),
            Err(_) => {
                // Nobody reads it; the slot goes back all the same. To say why would run code of Python's under a lock.
                tracing::debug!("a 500 could not be sent");
                self.taken = None;
            }
        }
    }
}
