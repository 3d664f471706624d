//! Keeps a loop from going deaf and idle requests from holding memory: looks without notices, calls in the next turn, and the end after a panic or in
//! a child that the app has forked.

use pyo3::exceptions::PySystemExit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use stanchion_log::EXCEPTION;
use stanchion_settings::Settings;
use tracing::{error, info};

use super::{Puller, PullerState};
use crate::hooks;
use crate::traceback::traceback;

/// In how many parts the running requests are looked at, one part with each beat of the loop: all of them within a second.
const PARTS: usize = 4;

/// Logs the failure of a look, if there was a look. The caller goes on, because other requests have news too.
pub(super) fn has_looked(looked: Option<PyResult<()>>) {
    if let Some(Err(failure)) = looked {
        error!("cannot have a request look at its news: {failure}");
    }
}

impl Puller {
    /// The settings in force.
    pub(super) fn settings(&self) -> &'static Settings {
        self.worker.settings()
    }

    /// Whether messages of an app whose client has gone may be dropped: not while the worker waits for the app to end, nor in a child that the app
    /// has forked, which should notice.
    pub(super) fn lets_send_on(&self) -> bool {
        !self.worker.should_leave()
    }

    /// Has a part of the running requests look, whether or not there are notices, because another worker may have overwritten one. A request that was
    /// idle since its last look gives back memory.
    pub(super) fn look_at_part(&self, py: Python<'_>) {
        let mut guard = self.lock(py);
        let PullerState { running, part, .. } = &mut *guard;
        *part = (*part + 1) % PARTS;
        let looking = running.iter().skip(*part).step_by(PARTS).flatten();
        let looking: Vec<_> = looking.map(|running| running.clone_ref(py)).collect();
        drop(guard);
        for running in looking {
            has_looked(Some(running.look_again(py)));
            running.rest(py);
        }
    }

    /// Has the loop call this method in its next turn.
    pub(super) fn call_soon(this: &Bound<'_, Self>, what: &Bound<'_, PyString>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let state = puller.lock(py);
        let begun = state.begun.as_ref();
        let begun =
            begun.map(|begun| (begun.event_loop.clone_ref(py), begun.outside.clone_ref(py)));
        drop(state);
        if let Some((event_loop, outside)) = begun {
            let call_soon = event_loop.getattr(py, intern!(py, "call_soon"))?;
            call_soon.call(py, (this.getattr(what)?,), Some(outside.bind(py)))?;
        }
        Ok(())
    }

    /// Ends this process if it is a child that the app has forked and that has returned to its parent's loop. The requests are the parent's, and so
    /// is the epoll(7) instance in which the parent's loop sleeps: the child must remove nothing from it. If the app has `raised` an exception in the
    /// child, the child ends by that.
    pub(super) fn end_if_forked(&self, py: Python<'_>, raised: Option<&PyErr>) {
        if !self.worker.is_forsaken() {
            return;
        }
        let code = raised.map_or(0, |raised| match asked_to_exit(py, raised) {
            Some(code) => code,
            None => {
                let said = traceback(py, raised);
                error!(target: EXCEPTION, "the app failed in a process that it has forked\n{said}");
                1
            }
        });
        info!(
            "a process that the app has forked comes back to the event loop of its worker, and ends"
        );
        hooks::exit_now(py, code)
    }

    /// The same at the end of a task.
    pub(super) fn end_if_forked_by(&self, task: &Bound<'_, PyAny>) {
        let py = task.py();
        if self.worker.is_forsaken() {
            // Raises if the task was cancelled.
            let raised = match task.call_method0(intern!(py, "exception")) {
                Ok(raised) => (!raised.is_none()).then(|| PyErr::from_value(raised)),
                Err(cancelled) => Some(cancelled),
            };
            self.end_if_forked(py, raised.as_ref());
        }
    }

    /// The same where the loop calls for something else: the loop may do so before it calls back for the task that the child
    /// has ended, and the child ends by what that task has raised.
    fn end_if_forked_in_a_turn(&self, py: Python<'_>) {
        if !self.worker.is_forsaken() {
            return;
        }
        let running: Vec<_> = {
            let state = self.lock(py);
            let running = state.running.iter().flatten();
            running.map(|running| running.clone_ref(py)).collect()
        };
        for running in running {
            // An error names no task that has ended, and the child ends without one.
            if let Ok(Some(task)) = running.ended_task(py) {
                self.end_if_forked_by(&task);
            }
        }
        self.end_if_forked(py, None);
    }

    /// Does work that the loop calls for. A panic may leave work half done, so after one all requests are given up and the loop ends.
    pub(super) fn unless_broken(
        this: &Bound<'_, Self>,
        work: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<()> {
        this.get().end_if_forked_in_a_turn(this.py());
        let done = this.get().worker.work_of_loop(work);
        done.unwrap_or_else(|| Self::break_off(this))
    }

    fn break_off(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let state = puller.lock(py);
        let running = state.running.iter().flatten();
        let running: Vec<_> = running.map(|running| running.clone_ref(py)).collect();
        let over = state.begun.as_ref().map(|begun| begun.over.clone_ref(py));
        drop(state);
        for running in running {
            if let Err(failure) = running.break_off(py) {
                error!("the task of a request cannot be cancelled: {failure}");
            }
        }
        over.map_or(Ok(()), |over| {
            over.call_method0(py, intern!(py, "set")).map(drop)
        })
    }
}

/// The exit code that the app asks for, if it has raised `SystemExit`.
fn asked_to_exit(py: Python<'_>, raised: &PyErr) -> Option<i32> {
    if !raised.is_instance_of::<PySystemExit>(py) {
        return None;
    }
    let code = raised.value(py).getattr(intern!(py, "code")).ok();
    let code = code.filter(|code| !code.is_none());
    Some(code.map_or(0, |code| code.extract().unwrap_or(1)))
}
