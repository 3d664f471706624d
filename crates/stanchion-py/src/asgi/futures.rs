//! Futures of the loop, for which tasks wait.

use pyo3::intern;
use pyo3::prelude::*;

pub(super) fn future_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    event_loop.call_method0(intern!(event_loop.py(), "create_future"))
}

/// Wakes the tasks that wait for these futures: they look again.
pub(super) fn wake(py: Python<'_>, futures: impl IntoIterator<Item = Py<PyAny>>) -> PyResult<()> {
    futures
        .into_iter()
        .try_for_each(|future| resolve(future.bind(py)))
}

/// Ends a wait, unless the waiting task has given up.
pub(super) fn resolve(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !is_done(future)? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// Ends a wait by an exception, unless the waiting task has given up.
pub(super) fn reject(future: &Bound<'_, PyAny>, why: PyErr) -> PyResult<()> {
    let py = future.py();
    if !is_done(future)? {
        future.call_method1(intern!(py, "set_exception"), (why.into_value(py),))?;
    }
    Ok(())
}

/// Whether the future is done, so that no task waits for it any more.
pub(super) fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    future
        .call_method0(intern!(future.py(), "done"))?
        .extract::<bool>()
}
