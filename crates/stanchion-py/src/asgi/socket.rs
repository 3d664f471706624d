//! One WebSocket of an ASGI app (WebSocket 2.5).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyString};
use stanchion_log::EXCEPTION;
use stanchion_record::{
    Close, Content, MessageForm, MessageKind, REASON_BYTES_MAX, RequestRecord, code, is_sendable,
    message_head,
};
use stanchion_server::Taken;
use tracing::error;

use super::Puller;
use super::futures::{future_of, reject, wake};
use super::gone::comes_of_gone_client;
use super::input::Input;
use super::messages::disconnect;
use super::progress::{Progress, client_gone, write_all};
use super::request::as_bytes;
use super::standing::{SocketState, Standing};
use super::waits::{Waited, is_set, message_and_type};
use crate::answer::{AnswerStage, AnswerWriter};
use crate::traceback::traceback;

/// A WebSocket of the app.
#[pyclass(name = "Socket", frozen, module = "stanchion")]
pub(crate) struct AsgiSocket {
    slot: u32,
    number: u16,
    /// The window for compressed messages; `None` if messages are not compressed.
    deflate_bits: Option<u8>,
    event_loop: Py<PyAny>,
    puller: Py<Puller>,
    /// Method and target, for the log.
    what: String,
    state: Mutex<SocketState>,
}

impl AsgiSocket {
    pub(super) fn new(
        record: &RequestRecord<'_>,
        taken: Taken<'static>,
        number: u16,
        event_loop: Py<PyAny>,
        puller: &Bound<'_, Puller>,
    ) -> Self {
        let slot = taken.slot();
        let mut answer = AnswerWriter::default();
        answer.begin(taken, record);
        Self {
            slot,
            number,
            deflate_bits: record.facts.deflate_bits,
            event_loop,
            puller: puller.clone().unbind(),
            what: record.describe(),
            state: Mutex::new(SocketState::new(Progress::new(answer, Input::Over))),
        }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, SocketState> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the loop call [`Self::restart`] after this delay.
    pub(super) fn restart_later(
        this: &Bound<'_, Self>,
        event_loop: &Bound<'_, PyAny>,
        delay: Duration,
    ) -> PyResult<()> {
        let py = this.py();
        let restart = this.getattr(intern!(py, "restart"))?;
        let call_later = intern!(py, "call_later");
        event_loop
            .call_method1(call_later, (delay.as_secs_f64(), restart))
            .map(drop)
    }

    /// Logs an exception of the app, unless it comes of a client that has gone.
    pub(super) fn app_failed(&self, py: Python<'_>, failure: &PyErr) {
        if !comes_of_gone_client(py, failure) {
            let what = &self.what;
            error!(target: EXCEPTION, "the app failed at {what}\n{}", traceback(py, failure));
        }
    }

    /// The task has ended; `is_well` if it raised nothing.
    pub(super) fn over(this: &Bound<'_, Self>, is_well: bool) -> PyResult<()> {
        let (py, socket) = (this.py(), this.get());
        let mut state = socket.lock(py);
        let has_seat = !state.messages.is_session();
        if state.phase == Standing::Open {
            let code = if is_well { code::NORMAL } else { code::FAILED };
            let _ = state.close(py, &Close::new(code, ""));
        }
        let tasks = (state.progress.task.take(), state.progress.cancelled.take());
        if state.phase == Standing::Closed && state.progress.has_pending() {
            // The app's last messages wait for room.
            state.is_ending = true;
            drop(state);
            drop(tasks);
            return Ok(());
        }
        let waiting = state.progress.give_back(py);
        let receivers = state.progress.receivers.take();
        state.phase = Standing::Closed;
        drop(state);
        drop(tasks);
        wake(py, receivers)?;
        for future in waiting {
            reject(future.bind(py), client_gone())?;
        }
        let seat = has_seat.then_some(socket.number);
        Puller::ended(socket.puller.bind(py), socket.slot, this.as_any(), seat)
    }

    /// Closes the WebSocket because the worker leaves; the client may connect again.
    pub(super) fn restart(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, socket) = (this.py(), this.get());
        let mut state = socket.lock(py);
        if state.phase == Standing::Open {
            state.restart(py);
        }
        drop(state);
        Self::look(this)
    }

