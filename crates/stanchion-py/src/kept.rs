//! What is made once and used for one request after the other, unless the app has kept it.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static WEAK_COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// How many references there are to an object. Weak ones do not count.
#[expect(
    deprecated,
    reason = "what is to be used instead, of pyo3::ffi, is unsafe, and this is the same"
)]
pub(crate) fn references<T>(py: Python<'_>, object: &Py<T>) -> usize {
    object.get_refcnt(py).unsigned_abs()
}

/// Whether there are weak references to one of these: by it the app would find it again in a later request.
pub(crate) fn is_one_weakly_held<const N: usize>(
    py: Python<'_>,
    objects: [&Py<PyAny>; N],
) -> PyResult<bool> {
    let count = WEAK_COUNT.import(py, "_weakref", "getweakrefcount")?;
    for object in objects {
        if count.call1((object,))?.is_truthy()? {
            return Ok(true);
        }
    }
    Ok(false)
}
