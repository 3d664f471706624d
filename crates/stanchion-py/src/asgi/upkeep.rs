//! What keeps a loop from being deaf, and what idles from holding memory: looks that nobody has called for, calls in the next
//! turn, and an end after a panic.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tracing::error;

use super::{Puller, State};

/// What runs is looked at in so many parts, one with each beat of the loop: all of it within a second.
const PARTS: usize = 4;

impl Puller {
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
            if let Err(failure) = running.look_again(py) {
                error!("a request cannot be told what is new: {failure}");
            }
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

    /// Does what the loop calls for. After a panic nobody knows what is left halfway: all that runs is given up, and
    /// the loop ends.
    pub(super) fn unless_broken(
        this: &Bound<'_, Self>,
        work: impl FnOnce() -> PyResult<()>,
    ) -> PyResult<()> {
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
