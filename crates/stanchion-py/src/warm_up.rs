//! The warm-up: the template calls the app with the requests of `warm_up`, so that workers share what a first request
//! imports, compiles and caches. The first worker of a re-fork does so with one of them, to prove that it can serve.
//!
//! No client waits for these answers: the response has no request of the exchange, so it checks what the app gives and
//! drops it.

use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_record::{RequestBuffer, RequestFacts};
use stanchion_settings::{Settings, WarmUpRequest};
use stanchion_sys::clock::{monotonic_us, wall_us};
use tracing::{info, warn};

use crate::answerer::Answerer;
use crate::environ::Environs;
use crate::hooks::exit_now;
use crate::response::Response;
use crate::traceback::traceback;
use crate::wsgi::{bytes, close};

/// An answer is read up to here: an app may stream without end.
const READ_BYTES_MAX: usize = 16 << 20;

/// How a request of the warm-up ended.
enum Warmed {
    /// The app answered with this status.
    Answered(u16),
    Failed(PyErr),
    /// It ran for longer than the limit.
    Overdue(PyErr),
}

/// Calls the app with each request, and logs how it answers. Each may take until the limit, which holds in the main thread of a process only. A
/// failure of the app ends its request, and one that takes too long ends the warm-up.
pub(crate) fn warm_up(
    py: Python<'_>,
    app: &Bound<'_, PyAny>,
    settings: &Settings,
    limit: Option<Duration>,
) -> PyResult<()> {
    let mut environs = Environs::new(py, settings)?;
    for request in settings.workers.warm_up.requests() {
        let began_us = monotonic_us();
        let warmed = call(app, &mut environs, request, limit)?;
        let took_ms = (monotonic_us() - began_us) / 1000;
        report(py, &request.text, &warmed, took_ms);
        if let Warmed::Overdue(_) = warmed {
            break;
        }
    }
    Ok(())
}

/// Calls the app with the first request of the warm-up, or with `/`, in the first worker of a re-fork. The inner error says how the app failed.
pub(crate) fn answer_one(
    py: Python<'_>,
    app: &Bound<'_, PyAny>,
    settings: &Settings,
    limit: Duration,
) -> PyResult<Result<(), String>> {
    let mut environs = Environs::new(py, settings)?;
    let root = WarmUpRequest::root();
    let request = settings.workers.warm_up.requests().first();
    let request = request.unwrap_or(&root);
    let what = &request.text;
    Ok(match call(app, &mut environs, request, Some(limit))? {
        Warmed::Answered(status @ 500..) => {
            Err(format!("the app has answered GET {what} with {status}"))
        }
        Warmed::Answered(_) => Ok(()),
        Warmed::Failed(error) => {
            let shown = traceback(py, &error);
            Err(format!("the app has raised at GET {what}\n{shown}"))
        }
        Warmed::Overdue(error) => {
            let (limit_s, shown) = (limit.as_secs(), traceback(py, &error));
            Err(format!(
                "the app has not answered GET {what} within {limit_s} s; it may wait for a lock that was held at the fork\n{shown}"
            ))
        }
    })
}

/// Calls the app with one request, and drops its answer. An error is ours.
fn call(
    app: &Bound<'_, PyAny>,
    environs: &mut Environs,
    request: &WarmUpRequest,
    limit: Option<Duration>,
) -> PyResult<Warmed> {
    let py = app.py();
    let answerer = Answerer::new(py, environs, None)?;
    let environ = environ_of(py, environs, request)?;
    let warmed = within(py, limit, || answer(app, &environ, &answerer))?;
    answerer.response().end(py);
    Ok(warmed)
}

