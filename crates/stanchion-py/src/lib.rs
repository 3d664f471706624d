//! `stanchion._stanchion`: hosts WSGI apps for the server, and shows it its settings. It
//! translates between Python and Rust and decides nothing.

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
mod loop_seats;
mod names;
mod response;
mod scribe;
mod strings;
mod template;
mod tls;
mod wsgi;

use pyo3::prelude::*;
use stanchion_sys::charge::Charging;

/// The acceptor charges its memory to clients. Other processes count nothing, and each of their blocks is eight bytes longer.
#[global_allocator]
static ALLOCATOR: Charging = Charging;

/// The Rust core.
// Free-threaded Python takes its GIL with us: nothing here was tested without one.
#[pymodule(gil_used = true)]
mod _stanchion {
    use std::ffi::OsString;
    use std::io;
    use std::path::PathBuf;

    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    use stanchion_server::Launcher;
    use stanchion_server::network;
    use stanchion_server::settings::{Settings, resolve_json, schema_json};
    use stanchion_sys::process;

    use crate::host::PythonHost;

    /// The table of settings, as a JSON list.
    #[pyfunction]
    fn settings_schema() -> String {
        schema_json()
    }

    /// Merges and checks layers of settings, the lowest first: a JSON list of
    /// `{"origin": str, "values": {name: raw}}`. Gives a JSON object with `values`, `errors`
    /// and `unknown`.
    #[pyfunction]
    fn settings_resolve(layers: &str) -> PyResult<String> {
        resolve_json(layers).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The first place on the way to an absolute path, or what is there, that others than root may change.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)] // it is made for the call
    fn first_not_roots_alone(path: PathBuf) -> io::Result<Option<OsString>> {
        // A path would import pathlib, which each start would pay for.
        let first = stanchion_sys::plain_file::first_not_roots_alone(&path)?;
        Ok(first.map(PathBuf::into_os_string))
    }

    /// Writes a line to the error log, for a handler of Python's logging. `level` is one of that module's, where higher
    /// is louder.
    #[pyfunction]
    fn log(level: i32, text: &str) {
        stanchion_server::log::record(level, text);
    }

    /// Writes a line to the error log as another process would have, which has logged it: `time_us` since the epoch.
    #[pyfunction]
    fn log_for(pid: i32, time_us: u64, level: i32, text: &str) {
        stanchion_server::log::write_for(pid, time_us, level, text);
    }

    /// Writes text to the error log as it is, for a handler that was given a format of its own.
    #[pyfunction]
    fn log_as_it_is(text: &[u8]) {
        stanchion_server::log::raw(text);
    }

    /// What each process of a server would be allowed, by the name of its role: for effective settings as
    /// for `serve`, started here and now. Raises `ValueError` if it would not start for this.
    #[pyfunction]
    fn privileges(settings: &str) -> PyResult<Vec<(&'static str, String)>> {
        let settings = Settings::from_json(settings)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        stanchion_server::privileges::plan(&settings).map_err(PyValueError::new_err)
    }

    /// Makes of this process what the app would run as under effective settings, for good. Raises `ValueError`
    /// if that cannot be.
    #[pyfunction]
    fn become_app(settings: &str) -> PyResult<()> {
        let settings = Settings::from_json(settings)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        stanchion_server::privileges::become_app(&settings).map_err(PyValueError::new_err)
    }

    /// Checks the certificates and keys that effective settings name, as `serve` would; gives what clients will not like of
    /// them, now or soon. Raises `ValueError` if they cannot be served with.
    #[pyfunction]
    fn check_credentials(settings: &str) -> PyResult<Vec<String>> {
        let settings = Settings::from_json(settings)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        stanchion_server::check_credentials(&settings).map_err(PyValueError::new_err)
    }

    /// Waits a moment for this process to have one thread, as it must have before the server forks. Raises `ValueError`,
    /// which names the others, if they stay.
    #[pyfunction]
    fn refuse_threads(host: Py<PyAny>) -> PyResult<()> {
        let host = &mut PythonHost::new(host);
        stanchion_server::refuse_at_start(host).map_err(PyValueError::new_err)
    }

    /// The listening sockets of a network namespace and what `files` say in there, as a JSON object.
    /// Without a `namespace`, a path such as `/proc/PID/ns/net`, it is our own; to enter another one
    /// takes root. To count connections that are half open costs milliseconds.
    #[pyfunction]
    #[pyo3(signature = (files, namespace=None, half_open=true))]
    fn network_view(
        py: Python<'_>,
        files: Vec<String>,
        namespace: Option<PathBuf>,
        half_open: bool,
    ) -> PyResult<String> {
        Ok(py.detach(move || network::view_json(namespace.as_deref(), &files, half_open))?)
    }

    /// Runs the server with effective settings, a JSON object of `{name: value}`, for the app
    /// that `host.load()` gives. Returns in the master and in each worker, with the exit code of
    /// that process. `launcher` is the pipe at whose other end somebody waits to be told how the start went.
    #[pyfunction]
    #[pyo3(signature = (settings, host, launcher=None))]
    fn serve(settings: &str, host: Py<PyAny>, launcher: Option<i32>) -> PyResult<i32> {
        let settings = Settings::from_json(settings)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let launcher = match launcher {
            Some(pipe) => Launcher::at(process::inherited_fd(pipe)?),
            None => Launcher::none(),
        };
        let host = &mut PythonHost::new(host);
        Ok(stanchion_server::serve(settings, host, launcher))
    }
}
