//! `wsgi.input` of a request without a body; most apps never use it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyString, PyTuple, PyType};

use crate::kept::references;

static BYTES_IO: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// `io.BytesIO`, in which the app gets a body in memory.
pub(crate) fn bytes_io(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    BYTES_IO.import(py, "io", "BytesIO")
}

/// Makes `isinstance` treat an [`EmptyInput`] as a file.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let base = py.import("io")?.getattr("BufferedIOBase")?;
    base.call_method1("register", (PyType::new::<EmptyInput>(py),))?;
    Ok(())
}

/// An empty `BytesIO` that is made only when the app asks for anything.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct EmptyInput {
    file: PyOnceLock<Py<PyAny>>,
}

#[pymethods]
impl EmptyInput {
    #[pyo3(signature = (size = None, /))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        size: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?.call_method1(intern!(py, "read"), (size,))
    }

    #[pyo3(signature = (size = None, /))]
    fn readline<'py>(
        &self,
        py: Python<'py>,
        size: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?
            .call_method1(intern!(py, "readline"), (size,))
    }

    #[pyo3(signature = (hint = None, /))]
    fn readlines<'py>(
        &self,
        py: Python<'py>,
        hint: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?
            .call_method1(intern!(py, "readlines"), (hint,))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.file(py)?.try_iter()
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?.call_method0(intern!(py, "__next__"))
    }

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?.call_method0(intern!(py, "__enter__"))
    }

    #[pyo3(signature = (*failure))]
    fn __exit__<'py>(
        &self,
        py: Python<'py>,
        failure: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?
            .call_method1(intern!(py, "__exit__"), failure)
    }

    /// All other attributes of a `BytesIO`.
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.file(py)?.getattr(name)
    }

    fn __setattr__(&self, name: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.file(name.py())?.setattr(name, value)
    }

    fn __delattr__(&self, name: &Bound<'_, PyString>) -> PyResult<()> {
        self.file(name.py())?.delattr(name)
    }

    /// `copy` and `pickle` make a `BytesIO` of it.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let state = self.file(py)?.call_method0(intern!(py, "__getstate__"))?;
        (bytes_io(py)?, (), state).into_pyobject(py)
    }
}

impl EmptyInput {
    pub(crate) fn new() -> Self {
        Self {
            file: PyOnceLock::new(),
        }
    }

    fn file<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let file = self
            .file
            .get_or_try_init(py, || Ok::<_, PyErr>(bytes_io(py)?.call0()?.unbind()))?;
        Ok(file.bind(py))
    }

    /// Whether it is unused, and only those `holders` refer to it.
    pub(crate) fn is_untouched(this: &Py<Self>, py: Python<'_>, holders: usize) -> bool {
        references(py, this) == holders && this.get().file.get(py).is_none()
    }
}
