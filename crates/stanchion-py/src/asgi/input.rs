//! The body of a request, as it comes in and as an app gets it.

use std::fs::File;

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stanchion_server::Taken;

/// The part of the request's body that the app has not got.
pub(super) enum Input {
    /// In the slot.
    Memory { at: usize, len: usize },
    /// In the slot, and more comes behind it.
    Begun { at: usize, len: usize },
    /// It is still coming.
    Coming,
    /// In a file of its own.
    File { file: File, left: u64 },
    /// The app has got everything.
    Over,
}

/// A piece of a request's body.
pub(super) struct BodyPart<'py> {
    pub(super) bytes: Bound<'py, PyBytes>,
    pub(super) is_last: bool,
}

impl<'py> BodyPart<'py> {
    /// The event with this piece.
    pub(super) fn event(self) -> PyResult<Bound<'py, PyDict>> {
        let py = self.bytes.py();
        let event = PyDict::new(py);
        event.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
        event.set_item(intern!(py, "body"), self.bytes)?;
        event.set_item(intern!(py, "more_body"), !self.is_last)?;
        Ok(event)
    }
}

/// A body, or the start of it, that is in the record of its request.
pub(super) fn in_record<'py>(
    py: Python<'py>,
    taken: &Taken<'_>,
    at: usize,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, len, |bytes| {
        is_whole(taken.read_request(at, bytes), len)
    })
}

/// The next `len` bytes that have come behind the record.
pub(super) fn come<'py>(
    py: Python<'py>,
    taken: &mut Taken<'_>,
    len: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, len, |bytes| is_whole(taken.receive(bytes), len))
}

fn is_whole(read: usize, len: usize) -> PyResult<()> {
    if read < len {
        return Err(PyOSError::new_err(
            "the client's bytes in the slot have changed their length",
        ));
    }
    Ok(())
}
