//! `stanchion._stanchion`: hosts WSGI and ASGI apps for the server, and gives Python access to the server's settings.
//! It translates between Python and Rust and decides nothing.
//!
//! A worker of an asynchronous app, or of a WSGI app under gevent, has `worker_concurrency` seats, all of one thread. A
//! seat is the place where one request runs, so the line, deadlines, epochs, mending, retries and the accounts work as
//! with threads. Two things differ: how a request comes in, and how the two sides wait.
//!
//! ```text
//! acceptor                                exchange                          worker: one thread
//! ────────                                ────────                          ──────────────────
//! fill ──────────────────────────────▶ ready ring ─────────────────────▶ Puller ── a task per request
//! call: the least loaded that sleeps ─▶ inbox: asleep, load, beat ─ fd ─▶ selector of asyncio or uvloop
//! room in the answer, more of the ────▶ inbox: a notice per slot ──────▶ Request::look ─▶ a future ─▶ the task
//! body, a client that has gone            response ring ◀──────────────── send     (waits for room)
//!                                         inflow ───────────────────────▶ receive  (waits for more)
//! ```
//!
//! It may not have sockets, listeners, epoll or threads of its own: requests come through the exchange. Only `fork.rs`
//! has unsafe code.

mod answer;
mod answerer;
mod asgi;
mod environ;
mod errors;
mod file_wrapper;
mod fork;
mod gevent;
mod head;
mod hooks;
mod host;
mod input;
mod kept;
mod loop_puller;
mod loop_seats;
mod names;
mod planner;
mod response;
mod scribe;
mod strings;
mod template;
#[cfg(test)]
mod tests;
mod tls;
mod traceback;
mod waiting_greenlets;
mod warm_up;
mod wsgi;

use pyo3::prelude::*;
use stanchion_sys::charge::Charging;

/// The acceptor charges its memory to clients. The other processes count nothing, but each of their blocks is eight bytes longer.
#[global_allocator]
static ALLOCATOR: Charging = Charging;

/// The Rust core.
// Free-threaded Python enables its GIL for this module, because the module was never tested without one.
#[pymodule(gil_used = true)]
mod _stanchion {
    use std::ffi::OsString;
    use std::io;
    use std::path::PathBuf;

    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    use stanchion_server::Launcher;
    use stanchion_server::network;
    use stanchion_settings::{Settings, resolve_json, schema_json};
    use stanchion_sys::process;

    use crate::host::PythonHost;

