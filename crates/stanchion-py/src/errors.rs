//! `wsgi.errors`: the app's way into the error log.

use pyo3::prelude::*;

/// A text stream that writes to the error log, each call in one piece.
#[pyclass(name = "ErrorLog", frozen, module = "stanchion")]
pub(crate) struct ErrorStream;

#[expect(clippy::unused_self, reason = "Python calls these on an object")]
#[pymethods]
impl ErrorStream {
    fn write(&self, text: &str) -> usize {
        stanchion_log::raw(text.as_bytes());
        text.chars().count()
    }

    fn writelines(&self, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        for line in lines.try_iter()? {
            self.write(line?.extract()?);
        }
        Ok(())
    }

    /// Does nothing, because every write goes out at once.
    fn flush(&self) {}
}
