//! Exceptions of Python as text for the error log.

use pyo3::prelude::*;

/// The failure in Python's own form.
pub(crate) fn traceback(py: Python<'_>, failure: &PyErr) -> String {
    let shown = py.import("traceback").and_then(|traceback| {
        let lines =
            traceback.call_method1("format_exception", (failure.clone_ref(py).into_value(py),))?;
        Ok(lines
            .extract::<Vec<String>>()?
            .concat()
            .trim_end()
            .to_owned())
    });
    shown.unwrap_or_else(|_| failure.to_string())
}

/// The shortened traceback and the advice, in the loader's words.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> String {
    let described = py.import("stanchion.loader").and_then(|loader| {
        loader
            .call_method1("describe_failure", (error.clone_ref(py).into_value(py),))?
            .extract::<String>()
    });
    described.unwrap_or_else(|_| error.to_string())
}