/// The environ of a request, as a worker would make it for a client on this host.
fn environ_of<'py>(
    py: Python<'py>,
    environs: &mut Environs,
    request: &WarmUpRequest,
) -> PyResult<Bound<'py, PyDict>> {
    let our_fault = |reason: &str| PyOSError::new_err(format!("{}: {reason}", request.text));
    let head = request.head().map_err(|fault| our_fault(fault.reason()))?;
    let facts = RequestFacts {
        is_https: request.is_https,
        // Without a port of the listener the Host field gives name and port of the server, as on a unix socket.
        peer_address: b"127.0.0.1",
        request_id: b"warm-up",
        request_start_us: Some(wall_us()),
        ..RequestFacts::default()
    };
    let mut buffer = RequestBuffer::default();
    let record = buffer.hold(&facts, &head);
    let record = record.map_err(|bad| our_fault(&bad.to_string()))?;
    let environ = environs.make_without_body(py, &record, 0)?;
    environ.set_item(intern!(py, "stanchion.warm_up"), true)?;
    Ok(environ)
}

/// Calls the app, reads its answer and closes it. Gives the status.
fn answer(
    app: &Bound<'_, PyAny>,
    environ: &Bound<'_, PyDict>,
    answerer: &Answerer,
) -> PyResult<u16> {
    let py = app.py();
    let result = app.call1((environ, answerer.start_response(py)))?;
    let read = read(&result, answerer.response());
    close(&result, read)?;
    let (status, ..) = answerer
        .response()
        .told(py)
        .expect("a head precedes the end of an answer");
    Ok(status)
}

/// Reads an answer to its end or its limit.
fn read(result: &Bound<'_, PyAny>, response: &Response) -> PyResult<()> {
    let (py, mut read_bytes) = (result.py(), 0);
    for chunk in result.try_iter()? {
        let chunk = chunk?;
        let chunk = bytes(&chunk)?.as_bytes();
        response.send_chunk(py, chunk)?;
        read_bytes += chunk.len();
        if read_bytes >= READ_BYTES_MAX {
            return Ok(());
        }
    }
    response.complete(py)
}

/// Runs `act`, which gives a status, for at most this time: then the app's code raises. An error is ours.
fn within(
    py: Python<'_>,
    limit: Option<Duration>,
    act: impl FnOnce() -> PyResult<u16>,
) -> PyResult<Warmed> {
    let Some(limit) = limit else {
        return Ok(act().map_or_else(Warmed::Failed, Warmed::Answered));
    };
    let module = py.import("stanchion.warm_up")?;
    let overdue = module.getattr("Overdue")?;
    let timer = module.call_method1("Timer", (limit.as_secs_f64(),))?;
    timer.call_method0("start")?;
    let template = std::process::id();
    let done = act();
    if std::process::id() != template {
        // A child that the app has forked, and that comes back, must not go on as the template.
        exit_now(py, 1);
    }
    // The signal may come after the app has answered, but before the timer stops.
    let stopped = timer.call_method0("stop");
    Ok(match done.and_then(|status| stopped.map(|_| status)) {
        Ok(status) => Warmed::Answered(status),
        Err(error) if error.is_instance(py, &overdue) => Warmed::Overdue(error),
        Err(error) => Warmed::Failed(error),
    })
}

/// Logs one line for a request, with the traceback if there is one.
fn report(py: Python<'_>, what: &str, warmed: &Warmed, took_ms: u64) {
    match warmed {
        Warmed::Answered(status @ 500..) => warn!(
            "warm-up: GET {what} {status} in {took_ms} ms: the app has failed, and the start goes on"
        ),
        // The usual answer of a framework to a host that it does not know.
        Warmed::Answered(400) => warn!(
            "warm-up: GET {what} 400 in {took_ms} ms: the app refuses the request, and the start goes on. An app that takes \
             its own hosts only needs a URL with one of them, such as https://shop.example/"
        ),
        Warmed::Answered(status) => info!("warm-up: GET {what} {status} in {took_ms} ms"),
        Warmed::Failed(error) => warn!(
            "warm-up: GET {what} failed in {took_ms} ms: the app has raised, and the start goes on\n{}",
            traceback(py, error)
        ),
        Warmed::Overdue(error) => warn!(
            "warm-up: GET {what} is broken off after {took_ms} ms, past `timeout`: the rest of the warm-up is left out, and \
             the start goes on\n{}",
            traceback(py, error)
        ),
    }
}
