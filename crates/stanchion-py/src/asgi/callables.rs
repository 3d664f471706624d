//! The callables of an ASGI app: `receive` and `send` of a request or a WebSocket, and `ended`, which the loop calls.

use pyo3::prelude::*;

use super::awaited::Awaited;
use super::request::AsgiRequest;
use super::running::Running;
use super::socket::AsgiSocket;
use super::waits::Waited;

#[pymethods]
impl AsgiRequest {
    /// ASGI's `receive`.
    fn receive(this: &Bound<'_, Self>) -> Awaited {
        Awaited::of_receive(Running::Request(this.clone().unbind()))
    }

    /// ASGI's `send`.
    fn send(this: &Bound<'_, Self>, message: Py<PyAny>) -> Awaited {
        Awaited::of_send(Running::Request(this.clone().unbind()), message)
    }

    /// The loop calls it when the task has ended.
    #[pyo3(name = "ended")]
    fn task_ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::ended(this, task)
    }
}

#[pymethods]
impl AsgiSocket {
    /// ASGI's `receive`.
    fn receive(this: &Bound<'_, Self>) -> Awaited {
        Awaited::of_receive(Running::Socket(this.clone().unbind()))
    }

    /// ASGI's `send`.
    fn send(this: &Bound<'_, Self>, message: Py<PyAny>) -> Awaited {
        Awaited::of_send(Running::Socket(this.clone().unbind()), message)
    }

    /// See [`Self::restart`]; the loop calls it later.
    #[pyo3(name = "restart")]
    fn restart_now(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::restart(this)
    }

    /// The loop calls it when the task has ended.
    #[pyo3(name = "ended")]
    fn task_ended(this: &Bound<'_, Self>, task: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::ended(this, task)
    }
}
