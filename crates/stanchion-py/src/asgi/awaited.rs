//! The awaitables that `receive` and `send` return. Like coroutines they work when they are awaited, and they finish at once if they can, without a
//! turn of the loop, unless much was decompressed in this turn.
//!
//! They are coroutines as far as asyncio goes (`send`, `throw` and `close`), because apps make tasks of them, pass them to `wait_for`, and make them
//! in other threads. A call that is cancelled before its first step has taken nothing.
//!
//! An app may make `receive` and `send` in another thread, make tasks of them, and cancel them before they begin. Each
//! turn of the loop has a ration of decompressed bytes (`stanchion_websocket::ration`): a client sends little for many
//! of them. A future only says that it is worth looking again; the task that then looks takes the event. So none is
//! lost when a waiting task is cancelled.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyIterator, PyTuple};

use super::running::Running;
use super::waits::SendResult;

/// One call of `receive` or `send`.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Awaited {
    of: Running,
    step: Mutex<CallStep>,
}

/// The next step of a call.
enum CallStep {
    Receive,
    Send(Py<PyAny>),
    /// Waits for a future of the loop, whose iterator this is.
    Wait {
        steps: Py<PyIterator>,
        then: Then,
    },
    /// Lets other tasks have their turn, and finishes.
    Turn,
    /// The call has finished, or a step of it is running.
    Over,
}

/// The step after a wait.
enum Then {
    Receive,
    /// Sends the message, of which nothing is taken yet.
    Send(Py<PyAny>),
    /// Finishes: the message that it sends is taken already.
    End,
}

/// The result of a step.
enum StepResult {
    /// The call waits: the loop gets this future.
    Waits(Py<PyAny>),
    /// The call has finished, with an event or with nothing.
    Through(Option<Py<PyAny>>),
}

impl Awaited {
    pub(super) fn of_receive(of: Running) -> Self {
        let step = Mutex::new(CallStep::Receive);
        Self { of, step }
    }

    pub(super) fn of_send(of: Running, message: Py<PyAny>) -> Self {
        let step = Mutex::new(CallStep::Send(message));
        Self { of, step }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, CallStep> {
        self.step
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the call no longer waits until the message that it has sent is written.
    fn gives_up(&self, py: Python<'_>, then: &Then) {
        if let Then::End = then {
            self.of.give_up_waiting(py);
        }
    }

    /// Goes on until the call waits or has finished.
    fn go_on(&self, py: Python<'_>) -> PyResult<StepResult> {
        let mut step = std::mem::replace(&mut *self.lock(py), CallStep::Over);
        loop {
            let (waits_for, then) = match step {
                CallStep::Over => {
                    return Err(PyRuntimeError::new_err(
                        "this call of receive or send was awaited already",
                    ));
                }
                CallStep::Turn => return Ok(StepResult::Through(None)),
                CallStep::Receive => match self.of.next_event(py)? {
                    Ok(event) => return Ok(StepResult::Through(Some(event.into_any().unbind()))),
                    Err(future) => (future, Then::Receive),
                },
                CallStep::Send(message) => match self.of.take_message(message.bind(py))? {
                    SendResult::Through => return Ok(StepResult::Through(None)),
                    SendResult::Taken(future) => (future.into_bound(py), Then::End),
                    SendResult::Later(future) => (future.into_bound(py), Then::Send(message)),
                    SendResult::Dropped => {
                        *self.lock(py) = CallStep::Turn;
                        // As `asyncio.sleep(0)` does.
                        return Ok(StepResult::Waits(py.None()));
                    }
                },
                CallStep::Wait { steps, then } => match (steps.bind(py).clone().next(), then) {
                    (Some(Err(raised)), _) => return Err(raised),
                    (Some(Ok(future)), then) => {
                        let future = future.unbind();
                        *self.lock(py) = CallStep::Wait { steps, then };
                        return Ok(StepResult::Waits(future));
                    }
                    (None, Then::End) => return Ok(StepResult::Through(None)),
                    (None, Then::Receive) => {
                        step = CallStep::Receive;
                        continue;
                    }
                    (None, Then::Send(message)) => {
                        step = CallStep::Send(message);
                        continue;
                    }
                },
            };
            let steps = waits_for.call_method0(intern!(py, "__await__"))?;
            let steps = steps.cast_into::<PyIterator>()?.unbind();
            step = CallStep::Wait { steps, then };
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
            StepResult::Waits(future) => Ok(Some(future)),
            StepResult::Through(None) => Ok(None),
            StepResult::Through(Some(event)) => Err(PyStopIteration::new_err((event,))),
        }
    }

    /// One step, as of a coroutine; asyncio always sends `None`.
    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match self.go_on(py)? {
            StepResult::Waits(future) => Ok(future),
            StepResult::Through(event) => Err(PyStopIteration::new_err((event,))),
        }
    }

    /// Throws in an exception, which mostly is a cancellation.
    #[pyo3(signature = (*raised))]
    fn throw(&self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let step = std::mem::replace(&mut *self.lock(py), CallStep::Over);
        let CallStep::Wait { steps, then } = step else {
            return Err(thrown(raised)?);
        };
        self.gives_up(py, &then);
        let caught = steps
            .bind(py)
            .call_method1(intern!(py, "throw"), raised.clone())?;
        // asyncio's futures raise the exception that is thrown in, so none of them gets here.
        *self.lock(py) = CallStep::Wait { steps, then };
        Ok(caught.unbind())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let step = std::mem::replace(&mut *self.lock(py), CallStep::Over);
        if let CallStep::Wait { steps, then } = step {
            self.gives_up(py, &then);
            steps.call_method0(py, intern!(py, "close"))?;
        }
        Ok(())
    }
}

/// The exception that was thrown in, in the forms that `generator.throw` takes: a class or an exception, then perhaps a value and a traceback.
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
