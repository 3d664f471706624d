//! `start_response` and `write`: an answer on its way from the app into the exchange (PEP 3333).

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyAssertionError, PyConnectionResetError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;
use stanchion_http::rules::has_body;
use stanchion_server::record::FilePart;
use stanchion_server::{Ending, Seat, Taken};
use tracing::error;

use crate::head::Head;
use crate::strings::text;

/// The longest time that an app may ask for at once: 30 days, as Unicorn's longest timeout.
const EXTENSION_S_MAX: f64 = 30.0 * 24.0 * 3600.0;

pyo3::create_exception!(
    stanchion,
    ClientGone,
    PyConnectionResetError,
    "Raised by write() when nobody reads the answer any more."
);

/// See [`Response::told`].
pub(crate) type Told = (u16, Py<PyString>, Vec<(Py<PyString>, Py<PyString>)>, u64);

/// The answer to a request. It answers one after the other, as long as no app keeps it: see [`Answerer`].
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Response {
    state: Mutex<State>,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The app has not called `start_response`.
    NoHead,
    /// It has, and may still replace what it gave.
    Head,
    /// The head is in the exchange.
    Sending,
}

struct State {
    /// `None` once the answer is whole.
    taken: Option<Taken<'static>>,
    head: Head,
    stage: Stage,
    is_head_request: bool,
    /// Whether a body goes out with the head that is out.
    has_body: bool,
    /// Bytes that Content-Length still promises.
    promised: Option<u64>,
    /// Bytes of the body that were given away.
    sent: u64,
    excess_is_logged: bool,
    /// The bound method, until [`Response::end`]: afterwards it would keep itself alive.
    write: Option<Py<PyAny>>,
}

#[pymethods]
impl Response {
    #[pyo3(signature = (status, headers, exc_info = None))]
    fn start_response<'py>(
        this: &Bound<'py, Self>,
        status: &Bound<'py, PyAny>,
        headers: &Bound<'py, PyAny>,
        exc_info: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, is_after_error) = (this.py(), exc_info.is_some());
        let mut state = this.get().lock(py);
        if !state.stage.takes_head(is_after_error) {
            drop(state);
            return Err(refusal(exc_info));
        }
        // Most apps of few words say the same each time, as the very same objects, which have no code of their own.
        let is_known = state.stage == Stage::NoHead && state.head.take_in_again(status, headers);
        if !is_known {
            let mut head = match state.stage {
                Stage::NoHead => std::mem::take(&mut state.head),
                // If this one is no good, the one before stays.
                _ => Head::default(),
            };
            // What the app gives may have code of its own, which may call this very response: a lock would never come
            // free.
            drop(state);
            head.take_in(status, headers)?;
            state = this.get().lock(py);
            if !state.stage.takes_head(is_after_error) {
                drop(state);
                return Err(refusal(exc_info));
            }
            state.head = head;
        }
        state.stage = Stage::Head;
        let write = state.write.as_ref().map(|write| write.bind(py).clone());
        drop(state);
        write.map_or_else(|| this.getattr(intern!(py, "write")), Ok)
    }

    /// PEP 3333's imperative way to send.
    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.send_chunk(py, data)
    }

    /// Whether nobody waits for the answer any more.
    fn client_gone(&self, py: Python<'_>) -> bool {
        self.lock(py).taken.as_ref().is_none_or(Taken::client_gone)
    }

    /// Gives the request at least so many seconds from now. Once the answer is given there is
    /// nothing left to extend.
    fn extend_deadline(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        // Not a number is in no range.
        if !(0.0..=EXTENSION_S_MAX).contains(&seconds) {
            return Err(PyValueError::new_err(format!(
                "extend_deadline takes seconds from 0 to {EXTENSION_S_MAX} (30 days), not {seconds}"
            )));
        }
        if let Some(taken) = &self.lock(py).taken {
            taken.extend_deadline(Duration::from_secs_f64(seconds));
        }
        Ok(())
    }
}

impl Stage {
    /// Whether the app may give a head: only after an error one in place of another, and none for what is out.
    fn takes_head(self, is_after_error: bool) -> bool {
        match self {
            Self::NoHead => true,
            Self::Head => is_after_error,
            Self::Sending => false,
        }
    }
}

/// What `start_response` raises when it takes no head (PEP 3333).
fn refusal(exc_info: Option<&Bound<'_, PyAny>>) -> PyErr {
    exc_info.map_or_else(
        || PyAssertionError::new_err("start_response was called already"),
        |exc_info| raised(exc_info).unwrap_or_else(|bad| bad),
    )
}

/// The exception in an `exc_info` triple, with its traceback.
fn raised(exc_info: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let value = exc_info.get_item(1)?;
    let value = value.call_method1("with_traceback", (exc_info.get_item(2)?,))?;
    Ok(PyErr::from_value(value))
}

