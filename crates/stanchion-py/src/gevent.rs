//! Hosts a WSGI app under gevent: each request runs in a greenlet of its own, and gevent's hub is the event loop.
//!
//! The hub watches the worker's inbox. When the inbox wakes it, [`GreenPuller::turn`] wakes greenlets that wait for news and takes requests. No lock
//! may be held while Python runs: another greenlet would wait for it on the same thread, for ever.
//!
//! A greenlet runs on a stack that gevent moves away while others run. So no `Python::detach` is in force either where
//! Python code runs. An answer that waits for room lets its lock go, and waits for a notice of its slot
//! (`waiting_greenlets.rs`). Each worker has gevent change the modules before it imports the app. A Python signal
//! handler runs in any greenlet; in the hub, which cannot wait, it has a greenlet run the hooks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use stanchion_server::{Inbox, Worker};
use tracing::error;

use crate::loop_puller::LoopPuller;
use crate::loop_seats::{LoopSeats, Seated};
use crate::waiting_greenlets::WaitingGreenlets;
use crate::wsgi::{App, Gateway};

/// Takes requests for gevent's hub, in its thread.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct GreenPuller {
    worker: &'static Worker,
    inbox: Inbox<'static>,
    app: Arc<App>,
    greenlets: Arc<WaitingGreenlets>,
    state: Mutex<GreenPullerState>,
}

/// How many gateways are kept: a burst of requests may have made more.
const GATEWAYS_KEPT_MAX: usize = 64;

struct GreenPullerState {
    seats: LoopSeats,
    /// Gateways that no greenlet uses, up to [`GATEWAYS_KEPT_MAX`].
    gateways: Vec<Gateway>,
    /// `None` until [`GreenPuller::begin`].
    begun: Option<GeventCallables>,
}

/// The Python objects that the puller calls.
struct GeventCallables {
    /// `gevent.spawn`
    spawn: Py<PyAny>,
    /// Has the hub call a function soon.
    run_callback: Py<PyAny>,
    /// Set once the worker should leave and no request runs any more.
    over: Py<PyAny>,
    /// Reschedules the next heartbeat at the usual pace.
    hasten: Py<PyAny>,
}

impl GreenPuller {
    /// Occupies all seats of the worker, which must have an event loop.
    pub(crate) fn new(py: Python<'_>, worker: &'static Worker, app: Arc<App>) -> PyResult<Self> {
        Ok(Self {
            worker,
            inbox: worker.inbox().expect("the worker has an event loop"),
            app,
            greenlets: Arc::new(WaitingGreenlets::new(py)?),
            state: Mutex::new(GreenPullerState {
                seats: LoopSeats::new(worker),
                gateways: Vec::new(),
                begun: None,
            }),
        })
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, GreenPullerState> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The object in [`GeventCallables`] that `choose` selects.
    fn begun(
        &self,
        py: Python<'_>,
        choose: impl Fn(&GeventCallables) -> &Py<PyAny>,
    ) -> Option<Py<PyAny>> {
        let state = self.lock(py);
        let begun = state.begun.as_ref();
        begun.map(|begun| choose(begun).clone_ref(py))
    }

    /// A turn of the hub; `is_further` if the puller has asked for it.
    fn take_a_turn(this: &Bound<'_, Self>, is_further: bool) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let mut turned = Ok(());
        puller.worker.work(|| {
            if !puller.worker.is_forsaken() {
                puller.with_seats(py, |seats| seats.turns(is_further));
                turned = Self::look_and_pull(this);
            }
        });
        turned
    }

    /// Answers a request, in its own greenlet.
    fn answer(&self, py: Python<'_>, seated: Seated) -> PyResult<()> {
        let kept = self.lock(py).gateways.pop();
        let mut gateway = match kept {
            Some(gateway) => gateway,
            None => {
                let greenlets = Some(Arc::clone(&self.greenlets));
                Gateway::new(py, self.worker.settings(), greenlets)?
            }
        };
        let Seated { seat, taken, .. } = seated;
        self.worker
            .work(|| gateway.answer(py, &self.app, &seat, taken));
        let mut state = self.lock(py);
        if state.gateways.len() < GATEWAYS_KEPT_MAX {
            state.gateways.push(gateway);
        } else {
            drop(state);
            drop(gateway);
        }
        Ok(())
    }

    /// Frees the seat of a request that is over.
    fn ended(this: &Bound<'_, Self>, number: u16) -> PyResult<()> {
        this.get().lock(this.py()).seats.is_free(number);
        // Takes the next request in the same turn, without a system call.
        Self::go_on(this)
    }
}

impl LoopPuller for GreenPuller {
    const LOOP: &'static str = "hub";

    fn worker(&self) -> &'static Worker {
        self.worker
    }

