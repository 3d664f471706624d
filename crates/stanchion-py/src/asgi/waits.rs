//! Tasks that wait for room or for an event, and the futures that they wait for.
//!
//! When a Python object is made, is dropped or runs code, Python may collect garbage and run finalizers of the app, which may use this very request
//! (gc; before Python 3.12 wherever an object is allocated). A finalizer would wait for the request's lock for ever. So none of that happens under
//! the lock: futures are made without it, and kept only if they are still wanted then. Only bytes are made under the lock, which the collector does
//! not count.

use pyo3::PyClass;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyDict, PyString};

use super::Puller;
use super::futures::{future_of, is_done};
use super::progress::Progress;
use super::waiters::{Put, Waiters};

/// The result of a message that the app sends.
pub(super) enum SendResult {
    Through,
    /// The message is taken and waits for room, until this future is done.
    Taken(Py<PyAny>),
    /// Nothing of the message is taken. It has to be sent again once this future is done.
    Later(Py<PyAny>),
    /// The message is dropped because the client has gone. Other tasks should have their turn.
    Dropped,
}

/// A request or WebSocket: it has a [`Progress`] behind a lock, and a loop in which tasks wait.
pub(super) trait Waited: PyClass<Frozen = True> + Sync {
    fn event_loop(&self) -> &Py<PyAny>;

    /// The puller that has taken it.
    fn puller(&self) -> &Py<Puller>;

    /// Whether the task is cancelled at its deadline.
    fn cancels_on_timeout(&self) -> bool {
        self.puller().get().settings().event_loop.cancel_on_timeout
    }

    /// Handles news of the acceptor.
    fn look(this: &Bound<'_, Self>) -> PyResult<()>;

    /// The next event for `receive`, or a future to wait for. The future may end without an event, so the caller asks again.
    fn next_event<'py>(
        this: &Bound<'py, Self>,
    ) -> PyResult<Result<Bound<'py, PyDict>, Bound<'py, PyAny>>>;

    /// Handles the end of the task, in the worker itself.
    fn has_ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()>;

    /// Keeps the task that was made, which may have ended already, without a turn of the loop.
    fn keep(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = this.py();
        if is_done(task)? {
            return Self::ended(this, task);
        }
        let kept = task.clone().unbind();
        this.get().with(py, |progress| progress.task = Some(kept));
        let ended = this.as_any().getattr(intern!(py, "ended"))?;
        task.call_method1(intern!(py, "add_done_callback"), (ended,))
            .map(drop)
    }

    /// Handles the end of the task.
    fn ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        let puller = this.get().puller().bind(this.py());
        puller.get().end_if_forked_by(task);
        Puller::unless_broken(puller, || Self::has_ended(this, task))
    }

    /// Calls `ask` under the lock.
    fn with<T>(&self, py: Python<'_>, ask: impl FnOnce(&mut Progress) -> T) -> T;

    /// Makes a future for the task that has sent a piece, if the piece waits for room.
    fn wait_for_room(&self, py: Python<'_>, put: Put) -> PyResult<Option<Py<PyAny>>> {
        let Put::Waits(number) = put else {
            return Ok(None);
        };
        let future = future_of(self.event_loop().bind(py))?;
        let waits = self.with(py, |progress| progress.keep_waiting(number, &future))?;
        Ok(waits.then(|| future.unbind()))
    }

    /// Makes a future for a task that may send nothing yet, because a piece that another task has given up waits for room. The end of the answer
    /// waits only behind tasks that wait for their turn: an app that gives up waiting for it, too, has still ended its answer.
    fn wait_for_turn(&self, message: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let py = message.py();
        loop {
            let (is_behind, wakes) = self.with(py, |progress| {
                (progress.is_behind(), progress.senders.wakes())
            });
            if !is_behind || (is_end(message)? && self.is_next_sender(py)?) {
                return Ok(None);
            }
            if let Some(future) = self.wait_among(py, wakes, |progress| &mut progress.senders)? {
                return Ok(Some(future.unbind()));
            }
        }
    }

    /// Whether no task waits for a turn to send. Removes the futures of tasks that have given up from the front.
    fn is_next_sender(&self, py: Python<'_>) -> PyResult<bool> {
        let first = |progress: &mut Progress| {
            let first = progress.senders.futures.front();
            first.map(|future| future.clone_ref(py))
        };
        while let Some(future) = self.with(py, first) {
            if !is_done(future.bind(py))? {
                return Ok(false);
            }
            // Another call may have removed it meanwhile.
            self.with(py, |progress| {
                let futures = &mut progress.senders.futures;
                let is_first = futures.front().is_some_and(|first| first.is(&future));
                is_first.then(|| futures.pop_front())
            });
        }
        Ok(true)
    }

    /// Makes a future for a task that waits for an event. `None` if tasks were woken since it found no event: it has to look again.
    fn wait_for_event<'py>(
        &self,
        py: Python<'py>,
        wakes: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.wait_among(py, wakes, |progress| &mut progress.receivers)
    }

    /// The same for the tasks in the chosen queue.
    fn wait_among<'py>(
        &self,
        py: Python<'py>,
        wakes: u64,
        who: fn(&mut Progress) -> &mut Waiters,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut given_up = self.with(py, |progress| who(progress).to_be_looked_at(py));
        let is_looked_at = !given_up.is_empty();
        given_up.retain(|future| is_done(future.bind(py)).unwrap_or(true));
        let future = future_of(self.event_loop().bind(py))?;
        let waits = self.with(py, |progress| {
            let waiters = who(progress);
            if waiters.wakes != wakes {
                return false;
            }
            if is_looked_at {
                waiters.take_out(&given_up);
            }
            waiters.futures.push_back(future.clone().unbind());
            true
        });
        Ok(waits.then_some(future))
    }
}

/// A message that the app sends, and its type.
pub(super) fn message_and_type<'a, 'py>(
    message: &'a Bound<'py, PyAny>,
) -> PyResult<(&'a Bound<'py, PyDict>, Bound<'py, PyString>)> {
    let message = message.cast::<PyDict>().map_err(|_| {
        PyTypeError::new_err(format!("send takes a dict, not {}", message.get_type()))
    })?;
    let kind = message
        .get_item(intern!(message.py(), "type"))?
        .ok_or_else(|| PyValueError::new_err("send takes a dict with a type"))?;
    Ok((message, kind.cast_into::<PyString>()?))
}

/// Whether a message only ends what the app sends, and carries nothing else: only one such message is taken, and it needs next to no room.
fn is_end(message: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = message.py();
    let Ok(message) = message.cast::<PyDict>() else {
        return Ok(false);
    };
    let kind = message.get_item(intern!(py, "type"))?;
    let kind = kind.as_ref().and_then(|kind| kind.cast::<PyString>().ok());
    Ok(match kind.map(|kind| kind.to_str()).transpose()? {
        Some("websocket.close") => true,
        Some("http.response.body" | "websocket.http.response.body") => {
            let piece = message.get_item(intern!(py, "body"))?;
            let len = piece.map_or(Ok(0), |piece| piece.len())?;
            len == 0 && !is_set(message, intern!(py, "more_body"))?
        }
        _ => false,
    })
}

/// Whether a message has this flag set; without the flag it is false.
pub(super) fn is_set(message: &Bound<'_, PyDict>, what: &Bound<'_, PyString>) -> PyResult<bool> {
    let value = message.get_item(what)?;
    value.map_or(Ok(false), |value| value.is_truthy())
}
