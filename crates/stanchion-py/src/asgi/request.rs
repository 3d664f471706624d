//! One request of an ASGI app: what its `receive` and `send` do (HTTP 2.5).

use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyBytes, PyDict, PyString};
use stanchion_server::log::EXCEPTION;
use stanchion_server::record::{BodyRecord, FilePart, RequestBuffer, RequestRecord};
use stanchion_server::{Seat, Taken};
use tracing::error;

use super::Puller;
use super::awaited::{Through, Waiting, reject, resolve};
use super::progress::{Input, Progress, client_gone, write_all};
use crate::answer::{Answer, Stage};
use crate::response::ClientGone;
use crate::wsgi::traceback;

/// A request that the app answers.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Request {
    slot: u32,
    /// Which of the worker's seats it has.
    number: u16,
    seat: Arc<Seat<'static>>,
    event_loop: Py<PyAny>,
    puller: Py<Puller>,
    state: Mutex<Progress>,
}

impl Request {
    pub(super) fn new(
        record: &RequestRecord<'_>,
        taken: Taken<'static>,
        number: u16,
        seat: Arc<Seat<'static>>,
        event_loop: Py<PyAny>,
        puller: &Bound<'_, Puller>,
    ) -> PyResult<Self> {
        let input = match record.body {
            BodyRecord::Memory { at, len } => Input::Memory { at, len },
            BodyRecord::Spooled { path, len } => Input::File {
                file: File::open(path)?,
                left: len,
            },
        };
        let slot = taken.slot();
        let mut answer = Answer::default();
        answer.begin(taken, record.method == b"HEAD");
        Ok(Self {
            slot,
            number,
            seat,
            event_loop,
            puller: puller.clone().unbind(),
            state: Mutex::new(Progress::new(answer, input)),
        })
    }

    /// Which of the worker's seats it has.
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// Who has taken it.
    pub(super) fn puller<'p>(&'p self, py: Python<'p>) -> &'p Puller {
        self.puller.bind(py).get()
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Progress> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The acceptor has news: there is room for more of the answer, or nobody wants it any more.
    pub(super) fn look(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py);
        let is_gone = state.answer.taken.as_ref().is_some_and(Taken::client_gone);
        state.is_client_gone |= is_gone;
        let (done, failed) = state.flush(py);
        let receivers = if state.is_over() {
            std::mem::take(&mut state.receivers)
        } else {
            Vec::new()
        };
        drop(state);
        for future in done {
            resolve(future.bind(py), py.None().bind(py))?;
        }
        for future in failed {
            reject(future.bind(py), client_gone())?;
        }
        for future in receivers {
            resolve(future.bind(py), disconnect(py)?.as_any())?;
        }
        Ok(())
    }

    /// Its task was made; it may have ended already, without a turn of the loop.
    pub(super) fn keep(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = this.py();
        if task.call_method0(intern!(py, "done"))?.extract::<bool>()? {
            return Self::ended(this, task);
        }
        this.get().lock(py).task = Some(task.clone().unbind());
        let ended = this.getattr(intern!(py, "ended"))?;
        task.call_method1(intern!(py, "add_done_callback"), (ended,))
            .map(drop)
    }

    /// The app has raised something.
    pub(super) fn app_failed(&self, py: Python<'_>, failure: &PyErr) {
        if !failure.is_instance_of::<ClientGone>(py) {
            let what = self.describe(py);
            error!(target: EXCEPTION, "the app failed at {what}\n{}", traceback(py, failure));
        }
    }

    /// Method and target, for the log; what is left of it once the answer is given.
    fn describe(&self, py: Python<'_>) -> String {
        let state = self.lock(py);
        let taken = state.answer.taken.as_ref();
        let described = taken.and_then(|taken| {
            let mut buffer = RequestBuffer::default();
            buffer.read(taken).ok().map(|record| record.describe())
        });
        described.unwrap_or_else(|| "a request that was answered".to_owned())
    }

