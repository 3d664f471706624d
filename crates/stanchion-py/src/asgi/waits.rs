//! Who waits, for room or for an event, and the futures that they wait for.
//!
//! Whenever a Python object is made, is let go or does something, Python may collect garbage and run finalizers of the
//! app's, which may use the very request (gc; before Python 3.12 wherever an object is allocated). So none of that
//! happens under a request's lock, which would never come free: futures are made without it, and kept if they are still
//! wanted then. Under the lock only bytes are made, which the collector does not count.

use std::collections::{HashSet, VecDeque};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::awaited::is_done;
use super::progress::Progress;

/// So many of those who wait for the same may have given up before they are looked for, besides as many as wait.
const GIVEN_UP_MAX: usize = 16;

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
    /// It comes to nothing, as the client has gone. Others are to have their turn.
    Dropped,
}

/// Futures of those who wait, for an event or for their turn to send, who came first at the front.
#[derive(Default)]
pub(super) struct Waiters {
    futures: VecDeque<Py<PyAny>>,
    /// How often they were taken, to be woken.
    wakes: u64,
    /// How many stayed when those who had given up were last taken out.
    stayed: usize,
}

impl Waiters {
    /// Those that are to be woken: all.
    pub(super) fn take(&mut self) -> Vec<Py<PyAny>> {
        self.wakes += 1;
        self.stayed = 0;
        std::mem::take(&mut self.futures).into()
    }

    /// To be asked when there was nothing for one.
    pub(super) fn wakes(&self) -> u64 {
        self.wakes
    }

    /// All of them, if some may have given up and are to be taken out: an app that asks with a timeout, again and again,
    /// must not make the queue longer. Not before it is twice as long as it was, so that each is looked at a few times
    /// however many wait.
    fn to_be_looked_at(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        if self.futures.len() < GIVEN_UP_MAX + 2 * self.stayed {
            return Vec::new();
        }
        let all = self.futures.iter();
        all.map(|future| future.clone_ref(py)).collect()
    }

    /// Takes out those who have given up, of whom `given_up` has another reference each.
    fn take_out(&mut self, given_up: &[Py<PyAny>]) {
        let places: HashSet<_> = given_up.iter().map(Py::as_ptr).collect();
        self.futures
            .retain(|future| !places.contains(&future.as_ptr()));
        self.stayed = self.futures.len();
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

    /// Whether nobody waits for a turn to send, but those who have given up, who are taken out.
    fn is_next_sender(&self, py: Python<'_>) -> PyResult<bool> {
        let first = |progress: &mut Progress| {
            let first = progress.senders.futures.front();
            first.map(|future| future.clone_ref(py))
        };
        while let Some(future) = self.with(py, first) {
            if !is_done(future.bind(py))? {
                return Ok(false);
            }
            // Others may have taken it out meanwhile.
            self.with(py, |progress| {
                let futures = &mut progress.senders.futures;
                let is_first = futures.front().is_some_and(|first| first.is(&future));
                is_first.then(|| futures.pop_front())
            });
        }
        Ok(true)
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
        let mut given_up = self.with(py, |progress| who(progress).to_be_looked_at(py));
        let is_looked_at = !given_up.is_empty();
        given_up.retain(|future| is_done(future.bind(py)).unwrap_or(true));
        let future = future_of(self.event_loop().bind(py))?;
        let waits = self.with(py, |progress| {
            let waiters = who(progress);
            if waiters.wakes != wakes {
                return false;
            }
            if is_looked_at {
                waiters.take_out(&given_up);
            }
            waiters.futures.push_back(future.clone().unbind());
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
            let len = piece.map_or(Ok(0), |piece| piece.len())?;
            len == 0 && !is_set(message, intern!(py, "more_body"))?
        }
        _ => false,
    })
}

/// Whether a message says so of itself; else it is not so.
pub(super) fn is_set(message: &Bound<'_, PyDict>, what: &Bound<'_, PyString>) -> PyResult<bool> {
    let value = message.get_item(what)?;
    value.map_or(Ok(false), |value| value.is_truthy())
}

pub(super) fn future_of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    event_loop.call_method0(intern!(event_loop.py(), "create_future"))
}