    /// Makes a future that ends when a message may be decompressed, after the loop's other work has had its turn.
    fn wait_for_ration<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, socket) = (this.py(), this.get());
        let future = future_of(socket.event_loop.bind(py))?;
        let waiting = future.clone().unbind();
        let compression = &socket.puller.get().compression;
        let is_first = compression.wait(py, &mut socket.lock(py).claim, waiting);
        if is_first {
            Puller::call_soon(socket.puller.bind(py), intern!(py, "decompress_on"))?;
        }
        Ok(future)
    }

    /// The event for `receive`. If making it failed, the app gets a disconnect in its place, which is the last event.
    fn tell<'py>(
        &self,
        py: Python<'py>,
        event: PyResult<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let event = event.or_else(|failure| {
            error!(
                "cannot give a WebSocket's message to the app, and closes the WebSocket: {failure}"
            );
            let close = self.lock(py).lose();
            disconnect(py, &close)
        });
        // Once the client has closed, the messages that wait for room get none.
        let lost = self.lock(py).lose_pending(py);
        for future in lost {
            reject(future.bind(py), client_gone())?;
        }
        event
    }

    /// Handles a message that the app sends. Returns a future if the message has to wait for room.
    pub(super) fn take_message(
        this: &Bound<'_, Self>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let (py, socket) = (this.py(), this.get());
        let (message, kind) = message_and_type(message)?;
        let waits = match kind.to_str()? {
            "websocket.send" => return socket.message(py, message),
            "websocket.accept" => Self::accept(this, message).map(|()| None)?,
            "websocket.close" => socket.close(py, message)?,
            "websocket.http.response.start" => socket.deny(py, message).map(|()| None)?,
            "websocket.http.response.body" => socket.denial(py, message)?,
            other => {
                return Err(PyRuntimeError::new_err(format!(
                    "a message that is not of WebSockets, or of an extension that the scope does not name: {other:?}"
                )));
            }
        };
        // Wakes the tasks that wait for an event, in case this was a close.
        Self::look(this)?;
        Ok(waits)
    }

    /// `websocket.accept`: frees the seat for another request.
    fn accept(this: &Bound<'_, Self>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let (py, socket) = (this.py(), this.get());
        let subprotocol = message.get_item(intern!(py, "subprotocol"))?;
        let subprotocol = subprotocol.filter(|given| !given.is_none());
        let subprotocol = subprotocol.map(|given| given.extract::<String>());
        let headers = message.get_item(intern!(py, "headers"))?;
        let mut head = crate::head::AppHead::default();
        head.take_in_switch(subprotocol.transpose()?.as_deref(), headers.as_ref())?;
        let mut guard = socket.lock(py);
        let state = &mut *guard;
        if state.phase != Standing::Connecting {
            return Err(unexpected("websocket.accept"));
        }
        state.notice_end();
        if state.progress.is_client_gone {
            return Err(client_gone());
        }
        let answer = &mut state.progress.answer;
        answer.head = head;
        answer.stage = AnswerStage::Head;
        answer.put_head(None, None, write_all)?;
        if let Some(taken) = &mut answer.taken {
            taken.publish();
        }
        state.phase = Standing::Open;
        state.messages.begin();
        drop(guard);
        Puller::session_begins(socket.puller.bind(py), socket.number)?;
        if socket.puller.get().is_restart_told(py) {
            return Self::restart(this);
        }
        Ok(())
    }

    /// `websocket.close`.
    fn close(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let given = message.get_item(intern!(py, "code"))?;
        let given = given.filter(|given| !given.is_none());
        let code = given.map_or(Ok(code::NORMAL), |given| given.extract::<u16>())?;
        let given = message.get_item(intern!(py, "reason"))?;
        let given = given.filter(|given| !given.is_none());
        let reason = given.map_or(Ok(String::new()), |given| given.extract::<String>())?;
        let mut guard = self.lock(py);
        let state = &mut *guard;
        let put = match state.phase {
            Standing::Connecting => {
                state.phase = Standing::Closed;
                let progress = &mut state.progress;
                progress.answer.head.take_in_bytes(403, None)?;
                progress.answer.stage = AnswerStage::Head;
                progress.is_answered = true;
                progress.put(py, b"", true)
            }
            Standing::Open => {
                if !is_sendable(code) {
                    let problem = format!("no code of a close that may be sent: {code}");
                    return Err(PyValueError::new_err(problem));
                }
                if reason.len() > REASON_BYTES_MAX {
                    let problem = format!("the reason has more than {REASON_BYTES_MAX} bytes");
                    return Err(PyValueError::new_err(problem));
                }
                state.close(py, &Close::new(code, &reason))
            }
            Standing::Closed if state.is_lost() => Err(client_gone()),
            Standing::Denying | Standing::Closed => Err(unexpected("websocket.close")),
        };
        drop(guard);
        self.wait_for_room(py, put?)
    }

    /// `websocket.send`: returns a future if the message has to wait for room.
    fn message(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let text = message.get_item(intern!(py, "text"))?;
        let bytes = message.get_item(intern!(py, "bytes"))?;
        let text = text.filter(|text| !text.is_none());
        let bytes = bytes.filter(|bytes| !bytes.is_none());
        let (kind, text, bytes) = match (&text, &bytes) {
            (Some(text), None) => (MessageKind::Text, Some(text.cast::<PyString>()?), None),
            (None, Some(bytes)) => (MessageKind::Binary, None, Some(as_bytes(bytes)?)),
            _ => {
                return Err(PyValueError::new_err(
                    "websocket.send needs either text or bytes",
                ));
            }
        };
        let payload = match (text, &bytes) {
            (Some(text), _) => text.to_str()?.as_bytes(),
            (None, Some(bytes)) => bytes.as_bytes(),
            (None, None) => &[],
        };
        if u32::try_from(payload.len()).is_err() {
            return Err(PyValueError::new_err("a message of 4 GiB or more"));
        }
        let mut guard = self.lock(py);
        let state = &mut *guard;
        state.notice_end();
        match state.phase {
            Standing::Open if !state.progress.is_client_gone => {}
            Standing::Open => return Err(client_gone()),
            Standing::Closed if state.is_lost() => return Err(client_gone()),
            _ => return Err(unexpected("websocket.send")),
        }
        let compression = &self.puller.get().compression;
        let deflated = self
            .deflate_bits
            .and_then(|bits| compression.deflate(py, payload, bits));
        let form = MessageForm {
            kind,
            is_deflated: deflated.is_some(),
        };
        let payload = deflated.as_deref().unwrap_or(payload);
        let head = message_head(Content::Message(form), payload.len() as u32);
        let put = state.progress.write_message(py, &head, payload);
        drop(guard);
        self.wait_for_room(py, put?)
    }

    /// `websocket.http.response.start`.
    fn deny(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let status = message
            .get_item(intern!(py, "status"))?
            .ok_or_else(|| PyValueError::new_err("websocket.http.response.start needs a status"))?;
        let status = status.extract::<u16>()?;
        let headers = message.get_item(intern!(py, "headers"))?;
        let mut head = crate::head::AppHead::default();
        head.take_in_bytes(status, headers.as_ref())?;
        let mut state = self.lock(py);
        if state.phase != Standing::Connecting {
            return Err(unexpected("websocket.http.response.start"));
        }
        state.phase = Standing::Denying;
        state.progress.answer.head = head;
        state.progress.answer.stage = AnswerStage::Head;
        Ok(())
    }

    /// `websocket.http.response.body`.
    fn denial(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let piece = message.get_item(intern!(py, "body"))?;
        let piece = piece.map(|piece| as_bytes(&piece)).transpose()?;
        let is_last = !is_set(message, intern!(py, "more_body"))?;
        let mut state = self.lock(py);
        if state.phase != Standing::Denying {
            return Err(unexpected("websocket.http.response.body"));
        }
        if is_last {
            state.phase = Standing::Closed;
            state.progress.is_answered = true;
        }
        let piece = piece.as_ref().map_or(&[][..], |piece| piece.as_bytes());
        let put = state.progress.put(py, piece, is_last);
        drop(state);
        self.wait_for_room(py, put?)
    }
}

