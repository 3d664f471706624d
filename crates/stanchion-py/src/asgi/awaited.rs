//! What `receive` and `send` give: awaitables that do their work when they are awaited, as coroutines do, and are through
//! at once if they can be, without a turn of the loop, unless much was decompressed in this one.
//!
//! They are coroutines as far as asyncio goes (`send`, `throw` and `close`), since apps make tasks of them, give them to
//! `wait_for`, and make them in other threads. Whatever is cancelled before its first step has taken nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyIterator, PyTuple};

use super::running::Running;
use super::waits::Sent;

/// One call of `receive` or `send`.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Awaited {
    of: Running,
    step: Mutex<Step>,
}

/// What it does next.
enum Step {
    Receive,
    Send(Py<PyAny>),
    /// Waits for a future of the loop's, whose iterator this is.
    Wait {
        steps: Py<PyIterator>,
        then: Then,
    },
    /// Lets others have their turn, and is through.
    Turn,
    /// It is through, or somebody is at it.
    Over,
}

/// What it does when its wait is over.
enum Then {
    Receive,
    /// Sends it, of which nothing is taken.
    Send(Py<PyAny>),
    /// Nothing: what it sends is taken.
    End,
}

/// How far a step has come.
enum Came {
    /// To a wait: this goes to the loop.
    Waits(Py<PyAny>),
    /// To its end: with an event, or nothing.
    Through(Option<Py<PyAny>>),
}

impl Awaited {
    pub(super) fn of_receive(of: Running) -> Self {
        let step = Mutex::new(Step::Receive);
        Self { of, step }
    }

    pub(super) fn of_send(of: Running, message: Py<PyAny>) -> Self {
        let step = Mutex::new(Step::Send(message));
        Self { of, step }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Step> {
        self.step
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody waits for what is to come then.
    fn gives_up(&self, py: Python<'_>, then: &Then) {
        if let Then::End = then {
            self.of.give_up_waiting(py);
        }
    }

    /// Goes on as far as it comes.
    fn go_on(&self, py: Python<'_>) -> PyResult<Came> {
        let mut step = std::mem::replace(&mut *self.lock(py), Step::Over);
        loop {
            let (waits_for, then) = match step {
                Step::Over => {
                    return Err(PyRuntimeError::new_err(
                        "this call of receive or send was awaited already",
                    ));
                }
                Step::Turn => return Ok(Came::Through(None)),
                Step::Receive => match self.of.next_event(py)? {
                    Ok(event) => return Ok(Came::Through(Some(event.into_any().unbind()))),
                    Err(future) => (future, Then::Receive),
                },
                Step::Send(message) => match self.of.take_message(message.bind(py))? {
                    Sent::Through => return Ok(Came::Through(None)),
                    Sent::Taken(future) => (future.into_bound(py), Then::End),
                    Sent::Later(future) => (future.into_bound(py), Then::Send(message)),
                    Sent::Dropped => {
                        *self.lock(py) = Step::Turn;
                        // As `asyncio.sleep(0)` does.
                        return Ok(Came::Waits(py.None()));
                    }
                },
                Step::Wait { steps, then } => match (steps.bind(py).clone().next(), then) {
                    (Some(Err(raised)), _) => return Err(raised),
                    (Some(Ok(future)), then) => {
                        let future = future.unbind();
                        *self.lock(py) = Step::Wait { steps, then };
                        return Ok(Came::Waits(future));
                    }
                    (None, Then::End) => return Ok(Came::Through(None)),
                    (None, Then::Receive) => {
                        step = Step::Receive;
                        continue;
                    }
                    (None, Then::Send(message)) => {
                        step = Step::Send(message);
                        continue;
                    }
                },
            };
            let steps = waits_for.call_method0(intern!(py, "__await__"))?;
            let steps = steps.cast_into::<PyIterator>()?.unbind();
            step = Step::Wait { steps, then };
        }
    }
}

#[pymethods]
impl Awaited {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.go_on(py)? {
            Came::Waits(future) => Ok(Some(future)),
            Came::Through(None) => Ok(None),
            Came::Through(Some(event)) => Err(PyStopIteration::new_err((event,))),
        }
    }

    /// A step, as of a coroutine; what loops send is always `None`.
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match self.go_on(py)? {
            Came::Waits(future) => Ok(future),
            Came::Through(event) => Err(PyStopIteration::new_err((event,))),
        }
    }

    /// It is cancelled, mostly.
    #[pyo3(signature = (*raised))]
    fn throw(&self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let step = std::mem::replace(&mut *self.lock(py), Step::Over);
        let Step::Wait { steps, then } = step else {
            return Err(thrown(raised)?);
        };
        self.gives_up(py, &then);
        let caught = steps
            .bind(py)
            .call_method1(intern!(py, "throw"), raised.clone())?;
        // No future of asyncio's gets here: they raise what they are given.
        *self.lock(py) = Step::Wait { steps, then };
        Ok(caught.unbind())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let step = std::mem::replace(&mut *self.lock(py), Step::Over);
        if let Step::Wait { steps, then } = step {
            self.gives_up(py, &then);
            steps.call_method0(py, intern!(py, "close"))?;
        }
        Ok(())
    }
}

/// What was thrown into it, as `generator.throw` takes it: a class or an exception, then perhaps a value and a traceback.
fn thrown(raised: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let kind = raised.get_item(0)?;
    let value = raised.get_item(1).ok().filter(|value| !value.is_none());
    let raising = match value {
        Some(value) => value,
        None if kind.is_callable() => kind.call0()?,
        None => kind,
    };
    Ok(PyErr::from_value(raising))
}

/// Ends a wait, unless who waited has given up.
pub(super) fn resolve(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !is_done(future)? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// Ends it by an exception.
pub(super) fn reject(future: &Bound<'_, PyAny>, why: PyErr) -> PyResult<()> {
    let py = future.py();
    if !is_done(future)? {
        future.call_method1(intern!(py, "set_exception"), (why.into_value(py),))?;
    }
    Ok(())
}

/// Whether nobody waits for it any more.
pub(super) fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    future
        .call_method0(intern!(future.py(), "done"))?
        .extract::<bool>()
}