    /// Reads effective settings, a JSON object of `{name: value}`.
    fn settings_of(json: &str) -> PyResult<Settings> {
        Settings::from_json(json).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The table of settings, as a JSON list.
    #[pyfunction]
    fn settings_schema() -> String {
        schema_json()
    }

    /// Merges and checks layers of settings, the lowest first: a JSON list of `{"origin": str, "values": {name: raw}}`. Returns a JSON object with
    /// `values`, `errors` and `unknown`.
    #[pyfunction]
    fn settings_resolve(layers: &str) -> PyResult<String> {
        resolve_json(layers).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The admin listener's page, and the Content-Security-Policy that belongs to it, for `stanchion top`.
    #[pyfunction]
    fn admin_page() -> (&'static str, &'static str) {
        (stanchion_server::PAGE, stanchion_server::PAGE_POLICY)
    }

    /// The first directory on the way to an absolute path, or the file there, that other users than root may change.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)] // it is made for the call
    fn first_not_roots_alone(path: PathBuf) -> io::Result<Option<OsString>> {
        // A `PathBuf` would import pathlib, which would slow down each start.
        let first = stanchion_sys::exposed_path::first_not_roots_alone(&path)?;
        Ok(first.map(PathBuf::into_os_string))
    }

    /// Writes a line to the error log, for a handler of Python's logging. `level` is a level of that module, in which a higher one is more severe.
    #[pyfunction]
    fn log(level: i32, text: &str) {
        stanchion_log::record(level, text);
    }

    /// Writes a line to the error log for another process, which has logged it: `time_us` is its time since the epoch.
    #[pyfunction]
    fn log_for(pid: i32, time_us: u64, level: i32, text: &str) {
        stanchion_log::write_for(pid, time_us, level, text);
    }

    /// Writes text to the error log unchanged, for a handler with a format of its own.
    #[pyfunction]
    fn log_as_it_is(text: &[u8]) {
        stanchion_log::raw(text);
    }

    /// The privileges that each process of a server would have, by the name of its role, if `serve` were called here and now with these effective
    /// settings. Raises `ValueError` if the server would refuse to start because of them.
    #[pyfunction]
    fn privileges(settings: &str) -> PyResult<Vec<(&'static str, String)>> {
        let settings = settings_of(settings)?;
        stanchion_server::privileges::plan(&settings).map_err(PyValueError::new_err)
    }

    /// How many workers a server with these effective settings has at most on this machine, and how many requests they run at once. With `interface`
    /// auto the app counts as WSGI.
    #[pyfunction]
    fn seats(settings: &str) -> PyResult<(u32, usize)> {
        let mut settings = settings_of(settings)?;
        stanchion_server::heed_machine(&mut settings);
        Ok((settings.workers.workers.max, settings.seats()))
    }

    /// How many cores this process may use: the fewest workers, if effective settings leave the number to the machine.
    #[pyfunction]
    fn cores() -> u32 {
        stanchion_server::cores()
    }

    /// The number of workers that this machine says, in words, if effective settings leave it to the machine.
    #[pyfunction]
    fn auto_workers(settings: &str) -> PyResult<Option<String>> {
        Ok(stanchion_server::heed_machine(&mut settings_of(settings)?))
    }

    /// Answers a question to the planner, a JSON object, with another one. `progress` gets the share that is done, from 0 to 1; what it raises ends the
    /// planner. Raises `ValueError` if the question makes no sense.
    #[pyfunction]
    #[pyo3(signature = (question, progress = None))]
    #[allow(clippy::needless_pass_by_value)] // it is made for the call
    fn plan(py: Python<'_>, question: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
        crate::planner::answer(py, question, progress.as_ref())
    }

    /// Gives this process, for good, the privileges that the app would have under effective settings. Raises `ValueError` if that is impossible.
    #[pyfunction]
    fn become_app(settings: &str) -> PyResult<()> {
        let settings = settings_of(settings)?;
        stanchion_server::privileges::become_app(&settings).map_err(PyValueError::new_err)
    }

    /// Checks the certificates and keys in effective settings, as `serve` would. Returns warnings about those that clients refuse now or will soon.
    /// Raises `ValueError` if the server cannot use them.
    #[pyfunction]
    fn check_credentials(settings: &str) -> PyResult<Vec<String>> {
        let settings = settings_of(settings)?;
        stanchion_server::check_credentials(&settings).map_err(PyValueError::new_err)
    }

    /// Waits a moment until this process has only one thread, which the server needs before it forks. Raises `ValueError` with the names of the other
    /// threads if they stay.
    #[pyfunction]
    fn refuse_threads(host: Py<PyAny>) -> PyResult<()> {
        let host = &mut PythonHost::new(host);
        stanchion_server::refuse_at_start(host).map_err(PyValueError::new_err)
    }

    /// The listening sockets of a network namespace, how many connections are half open there, and the contents of `files` in it, as a JSON
    /// object. `namespace` is a path such as `/proc/PID/ns/net`, and entering it takes root; without it the process's own namespace is used.
    #[pyfunction]
    #[pyo3(signature = (files, namespace=None))]
    fn network_view(
        py: Python<'_>,
        files: Vec<String>,
        namespace: Option<PathBuf>,
    ) -> PyResult<String> {
        Ok(py.detach(move || network::view_json(namespace.as_deref(), &files))?)
    }

    /// Runs the server with effective settings, a JSON object of `{name: value}`, for the app that `host.load()` returns. Returns in the master and
    /// in each worker, with the exit code of that process. `launcher` is a pipe: the process at its other end waits for the result of the start.
    #[pyfunction]
    #[pyo3(signature = (settings, host, launcher=None))]
    fn serve(settings: &str, host: Py<PyAny>, launcher: Option<i32>) -> PyResult<i32> {
        let settings = settings_of(settings)?;
        let launcher = match launcher {
            Some(pipe) => Launcher::at(process::inherited_fd(pipe)?),
            None => Launcher::none(),
        };
        let host = &mut PythonHost::new(host);
        Ok(stanchion_server::serve(settings, host, launcher))
    }
}