impl Waited for AsgiSocket {
    fn event_loop(&self) -> &Py<PyAny> {
        &self.event_loop
    }

    fn with<T>(&self, py: Python<'_>, ask: impl FnOnce(&mut Progress) -> T) -> T {
        ask(&mut self.lock(py).progress)
    }

    fn puller(&self) -> &Py<Puller> {
        &self.puller
    }

    /// Handles news of the acceptor: there is a message, or room for one, or the client has gone.
    fn look(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, socket) = (this.py(), this.get());
        let mut guard = socket.lock(py);
        let state = &mut *guard;
        let cancelled = if state.is_overdue() && socket.cancels_on_timeout() {
            state.progress.cancel(py)
        } else {
            None
        };
        let (done, failed) = state.progress.flush(py);
        state.notice_end();
        let receivers = state.progress.receivers.take();
        let ends = state.is_ending && !state.progress.has_pending();
        state.is_ending &= !ends;
        drop(guard);
        // The tasks that receive look again, and wait on if there is nothing for them.
        wake(py, done.into_iter().chain(receivers))?;
        for future in failed {
            reject(future.bind(py), client_gone())?;
        }
        if ends {
            return Self::over(this, true);
        }
        if let Some(task) = cancelled {
            task.call_method0(py, intern!(py, "cancel"))?;
        }
        Ok(())
    }

    fn has_ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, socket) = (this.py(), this.get());
        // Raises if the task was cancelled.
        let (failure, is_cancelled) = match task.call_method0(intern!(py, "exception")) {
            Ok(raised) if raised.is_none() => (None, false),
            Ok(raised) => (Some(PyErr::from_value(raised)), false),
            Err(cancelled) => (Some(cancelled), true),
        };
        let state = socket.lock(py);
        let is_short = matches!(state.phase, Standing::Connecting | Standing::Denying);
        let (progress, what) = (&state.progress, &socket.what);
        let is_gone = progress.is_client_gone;
        // The server has cancelled the task at its deadline, and the client knows the reason.
        let is_ours = is_cancelled && progress.cancelled.is_some();
        drop(state);
        match &failure {
            Some(failure) if !is_ours => socket.app_failed(py, failure),
            None if is_short && !is_gone => {
                error!(
                    "the app's fault: it returned and has neither accepted nor refused, at {what}"
                );
            }
            _ => {}
        }
        Self::over(this, failure.is_none())
    }

    fn next_event<'py>(
        this: &Bound<'py, Self>,
    ) -> PyResult<Result<Bound<'py, PyDict>, Bound<'py, PyAny>>> {
        let (py, socket) = (this.py(), this.get());
        let compression = &socket.puller.get().compression;
        loop {
            let mut state = socket.lock(py);
            state.notice_end();
            if socket.deflate_bits.is_some() && !compression.is_for(py, &mut state.claim) {
                drop(state);
                return Self::wait_for_ration(this).map(Err);
            }
            let told = state.next(py, socket.puller.get());
            let wakes = state.progress.receivers.wakes();
            drop(state);
            if let Some(told) = told {
                return socket.tell(py, told.event(py)).map(Ok);
            }
            if let Some(future) = socket.wait_for_event(py, wakes)? {
                return Ok(Err(future));
            }
        }
    }
}

fn unexpected(kind: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{kind} is not expected now"))
}
