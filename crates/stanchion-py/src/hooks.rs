//! The operator's hooks, which are functions in Python: those of the process tree, and the two that
//! run for each request.

use std::io;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use stanchion_server::log::{self, EXCEPTION};
use stanchion_server::record::RequestRecord;
use stanchion_server::settings::Bind;
use stanchion_server::{Hook, LoadError, Worker};
use stanchion_sys::{call, process};
use tracing::{error, warn};

use crate::host::describe;
use crate::response::Response;
use crate::wsgi::traceback;

/// Runs the hook of this moment, if the configuration has one.
pub(crate) fn run(py: Python<'_>, host: &Py<PyAny>, hook: Hook) -> Result<(), LoadError> {
    let run = intern!(py, "hook");
    let name = hook.name();
    let done = match hook {
        Hook::ChildExit { number, pid } => host.call_method1(py, run, (name, number, pid)),
        Hook::WorkersChanged { new, old } => host.call_method1(py, run, (name, new, old)),
        Hook::PreFork { number } | Hook::PostFork { number } => {
            host.call_method1(py, run, (name, number))
        }
        Hook::Starting
        | Hook::Reload
        | Hook::Ready
        | Hook::PreExec
        | Hook::Exit
        | Hook::PostWorkerInit
        | Hook::WorkerInt
        | Hook::WorkerAbort
        | Hook::WorkerExit => host.call_method1(py, run, (name,)),
    };
    done.map(drop).map_err(|error| LoadError {
        report: describe(py, &error),
    })
}

/// Has the worker listen at an address of its own: a JSON object of `address` and options, or a text
/// that holds both. Gives the address with the port in force, or `None` while it is in use.
pub(crate) fn listen(py: Python<'_>, worker: &Worker, wanted: &str) -> PyResult<Option<String>> {
    let wrong = |problem: String| PyValueError::new_err(problem);
    let bind = Bind::from_json(wanted).map_err(wrong)?;
    // A host's name may take its time.
    match py.detach(|| worker.listen(&bind)) {
        Ok(address) => Ok(address.map(|address| address.to_string())),
        Err(error) => Err(match call::number(&error) {
            // The number decides on the class of the exception, which the name of the call would hide.
            Some(number) => io::Error::from_raw_os_error(number).into(),
            None => wrong(error.to_string()),
        }),
    }
}

/// For Python's safe points after a signal, and for whoever finds that the worker should leave: if
/// it is to leave at once this does not return.
pub(crate) fn depart_if_told(py: Python<'_>, host: &Py<PyAny>, worker: &Worker) {
    // Opens the log anew, if that is what the signal was for.
    worker.should_leave();
    if worker.has_reopened() {
        reopen_logs(py, host);
    }
    let Some(code) = worker.depart(|hook| hook.watched(|| run(py, host, hook))) else {
        return;
    };
    // Seats may be in the middle of requests, so the interpreter cannot be taken down in order;
    // what the app wants done at its end is done all the same.
    let ended = py
        .import("atexit")
        .and_then(|atexit| atexit.call_method0("_run_exitfuncs"));
    if let Err(failure) = ended {
        warn!("an atexit function of the app failed: {failure}");
    }
    exit_now(py, code)
}

/// Ends the process without taking the interpreter down, once what the app has written is out.
pub(crate) fn exit_now(py: Python<'_>, code: i32) -> ! {
    for stream in ["stdout", "stderr"] {
        let flushed = py
            .import("sys")
            .and_then(|sys| sys.getattr(stream)?.call_method0("flush"));
        if let Err(failure) = flushed {
            warn!("what the app wrote to {stream} is lost in part: {failure}");
        }
    }
    log::finish();
    process::exit_now(code)
}

/// Has children that the app forks leave alone what is the worker's.
pub(crate) fn tell_of_forks(py: Python<'_>, worker: &'static Worker) -> PyResult<()> {
    let forsake = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| worker.forsake();
    let forsake = PyCFunction::new_closure(py, None, None, forsake)?;
    let after = PyDict::new(py);
    after.set_item("after_in_child", forsake)?;
    let register = py.import("os")?.getattr("register_at_fork")?;
    register.call((), Some(&after)).map(drop)
}

/// The same for a worker under gevent, whose hub may be what the signal has come to: it cannot run hooks that wait.
pub(crate) fn from_any_greenlet<'py>(
    py: Python<'py>,
    depart: Bound<'py, PyCFunction>,
) -> PyResult<Bound<'py, PyCFunction>> {
    let in_greenlet = py.import("stanchion.greenlets")?.getattr("in_greenlet")?;
    let (in_greenlet, depart) = (in_greenlet.unbind(), depart.unbind());
    let call = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        let py = arguments.py();
        in_greenlet.call1(py, (&depart,)).map(drop)
    };
    PyCFunction::new_closure(py, None, None, call)
}

/// If it is what a hook has raised: that hook, and what it was.
pub(crate) fn of_hook(py: Python<'_>, failure: &PyErr) -> Option<(String, PyErr)> {
    let hooks = py.import("stanchion.hooks").ok()?;
    let of_hooks = hooks.getattr(intern!(py, "HookError")).ok()?;
    if !failure.is_instance(py, &of_hooks) {
        return None;
    }
    let name = failure.value(py).getattr(intern!(py, "name")).ok()?;
    Some((name.extract().ok()?, failure.cause(py)?))
}

/// Opens files of the app's handlers anew.
pub(crate) fn reopen_logs(py: Python<'_>, host: &Py<PyAny>) {
    if let Err(failure) = host.call_method0(py, intern!(py, "reopen_logs")) {
        let shown = describe(py, &failure);
        error!("files of the app's logging cannot be opened anew\n{shown}");
    }
}

/// The hooks that run for each request.
pub(crate) struct RequestHooks(Py<PyAny>);

impl RequestHooks {
    /// `None` if there is none, so that a request pays for no more than the question.
    pub(crate) fn of(py: Python<'_>, host: &Py<PyAny>) -> PyResult<Option<Self>> {
        let hooks = host.call_method0(py, intern!(py, "request_hooks"))?;
        Ok((!hooks.is_none(py)).then_some(Self(hooks)))
    }

    /// Before the app: gives `req`, as both hooks see it.
    pub(crate) fn begin<'py>(
        &self,
        py: Python<'py>,
        environ: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0
            .bind(py)
            .call_method1(intern!(py, "request"), (environ,))
    }

    /// Runs `pre_request`; what it raises is the client's 500.
    pub(crate) fn before(
        &self,
        py: Python<'_>,
        req: &Bound<'_, PyAny>,
        environ: &Bound<'_, PyDict>,
    ) -> PyResult<()> {
        self.0
            .call_method1(py, intern!(py, "before_request"), (req, environ))
            .map(drop)
    }

    /// Runs `post_request`, after the answer; what it raises is only logged.
    pub(crate) fn after(
        &self,
        py: Python<'_>,
        req: &Bound<'_, PyAny>,
        environ: &Bound<'_, PyDict>,
        response: &Response,
        request: &RequestRecord<'_>,
    ) {
        let told = response.told(py);
        let after = intern!(py, "after_request");
        let done = self.0.call_method1(py, after, (req, environ, told));
        if let Err(failure) = done {
            let (what, shown) = (request.describe(), traceback(py, &failure));
            error!(target: EXCEPTION, "the hook post_request failed after {what}\n{shown}");
        }
    }
}
