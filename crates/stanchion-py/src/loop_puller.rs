//! The turns of an event loop that takes requests: the same for asyncio's loop and for gevent's hub.

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use stanchion_server::{Inbox, Worker};
use tracing::error;

use crate::loop_seats::{LOOKS_MAX, LoopSeats, Seated};

/// Takes requests for an event loop, in its thread.
pub(crate) trait LoopPuller: PyClass<Frozen = True> + Sync {
    /// The name of the loop in the log.
    const LOOP: &'static str;

    /// The worker that has the loop.
    fn worker(&self) -> &'static Worker;

    /// The inbox by which the acceptor wakes the loop.
    fn inbox(&self) -> &Inbox<'static>;

    /// Calls `act` with the seats, under the lock: no Python may run meanwhile.
    fn with_seats<T>(&self, py: Python<'_>, act: impl FnOnce(&mut LoopSeats) -> T) -> T;

    /// Whether the loop is to be asked for a further turn: it was not asked already, and the app is ready. Before that the loop
    /// would never run this turn, and a loop that was late would wait for it.
    fn wants_turn(&self, py: Python<'_>) -> bool;

    /// The function that reschedules the next heartbeat at the usual pace; `None` until the app is ready.
    fn hasten(&self, py: Python<'_>) -> Option<Py<PyAny>>;

    /// Brings the news of a slot to the request that waits for it.
    fn bring_news(&self, py: Python<'_>, slot: u32);

    /// Takes this worker's share of requests.
    fn pull(this: &Bound<'_, Self>) -> PyResult<()>;

    /// The worker leaves, and takes no more requests: ends the loop once nothing runs any more.
    fn leave_in_the_end(&self, py: Python<'_>) -> PyResult<()>;

    /// Has the loop call `turn_again` after its other tasks had their turn.
    fn call_again(this: &Bound<'_, Self>) -> PyResult<()>;

    /// Brings the news of the acceptor to the requests that wait for it.
    fn look(&self, py: Python<'_>) {
        let mut slots = Vec::new();
        self.inbox().sweep(|slot| slots.push(slot));
        for slot in slots {
            self.bring_news(py, slot);
        }
    }

    /// Takes a request, if one is ready, and has a heartbeat that is far off come sooner.
    fn take(&self, py: Python<'_>) -> Option<Seated> {
        let (seated, wants_beat) = self.with_seats(py, |seats| {
            let seated = seats.take()?;
            Some((seated, seats.wants_beat()))
        })?;
        let hasten = wants_beat.then(|| self.hasten(py)).flatten();
        if let Some(Err(failure)) = hasten.map(|hasten| hasten.call0(py)) {
            error!(
                "cannot reschedule the {}'s heartbeat, so the next one comes late: {failure}",
                Self::LOOP
            );
        }
        Some(seated)
    }

    /// Takes the requests that are ready, and asks for another turn if there are more than this worker's share.
    fn go_on(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        // A child that the app has forked takes no requests and answers none: they belong to its parent, the worker.
        if puller.worker().is_forsaken() {
            return Ok(());
        }
        if puller.worker().should_leave() {
            puller.inbox().show_load(Inbox::NO_ROOM);
            return puller.leave_in_the_end(py);
        }
        Self::pull(this)?;
        let (running, has_more) =
            puller.with_seats(py, |seats| (seats.running(), seats.has_more()));
        puller.inbox().show_load(running as u32);
        if has_more {
            Self::come_again(this)?;
        }
        Ok(())
    }

    /// Looks for news and takes requests, until there is nothing more or other tasks should have their turn.
    fn look_and_pull(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        for _ in 0..LOOKS_MAX {
            puller.look(py);
            Self::go_on(this)?;
            if puller.with_seats(py, |seats| seats.try_sleep()) {
                return Ok(());
            }
        }
        Self::come_again(this)
    }

    /// Asks the loop for a further turn, if it is to be asked.
    fn come_again(this: &Bound<'_, Self>) -> PyResult<()> {
        if this.get().wants_turn(this.py()) {
            Self::call_again(this)?;
        }
        Ok(())
    }
}
