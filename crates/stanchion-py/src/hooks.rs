//! The operator's hooks, which are Python functions: the hooks of the process tree, and the two that run for each request.
//!
//! Children that the app forks share the exchange with their worker. A handler of forks (`tell_of_forks`) has such a
//! child take nothing, give nothing back and write nothing there (`Exchange::forsake`). If the child returns to the
//! server's code it ends, without hooks; a child of an event loop ends at once, since it sleeps in the parent's
//! epoll(7) instance, and would remove the parent's descriptors from it.

use std::io;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use stanchion_log::{self as log, EXCEPTION};
use stanchion_record::RequestRecord;
use stanchion_server::{Hook, LoadError, Worker};
use stanchion_settings::Bind;
use stanchion_sys::{call, process};
use tracing::{error, warn};

use crate::response::Response;
use crate::traceback::{describe, traceback};

/// Runs this hook, if the configuration has it.
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

/// Has the worker listen at an address of its own. `wanted` is a JSON object of `address` and options, or a text that holds both. Returns the address
/// with the port in force, or `None` while the address is in use.
pub(crate) fn listen(py: Python<'_>, worker: &Worker, wanted: &str) -> PyResult<Option<String>> {
    let wrong = |problem: String| PyValueError::new_err(problem);
    let bind = Bind::from_json(wanted).map_err(wrong)?;
    // Resolving a host's name may take long, so other threads run meanwhile.
    match py.detach(|| worker.listen(&bind)) {
        Ok(address) => Ok(address.map(|address| address.to_string())),
        Err(error) => Err(match call::number(&error) {
            // Python chooses the exception's class by the number, which an error that names the call would hide.
            Some(number) => io::Error::from_raw_os_error(number).into(),
            None => wrong(error.to_string()),
        }),
    }
}

/// Python calls it at its safe points after a signal, and the worker's threads when they find that the worker should leave. If the worker has to
/// leave at once, this does not return.
pub(crate) fn depart_if_told(py: Python<'_>, host: &Py<PyAny>, worker: &Worker) {
    // Reopens the log, if that was the signal's purpose.
    worker.should_leave();
    if worker.has_reopened() {
        reopen_logs(py, host);
    }
    let Some(code) = worker.depart(|hook| hook.watched(|| run(py, host, hook))) else {
        return;
    };
    // Seats may be in the middle of requests, so the interpreter cannot be finalized in order; the app's exit functions run nevertheless.
    let ended = py
        .import("atexit")
        .and_then(|atexit| atexit.call_method0("_run_exitfuncs"));
    if let Err(failure) = ended {
        warn!("an atexit function of the app failed: {failure}");
    }
    exit_now(py, code)
}

/// Ends the process without finalizing the interpreter, once the app's output is flushed.
pub(crate) fn exit_now(py: Python<'_>, code: i32) -> ! {
    for stream in ["stdout", "stderr"] {
        let flushed = py
            .import("sys")
            .and_then(|sys| sys.getattr(stream)?.call_method0("flush"));
        if let Err(failure) = flushed {
            warn!("cannot flush {stream}, and part of the app's output is lost: {failure}");
        }
    }
    log::finish();
    process::exit_now(code)
}

/// Has children that the app forks leave the worker's resources alone.
pub(crate) fn tell_of_forks(py: Python<'_>, worker: &'static Worker) -> PyResult<()> {
    let forsake = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| worker.forsake();
    let forsake = PyCFunction::new_closure(py, None, None, forsake)?;
    let after = PyDict::new(py);
    after.set_item("after_in_child", forsake)?;
    let register = py.import("os")?.getattr("register_at_fork")?;
    register.call((), Some(&after)).map(drop)
}

/// Wraps `depart` for a worker under gevent: the signal may have interrupted the hub, which cannot run hooks that wait.
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

/// If a hook has raised this failure: the hook's name, and the exception.
pub(crate) fn of_hook(py: Python<'_>, failure: &PyErr) -> Option<(String, PyErr)> {
    let hooks = py.import("stanchion.hooks").ok()?;
    let of_hooks = hooks.getattr(intern!(py, "HookError")).ok()?;
    if !failure.is_instance(py, &of_hooks) {
        return None;
    }
    let name = failure.value(py).getattr(intern!(py, "name")).ok()?;
    Some((name.extract().ok()?, failure.cause(py)?))
}

/// Reopens the files of the app's log handlers.
pub(crate) fn reopen_logs(py: Python<'_>, host: &Py<PyAny>) {
    if let Err(failure) = host.call_method0(py, intern!(py, "reopen_logs")) {
        let shown = describe(py, &failure);
        error!("cannot reopen the files of the app's log handlers\n{shown}");
    }
}

/// The hooks that run for each request.
pub(crate) struct RequestHooks(Py<PyAny>);

impl RequestHooks {
    /// `None` without such hooks, so that requests then pay only for asking.
    pub(crate) fn of(py: Python<'_>, host: &Py<PyAny>) -> PyResult<Option<Self>> {
        let hooks = host.call_method0(py, intern!(py, "request_hooks"))?;
        Ok((!hooks.is_none(py)).then_some(Self(hooks)))
    }

    /// Runs before the app. Returns `req`, the request as both hooks see it.
    pub(crate) fn begin<'py>(
        &self,
        py: Python<'py>,
        environ: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0
            .bind(py)
            .call_method1(intern!(py, "request"), (environ,))
    }

    /// Runs `pre_request`; if it raises, the client gets a 500.
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

    /// Runs `post_request` after the answer; an exception in it is only logged.
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
