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

    /// Logs an exception of the operator's own code, but not more often than [`FAILED_EVERY`].
    fn tell(&mut self, done: PyResult<()>) {
        let Err(error) = done else { return };
        self.failed += 1;
        if self.told.is_some_and(|told| told.elapsed() < FAILED_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        let failed = std::mem::take(&mut self.failed);
        let described = Python::attach(|py| describe(py, &error));
        error!(
            "the operator's logging code raises, and log lines are lost lines={failed}\n{described}"
        );
    }
}

impl Logging for PythonLogging {
    fn error(&mut self, pid: i32, time_us: u64, level: u8, text: &str) {
        let done = Python::attach(|py| {
            let arguments = (pid, time_us, level, text);
            self.scribe
                .call_method1(py, intern!(py, "error"), arguments)
                .map(drop)
        });
        self.tell(done);
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
                self.tell(Err(error));
                true
            }
        }
    }

    fn reopen(&mut self) {
        let done = Python::attach(|py| {
            self.scribe
                .call_method0(py, intern!(py, "reopen"))
                .map(drop)
        });
        self.tell(done);
    }

    fn finish(&mut self) {
        let done = Python::attach(|py| {
            self.scribe
                .call_method0(py, intern!(py, "finish"))
                .map(drop)
        });
        self.tell(done);
    }

    fn wait(&mut self, wait: &mut (dyn FnMut() + Send)) {
        Python::attach(|py| py.detach(wait));
    }
}
