//! What a seat's app answers with, kept from one request for the next.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_server::Taken;

use crate::response::Response;

/// A response, and its methods as the app gets them.
pub(crate) struct Answerer {
    response: Py<Response>,
    start_response: Py<PyAny>,
    write: Py<PyAny>,
    /// What stands in the template of environs, too.
    in_environ: [Py<PyAny>; 2],
}

impl Answerer {
    /// One that nobody knows yet, and has `template` say so.
    pub(crate) fn new(template: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = template.py();
        let response = Bound::new(py, Response::new())?;
        let (gone_key, gone) = (
            intern!(py, "stanchion.client_gone"),
            response.getattr(intern!(py, "client_gone"))?,
        );
        let (extend_key, extend) = (
            intern!(py, "stanchion.extend_deadline"),
            response.getattr(intern!(py, "extend_deadline"))?,
        );
        template.set_item(gone_key, &gone)?;
        template.set_item(extend_key, &extend)?;
        Ok(Self {
            start_response: response.getattr(intern!(py, "start_response"))?.unbind(),
            write: response.getattr(intern!(py, "write"))?.unbind(),
            in_environ: [gone.unbind(), extend.unbind()],
            response: response.unbind(),
        })
    }

    /// It answers this request from now on.
    pub(crate) fn begin(&self, py: Python<'_>, taken: Taken<'static>, is_head_request: bool) {
        let write = self.write.clone_ref(py);
        self.response.get().begin(py, taken, is_head_request, write);
    }

    pub(crate) fn response(&self) -> &Response {
        self.response.get()
    }

    pub(crate) fn start_response<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.start_response.bind(py)
    }

    /// The request is over. False if the app has kept something that belongs to it, by which it could have a part
    /// in the next one: then that needs an answerer of its own.
    pub(crate) fn is_free(&self, py: Python<'_>) -> bool {
        self.response.get().end(py);
        // The response is ours and that of its four methods, two of which are the template's, too.
        references(py, &self.response) == 5
            && references(py, &self.start_response) == 1
            && references(py, &self.write) == 1
            && self
                .in_environ
                .iter()
                .all(|method| references(py, method) == 2)
    }
}

#[expect(
    deprecated,
    reason = "what is to be used instead, of pyo3::ffi, is unsafe, and this is the same"
)]
fn references<T>(py: Python<'_>, object: &Py<T>) -> isize {
    object.get_refcnt(py)
}
