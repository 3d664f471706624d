//! Trailers: fields that an app sends behind the body of its answer (the extension `http.response.trailers`).

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stanchion_http::field_lines;
use stanchion_record::{AnswerHead, TRAILERS_BYTES_MAX};

use super::progress::{Progress, client_gone};
use super::request::AsgiRequest;
use super::waiters::Put;
use super::waits::is_set;
use crate::head::take_in_trailers;

impl AsgiRequest {
    /// Takes some trailers, and sends all of them with the last. Returns a future if they have to wait for room.
    pub(super) fn trailers(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyDict>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let headers = message.get_item(intern!(py, "headers"))?;
        let is_last = !is_set(message, intern!(py, "more_trailers"))?;
        let mut given = AnswerHead::trailers();
        // Reading the headers may run code of the app, which may call this very request.
        if let Some(headers) = headers {
            take_in_trailers(&mut given, &headers)?;
        }
        let mut state = self.lock(py);
        if state.is_client_gone && !state.answer.is_given() {
            return Err(client_gone());
        }
        state.add_trailers(&given)?;
        let put = if is_last {
            state.put_trailers(py)
        } else {
            Ok(Put::Through)
        };
        drop(state);
        self.is_put(py, put)
    }
}

impl Progress {
    /// Sends a piece of the body, which may be the last one, as far as there is room.
    pub(super) fn put_body(
        &mut self,
        py: Python<'_>,
        piece: &[u8],
        is_last: bool,
    ) -> PyResult<Put> {
        let is_end = is_last && !self.answer.promises_trailers();
        let put = self.put(py, piece, is_end)?;
        self.body_given(is_last);
        Ok(put)
    }

    /// Notes that the app has given a piece of the body, which may be the last one.
    pub(super) fn body_given(&mut self, is_last: bool) {
        self.is_answered = is_last && !self.answer.promises_trailers();
        if is_last && self.answer.promises_trailers() {
            self.trailers = Some(AnswerHead::trailers());
        }
    }

    /// Sends the trailers that have come, which end the answer, as far as there is room.
    fn put_trailers(&mut self, py: Python<'_>) -> PyResult<Put> {
        let mut trailers = self.trailers.take().unwrap_or_default();
        let put = if self.answer.is_trailed() {
            self.write(py, trailers.whole_trailers(), true)?
        } else {
            self.put(py, &[], true)?
        };
        self.is_answered = true;
        Ok(put)
    }

    /// Keeps these trailers until the last ones have come.
    fn add_trailers(&mut self, given: &AnswerHead) -> PyResult<()> {
        let Some(trailers) = &mut self.trailers else {
            return Err(PyRuntimeError::new_err(
                "http.response.trailers is expected once, behind the last http.response.body, if http.response.start \
                 had trailers=True",
            ));
        };
        let len = trailers.wire().len() + given.wire().len();
        if len > TRAILERS_BYTES_MAX {
            return Err(PyValueError::new_err(format!(
                "the response's trailers take {len} bytes, over the limit of {TRAILERS_BYTES_MAX}"
            )));
        }
        for (name, value) in field_lines(given.wire()) {
            trailers.field(name, value);
        }
        Ok(())
    }
}
