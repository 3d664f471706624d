//! `start_response` and `write`: an answer on its way from the app into the exchange (PEP 3333).

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyAssertionError, PyConnectionResetError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;
use stanchion_record::{FilePart, RequestRecord};
use stanchion_server::{AnswerEnd, Seat, Taken};

use crate::answer::{AnswerStage, AnswerWriter};
use crate::head::AppHead;
use crate::strings::text;
use crate::waiting_greenlets::WaitingGreenlets;

/// The longest time that an app may ask for at once: 30 days, like Unicorn's longest timeout.
const EXTENSION_S_MAX: f64 = 30.0 * 24.0 * 3600.0;

pyo3::create_exception!(
    stanchion,
    ClientGone,
    PyConnectionResetError,
    "Raised by write() when the client is gone and reads no more of the answer."
);

/// See [`Response::told`].
pub(crate) type AnswerSummary = (u16, Py<PyString>, Vec<(Py<PyString>, Py<PyString>)>, u64);

/// The answer to a request. It answers one request after another, as long as no app keeps it: see [`Answerer`].
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Response {
    state: Mutex<ResponseState>,
    /// Where a greenlet waits for room while other greenlets run. Without it, the thread waits.
    greenlets: Option<Arc<WaitingGreenlets>>,
}

struct ResponseState {
    answer: AnswerWriter,
    /// A greenlet is in the middle of a piece, and other greenlets wait until the piece is written.
    is_writing: bool,
    /// The bound method. It refers to the response and would keep it alive, so [`Response::end`] drops it.
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
        if !state.answer.stage.takes_head(is_after_error) {
            drop(state);
            return Err(refusal(exc_info));
        }
        // Most small apps give the same head each time, as the very same strings, and comparing those runs no code of the app.
        let is_known = state.answer.stage == AnswerStage::NoHead
            && state.answer.head.take_in_again(status, headers);
        if !is_known {
            let mut head = match state.answer.stage {
                AnswerStage::NoHead => std::mem::take(&mut state.answer.head),
                // If the new head is invalid, the one before stays.
                _ => AppHead::default(),
            };
            // The app's objects may run code of their own, which may call this very response: it would wait for the lock for ever.
            drop(state);
            head.take_in(status, headers)?;
            state = this.get().lock(py);
            if !state.answer.stage.takes_head(is_after_error) {
                drop(state);
                return Err(refusal(exc_info));
            }
            state.answer.head = head;
        }
        state.answer.stage = AnswerStage::Head;
        let write = state.write.as_ref().map(|write| write.bind(py).clone());
        drop(state);
        write.map_or_else(|| this.getattr(intern!(py, "write")), Ok)
    }

    /// The imperative way to send in PEP 3333.
    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.send_chunk(py, data)
    }

    /// Sends hints ahead of the answer (RFC 8297), like gunicorn: nothing if the client accepts no hints, or once the head of the answer is sent.
    fn early_hints(&self, py: Python<'_>, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.lock(py).answer.takes_hints() {
            return Ok(());
        }
        let mut hints = AppHead::default();
        // Not under the lock, as in `start_response`.
        if !hints.take_in_hints(headers)? {
            return Ok(());
        }
        let sent = self.lock(py).answer.hint(&mut hints);
        sent.map_err(|gone| ClientGone::new_err(gone.to_string()))
    }

    /// Whether no client waits for the answer: the client is gone, or the answer is complete.
    fn client_gone(&self, py: Python<'_>) -> bool {
        self.lock(py)
            .answer
            .taken
            .as_ref()
            .is_none_or(Taken::client_gone)
    }

    /// Extends the request's deadline to at least `seconds` from now. Once the answer is complete it does nothing.
    fn extend_deadline(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        // NaN is in no range.
        if !(0.0..=EXTENSION_S_MAX).contains(&seconds) {
            return Err(PyValueError::new_err(format!(
                "extend_deadline takes seconds from 0 to {EXTENSION_S_MAX} (30 days), not {seconds}"
            )));
        }
        if let Some(taken) = &self.lock(py).answer.taken {
            taken.extend_deadline(Duration::from_secs_f64(seconds));
        }
        Ok(())
    }
}

