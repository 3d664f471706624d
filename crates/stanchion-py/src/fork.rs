//! Forking a process that has a Python interpreter in it: the only `unsafe` of this crate.

use std::io;

use pyo3::prelude::*;
use stanchion_server::Fork;
use stanchion_sys::process::{self, Between};

/// Forks a child of ours.
pub(crate) fn fork(py: Python<'_>) -> io::Result<Fork> {
    // SAFETY: see `with_interpreter`, which calls it.
    with_interpreter(py, || unsafe { process::fork() })
}

/// Forks a child of the master's.
pub(crate) fn fork_for_subreaper(py: Python<'_>, between: Between) -> io::Result<Fork> {
    // SAFETY: see `with_interpreter`, which calls it.
    with_interpreter(py, || unsafe { process::fork_for_subreaper(between) })
}

/// Tells the interpreter before and after, as `os.fork` does, so that its locks, its idea of the
/// main thread, and what apps registered with `os.register_at_fork` are in order.
///
/// A process that already has other threads may be forked like this, as gunicorn and `os.fork` do
/// it; those threads do not exist in the child, and locks they hold stay held. That is the app's
/// doing (it started threads while it was imported), and the template tells.
fn with_interpreter(
    _attached: Python<'_>,
    fork: impl FnOnce() -> io::Result<Fork>,
) -> io::Result<Fork> {
    // SAFETY: we are attached to the interpreter (the token proves it), as these three require;
    // each is called once, in the order the C API asks for. The locks of glibc are seen to by
    // fork(2)'s own handlers, those of the interpreter by these calls; ours do not exist, since
    // this crate and the server start no thread before they fork.
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
