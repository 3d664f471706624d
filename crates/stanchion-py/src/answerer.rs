//! The objects with which a seat's app answers, kept from one request to the next.

use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use stanchion_record::RequestRecord;
use stanchion_server::Taken;

use crate::environ::Environs;
use crate::kept::{is_one_weakly_held, references};
use crate::response::Response;
use crate::waiting_greenlets::WaitingGreenlets;

/// A response, and its methods as the app gets them.
pub(crate) struct Answerer {
    response: Py<Response>,
    start_response: Py<PyAny>,
    write: Py<PyAny>,
    /// The methods that are also in the templates of environs.
    in_environ: [Py<PyAny>; 3],
}

impl Answerer {
    /// Makes objects to which only this answerer and the templates of `environs` refer.
    pub(crate) fn new(
        py: Python<'_>,
        environs: &Environs,
        greenlets: Option<Arc<WaitingGreenlets>>,
    ) -> PyResult<Self> {
        let response = Bound::new(py, Response::new(greenlets))?;
        let in_all = |key, name| {
            let method = response.getattr(name)?;
            environs.set_in_all(py, key, &method)?;
            PyResult::Ok(method.unbind())
        };
        let in_environ = [
            in_all(
                intern!(py, "stanchion.client_gone"),
                intern!(py, "client_gone"),
            )?,
            in_all(
                intern!(py, "stanchion.extend_deadline"),
                intern!(py, "extend_deadline"),
            )?,
            in_all(intern!(py, "wsgi.early_hints"), intern!(py, "early_hints"))?,
        ];
        let write = response.getattr(intern!(py, "write"))?.unbind();
        response.get().keep_write(py, write.clone_ref(py));
        Ok(Self {
            start_response: response.getattr(intern!(py, "start_response"))?.unbind(),
            write,
            in_environ,
            response: response.unbind(),
        })
    }

    /// Starts to answer this request.
    pub(crate) fn begin(&self, py: Python<'_>, taken: Taken<'static>, request: &RequestRecord<'_>) {
        self.response.get().begin(py, taken, request);
    }

    pub(crate) fn response(&self) -> &Response {
        self.response.get()
    }

    pub(crate) fn start_response<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.start_response.bind(py)
    }

    /// Ends the request. Returns `None` if the app has kept one of the objects, by which it could interfere with the next request or mistake it for
    /// this one: then the next request needs an answerer of its own.
    pub(crate) fn reused(self, py: Python<'_>, environs: &Environs) -> PyResult<Option<Self>> {
        let is_free = self.is_free(py, environs);
        if !matches!(is_free, Ok(true)) {
            self.response.get().end(py);
        }
        Ok(is_free?.then_some(self))
    }

    /// Whether only this answerer and the templates refer to the objects.
    fn is_free(&self, py: Python<'_>, environs: &Environs) -> PyResult<bool> {
        let holders = environs.templates() + 1;
        // The answerer and the five bound methods refer to the response, and the response refers to one of the methods itself.
        let is_ours = references(py, &self.response) == 6
            && references(py, &self.start_response) == 1
            && references(py, &self.write) == 2
            && self
                .in_environ
                .iter()
                .all(|method| references(py, method) == holders);
        if !is_ours {
            return Ok(false);
        }
        // Methods can be weakly referenced, unlike the response.
        let [gone, extend, hints] = &self.in_environ;
        let methods = [&self.start_response, &self.write, gone, extend, hints];
        Ok(!is_one_weakly_held(py, methods)?)
    }
}