impl Response {
    /// One that has nothing to answer.
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::new()),
        }
    }

    /// Keeps its method of that name at hand.
    pub(crate) fn keep_write(&self, py: Python<'_>, write: Py<PyAny>) {
        self.lock(py).write = Some(write);
    }

    /// It answers this request from now on.
    pub(crate) fn begin(&self, py: Python<'_>, taken: Taken<'static>, is_head_request: bool) {
        self.lock(py).begin(taken, is_head_request);
    }

    /// It answers nothing more, though the app may have kept what belongs to it.
    pub(crate) fn end(&self, py: Python<'_>) {
        // Dropped without the lock.
        let _write = self.lock(py).write.take();
    }

    /// Other threads of the app may hold the lock while they wait for a slow client; whoever
    /// waits for the lock lets go of the interpreter.
    fn lock<'s>(&'s self, py: Python<'_>) -> MutexGuard<'s, State> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// For hooks, what became of it: status, reason, fields, and bytes of the body that were sent.
    /// `None` if nothing was.
    pub(crate) fn told(&self, py: Python<'_>) -> Option<Told> {
        let state = self.lock(py);
        let head = Some(&state.head).filter(|_| state.stage == Stage::Sending)?;
        let text = |bytes: &[u8]| text(py, bytes).unbind();
        let fields = head.fields();
        let fields = fields
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        Some((head.status, text(head.reason()), fields, state.sent))
    }

    /// Sends a body that is known to be all of it.
    pub(crate) fn send_whole(&self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        let mut state = self.lock(py);
        state.put_head(py, Some(body.len() as u64))?;
        state.put(py, body)?;
        state.complete();
        Ok(())
    }

    /// Sends a piece, at once: PEP 3333 lets nothing wait for the next one.
    pub(crate) fn send_chunk(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let mut state = self.lock(py);
        state.put_head(py, None)?;
        state.put(py, chunk)?;
        if state.promised == Some(0) {
            // Nothing more is owed, so the client need not wait for what the app does next.
            state.complete();
            return Ok(());
        }
        if let Some(taken) = &mut state.taken {
            taken.publish();
        }
        Ok(())
    }

    /// Has the acceptor send a file; false if it must go through the exchange after all.
    pub(crate) fn send_file(
        &self,
        py: Python<'_>,
        seat: &Seat<'_>,
        file: &File,
        part: FilePart,
    ) -> PyResult<bool> {
        let mut state = self.lock(py);
        let State {
            taken: Some(taken),
            head,
            stage: Stage::Head,
            is_head_request: false,
            ..
        } = &mut *state
        else {
            return Ok(false);
        };
        let len = head
            .content_length
            .map_or(part.len, |promised| promised.min(part.len));
        let is_whole = head
            .content_length
            .is_none_or(|promised| promised <= part.len);
        if !has_body(head.status) || !is_whole || len == 0 || !seat.send_file(taken, file.as_fd()) {
            return Ok(false);
        }
        state.put_head_with(
            py,
            Some(len),
            Some(FilePart {
                offset: part.offset,
                len,
            }),
        )?;
        state.promised = Some(0);
        state.sent = len;
        state.complete();
        Ok(true)
    }

    /// There is nothing more.
    pub(crate) fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py);
        state.put_head(py, Some(0))?;
        state.complete();
        Ok(())
    }

    /// The app has failed: 500 if nothing is out yet, else the client must see that what it got
    /// is not whole.
    pub(crate) fn fail(&self, py: Python<'_>) {
        let mut state = self.lock(py);
        if state.stage == Stage::Sending {
            if let Some(taken) = state.taken.take() {
                taken.finish(Ending::Broken);
            }
            return;
        }
        state.head.become_failure(py);
        state.stage = Stage::Head;
        let body = b"500 Internal Server Error: the application failed\n";
        let sent = state
            .put_head(py, Some(body.len() as u64))
            .and_then(|()| state.put(py, body));
        match sent {
            Ok(()) => state.complete(),
            Err(failure) => {
                // Nobody reads it; the slot goes back all the same.
                tracing::debug!("a 500 could not be sent: {failure}");
                state.taken = None;
            }
        }
    }
}

impl State {
    fn new() -> Self {
        Self {
            taken: None,
            head: Head::default(),
            stage: Stage::NoHead,
            is_head_request: false,
            has_body: false,
            promised: None,
            sent: 0,
            excess_is_logged: false,
            write: None,
        }
    }

    /// As it was at first, but for what can be used again: the head's memory, and `write`.
    fn begin(&mut self, taken: Taken<'static>, is_head_request: bool) {
        self.taken = Some(taken);
        self.stage = Stage::NoHead;
        self.is_head_request = is_head_request;
        self.has_body = false;
        self.promised = None;
        self.sent = 0;
        self.excess_is_logged = false;
    }

    /// Sends the head before the first byte of the body. `body_len` is the whole body's length,
    /// where it is known.
    fn put_head(&mut self, py: Python<'_>, body_len: Option<u64>) -> PyResult<()> {
        self.put_head_with(py, body_len, None)
    }

    fn put_head_with(
        &mut self,
        py: Python<'_>,
        body_len: Option<u64>,
        file: Option<FilePart>,
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
        let whole = self.head.whole(file)?;
        self.stage = Stage::Sending;
        write(&mut self.taken, py, whole)
    }

    /// Sends a piece of the body, or drops what must not be sent.
    fn put(&mut self, py: Python<'_>, chunk: &[u8]) -> PyResult<()> {
        if !self.has_body {
            return Ok(());
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
        write(&mut self.taken, py, chunk)
    }

    fn complete(&mut self) {
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
}

/// Writes to the exchange, unless the answer is over.
fn write(taken: &mut Option<Taken<'static>>, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
    let Some(taken) = taken else {
        return Ok(());
    };
    let written = if taken.has_room(bytes.len()) {
        taken.write(bytes)
    } else {
        // It may have to wait for a slow client.
        py.detach(|| taken.write(bytes))
    };
    written.map_err(|gone| ClientGone::new_err(gone.to_string()))
}
