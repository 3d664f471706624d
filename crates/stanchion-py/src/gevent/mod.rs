//! Hosts a WSGI app under gevent: each request runs in a greenlet of its own, and gevent's hub is the event loop.
//!
//! The hub watches the worker's inbox. When that wakes it, [`GreenPuller::turn`] tells greenlets of news and takes
//! requests. No lock may be held where Python runs: another greenlet would wait for it on the same thread, for ever.

mod rooms;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use stanchion_server::{Inbox, Worker};
use tracing::error;

pub(crate) use rooms::Rooms;

use crate::loop_seats::{LOOKS_MAX, LoopSeats, Seated};
use crate::wsgi::{App, Gateway};

/// Pulls requests for gevent's hub, in its thread.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct GreenPuller {
    worker: &'static Worker,
    inbox: Inbox<'static>,
    app: Arc<App>,
    rooms: Arc<Rooms>,
    state: Mutex<State>,
    forsaken: AtomicBool,
}

/// What a burst of requests has made is not all kept.
const GATEWAYS_KEPT_MAX: usize = 64;

struct State {
    seats: LoopSeats,
    /// Those that no greenlet uses, up to [`GATEWAYS_KEPT_MAX`].
    gateways: Vec<Gateway>,
    /// `None` until requests are to be pulled.
    begun: Option<Begun>,
}

/// What is called for each request.
struct Begun {
    /// `gevent.spawn`
    spawn: Py<PyAny>,
    /// Has the hub call something soon.
    run_callback: Py<PyAny>,
    /// Set once the worker is to leave and nothing runs any more.
    over: Py<PyAny>,
    /// Has the next heartbeat come at the usual pace.
    hasten: Py<PyAny>,
}

impl GreenPuller {
    /// Sits down at all seats of the worker, which must be those of an event loop.
    pub(crate) fn new(py: Python<'_>, worker: &'static Worker, app: Arc<App>) -> PyResult<Self> {
        Ok(Self {
            worker,
            inbox: worker.inbox().expect("the worker has an event loop"),
            app,
            rooms: Arc::new(Rooms::new(py)?),
            state: Mutex::new(State {
                seats: LoopSeats::new(worker),
                gateways: Vec::new(),
                begun: None,
            }),
            forsaken: AtomicBool::new(false),
        })
    }

    /// Whether this process is no worker: then it takes nothing, and answers nothing.
    fn is_forsaken(&self) -> bool {
        self.forsaken.load(Ordering::Relaxed)
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// One of what [`Begun`] has.
    fn begun(&self, py: Python<'_>, choose: impl Fn(&Begun) -> &Py<PyAny>) -> Option<Py<PyAny>> {
        let state = self.lock(py);
        let begun = state.begun.as_ref();
        begun.map(|begun| choose(begun).clone_ref(py))
    }

    /// Tells the greenlets that wait for it what is new.
    fn look(&self, py: Python<'_>) {
        let mut slots = Vec::new();
        self.inbox.sweep(|slot| slots.push(slot));
        for slot in slots {
            if let Err(failure) = self.rooms.tell(py, slot) {
                error!("a greenlet cannot be told what is new: {failure}");
            }
        }
    }

    /// Takes requests, as many as are this worker's share, each with a greenlet that is to run it.
    fn pull(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let Some(spawn) = puller.begun(py, |begun| &begun.spawn) else {
            return Ok(());
        };
        let share = puller.lock(py).seats.share();
        for _ in 0..share {
            let mut state = puller.lock(py);
            let Some(seated) = state.seats.take() else {
                break;
            };
            let hastens = state.seats.wants_beat();
            drop(state);
            let hasten = hastens.then(|| puller.begun(py, |begun| &begun.hasten));
            if let Some(Err(failure)) = hasten.flatten().map(|hasten| hasten.call0(py)) {
                error!("the hub shows later that it turns: {failure}");
            }
            let run = Run {
                puller: this.clone().unbind(),
                seated: Mutex::new(Some(seated)),
            };
            // Dropped without having run, it answers 502 and frees the seat.
            spawn.call1(py, (Bound::new(py, run)?,))?;
        }
        Ok(())
    }

    /// Pulls what is there; comes again by itself if more is left than was this worker's share.
    fn go_on(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        if puller.is_forsaken() {
            return Ok(());
        }
        let is_leaving = puller.worker.should_leave();
        if !is_leaving {
            Self::pull(this)?;
        }
        let state = puller.lock(py);
        let (running, has_more) = (state.seats.running(), state.seats.has_more());
        drop(state);
        if is_leaving {
            puller.inbox.show_load(Inbox::NO_ROOM);
            if running == 0
                && let Some(over) = puller.begun(py, |begun| &begun.over)
            {
                over.call_method0(py, intern!(py, "set"))?;
            }
            return Ok(());
        }
        puller.inbox.show_load(running as u32);
        if has_more {
            Self::come_again(this)?;
        }
        Ok(())
    }

    /// A turn of the hub, which had been asked for or not.
    fn look_and_pull(this: &Bound<'_, Self>, is_further: bool) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        if puller.is_forsaken() {
            return Ok(());
        }
        puller.lock(py).seats.turns(is_further);
        for _ in 0..LOOKS_MAX {
            puller.look(py);
            Self::go_on(this)?;
            if puller.lock(py).seats.try_sleep() {
                return Ok(());
            }
        }
        Self::come_again(this)
    }

