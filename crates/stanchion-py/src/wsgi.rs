//! Calls a WSGI app with a request and sends the app's answer (PEP 3333).

use std::sync::Arc;

use pyo3::exceptions::{PySystemExit, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use stanchion_log::EXCEPTION;
use stanchion_record::{RequestBuffer, RequestRecord};
use stanchion_server::{AnswerEnd, Seat, Taken, Worker};
use stanchion_settings::Settings;
use tracing::{error, info};

use crate::answerer::Answerer;
use crate::environ::Environs;
use crate::file_wrapper::FileWrapper;
use crate::hooks::RequestHooks;
use crate::response::{ClientGone, Response};
use crate::traceback::traceback;
use crate::waiting_greenlets::WaitingGreenlets;

/// An app, and the hooks around it. The seats of a worker share it.
pub(crate) struct App {
    app: Py<PyAny>,
    worker: &'static Worker,
    hooks: Option<RequestHooks>,
}

/// One seat's way to the app, with the objects that it keeps from one request to the next.
pub(crate) struct Gateway {
    environs: Environs,
    /// `None` if the app has kept the last one.
    answerer: Option<Answerer>,
    buffer: RequestBuffer,
    /// Where answers wait for room, if waiting must not stop the thread.
    greenlets: Option<Arc<WaitingGreenlets>>,
}

/// The failure of a request.
struct RequestFailure {
    error: PyErr,
    /// The code that failed, in words for the log.
    by: &'static str,
}

/// A failure of the app.
fn of_app(error: PyErr) -> RequestFailure {
    RequestFailure {
        error,
        by: "the app",
    }
}

impl Gateway {
    pub(crate) fn new(
        py: Python<'_>,
        settings: &Settings,
        greenlets: Option<Arc<WaitingGreenlets>>,
    ) -> PyResult<Self> {
        let environs = Environs::new(py, settings)?;
        Ok(Self {
            answerer: Some(Answerer::new(py, &environs, greenlets.clone())?),
            environs,
            buffer: RequestBuffer::default(),
            greenlets,
        })
    }

    /// Answers one request, whatever the app does.
    pub(crate) fn answer(
        &mut self,
        py: Python<'_>,
        app: &App,
        seat: &Seat<'_>,
        taken: Taken<'static>,
    ) {
        let request = match self.buffer.read(&taken) {
            Ok(request) => request,
            Err(bad) => {
                error!("our fault: a request cannot be read, and its client gets 502: {bad}");
                taken.finish(AnswerEnd::Broken);
                return;
            }
        };
        // Made before the environ, which contains its methods.
        let answerer = match self.answerer.take() {
            Some(answerer) => answerer,
            None => match Answerer::new(py, &self.environs, self.greenlets.clone()) {
                Ok(answerer) => answerer,
                Err(failure) => {
                    error!("no memory for a response, and its client gets 502: {failure}");
                    return;
                }
            },
        };
        let made = self.environs.make(py, &request, &taken);
        answerer.begin(py, taken, &request);
        match (made, &app.hooks) {
            (Ok(environ), None) => {
                if let Err(failure) = app.run(py, seat, &environ, &answerer) {
                    app.on_failure(py, &answerer, &of_app(failure), &request);
                }
            }
            (Ok(environ), Some(hooks)) => {
                app.run_with(hooks, py, seat, &environ, &answerer, &request);
            }
            (Err(failure), _) => app.on_failure(py, &answerer, &of_app(failure), &request),
        }
        self.answerer = answerer
            .reused(py, &self.environs)
            .unwrap_or_else(|failure| {
                error!("cannot find out whether the app has kept a response, so another is made: {failure}");
                None
            });
    }
}

impl App {
    pub(crate) fn new(
        app: Py<PyAny>,
        worker: &'static Worker,
        hooks: Option<RequestHooks>,
    ) -> Self {
        Self { app, worker, hooks }
    }

    /// Runs the app between the hooks for requests.
    fn run_with<'py>(
        &self,
        hooks: &RequestHooks,
        py: Python<'py>,
        seat: &Seat<'_>,
        environ: &Bound<'py, PyDict>,
        answerer: &Answerer,
        request: &RequestRecord<'_>,
    ) {
        let by_hook = |error| RequestFailure {
            error,
            by: "the hook pre_request",
        };
        let req = match hooks.begin(py, environ) {
            Ok(req) => req,
            Err(error) => return self.on_failure(py, answerer, &by_hook(error), request),
        };
        let outcome = hooks
            .before(py, &req, environ)
            .map_err(by_hook)
            .and_then(|()| self.run(py, seat, environ, answerer).map_err(of_app));
        if let Err(failure) = outcome {
            self.on_failure(py, answerer, &failure, request);
        }
        hooks.after(py, &req, environ, answerer.response(), request);
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        seat: &Seat<'_>,
        environ: &Bound<'py, PyDict>,
        answerer: &Answerer,
    ) -> PyResult<()> {
        let result = self
            .app
            .bind(py)
            .call1((environ, answerer.start_response(py)))?;
        let sent = self.send(py, seat, &result, answerer.response());
        close(&result, sent)
    }

    /// Sends what the app returned.
    fn send<'py>(
        &self,
        py: Python<'py>,
        seat: &Seat<'_>,
        result: &Bound<'py, PyAny>,
        response: &Response,
    ) -> PyResult<()> {
        if self.worker.settings().answers.sendfile
            && let Ok(wrapper) = result.cast_exact::<FileWrapper>()
            && let Some((file, part)) = wrapper.get().regular_file(py)
            && response.send_file(py, seat, &file, part)?
        {
            return Ok(());
        }
        // The whole body at once: its length is known, and the worker is free once it is written.
        if let Some(only) = only_item(result)? {
            return response.send_whole(py, bytes(&only)?.as_bytes());
        }
        for chunk in result.try_iter()? {
            response.send_chunk(py, bytes(&chunk?)?.as_bytes())?;
        }
        response.complete(py)
    }

    fn on_failure(
        &self,
        py: Python<'_>,
        answerer: &Answerer,
        failure: &RequestFailure,
        request: &RequestRecord<'_>,
    ) {
        let RequestFailure { error: failure, by } = failure;
        if failure.is_instance_of::<PySystemExit>(py) {
            let what = request.describe();
            info!("{by} asked to exit at {what}: the worker leaves");
            self.worker.leave();
        } else if self.worker.settings().is_gevent() && is_greenlet_exit(py, failure) {
            let what = request.describe();
            info!("the greenlet of {what} was killed: the request ends there");
        } else if !failure.is_instance_of::<ClientGone>(py) {
            let what = request.describe();
            error!(target: EXCEPTION, "{by} failed at {what}\n{}", traceback(py, failure));
        }
        // Also if the client is gone: the slot is freed now, however long the app keeps `environ`.
        answerer.response().fail(py);
    }
}

