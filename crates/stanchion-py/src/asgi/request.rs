//! One request of an ASGI app (HTTP 2.3).

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyString};
use stanchion_log::EXCEPTION;
use stanchion_record::{BodyRecord, FilePart, RequestRecord};
use stanchion_server::{Seat, Taken};
use stanchion_sys::clock::monotonic_us;
use tracing::error;

use super::Puller;
use super::extensions::Extensions;
use super::futures::{reject, resolve, wake};
use super::gone::comes_of_gone_client;
use super::input::Input;
use super::progress::{Progress, client_gone, write_all};
use super::waiters::Put;
use super::waits::{SendResult, Waited, is_set, message_and_type};
use crate::answer::{AnswerStage, AnswerWriter};
use crate::head::AppHead;
use crate::hooks;
use crate::response::ClientGone;
use crate::traceback::traceback;

/// How long `send` drops messages to a client that has gone (HTTP 2.3): an app that listens learns from `receive` that the client has gone, and would
/// fail by an exception. After that time `send` raises (HTTP 2.4), because a stream without end would keep its seat.
const DROP_US_MAX: u64 = 10_000_000;
/// After every so many dropped messages the task that cancels the app gets its turn: a generator is better cancelled where it waits.
const DROPS_IN_TURN: u32 = 64;
/// No more messages than this are dropped: a stream that waits for nothing would keep a core busy until then. A table of rows ends before.
const DROPS_MAX: u32 = 65_536;

/// A request that the app answers.
#[pyclass(name = "Request", frozen, module = "stanchion")]
pub(crate) struct AsgiRequest {
    slot: u32,
    /// The number of its seat in the worker.
    number: u16,
    seat: Arc<Seat<'static>>,
    event_loop: Py<PyAny>,
    puller: Py<Puller>,
    /// Method and target, for the log.
    what: String,
    /// The extensions that its scope names.
    offered: Extensions,
    /// The client accepts trailers of the app.
    takes_trailers: bool,
    state: Mutex<Progress>,
}

impl AsgiRequest {
    pub(super) fn new(
        record: &RequestRecord<'_>,
        offered: Extensions,
        taken: Taken<'static>,
        number: u16,
        seat: Arc<Seat<'static>>,
        event_loop: Py<PyAny>,
        puller: &Bound<'_, Puller>,
    ) -> PyResult<Self> {
        let input = match record.body {
            BodyRecord::Memory { at, len } => Input::Memory { at, len },
            BodyRecord::Begun { at, len } => Input::Begun { at, len },
            BodyRecord::Spooled { path, len } => Input::File {
                file: File::open(path)?,
                left: len,
            },
        };
        let slot = taken.slot();
        let mut answer = AnswerWriter::default();
        answer.begin(taken, record);
        Ok(Self {
            slot,
            number,
            seat,
            event_loop,
            puller: puller.clone().unbind(),
            what: record.describe(),
            offered,
            takes_trailers: record.facts.takes_trailers,
            state: Mutex::new(Progress::new(answer, input)),
        })
    }

    pub(super) fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Progress> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs an exception of the app, unless it comes of a client that has gone.
    pub(super) fn app_failed(&self, py: Python<'_>, failure: &PyErr) {
        if comes_of_gone_client(py, failure) {
            return;
        }
        let what = &self.what;
        if let Some((hook, failure)) = hooks::of_hook(py, failure) {
            error!(target: EXCEPTION, "the hook {hook} failed at {what}\n{}", traceback(py, &failure));
        } else {
            error!(target: EXCEPTION, "the app failed at {what}\n{}", traceback(py, failure));
        }
    }

