//! The request or the WebSocket that runs in a slot.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::futures::is_done;
use super::progress::Progress;
use super::request::AsgiRequest;
use super::socket::AsgiSocket;
use super::waits::{SendResult, Waited};
use crate::response::ClientGone;

/// A call of the app.
pub(super) enum Running {
    Request(Py<AsgiRequest>),
    Socket(Py<AsgiSocket>),
}

/// Does the same with a call of either kind.
macro_rules! either {
    ($running:expr, $call:ident => $act:expr) => {
        match $running {
            Running::Request($call) => $act,
            Running::Socket($call) => $act,
        }
    };
}

impl Running {
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Request(request) => Self::Request(request.clone_ref(py)),
            Self::Socket(socket) => Self::Socket(socket.clone_ref(py)),
        }
    }

    /// The same as a Python object.
    pub(super) fn object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        either!(self, call => call.bind(py).clone().into_any())
    }

    pub(super) fn is(&self, object: &Bound<'_, PyAny>) -> bool {
        either!(self, call => call.is(object))
    }

    /// Handles news of the acceptor.
    pub(super) fn look(&self, py: Python<'_>) -> PyResult<()> {
        either!(self, call => Waited::look(call.bind(py)))
    }

    /// Called at intervals: the slot may give back memory.
    pub(super) fn rest(&self, py: Python<'_>) {
        either!(self, call => call.get().with(py, Progress::rest));
    }

    /// Looks although the acceptor has given no notice: only for news that a look can find.
    pub(super) fn look_again(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            // A look would wake the tasks that receive, so a WebSocket without news is left alone.
            Self::Socket(socket) if !socket.get().with(py, |progress| progress.has_news()) => {
                Ok(())
            }
            _ => self.look(py),
        }
    }

    /// The worker can serve no more: gives back the slot as it is, and cancels the task.
    pub(super) fn break_off(&self, py: Python<'_>) -> PyResult<()> {
        let task = either!(self, call => call.get().with(py, |progress| progress.break_off(py)));
        task.map_or(Ok(()), |task| {
            task.call_method0(py, intern!(py, "cancel")).map(drop)
        })
    }

    /// The task, if it has ended and the loop has not called back yet.
    pub(super) fn ended_task<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let task_of = |progress: &mut Progress| {
            let task = progress.task.as_ref();
            task.map(|task| task.clone_ref(py).into_bound(py))
        };
        let Some(task) = either!(self, call => call.get().with(py, task_of)) else {
            return Ok(None);
        };
        Ok(is_done(&task)?.then_some(task))
    }

    /// Keeps the task that was made.
    pub(super) fn keep(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        either!(self, call => Waited::keep(call.bind(task.py()), task))
    }

    /// Handles an exception that the app has raised before it had a task.
    pub(super) fn app_failed(&self, py: Python<'_>, failure: &PyErr) -> PyResult<()> {
        match self {
            Self::Request(request) => {
                request.get().app_failed(py, failure);
                AsgiRequest::over(request.bind(py))
            }
            Self::Socket(socket) => {
                socket.get().app_failed(py, failure);
                AsgiSocket::over(socket.bind(py), false)
            }
        }
    }

    /// The next event for `receive`, or a future to wait for.
    pub(super) fn next_event<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Result<Bound<'py, PyDict>, Bound<'py, PyAny>>> {
        either!(self, call => Waited::next_event(call.bind(py)))
    }

    /// Handles a message that the app sends, once its turn has come.
    pub(super) fn take_message(&self, message: &Bound<'_, PyAny>) -> PyResult<SendResult> {
        let py = message.py();
        if let Some(turn) = either!(self, call => call.get().wait_for_turn(message)?) {
            return Ok(SendResult::Later(turn));
        }
        let waits = match self {
            Self::Request(request) => match AsgiRequest::take_message(request.bind(py), message) {
                Err(gone) if gone.is_instance_of::<ClientGone>(py) => {
                    return request.get().drop_sent(py).ok_or(gone);
                }
                sent => sent?,
            },
            Self::Socket(socket) => AsgiSocket::take_message(socket.bind(py), message)?,
        };
        Ok(waits.map_or(SendResult::Through, SendResult::Taken))
    }

    /// See [`Progress::give_up_waiting`](super::progress::Progress::give_up_waiting).
    pub(super) fn give_up_waiting(&self, py: Python<'_>) {
        either!(self, call => call.get().with(py, Progress::give_up_waiting));
    }
}