    /// Has the hub call [`GreenPuller::turn_again`] when greenlets have had their turn.
    fn come_again(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        // Before `begin`, which looks by itself, this turn would never come; a hub that was late would wait for it.
        let Some(run_callback) = puller.begun(py, |begun| &begun.run_callback) else {
            return Ok(());
        };
        if puller.lock(py).seats.wants_turn() {
            run_callback.call1(py, (this.getattr(intern!(py, "turn_again"))?,))?;
        }
        Ok(())
    }

    /// Answers a request: in its greenlet.
    fn answer(&self, py: Python<'_>, seated: Seated) -> PyResult<()> {
        let kept = self.lock(py).gateways.pop();
        let mut gateway = match kept {
            Some(gateway) => gateway,
            None => {
                let rooms = Some(Arc::clone(&self.rooms));
                Gateway::new(py, self.worker.settings(), rooms)?
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

    /// A request is over.
    fn ended(this: &Bound<'_, Self>, number: u16) -> PyResult<()> {
        this.get().lock(this.py()).seats.is_free(number);
        // In the same turn, without a system call.
        Self::go_on(this)
    }
}

#[pymethods]
impl GreenPuller {
    /// The descriptor that becomes readable when there is news.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.inbox.fd().as_raw_fd()
    }

    /// From now on requests are pulled. `over` is a `gevent.event.Event`.
    #[pyo3(signature = (spawn, run_callback, over, hasten))]
    fn begin(
        this: &Bound<'_, Self>,
        spawn: Py<PyAny>,
        run_callback: Py<PyAny>,
        over: Py<PyAny>,
        hasten: Py<PyAny>,
    ) -> PyResult<()> {
        this.get().lock(this.py()).begun = Some(Begun {
            spawn,
            run_callback,
            over,
            hasten,
        });
        Self::turn(this)
    }

    /// Looks for news, and pulls. Called by the hub when there is news, and now and then: so none is lost for long.
    fn turn(this: &Bound<'_, Self>) -> PyResult<()> {
        let mut turned = Ok(());
        let worker = this.get().worker;
        worker.work(|| turned = Self::look_and_pull(this, false));
        turned
    }

    /// Likewise, once greenlets have had their turn.
    fn turn_again(this: &Bound<'_, Self>) -> PyResult<()> {
        let mut turned = Ok(());
        let worker = this.get().worker;
        worker.work(|| turned = Self::look_and_pull(this, true));
        turned
    }

    /// How many seconds the next call of [`GreenPuller::beat`] is to come after this one, which follows.
    fn pace(&self, py: Python<'_>) -> f64 {
        self.lock(py).seats.pace_s(false)
    }

    /// The hub turns, so much later than this was to be called: to be called now and then.
    fn beat(&self, py: Python<'_>, lag_us: u64) {
        self.lock(py).seats.beat(lag_us);
    }

    /// This process is a child that the app has forked: the requests are those of the worker, its parent.
    fn forsake(&self) {
        self.forsaken.store(true, Ordering::Relaxed);
    }

    /// The hub turns no more.
    fn rest(&self) {
        self.inbox.rest();
    }

    /// The app asks to exit: the worker leaves.
    fn leave(&self) {
        self.worker.leave();
    }
}

/// What the greenlet of a request is to run.
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
        if puller.get().is_forsaken() {
            std::mem::forget(seated);
            return Ok(());
        }
        if let Err(failure) = puller.get().answer(py, seated) {
            error!("a request cannot be given to the app, and is answered 502: {failure}");
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
        let Some(seated) = seated.take() else {
            return;
        };
        if self.puller.get().is_forsaken() {
            std::mem::forget(seated);
            return;
        }
        let Seated { number, taken, .. } = seated;
        // The app has killed the greenlet before it ran, or it could not be made.
        drop(taken);
        Python::attach(|py| {
            let puller = self.puller.bind(py);
            puller.get().lock(py).seats.is_free(number);
            if let Err(failure) = GreenPuller::come_again(puller) {
                error!("the hub cannot be told of a free seat: {failure}");
            }
        });
    }
}