    /// The task has ended: nothing more of the answer comes.
    pub(super) fn over(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, request) = (this.py(), this.get());
        let mut state = request.lock(py);
        let tasks = (state.task.take(), state.cancelled.take());
        // Another task of the app may have sent the end of the answer, or a `send` was cancelled: the client gets what was sent.
        state.is_left = state.is_answered && !state.is_over();
        let is_left = state.is_left;
        drop(state);
        drop(tasks);
        if is_left {
            return Ok(());
        }
        Self::leave(this)
    }

    /// Nothing uses the request any more: gives back slot and seat.
    fn leave(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, request) = (this.py(), this.get());
        let mut state = request.lock(py);
        state.is_left = false;
        let waiting = state.give_back(py);
        let receivers = state.receivers.take();
        let is_client_gone = state.is_client_gone;
        drop(state);
        wake(py, receivers)?;
        for future in waiting {
            if is_client_gone {
                // The app has returned and does not ask for the result of a task that still sends, so an exception would only end that task.
                resolve(future.bind(py))?;
            } else {
                reject(future.bind(py), client_gone())?;
            }
        }
        Puller::ended(
            request.puller.bind(py),
            request.slot,
            this.as_any(),
            Some(request.number),
        )
    }

    /// Handles a message that the app sends. Returns a future if the message has to wait for room.
    pub(super) fn take_message(
        this: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (py, request) = (this.py(), this.get());
        let (message, kind) = message_and_type(message)?;
        let kind = kind.to_str()?;
        match kind {
            "http.response.body" => return request.body(py, message),
            "http.response.trailers" if request.offered.trailers => {
                return request.trailers(py, message);
            }
            _ => {}
        }
        request.check_client(py)?;
        match kind {
            "http.response.start" => request.start(py, message).map(|()| None),
            "http.response.pathsend" if request.offered.files => request.path(py, message),
            "http.response.early_hint" if request.offered.hints => {
                request.early_hint(py, message).map(|()| None)
            }
            other => Err(PyRuntimeError::new_err(format!(
                "a message that is not of HTTP, or of an extension that the scope does not name: {other:?}"
            ))),
        }
    }

    /// Drops a message to a client that has gone. `None` if `send` has to raise.
    pub(super) fn drop_sent(&self, py: Python<'_>) -> Option<SendResult> {
        let now_us = monotonic_us();
        let mut state = self.lock(py);
        let since_us = *state.gone_us.get_or_insert(now_us);
        state.drops = state.drops.saturating_add(1);
        let takes_turn = state.drops.is_multiple_of(DROPS_IN_TURN);
        let is_in_time = now_us - since_us < DROP_US_MAX && !state.is_far_beyond();
        if !is_in_time || state.drops > DROPS_MAX || !self.puller.get().lets_send_on() {
            return None;
        }
        Some(if takes_turn {
            SendResult::Dropped
        } else {
            SendResult::Through
        })
    }

    /// Raises if the client has gone; [`Self::drop_sent`] may suppress that.
    fn check_client(&self, py: Python<'_>) -> PyResult<()> {
        if self.lock(py).is_client_gone {
            return Err(client_gone());
        }
        Ok(())
    }

    fn start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let status = message
            .get_item(intern!(py, "status"))?
            .ok_or_else(|| PyValueError::new_err("http.response.start needs a status"))?;
        let status = status.extract::<u16>()?;
        let headers = message.get_item(intern!(py, "headers"))?;
        let promises_trailers = self.offered.trailers && is_set(message, intern!(py, "trailers"))?;
        // Reading the headers may run code of the app, which may call this very request.
        let mut head = {
            let mut state = self.lock(py);
            if state.answer.stage != AnswerStage::NoHead || state.is_answered {
                return Err(PyRuntimeError::new_err(
                    "http.response.start came already: http.response.body is expected",
                ));
            }
            std::mem::take(&mut state.answer.head)
        };
        head.take_in_bytes(status, headers.as_ref())?;
        let mut state = self.lock(py);
        if state.answer.stage != AnswerStage::NoHead || state.is_answered {
            return Err(PyRuntimeError::new_err(
                "http.response.start came already, while its headers were read",
            ));
        }
        state.answer.head = head;
        if promises_trailers {
            state.answer.promise_trailers(self.takes_trailers);
        }
        state.answer.stage = AnswerStage::Head;
        Ok(())
    }

    /// Sends hints ahead of the answer (the extension `http.response.early_hint`), at once.
    fn early_hint(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let links = message
            .get_item(intern!(py, "links"))?
            .ok_or_else(|| PyValueError::new_err("http.response.early_hint needs links"))?;
        let mut hints = AppHead::default();
        // Without the lock, as in `start`.
        let says_something = hints.take_in_links(&links)?;
        let mut state = self.lock(py);
        if state.answer.stage != AnswerStage::NoHead || state.is_answered {
            return Err(PyRuntimeError::new_err(
                "http.response.early_hint came after http.response.start: http.response.body is expected",
            ));
        }
        if says_something && state.answer.hint(&mut hints).is_err() {
            state.is_client_gone = true;
            return Err(client_gone());
        }
        Ok(())
    }

    /// Sends a piece of the body. Returns a future if the piece has to wait for room.
    fn body(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let piece = message.get_item(intern!(py, "body"))?;
        let piece = piece.map(|piece| as_bytes(&piece)).transpose()?;
        let is_last = !is_set(message, intern!(py, "more_body"))?;
        let mut state = self.lock(py);
        if state.is_client_gone && !state.answer.is_given() {
            return Err(client_gone());
        }
        if state.answer.stage == AnswerStage::NoHead {
            return Err(PyRuntimeError::new_err(
                "http.response.start is expected before http.response.body",
            ));
        }
        if state.is_answered || state.trailers.is_some() {
            return Err(PyRuntimeError::new_err(
                "http.response.body came after the last one: nothing more of the body is expected",
            ));
        }
        let piece = piece.as_ref().map_or(&[][..], |piece| piece.as_bytes());
        let put = state.put_body(py, piece, is_last);
        drop(state);
        self.is_put(py, put)
    }

    /// Handles the result of sending. Returns a future if the piece has to wait for room.
    pub(super) fn is_put(&self, py: Python<'_>, put: PyResult<Put>) -> PyResult<Option<Py<PyAny>>> {
        // Asking for its type makes the exception an object.
        let failure = put.as_ref().err();
        let is_gone = failure.is_some_and(|failure| failure.is_instance_of::<ClientGone>(py));
        self.wake_if_over(py, is_gone)?;
        self.wait_for_room(py, put?)
    }

    /// Wakes the tasks that wait for an event if the request is over.
    fn wake_if_over(&self, py: Python<'_>, is_client_gone: bool) -> PyResult<()> {
        let mut state = self.lock(py);
        state.is_client_gone |= is_client_gone;
        let receivers = if state.is_over() {
            state.receivers.take()
        } else {
            Vec::new()
        };
        drop(state);
        wake(py, receivers)
    }

    /// Sends a file as the body (the extension `http.response.pathsend`). Returns a future if the file has to wait for room.
    fn path(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let path = message
            .get_item(intern!(py, "path"))?
            .ok_or_else(|| PyValueError::new_err("http.response.pathsend needs a path"))?;
        // Opening a FIFO would block the loop until a process opens it for writing.
        let path = path.extract::<std::path::PathBuf>()?;
        if !std::fs::metadata(&path)?.is_file() {
            return Err(PyOSError::new_err("http.response.pathsend: not a file"));
        }
        let file = File::open(path)?;
        let (offset, len) = (0, file.metadata()?.len());
        let mut state = self.lock(py);
        if state.answer.stage != AnswerStage::Head || state.is_answered {
            return Err(PyRuntimeError::new_err(
                "http.response.pathsend is expected right after http.response.start",
            ));
        }
        let part = FilePart { offset, len };
        let by_acceptor = self.puller.get().settings().answers.sendfile
            && state.answer.send_file(&self.seat, &file, part, write_all)?;
        let put = if by_acceptor {
            state.is_answered = true;
            Put::Through
        } else {
            state.put_file(py, file, len)?
        };
        drop(state);
        self.wake_if_over(py, false)?;
        self.wait_for_room(py, put)
    }
}

