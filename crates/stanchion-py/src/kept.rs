//! What is made once and used for one request after the other, unless the app has kept it.

use pyo3::prelude::*;

/// How many references there are to an object. Weak ones do not count.
#[expect(
    deprecated,
    reason = "what is to be used instead, of pyo3::ffi, is unsafe, and this is the same"
)]
pub(crate) fn references<T>(py: Python<'_>, object: &Py<T>) -> usize {
    object.get_refcnt(py).unsigned_abs()
}
