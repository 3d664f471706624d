//! Forking a process that has a Python interpreter in it: the only `unsafe` of this crate.

use std::io;

use pyo3::prelude::*;
use stanchion_server::Fork;
use stanchion_sys::adoption;
use stanchion_sys::process;

/// Forks a child of this process.
pub(crate) fn fork(py: Python<'_>) -> io::Result<Fork> {
    // SAFETY: see `with_interpreter`, which calls it.
    with_interpreter(py, || unsafe { process::fork() })
}

/// Forks a child that the master adopts.
pub(crate) fn fork_for_subreaper(py: Python<'_>) -> io::Result<Fork> {
    // SAFETY: see `with_interpreter`, which calls it.
    with_interpreter(py, || unsafe { adoption::fork_for_subreaper() })
}

/// Notifies the interpreter before and after the fork, as `os.fork` does, so that its locks, its notion of the main thread, and the functions that
/// apps registered with `os.register_at_fork` are in order.
///
/// A process that already has other threads may be forked in this way too, as by gunicorn and `os.fork`. The other threads do not exist in the child,
/// and locks that they hold stay held. Such threads are the app's (it started them while it was imported), and the template logs them.
fn with_interpreter(
    _attached: Python<'_>,
    fork: impl FnOnce() -> io::Result<Fork>,
) -> io::Result<Fork> {
    // SAFETY: this thread is attached to the interpreter (the token proves it), as these three functions require, and calls each once, in the order
    // of the C API. fork(2)'s own handlers take care of glibc's locks, and these calls take care of the interpreter's locks. No thread of this crate
    // or of the server holds a lock: the template starts no thread, and a worker joins those of its seats before it becomes the template.
    unsafe {
        pyo3::ffi::PyOS_BeforeFork();
        let forked = fork();
        match forked {
            Ok(Fork::Child) => pyo3::ffi::PyOS_AfterFork_Child(),
            Ok(Fork::Parent(_)) | Err(_) => pyo3::ffi::PyOS_AfterFork_Parent(),
        }
        forked
    }
}