impl Waited for AsgiRequest {
    fn event_loop(&self) -> &Py<PyAny> {
        &self.event_loop
    }

    fn with<T>(&self, py: Python<'_>, ask: impl FnOnce(&mut Progress) -> T) -> T {
        ask(&mut self.lock(py))
    }

    fn puller(&self) -> &Py<Puller> {
        &self.puller
    }

    /// Handles news of the acceptor: there is room for more of the answer, or the client has gone.
    fn look(this: &Bound<'_, Self>) -> PyResult<()> {
        let py = this.py();
        let mut state = this.get().lock(py);
        let taken = state.answer.taken.as_ref();
        let is_gone = taken.is_some_and(Taken::client_gone);
        let is_overdue = taken.is_some_and(Taken::is_overdue);
        state.is_client_gone |= is_gone;
        let cancelled = if is_overdue && this.get().cancels_on_timeout() {
            state.cancel(py)
        } else {
            None
        };
        let (done, failed) = state.flush(py);
        let receivers = if state.is_over() || state.has_input() {
            state.receivers.take()
        } else {
            Vec::new()
        };
        let is_through = state.is_left && state.is_over();
        drop(state);
        // A task that waits for room in vain goes on as if its message was written; the next message that it sends shows it that the client has gone.
        wake(py, done.into_iter().chain(failed).chain(receivers))?;
        if is_through {
            return Self::leave(this);
        }
        if let Some(task) = cancelled {
            task.call_method0(py, intern!(py, "cancel"))?;
        }
        Ok(())
    }