    fn inbox(&self) -> &Inbox<'static> {
        &self.inbox
    }

    fn with_seats<T>(&self, py: Python<'_>, act: impl FnOnce(&mut LoopSeats) -> T) -> T {
        act(&mut self.lock(py).seats)
    }

    fn wants_turn(&self, py: Python<'_>) -> bool {
        let mut state = self.lock(py);
        state.begun.is_some() && state.seats.wants_turn()
    }

    fn hasten(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.begun(py, |begun| &begun.hasten)
    }

    /// Wakes the greenlet that waits for the slot.
    fn bring_news(&self, py: Python<'_>, slot: u32) {
        if let Err(failure) = self.greenlets.tell(py, slot) {
            error!("cannot wake a greenlet that waits for room in its answer: {failure}");
        }
    }

    /// Spawns a greenlet for each request.
    fn pull(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let Some(spawn) = puller.begun(py, |begun| &begun.spawn) else {
            return Ok(());
        };
        let share = puller.lock(py).seats.share();
        for _ in 0..share {
            let Some(seated) = puller.take(py) else {
                break;
            };
            let run = Run {
                puller: this.clone().unbind(),
                seated: Mutex::new(Some(seated)),
            };
            // If the greenlet is dropped before it runs, `run` answers 502 and frees the seat.
            spawn.call1(py, (Bound::new(py, run)?,))?;
        }
        Ok(())
    }

    fn leave_in_the_end(&self, py: Python<'_>) -> PyResult<()> {
        let is_idle = self.with_seats(py, |seats| seats.running() == 0);
        if let Some(over) = self.begun(py, |begun| &begun.over)
            && is_idle
        {
            over.call_method0(py, intern!(py, "set"))?;
        }
        Ok(())
    }

    fn call_again(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        if let Some(run_callback) = puller.begun(py, |begun| &begun.run_callback) {
            run_callback.call1(py, (this.getattr(intern!(py, "turn_again"))?,))?;
        }
        Ok(())
    }
}

#[pymethods]
impl GreenPuller {
    /// The descriptor that becomes readable when the acceptor has news.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.inbox.fd().as_raw_fd()
    }

    /// Starts to take requests. `over` is a `gevent.event.Event`.
    #[pyo3(signature = (spawn, run_callback, over, hasten))]
    fn begin(
        this: &Bound<'_, Self>,
        spawn: Py<PyAny>,
        run_callback: Py<PyAny>,
        over: Py<PyAny>,
        hasten: Py<PyAny>,
    ) -> PyResult<()> {
        this.get().lock(this.py()).begun = Some(GeventCallables {
            spawn,
            run_callback,
            over,
            hasten,
        });
        Self::turn(this)
    }

    /// Looks for news, and takes requests. The hub calls it when there is news, and at intervals, so that lost news waits only for a while.
    fn turn(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::take_a_turn(this, false)
    }

    /// The same, in a turn that the puller has asked for.
    fn turn_again(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::take_a_turn(this, true)
    }

    /// How many seconds the next call of [`GreenPuller::beat`] comes after this one, which the hub makes right after this call.
    fn pace(&self, py: Python<'_>) -> f64 {
        self.lock(py).seats.pace_s(false)
    }

    /// Records a heartbeat: the hub turns, `lag_us` later than planned. The hub calls it at intervals.
    fn beat(&self, py: Python<'_>, lag_us: u64) {
        self.lock(py).seats.beat(lag_us);
    }

    /// Notes that the hub turns no more.
    fn rest(&self) {
        self.inbox.rest();
    }

    /// The app asked to exit: has the worker leave.
    fn leave(&self) {
        self.worker.leave();
    }
}

/// The function that a request's greenlet runs.
#[pyclass(frozen, module = "stanchion")]
struct Run {
    puller: Py<GreenPuller>,
    /// `None` once it runs.
    seated: Mutex<Option<Seated>>,
}

#[pymethods]
impl Run {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let seated = self
            .seated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(seated) = seated else {
            return Ok(());
        };
        let (puller, number) = (self.puller.bind(py), seated.number);
        if puller.get().worker.is_forsaken() {
            return Ok(());
        }
        if let Err(failure) = puller.get().answer(py, seated) {
            error!("cannot give a request to the app, and its client gets 502: {failure}");
        }
        GreenPuller::ended(puller, number)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let seated = self
            .seated
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(Seated { number, taken, .. }) = seated.take() else {
            return;
        };
        if self.puller.get().worker.is_forsaken() {
            return;
        }
        // The app has killed the greenlet before it ran, or spawning the greenlet failed.
        drop(taken);
        Python::attach(|py| {
            let puller = self.puller.bind(py);
            puller.get().lock(py).seats.is_free(number);
            if let Err(failure) = GreenPuller::come_again(puller) {
                error!("cannot have the hub take requests for a free seat: {failure}");
            }
        });
    }
}
