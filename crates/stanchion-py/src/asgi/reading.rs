//! Reads requests out of their slots, and makes the scopes and objects with which the app is called.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_record::RequestBuffer;
use stanchion_server::Worker;

use super::Puller;
use super::extensions::Extensions;
use super::request::AsgiRequest;
use super::running::Running;
use super::scope::Scopes;
use super::socket::AsgiSocket;
use crate::loop_seats::Seated;

/// The memory that is used for one request after another.
pub(super) struct RequestReader {
    buffer: RequestBuffer,
    scopes: Scopes,
}

impl RequestReader {
    pub(super) fn new(py: Python<'_>, worker: &Worker) -> PyResult<Self> {
        Ok(Self {
            buffer: RequestBuffer::default(),
            scopes: Scopes::new(py, worker)?,
        })
    }

    /// Gives every request a copy of this state, and this event, from now on.
    pub(super) fn share(&mut self, state: Option<Py<PyDict>>, leaving: Py<PyAny>) {
        self.scopes.share(state, leaving);
    }

    /// Reads a request and makes its scope. If that fails, the slot is given back.
    pub(super) fn read<'py>(
        &mut self,
        seated: Seated,
        event_loop: Py<PyAny>,
        puller: &Bound<'py, Puller>,
    ) -> PyResult<(Bound<'py, PyDict>, Running)> {
        let py = puller.py();
        let Seated {
            number,
            seat,
            taken,
        } = seated;
        let record = self.buffer.read(&taken);
        let record = record.map_err(|bad| PyRuntimeError::new_err(format!("our fault: {bad}")))?;
        let offered = Extensions::of(&record, puller.get().settings());
        let scope = self.scopes.make(py, &record, offered)?;
        let running = if record.facts.is_websocket {
            let socket = AsgiSocket::new(&record, taken, number, event_loop, puller);
            Running::Socket(Py::new(py, socket)?)
        } else {
            let request =
                AsgiRequest::new(&record, offered, taken, number, seat, event_loop, puller)?;
            Running::Request(Py::new(py, request)?)
        };
        Ok((scope, running))
    }
}
