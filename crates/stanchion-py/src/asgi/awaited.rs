//! What `receive` and `send` give: awaitables that are through at once if they can be, without a turn of the loop.
//!
//! They are coroutines as far as asyncio goes (`send`, `throw` and `close`), since apps make tasks of them.

use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// One that is through.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Through {
    /// `None` gives `None`.
    event: Option<Py<PyAny>>,
}

impl Through {
    pub(crate) fn with(event: Option<Py<PyAny>>) -> Self {
        Self { event }
    }
}

#[pymethods]
impl Through {
    fn __await__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Ends at once: an iterator that gives nothing, with the event as what it returns.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.event {
            None => Ok(None),
            Some(event) => Err(PyStopIteration::new_err((event.clone_ref(py),))),
        }
    }

    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let event = self.event.as_ref().map(|event| event.clone_ref(py));
        Err(PyStopIteration::new_err((event,)))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    #[allow(clippy::unused_self)] // it is a method to Python
    fn throw(
        &self,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Err(thrown(kind, value, traceback)?)
    }

    #[allow(clippy::unused_self)] // as above
    fn close(&self) {}
}

/// What was thrown into it, as `generator.throw` takes it.
fn thrown(
    kind: &Bound<'_, PyAny>,
    value: Option<&Bound<'_, PyAny>>,
    traceback: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyErr> {
    let raised = match value {
        Some(value) if !value.is_none() => value.clone(),
        _ if kind.is_callable() => kind.call0()?,
        _ => kind.clone(),
    };
    let raised = match traceback {
        Some(traceback) => {
            raised.call_method1(intern!(kind.py(), "with_traceback"), (traceback,))?
        }
        None => raised,
    };
    Ok(PyErr::from_value(raised))
}

/// One that waits for a future of the loop's.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Waiting {
    /// The iterator of the future.
    steps: Py<PyAny>,
}

impl Waiting {
    pub(crate) fn on(future: &Bound<'_, PyAny>) -> PyResult<Self> {
        let steps = future.call_method0(intern!(future.py(), "__await__"))?;
        Ok(Self {
            steps: steps.unbind(),
        })
    }
}

#[pymethods]
impl Waiting {
    fn __await__(&self, py: Python<'_>) -> Py<PyAny> {
        self.steps.clone_ref(py)
    }

    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.steps
            .bind(py)
            .call_method1(intern!(py, "send"), (value,))
    }

    #[pyo3(signature = (*raised))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        raised: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.steps
            .bind(py)
            .call_method1(intern!(py, "throw"), raised.clone())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let steps = self.steps.bind(py);
        steps.call_method0(intern!(py, "close")).map(drop)
    }
}

/// Ends a wait, unless who waited has given up.
pub(super) fn resolve(future: &Bound<'_, PyAny>, with: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future
        .call_method0(intern!(py, "done"))?
        .extract::<bool>()?
    {
        future.call_method1(intern!(py, "set_result"), (with,))?;
    }
    Ok(())
}

pub(super) fn reject(future: &Bound<'_, PyAny>, why: PyErr) -> PyResult<()> {
    let py = future.py();
    if !future
        .call_method0(intern!(py, "done"))?
        .extract::<bool>()?
    {
        future.call_method1(intern!(py, "set_exception"), (why.into_value(py),))?;
    }
    Ok(())
}
