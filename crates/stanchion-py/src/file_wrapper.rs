//! `wsgi.file_wrapper` (PEP 3333, "Optional Platform-Specific File Handling").

use std::fs::File;
use std::os::fd::RawFd;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stanchion_record::FilePart;

/// An iterable over a file-like object. If the app returns it unchanged, and a regular file is behind it, the acceptor sends the file and no byte
/// passes through Python.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct FileWrapper {
    file: Py<PyAny>,
    block_bytes: usize,
}

#[pymethods]
impl FileWrapper {
    #[new]
    #[pyo3(signature = (filelike, blksize = 8192))]
    fn new(filelike: Py<PyAny>, blksize: usize) -> Self {
        Self {
            file: filelike,
            block_bytes: blksize,
        }
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let block = self
            .file
            .bind(py)
            .call_method1(intern!(py, "read"), (self.block_bytes,))?;
        Ok(if block.is_truthy()? {
            Some(block)
        } else {
            None
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file.bind(py);
        if file.hasattr(intern!(py, "close"))? {
            file.call_method0(intern!(py, "close"))?;
        }
        Ok(())
    }
}

impl FileWrapper {
    /// The regular file behind it, from its present position on, if there is one. The file is opened a second time, so that the app may use or close
    /// its own.
    pub(crate) fn regular_file(&self, py: Python<'_>) -> Option<(File, FilePart)> {
        let wrapped = self.file.bind(py);
        if !is_plain(wrapped).ok()? {
            return None;
        }
        let fd: RawFd = wrapped
            .call_method0(intern!(py, "fileno"))
            .ok()?
            .extract()
            .ok()?;
        let offset: u64 = wrapped
            .call_method0(intern!(py, "tell"))
            .ok()?
            .extract()
            .ok()?;
        // A text file would have to be encoded; only a binary file can be sent as it is on the disk.
        let is_binary = wrapped
            .call_method1(intern!(py, "read"), (0,))
            .ok()?
            .is_instance_of::<PyBytes>();
        let file = File::open(format!("/proc/self/fd/{fd}")).ok()?;
        let metadata = file.metadata().ok()?;
        let len = metadata.len().saturating_sub(offset);
        (is_binary && metadata.is_file()).then_some((file, FilePart { offset, len }))
    }
}

/// Modules whose files have a descriptor, but give other bytes than those on the disk.
const UNPACKING: [&str; 5] = ["gzip", "bz2", "lzma", "zipfile", "tarfile"];

/// Whether reading a file gives the bytes on the disk.
fn is_plain(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    for kind in file.get_type().mro() {
        let module = kind.getattr(intern!(file.py(), "__module__"))?;
        if UNPACKING.contains(&module.extract::<&str>()?) {
            return Ok(false);
        }
    }
    Ok(true)
}
