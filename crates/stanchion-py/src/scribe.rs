//! Python's logging in the log process (the scribe).

use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use stanchion_server::Logging;
use tracing::error;

use crate::traceback::describe;

/// The least time between two log lines about handlers that raise.
const FAILED_EVERY: Duration = Duration::from_secs(10);

/// Passes log lines to `stanchion.scribe.Scribe`.
pub(crate) struct PythonLogging {
    scribe: Py<PyAny>,
    /// Calls that raised since the last log line about it.
    failed: u64,
    /// The time of the last log line about it.
    told: Option<Instant>,
}

impl PythonLogging {
    pub(crate) fn new(scribe: Py<PyAny>) -> Self {
        Self {
            scribe,
            failed: 0,
            told: None,
        }
    }

    /// Has the scribe do this.
    fn call(&mut self, act: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<Py<PyAny>>) {
        if let Err(error) = Python::attach(|py| act(py, &self.scribe).map(drop)) {
            self.tell(&error);
        }
    }

    /// Logs an exception of the operator's own code, but not more often than [`FAILED_EVERY`].
    fn tell(&mut self, error: &PyErr) {
        self.failed += 1;
        if self.told.is_some_and(|told| told.elapsed() < FAILED_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let failed = std::mem::take(&mut self.failed);
        let described = Python::attach(|py| describe(py, error));
        error!(
            "the operator's logging code raises, and log lines are lost lines={failed}\n{described}"
        );
    }
}

impl Logging for PythonLogging {
    fn error(&mut self, pid: i32, time_us: u64, level: u8, text: &str) {
        let arguments = (pid, time_us, level, text);
        self.call(|py, scribe| scribe.call_method1(py, intern!(py, "error"), arguments));
    }

    fn access(&mut self, line: &str) -> bool {
        let done = Python::attach(|py| {
            self.scribe
                .call_method1(py, intern!(py, "access"), (line,))?
                .extract(py)
        });
        match done {
            Ok(makes_sense) => makes_sense,
            Err(error) => {
                self.tell(&error);
                true
            }
        }
    }

    fn reopen(&mut self) {
        self.call(|py, scribe| scribe.call_method0(py, intern!(py, "reopen")));
    }

    fn finish(&mut self) {
        self.call(|py, scribe| scribe.call_method0(py, intern!(py, "finish")));
    }

    fn wait(&mut self, wait: &mut (dyn FnMut() + Send)) {
        Python::attach(|py| py.detach(wait));
    }
}