/// The exception that `start_response` raises when it accepts no head (PEP 3333).
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
    /// A response that has no request yet.
    pub(crate) fn new(greenlets: Option<Arc<WaitingGreenlets>>) -> Self {
        Self {
            state: Mutex::new(ResponseState {
                answer: AnswerWriter::default(),
                is_writing: false,
                write: None,
            }),
            greenlets,
        }
    }

    /// Keeps the response's own bound method `write`.
    pub(crate) fn keep_write(&self, py: Python<'_>, write: Py<PyAny>) {
        self.lock(py).write = Some(write);
    }

    /// Starts to answer this request.
    pub(crate) fn begin(&self, py: Python<'_>, taken: Taken<'static>, request: &RequestRecord<'_>) {
        let mut state = self.lock(py);
        state.answer.begin(taken, request);
        state.is_writing = false;
    }

    /// Answers nothing more, even if the app has kept the response or its methods.
    pub(crate) fn end(&self, py: Python<'_>) {
        // Dropped after the lock is released.
        let _write = self.lock(py).write.take();
    }

    /// Another thread of the app may hold the lock while it waits for a slow client, so a thread that waits for the lock releases the interpreter.
    fn lock<'s>(&'s self, py: Python<'_>) -> MutexGuard<'s, ResponseState> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer as hooks see it: status, reason, fields, and bytes of the body that were sent. `None` if nothing was sent.
    pub(crate) fn told(&self, py: Python<'_>) -> Option<AnswerSummary> {
        let answer = &self.lock(py).answer;
        let head = Some(&answer.head).filter(|_| answer.stage == AnswerStage::Sending)?;
        let text = |bytes: &[u8]| text(py, bytes).unbind();
        let fields = head.fields();
        let fields = fields
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        Some((head.status, text(head.reason()), fields, answer.sent))
    }

    /// Sends a body that is complete.
    pub(crate) fn send_whole(&self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        let mut state = self.lock(py);
        put_head(&mut state.answer, py, Some(body.len() as u64))?;
        self.put(py, state, body)?.answer.complete();
        Ok(())
    }

    /// Sends a piece at once: PEP 3333 forbids delaying it until the next one.
    pub(crate) fn send_chunk(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let mut state = self.lock(py);
        put_head(&mut state.answer, py, None)?;
        let answer = &mut self.put(py, state, chunk)?.answer;
        if answer.promised == Some(0) {
            // The body is complete, so the client need not wait for what the app does next.
            answer.complete();
            return Ok(());
        }
        if let Some(taken) = &mut answer.taken {
            taken.publish();
        }
        Ok(())
    }

    /// Has the acceptor send a file; false if its bytes must go through the exchange.
    pub(crate) fn send_file(
        &self,
        py: Python<'_>,
        seat: &Seat<'_>,
        file: &File,
        part: FilePart,
    ) -> PyResult<bool> {
        let answer = &mut self.lock(py).answer;
        answer.send_file(seat, file, part, |taken, head| write(taken, py, head))
    }

    /// Writes a piece of the body and waits for room: a thread under the lock, a greenlet without it.
    fn put<'s>(
        &'s self,
        py: Python<'_>,
        mut state: MutexGuard<'s, ResponseState>,
        chunk: &[u8],
    ) -> PyResult<MutexGuard<'s, ResponseState>> {
        let chunk = state.answer.owed_of(chunk);
        match &self.greenlets {
            Some(greenlets) => self.put_by_turns(py, state, chunk, greenlets),
            None => write(&mut state.answer.taken, py, chunk).map(|()| state),
        }
    }

    /// Writes as much as there is room for, and lets other greenlets run until there is more. Pieces that other greenlets give to the same answer
    /// meanwhile follow behind this one.
    fn put_by_turns<'s>(
        &'s self,
        py: Python<'_>,
        mut state: MutexGuard<'s, ResponseState>,
        mut chunk: &[u8],
        greenlets: &WaitingGreenlets,
    ) -> PyResult<MutexGuard<'s, ResponseState>> {
        let mut is_mine = false;
        loop {
            let ResponseState {
                answer, is_writing, ..
            } = &mut *state;
            let Some(taken) = &mut answer.taken else {
                break;
            };
            let slot = taken.slot();
            if is_mine || !*is_writing {
                let written = taken.write_some(chunk);
                *is_writing = false;
                let written = written.map_err(|gone| ClientGone::new_err(gone.to_string()))?;
                chunk = &chunk[written..];
                if chunk.is_empty() {
                    break;
                }
                *is_writing = true;
                is_mine = true;
            }
            drop(state);
            let waited = greenlets.wait(py, slot);
            state = self.lock(py);
            if let Err(thrown) = waited {
                if let Some(taken) = state.answer.taken.take() {
                    // A part of the piece was sent, or nothing although it was counted: the body cannot be completed.
                    taken.finish(AnswerEnd::Broken);
                }
                return Err(thrown);
            }
        }
        if !is_mine {
            return Ok(state);
        }
        let slot = state.answer.taken.as_ref().map(Taken::slot);
        drop(state);
        if let Some(slot) = slot {
            // Wakes the greenlets that wait until this piece is written.
            greenlets.tell(py, slot)?;
        }
        Ok(self.lock(py))
    }

    /// Ends the answer: the app gives no more.
    pub(crate) fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let answer = &mut self.lock(py).answer;
        put_head(answer, py, Some(0))?;
        answer.complete();
        Ok(())
    }

    /// Ends the answer after a failure of the app: with a 500 if nothing was sent yet, else in a way that shows the client that its answer is
    /// incomplete.
    pub(crate) fn fail(&self, py: Python<'_>) {
        let answer = &mut self.lock(py).answer;
        answer.fail(py, |taken, bytes| write(taken, py, bytes));
    }
}

fn put_head(answer: &mut AnswerWriter, py: Python<'_>, body_len: Option<u64>) -> PyResult<()> {
    answer.put_head(body_len, None, |taken, head| write(taken, py, head))
}

/// Writes to the exchange, unless the answer is over.
fn write(taken: &mut Option<Taken<'static>>, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
    let Some(taken) = taken else {
        return Ok(());
    };
    let written = if taken.has_room(bytes.len()) {
        taken.write(bytes)
    } else {
        // Writing may have to wait for a slow client.
        py.detach(|| taken.write(bytes))
    };
    written.map_err(|gone| ClientGone::new_err(gone.to_string()))
}
