//! `start_response` and `write`: an answer on its way from the app into the exchange (PEP 3333).

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyAssertionError, PyConnectionResetError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;
use stanchion_server::record::{FilePart, RequestRecord};
use stanchion_server::{Ending, Seat, Taken};

use crate::answer::{Answer, Stage};
use crate::gevent::Rooms;
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
    /// Where a greenlet waits for room, so that others run meanwhile. Without it, the thread waits.
    rooms: Option<Arc<Rooms>>,
}

struct State {
    answer: Answer,
    /// A greenlet is in the middle of a piece, and others wait for it to be through.
    is_writing: bool,
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
        if !state.answer.stage.takes_head(is_after_error) {
            drop(state);
            return Err(refusal(exc_info));
        }
        // Most apps of few words say the same each time, as the very same objects, which have no code of their own.
        let is_known =
            state.answer.stage == Stage::NoHead && state.answer.head.take_in_again(status, headers);
        if !is_known {
            let mut head = match state.answer.stage {
                Stage::NoHead => std::mem::take(&mut state.answer.head),
                // If this one is no good, the one before stays.
                _ => Head::default(),
            };
            // What the app gives may have code of its own, which may call this very response: a lock would never come
            // free.
            drop(state);
            head.take_in(status, headers)?;
            state = this.get().lock(py);
            if !state.answer.stage.takes_head(is_after_error) {
                drop(state);
                return Err(refusal(exc_info));
            }
            state.answer.head = head;
        }
        state.answer.stage = Stage::Head;
        let write = state.write.as_ref().map(|write| write.bind(py).clone());
        drop(state);
        write.map_or_else(|| this.getattr(intern!(py, "write")), Ok)
    }

    /// PEP 3333's imperative way to send.
    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.send_chunk(py, data)
    }

    /// Sends hints ahead of the answer (RFC 8297), as gunicorn has it: nothing if the client takes none, or once the
    /// head of the answer is out.
    fn early_hints(&self, py: Python<'_>, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.lock(py).answer.takes_hints() {
            return Ok(());
        }
        let mut hints = Head::default();
        // Without the lock, as in `start_response`.
        if !hints.take_in_hints(headers)? {
            return Ok(());
        }
        let sent = self.lock(py).answer.hint(&mut hints);
        sent.map_err(|gone| ClientGone::new_err(gone.to_string()))
    }

    /// Whether nobody waits for the answer any more.
    fn client_gone(&self, py: Python<'_>) -> bool {
        self.lock(py)
            .answer
            .taken
            .as_ref()
            .is_none_or(Taken::client_gone)
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
        if let Some(taken) = &self.lock(py).answer.taken {
            taken.extend_deadline(Duration::from_secs_f64(seconds));
        }
        Ok(())
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
    pub(crate) fn new(rooms: Option<Arc<Rooms>>) -> Self {
        Self {
            state: Mutex::new(State {
                answer: Answer::default(),
                is_writing: false,
                write: None,
            }),
            rooms,
        }
    }

    /// Keeps its method of that name at hand.
    pub(crate) fn keep_write(&self, py: Python<'_>, write: Py<PyAny>) {
        self.lock(py).write = Some(write);
    }

    /// It answers this request from now on.
    pub(crate) fn begin(&self, py: Python<'_>, taken: Taken<'static>, request: &RequestRecord<'_>) {
        let mut state = self.lock(py);
        state.answer.begin(taken, request);
        state.is_writing = false;
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
        let answer = &self.lock(py).answer;
        let head = Some(&answer.head).filter(|_| answer.stage == Stage::Sending)?;
        let text = |bytes: &[u8]| text(py, bytes).unbind();
        let fields = head.fields();
        let fields = fields
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        Some((head.status, text(head.reason()), fields, answer.sent))
    }

    /// Sends a body that is known to be all of it.
    pub(crate) fn send_whole(&self, py: Python<'_>, body: &[u8]) -> PyResult<()> {
        let mut state = self.lock(py);
        put_head(&mut state.answer, py, Some(body.len() as u64))?;
        self.put(py, state, body)?.answer.complete();
        Ok(())
    }

    /// Sends a piece, at once: PEP 3333 lets nothing wait for the next one.
    pub(crate) fn send_chunk(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        let mut state = self.lock(py);
        put_head(&mut state.answer, py, None)?;
        let answer = &mut self.put(py, state, chunk)?.answer;
        if answer.promised == Some(0) {
            // Nothing more is owed, so the client need not wait for what the app does next.
            answer.complete();
            return Ok(());
        }
        if let Some(taken) = &mut answer.taken {
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
        let answer = &mut self.lock(py).answer;
        answer.send_file(seat, file, part, |taken, head| write(taken, py, head))
    }

    /// Writes a piece of the body, waiting for room: the thread with the lock, or a greenlet without it.
    fn put<'s>(
        &'s self,
        py: Python<'_>,
        mut state: MutexGuard<'s, State>,
        chunk: &[u8],
    ) -> PyResult<MutexGuard<'s, State>> {
        let chunk = state.answer.owed_of(chunk);
        match &self.rooms {
            Some(rooms) => self.put_by_turns(py, state, chunk, rooms),
            None => write(&mut state.answer.taken, py, chunk).map(|()| state),
        }
    }

    /// Writes what there is room for, and lets other greenlets run until there is more. What other greenlets give to
    /// the same answer meanwhile comes behind this piece.
    fn put_by_turns<'s>(
        &'s self,
        py: Python<'_>,
        mut state: MutexGuard<'s, State>,
        mut chunk: &[u8],
        rooms: &Rooms,
    ) -> PyResult<MutexGuard<'s, State>> {
        let mut is_mine = false;
        loop {
            let State {
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
            let waited = rooms.wait(py, slot);
            state = self.lock(py);
            if let Err(thrown) = waited {
                if let Some(taken) = state.answer.taken.take() {
                    // Part of a piece is out, or none of one that was counted: nobody knows what there is.
                    taken.finish(Ending::Broken);
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
            // Whoever waited for us.
            rooms.tell(py, slot)?;
        }
        Ok(self.lock(py))
    }

    /// There is nothing more.
    pub(crate) fn complete(&self, py: Python<'_>) -> PyResult<()> {
        let answer = &mut self.lock(py).answer;
        put_head(answer, py, Some(0))?;
        answer.complete();
        Ok(())
    }

    /// The app has failed: 500 if nothing is out yet, else the client must see that what it got
    /// is not whole.
    pub(crate) fn fail(&self, py: Python<'_>) {
        let answer = &mut self.lock(py).answer;
        answer.fail(py, |taken, bytes| write(taken, py, bytes));
    }
}

fn put_head(answer: &mut Answer, py: Python<'_>, body_len: Option<u64>) -> PyResult<()> {
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
        // It may have to wait for a slow client.
        py.detach(|| taken.write(bytes))
    };
    written.map_err(|gone| ClientGone::new_err(gone.to_string()))
}
