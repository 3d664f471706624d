//! Where greenlets wait for room for more of an answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

/// The longest wait of a greenlet before it looks again. News of its slot wakes it earlier; the limit only bounds the cost of lost news.
const LOOK_AGAIN_S: f64 = 1.0;

/// The greenlets of a worker that wait, by the slots of their requests.
pub(crate) struct WaitingGreenlets {
    /// `gevent.event.Event`.
    event: Py<PyAny>,
    waiting: Mutex<HashMap<u32, Py<PyAny>>>,
}

impl WaitingGreenlets {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            event: py.import("gevent.event")?.getattr("Event")?.unbind(),
            waiting: Mutex::new(HashMap::new()),
        })
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, HashMap<u32, Py<PyAny>>> {
        self.waiting
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other greenlets run until there is news of the slot, or for a while. It raises the exception that another greenlet, or a timeout of
    /// gevent, throws into this greenlet.
    pub(crate) fn wait(&self, py: Python<'_>, slot: u32) -> PyResult<()> {
        let waiting = self.lock(py);
        let known = waiting.get(&slot).map(|event| event.clone_ref(py));
        drop(waiting);
        let event = match known {
            Some(event) => event,
            None => {
                let event = self.event.call0(py)?;
                let _before = self.lock(py).insert(slot, event.clone_ref(py));
                event
            }
        };
        event
            .call_method1(py, intern!(py, "wait"), (LOOK_AGAIN_S,))
            .map(drop)
    }

    /// Wakes the greenlets that wait for news of the slot.
    pub(crate) fn tell(&self, py: Python<'_>, slot: u32) -> PyResult<()> {
        let event = self.lock(py).remove(&slot);
        event.map_or(Ok(()), |event| {
            event.call_method0(py, intern!(py, "set")).map(drop)
        })
    }
}
