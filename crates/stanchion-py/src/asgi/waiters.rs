//! Tasks that wait, by their futures.

use std::collections::{HashSet, VecDeque};

use pyo3::prelude::*;

/// How many futures of tasks that have given up may be kept, in addition to twice those that stayed last time, before they are looked for.
const GIVEN_UP_MAX: usize = 16;

/// Whether the app's message is written.
#[must_use]
pub(super) enum Put {
    Through,
    /// The piece of this number waits for room.
    Waits(u64),
}

/// Futures of tasks that wait for an event or for their turn to send, in the order in which they came.
#[derive(Default)]
pub(super) struct Waiters {
    pub(super) futures: VecDeque<Py<PyAny>>,
    /// How often the futures were taken to wake their tasks.
    pub(super) wakes: u64,
    /// How many futures stayed when those of tasks that had given up were last removed.
    stayed: usize,
}

impl Waiters {
    /// All futures, for the caller to wake their tasks.
    pub(super) fn take(&mut self) -> Vec<Py<PyAny>> {
        self.wakes += 1;
        self.stayed = 0;
        std::mem::take(&mut self.futures).into()
    }

    /// How often the futures were taken. A task that found nothing reads it, and waits only if it has not changed since.
    pub(super) fn wakes(&self) -> u64 {
        self.wakes
    }

    /// All futures, if it is time to remove those of tasks that have given up: an app that asks with a timeout again and again must not lengthen the
    /// queue. The queue has to be twice as long as after the last removal, so that each future is looked at a few times only, however many tasks
    /// wait.
    pub(super) fn to_be_looked_at(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        if self.futures.len() < GIVEN_UP_MAX + 2 * self.stayed {
            return Vec::new();
        }
        let all = self.futures.iter();
        all.map(|future| future.clone_ref(py)).collect()
    }

    /// Removes the futures of tasks that have given up. `given_up` holds another reference to each, so that none is freed here.
    pub(super) fn take_out(&mut self, given_up: &[Py<PyAny>]) {
        let places: HashSet<_> = given_up.iter().map(Py::as_ptr).collect();
        self.futures
            .retain(|future| !places.contains(&future.as_ptr()));
        self.stayed = self.futures.len();
    }
}
