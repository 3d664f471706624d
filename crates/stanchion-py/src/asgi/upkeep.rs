//! What keeps a loop from being deaf, and what idles from holding memory: looks that nobody has called for, calls in the next
//! turn, and an end after a panic, or in a child that the app has forked.

use pyo3::exceptions::PySystemExit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use stanchion_server::log::EXCEPTION;
use stanchion_server::record::RequestRecord;
use tracing::{error, info};

use super::extensions::Extensions;
use super::{Puller, State};
use crate::hooks;
use crate::wsgi::traceback;

/// What runs is looked at in so many parts, one with each beat of the loop: all of it within a second.
const PARTS: usize = 4;

/// It has looked for what is new, if there is one. Others have news too, whatever came of that.
pub(super) fn has_looked(looked: Option<PyResult<()>>) {
    if let Some(Err(failure)) = looked {
        error!("a request cannot be told what is new: {failure}");
    }
}

impl Puller {
    /// Whether the acceptor is to send files.
    pub(super) fn sends_files(&self) -> bool {
        self.worker.settings().sendfile
    }

    /// Whether the task of a request ends with its deadline.
    pub(super) fn cancels_on_timeout(&self) -> bool {
        self.worker.settings().cancel_on_timeout
    }

    /// The extensions that the scope of such a request names.
    pub(super) fn offers(&self, record: &RequestRecord<'_>) -> Extensions {
        Extensions::of(record, self.worker.settings())
    }

    /// Whether messages of an app whose client has gone may be dropped: not while the worker waits for it to end, nor in a
    /// child that it has forked, which is to notice.
    pub(super) fn lets_send_on(&self) -> bool {
        !self.worker.should_leave() && !self.worker.is_forsaken()
    }

    /// Lets a part of what runs look, whether or not there is a notice: another worker may have written over it. What
    /// idles since its last look gives back memory.
    pub(super) fn look_at_part(&self, py: Python<'_>) {
        let mut guard = self.lock(py);
        let State { running, part, .. } = &mut *guard;
        *part = (*part + 1) % PARTS;
        let looking = running.iter().skip(*part).step_by(PARTS).flatten();
        let looking: Vec<_> = looking.map(|running| running.clone_ref(py)).collect();
        drop(guard);
        for running in looking {
            has_looked(Some(running.look_again(py)));
            running.rest(py);
        }
    }

    /// Has the loop call this in its next turn.
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

    /// Ends this process if it is a child that the app has forked. It has come back to what is its parent's: the requests,
    /// and the epoll(7) instance that the parent's loop sleeps in, from which it must take nothing off. If the app has
    /// `raised` something there, the child ends by that.
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

    /// The same where a task comes to its end.
    pub(super) fn end_if_forked_by(&self, task: &Bound<'_, PyAny>) {
        let py = task.py();
        if self.worker.is_forsaken() {
            // Raises if it was cancelled.
            let raised = match task.call_method0(intern!(py, "exception")) {
                Ok(raised) => (!raised.is_none()).then(|| PyErr::from_value(raised)),
                Err(cancelled) => Some(cancelled),
            };
            self.end_if_forked(py, raised.as_ref());
        }
    }

    /// The same where the loop calls for something else: the loop may do so before it calls back for the task that the child
    /// has ended, and the child ends by what that task has raised.
    fn end_if_forked_in_a_turn(&self, py: Python<'_>) -> PyResult<()> {
        if !self.worker.is_forsaken() {
            return Ok(());
        }
        let running: Vec<_> = {
            let state = self.lock(py);
            let running = state.running.iter().flatten();
            running.map(|running| running.clone_ref(py)).collect()
        };
        for running in running {
            if let Some(task) = running.ended_task(py)? {
                self.end_if_forked_by(&task);
            }
        }
        self.end_if_forked(py, None);
        Ok(())
    }

    /// Does what the loop calls for. After a panic nobody knows what is left halfway: all that runs is given up, and
    /// the loop ends.
    pub(super) fn unless_broken(
        this: &Bound<'_, Self>,
        work: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<()> {
        this.get().end_if_forked_in_a_turn(this.py())?;
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

/// The exit code that the app asks for, if that is what it has raised.
fn asked_to_exit(py: Python<'_>, raised: &PyErr) -> Option<i32> {
    if !raised.is_instance_of::<PySystemExit>(py) {
        return None;
    }
    let code = raised.value(py).getattr(intern!(py, "code")).ok();
    let code = code.filter(|code| !code.is_none());
    Some(code.map_or(0, |code| code.extract().unwrap_or(1)))
}
