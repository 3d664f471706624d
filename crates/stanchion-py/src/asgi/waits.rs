//! Who waits, for room or for an event, and the futures that they wait for.
//!
//! Whenever a Python object is made, is let go or does something, Python may collect garbage and run finalizers of the
//! app's, which may use the very request (gc; before Python 3.12 wherever an object is allocated). So none of that
//! happens under a request's lock, which would never come free: futures are made without it, and kept if they are still
//! wanted then. Under the lock only bytes are made, which the collector does not count.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::awaited::is_done;
use super::progress::Progress;

/// Whether what the app has sent is written.
#[must_use]
pub(super) enum Put {
    Through,
    /// The piece of this number waits for room.
    Waits(u64),
}

/// What has come of a message that the app sends.
pub(super) enum Sent {
    Through,
    /// It is taken, and waits for room: until this is done.
    Taken(Py<PyAny>),
    /// Nothing of it is taken. It is to be sent again once this is done.
    Later(Py<PyAny>),
}

/// Futures of those who wait, for an event or for their turn to send.
#[derive(Default)]
pub(super) struct Waiters {
    futures: Vec<Py<PyAny>>,
    /// How often they were taken, to be woken.
    wakes: u64,
}

impl Waiters {
    /// Those that are to be woken: all.
    pub(super) fn take(&mut self) -> Vec<Py<PyAny>> {
        self.wakes += 1;
        std::mem::take(&mut self.futures)
    }

    /// To be asked when there was nothing for one.
    pub(super) fn wakes(&self) -> u64 {
        self.wakes
    }
}

/// What has a [`Progress`] behind a lock, and the loop of those who wait for it.
pub(super) trait Waited {
    fn event_loop(&self) -> &Py<PyAny>;

    /// Asks under the lock.
    fn with<T>(&self, py: Python<'_>, ask: impl FnOnce(&mut Progress) -> T) -> T;

    /// A future for who has sent something, if that waits for room.
    fn wait_for_room(&self, py: Python<'_>, put: Put) -> PyResult<Option<Py<PyAny>>> {
        let Put::Waits(number) = put else {
            return Ok(None);
        };
        let future = future_of(self.event_loop().bind(py))?;
        let waits = self.with(py, |progress| progress.keep_waiting(number, &future))?;
        Ok(waits.then(|| future.unbind()))
    }

    /// A future for who is to send nothing before what others have given up is out, if there is such. The end of all waits
    /// for its turn only behind others that wait for theirs: an app that gives it up, too, has still ended its answer.
    fn wait_for_turn(&self, message: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let py = message.py();
        loop {
            let (is_behind, wakes) = self.with(py, |progress| {
                (progress.is_behind(), progress.senders.wakes())
            });
            if !is_behind || (is_end(message)? && self.is_next_sender(py)?) {
                return Ok(None);
            }
            if let Some(future) = self.wait_among(py, wakes, |progress| &mut progress.senders)? {
                return Ok(Some(future.unbind()));
            }
        }
    }

    /// Whether nobody waits for a turn to send, but those who have given up.
    fn is_next_sender(&self, py: Python<'_>) -> PyResult<bool> {
        for future in self.futures_of(py, |progress| &mut progress.senders) {
            if !is_done(future.bind(py))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn futures_of(&self, py: Python<'_>, who: fn(&mut Progress) -> &mut Waiters) -> Vec<Py<PyAny>> {
        self.with(py, |progress| {
            let futures = who(progress).futures.iter();
            futures.map(|future| future.clone_ref(py)).collect()
        })
    }

    /// A future for who waits for an event. `None` if others were woken since there was none: it is to look again.
    fn wait_for_event<'py>(
        &self,
        py: Python<'py>,
        wakes: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.wait_among(py, wakes, |progress| &mut progress.receivers)
    }

    /// Likewise for who is one of these.
    fn wait_among<'py>(
        &self,
        py: Python<'py>,
        wakes: u64,
        who: fn(&mut Progress) -> &mut Waiters,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut given_up = self.futures_of(py, who);
        given_up.retain(|future| is_done(future.bind(py)).unwrap_or(true));
        let future = future_of(self.event_loop().bind(py))?;
        let waits = self.with(py, |progress| {
            let waiters = who(progress);
            if waiters.wakes != wakes {
                return false;
            }
            // An app that asks with a timeout, again and again, must not make the list longer.
            let is_given_up = |future: &Py<PyAny>| given_up.iter().any(|one| one.is(future));
            waiters.futures.retain(|future| !is_given_up(future));
            waiters.futures.push(future.clone().unbind());
            true
        });
        Ok(waits.then_some(future))
    }
}

/// Whether it ends what the app sends, and says nothing else: of these only one is taken, which needs no room to speak of.
fn is_end(message: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = message.py();
    let Ok(message) = message.cast::<PyDict>() else {
        return Ok(false);
    };
    let kind = message.get_item(intern!(py, "type"))?;
    let kind = kind.as_ref().and_then(|kind| kind.cast::<PyString>().ok());
    Ok(match kind.map(|kind| kind.to_str()).transpose()? {
        Some("websocket.close") => true,
        Some("http.response.body" | "websocket.http.response.body") => {
            let piece = message.get_item(intern!(py, "body"))?;
            let more = message.get_item(intern!(py, "more_body"))?;
            let len = piece.map_or(Ok(0), |piece| piece.len())?;
            len == 0 && !more.map_or(Ok(false), |more| more.is_truthy())?
        }
        _ => false,
    })
}

pub(super) fn future_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    event_loop.call_method0(intern!(event_loop.py(), "create_future"))
}
