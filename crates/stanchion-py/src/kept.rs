//! Checks whether the app has kept objects that are made once and used for one request after another.
//!
//! The objects that an app gets (`answerer.rs`, `input.rs`) are used again for the next request if the reference counts
//! show that the app has kept none of them, not even by a weak reference.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `_weakref.getweakrefcount`
static WEAK_COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// To be called before a worker starts threads: if the app forked while another thread set the static, the child would
/// wait for that thread without end.
pub(crate) fn prepare(py: Python<'_>) -> PyResult<()> {
    WEAK_COUNT
        .import(py, "_weakref", "getweakrefcount")
        .map(drop)
}

/// The number of references to an object, without weak ones.
#[expect(
    deprecated,
    reason = "its replacement in pyo3::ffi is unsafe, and does the same"
)]
pub(crate) fn references<T>(py: Python<'_>, object: &Py<T>) -> usize {
    object.get_refcnt(py).unsigned_abs()
}

/// Whether there are weak references to one of these objects: the app could use one to reach the object in a later request.
pub(crate) fn is_one_weakly_held<const N: usize>(
    py: Python<'_>,
    objects: [&Py<PyAny>; N],
) -> PyResult<bool> {
    let count = WEAK_COUNT
        .get(py)
        .ok_or_else(|| PyRuntimeError::new_err("nothing is prepared to count weak references"))?;
    for object in objects {
        if count.bind(py).call1((object,))?.is_truthy()? {
            return Ok(true);
        }
    }
    Ok(false)
}