    fn has_ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, request) = (this.py(), this.get());
        // Raises if the task was cancelled.
        match task.call_method0(intern!(py, "exception")) {
            Ok(raised) if raised.is_none() => {
                let state = request.lock(py);
                let is_short = !state.is_answered && !state.is_client_gone;
                drop(state);
                if is_short {
                    let (what, offered) = (&request.what, request.offered);
                    error!(
                        "the app's fault: it returned before its answer was whole, at {what}{offered}"
                    );
                }
            }
            Ok(raised) => request.app_failed(py, &PyErr::from_value(raised)),
            // The server has cancelled the task at its deadline, and the client knows the reason.
            Err(_) if request.lock(py).cancelled.is_some() => {}
            Err(cancelled) => request.app_failed(py, &cancelled),
        }
        Self::over(this)
    }

    fn next_event<'py>(
        this: &Bound<'py, Self>,
    ) -> PyResult<Result<Bound<'py, PyDict>, Bound<'py, PyAny>>> {
        let (py, request) = (this.py(), this.get());
        loop {
            let (piece, is_over, wakes) = request.with(py, |state| {
                let piece = state.next_piece(py);
                (piece, state.is_over(), state.receivers.wakes())
            });
            if let Some(piece) = piece? {
                return piece.event().map(Ok);
            }
            if is_over {
                return disconnect(py).map(Ok);
            }
            if let Some(future) = request.wait_for_event(py, wakes)? {
                return Ok(Err(future));
            }
        }
    }
}

fn disconnect(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let event = PyDict::new(py);
    event.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
    Ok(event)
}

/// Any bytes-like object, as bytes.
pub(super) fn as_bytes<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if object.is_instance_of::<PyString>() || object.extract::<i64>().is_ok() {
        return Err(PyTypeError::new_err(format!(
            "the body must be bytes, not {}",
            object.get_type()
        )));
    }
    let bytes = object.py().get_type::<PyBytes>().call1((object,))?;
    Ok(bytes.cast_into::<PyBytes>()?)
}