    /// Its task has ended: nothing more of the answer comes.
    pub(super) fn over(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, request) = (this.py(), this.get());
        let mut state = request.lock(py);
        state.give_back(py);
        state.task = None;
        let receivers = std::mem::take(&mut state.receivers);
        drop(state);
        for future in receivers {
            resolve(future.bind(py), disconnect(py)?.as_any())?;
        }
        Puller::ended(
            request.puller.bind(py),
            request.slot,
            request.number,
            &request.seat,
        )
    }

    fn start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let status = message
            .get_item(intern!(py, "status"))?
            .ok_or_else(|| PyValueError::new_err("http.response.start needs a status"))?;
        let status = status.extract::<u16>()?;
        let headers = message.get_item(intern!(py, "headers"))?;
        // What gives the headers may be code of the app's, which may call this very request.
        let mut head = {
            let mut state = self.lock(py);
            if state.answer.stage != Stage::NoHead || state.is_answered {
                return Err(PyRuntimeError::new_err(
                    "http.response.start came already: http.response.body is expected",
                ));
            }
            std::mem::take(&mut state.answer.head)
        };
        head.take_in_bytes(status, headers.as_ref())?;
        let mut state = self.lock(py);
        state.answer.head = head;
        state.answer.stage = Stage::Head;
        Ok(())
    }

    /// Sends a piece of the body. A future, if it has to wait for room.
    fn body(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Option<Py<PyAny>>> {
        let piece = message.get_item(intern!(py, "body"))?;
        let piece = piece.map(|piece| as_bytes(&piece)).transpose()?;
        let more = message.get_item(intern!(py, "more_body"))?;
        let is_last = match more {
            Some(more) => !more.is_truthy()?,
            None => true,
        };
        let mut state = self.lock(py);
        if state.answer.stage == Stage::NoHead {
            return Err(PyRuntimeError::new_err(
                "http.response.start is expected before http.response.body",
            ));
        }
        if state.is_answered {
            return Err(PyRuntimeError::new_err(
                "http.response.body came after the last one: nothing more is expected",
            ));
        }
        let piece = piece.as_ref().map_or(&[][..], |piece| piece.as_bytes());
        state.is_answered = is_last;
        let done = state.put(py, piece, is_last, &self.event_loop);
        if done.is_err() {
            state.is_client_gone = true;
        }
        let receivers = if state.is_over() {
            std::mem::take(&mut state.receivers)
        } else {
            Vec::new()
        };
        drop(state);
        for future in receivers {
            resolve(future.bind(py), disconnect(py)?.as_any())?;
        }
        done
    }

    /// Sends a file as the body (the extension `http.response.pathsend`).
    fn path(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let path = message
            .get_item(intern!(py, "path"))?
            .ok_or_else(|| PyValueError::new_err("http.response.pathsend needs a path"))?;
        let file = File::open(path.extract::<std::path::PathBuf>()?)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(PyOSError::new_err("http.response.pathsend: not a file"));
        }
        let part = FilePart {
            offset: 0,
            len: metadata.len(),
        };
        let mut state = self.lock(py);
        if state.answer.stage != Stage::Head || state.is_answered {
            return Err(PyRuntimeError::new_err(
                "http.response.pathsend is expected right after http.response.start",
            ));
        }
        state.is_answered = true;
        let answer = &mut state.answer;
        if answer.send_file(&self.seat, &file, part, |taken, head| {
            write_all(taken, head)
        })? {
            return Ok(());
        }
        // No body is wanted, or the acceptor takes no file now: by the exchange, while there is room.
        answer.put_head(Some(part.len), None, write_all)?;
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes)?;
        let piece = answer.owed_of(&bytes);
        write_all(&mut answer.taken, piece)?;
        answer.complete();
        Ok(())
    }
}

#[pymethods]
impl Request {
    /// ASGI's `receive`.
    fn receive<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, request) = (this.py(), this.get());
        let mut state = request.lock(py);
        if let Some(event) = state.next_piece(py)? {
            let event = Through::with(Some(event.into_any().unbind()));
            return Ok(Bound::new(py, event)?.into_any());
        }
        if state.is_over() {
            let event = Through::with(Some(disconnect(py)?.into_any().unbind()));
            return Ok(Bound::new(py, event)?.into_any());
        }
        let future = request
            .event_loop
            .bind(py)
            .call_method0(intern!(py, "create_future"))?;
        state.receivers.push(future.clone().unbind());
        drop(state);
        Ok(Bound::new(py, Waiting::on(&future)?)?.into_any())
    }

    /// ASGI's `send`.
    fn send<'py>(
        this: &Bound<'py, Self>,
        message: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, request) = (this.py(), this.get());
        let message = message.cast::<PyDict>().map_err(|_| {
            PyTypeError::new_err(format!("send takes a dict, not {}", message.get_type()))
        })?;
        let kind = message
            .get_item(intern!(py, "type"))?
            .ok_or_else(|| PyValueError::new_err("send takes a dict with a type"))?;
        let kind = kind.cast::<PyString>().map_err(PyErr::from)?;
        let waits = match kind.to_str()? {
            "http.response.body" => request.body(py, message)?,
            "http.response.start" => request.start(py, message).map(|()| None)?,
            "http.response.pathsend" => request.path(py, message).map(|()| None)?,
            other => {
                return Err(PyRuntimeError::new_err(format!(
                    "a message that is not of HTTP, or of an extension that the scope does not name: {other:?}"
                )));
            }
        };
        match waits {
            None => through(py),
            Some(future) => Ok(Bound::new(py, Waiting::on(future.bind(py))?)?.into_any()),
        }
    }

    /// Its task has ended.
    fn ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, request) = (this.py(), this.get());
        // Raises if it was cancelled.
        match task.call_method0(intern!(py, "exception")) {
            Ok(raised) if raised.is_none() => {
                let state = request.lock(py);
                let is_short = !state.is_answered && !state.is_client_gone;
                drop(state);
                if is_short {
                    let what = request.describe(py);
                    error!("the app's fault: it returned before its answer was whole, at {what}");
                }
            }
            Ok(raised) => request.app_failed(py, &PyErr::from_value(raised)),
            Err(cancelled) => request.app_failed(py, &cancelled),
        }
        Self::over(this)
    }
}

/// What `send` gives when there is nothing to wait for: always the same, as it has nothing of its own.
fn through(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static THROUGH: PyOnceLock<Py<Through>> = PyOnceLock::new();
    let through = THROUGH.get_or_try_init(py, || Py::new(py, Through::with(None)))?;
    Ok(through.bind(py).clone().into_any())
}

fn disconnect(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let event = PyDict::new(py);
    event.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
    Ok(event)
}

/// Any object of bytes, as bytes.
fn as_bytes<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
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