/// Whether the greenlet was killed, as gevent does at the end of the process: that is no failure.
fn is_greenlet_exit(py: Python<'_>, failure: &PyErr) -> bool {
    let exit = py
        .import("greenlet")
        .and_then(|greenlet| greenlet.getattr("GreenletExit"));
    exit.is_ok_and(|exit| failure.matches(py, exit).unwrap_or(false))
}

/// Calls `close` of what the app returned, whether or not all went well (PEP 3333). `sent` is the outcome of sending it.
pub(crate) fn close(result: &Bound<'_, PyAny>, sent: PyResult<()>) -> PyResult<()> {
    // A list has no such method, and most small apps return a list.
    if !result.is_exact_instance_of::<PyList>()
        && let Some(close) = result.getattr_opt(intern!(result.py(), "close"))?
    {
        let closed = close.call0();
        return sent.and(closed.map(drop));
    }
    sent
}

/// The only item of a list or tuple with one item.
fn only_item<'py>(result: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Ok(list) = result.cast_exact::<PyList>() {
        return if list.len() == 1 {
            list.get_item(0).map(Some)
        } else {
            Ok(None)
        };
    }
    match result.cast_exact::<PyTuple>() {
        Ok(tuple) if tuple.len() == 1 => tuple.get_item(0).map(Some),
        _ => Ok(None),
    }
}

/// A piece of the body that the app gives.
pub(crate) fn bytes<'a, 'py>(chunk: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    chunk.cast::<PyBytes>().map_err(|_| {
        let kind = chunk.get_type();
        PyTypeError::new_err(format!("the app's iterable must give bytes, not {kind}"))
    })
}
