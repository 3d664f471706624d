//! Hosts an ASGI 3 app: one event loop takes requests while seats are free, and runs each request in a task of its own.
//!
//! The loop sleeps in its selector, which also watches the worker's inbox. When the inbox wakes the loop, [`Puller::turn`] looks at the slots that
//! have news, takes requests, and goes on in the next turn of the loop if there are more: so the loop's other tasks have their turn in between.
//!
//! After a panic in the server's part of a loop, the state of its requests is unknown: all of them are given up (502,
//! or broken off), and its worker leaves.

mod awaited;
mod callables;
mod compression;
mod extensions;
mod futures;
mod gone;
mod input;
mod messages;
mod progress;
mod reading;
mod request;
mod running;
mod scope;
mod socket;
mod standing;
#[cfg(test)]
mod tests;
mod trailers;
mod upkeep;
mod waiters;
mod waits;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;
use stanchion_server::{Inbox, Worker};
use tracing::{error, info};

use compression::MessageCompression;
use reading::RequestReader;
use running::Running;
use socket::AsgiSocket;
use upkeep::has_looked;

use crate::loop_puller::LoopPuller;
use crate::loop_seats::{LoopSeats, Seated};

/// Takes requests for an event loop. It belongs to one loop, and only that loop's thread calls it.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Puller {
    worker: &'static Worker,
    inbox: Inbox<'static>,
    state: Mutex<PullerState>,
    compression: MessageCompression,
}

struct PullerState {
    seats: LoopSeats,
    /// The request or WebSocket in each slot.
    running: Vec<Option<Running>>,
    /// The number of sessions: open `WebSocket`s, which have a slot and no seat.
    sessions: usize,
    /// The sessions were notified that the worker leaves.
    is_restart_told: bool,
    /// `None` while it reads a request: reading makes Python objects, which must not happen under the lock ([`waits`]).
    reader: Option<Box<RequestReader>>,
    /// `None` until the app has started up.
    begun: Option<AsgiCallables>,
    /// Requests are being taken: a request that ends meanwhile leaves its seat to that loop.
    is_pulling: bool,
    /// The part of the running requests that was looked at last, without notices.
    part: usize,
}

/// The Python objects that the puller calls.
struct AsgiCallables {
    app: Py<PyAny>,
    event_loop: Py<PyAny>,
    create_task: Py<PyAny>,
    task_options: Option<Py<PyDict>>,
    /// Set once the worker should leave and nothing runs any more.
    over: Py<PyAny>,
    /// An `asyncio.Event`, set once the worker is to leave or its generation drains; `None` after that.
    leaving: Option<Py<PyAny>>,
    /// Reschedules the next heartbeat at the usual pace.
    hasten: Py<PyAny>,
    /// The context of no request, as an argument for the loop. A task of an app may ask for a turn, and requests that are taken in the turn must not
    /// get the variables that this task has set.
    outside: Py<PyDict>,
}

impl Puller {
    /// Occupies all seats of the worker, which must have an event loop.
    pub(crate) fn new(py: Python<'_>, worker: &'static Worker) -> PyResult<Self> {
        Ok(Self {
            worker,
            inbox: worker.inbox().expect("the worker has an event loop"),
            state: Mutex::new(PullerState {
                seats: LoopSeats::new(worker),
                running: Vec::new(),
                sessions: 0,
                is_restart_told: false,
                reader: Some(Box::new(RequestReader::new(py, worker)?)),
                begun: None,
                is_pulling: false,
                part: 0,
            }),
            compression: MessageCompression::new(worker.settings().event_loop.ws_max_size),
        })
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, PullerState> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the scope and the object that the app is called with. If that fails, the slot is given back.
    fn prepare<'py>(
        this: &Bound<'py, Self>,
        seated: Seated,
    ) -> PyResult<(Bound<'py, PyDict>, Running)> {
        let (py, puller) = (this.py(), this.get());
        let slot = seated.taken.slot() as usize;
        let mut state = puller.lock(py);
        let begun = state.begun.as_ref().expect("nothing is pulled before");
        let event_loop = begun.event_loop.clone_ref(py);
        let reader = state.reader.take();
        drop(state);
        let mut reader = reader
            .ok_or_else(|| PyRuntimeError::new_err("our fault: another request is being read"))?;
        let read = reader.read(seated, event_loop, this);
        let mut state = puller.lock(py);
        state.reader = Some(reader);
        let (scope, running) = read?;
        if state.running.len() <= slot {
            state.running.resize_with(slot + 1, || None);
        }
        let before = state.running[slot].replace(running.clone_ref(py));
        drop(state);
        // If an earlier request still runs in this slot, something has overwritten the slot and the acceptor has taken it back. The request learns
        // that now, because no notice would come later, and the worker could not leave while it waits for the request.
        has_looked(before.map(|before| before.look(py)));
        Ok((scope, running))
    }

    /// Starts the task of a request.
    fn start(this: &Bound<'_, Self>, scope: &Bound<'_, PyDict>, running: &Running) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let guard = puller.lock(py);
        let begun = guard.begun.as_ref().expect("nothing is pulled before");
        let (app, create_task) = (begun.app.clone_ref(py), begun.create_task.clone_ref(py));
        let options = begun.task_options.as_ref();
        let options = options.map(|options| options.clone_ref(py));
        drop(guard);
        let object = running.object(py);
        let receive = object.getattr(intern!(py, "receive"))?;
        let send = object.getattr(intern!(py, "send"))?;
        let task = app
            .bind(py)
            .call1((scope, receive, send))
            .and_then(|coroutine| {
                let options = options.as_ref().map(|options| options.bind(py));
                create_task.bind(py).call((coroutine,), options)
            });
        match task {
            Ok(task) => {
                let kept = running.keep(&task);
                // An eager task may have run already.
                puller.end_if_forked(py, None);
                kept
            }
            Err(failure) => {
                puller.end_if_forked(py, Some(&failure));
                if failure.is_instance_of::<PySystemExit>(py)
                    || failure.is_instance_of::<PyKeyboardInterrupt>(py)
                {
                    // An eager task raises the exception here; other tasks raise it in the loop, which ends by it.
                    info!("the app asked to exit ({failure}): the worker leaves");
                    puller.worker.leave();
                }
                running.app_failed(py, &failure)
            }
        }
    }

    /// A WebSocket has opened: frees its seat for another request.
    fn session_begins(this: &Bound<'_, Self>, number: u16) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let mut state = puller.lock(py);
        state.sessions += 1;
        puller.show_sessions(&state);
        drop(state);
        puller.is_free(py, number);
        Self::come_again(this)
    }

    fn show_sessions(&self, state: &PullerState) {
        let sessions = u32::try_from(state.sessions).unwrap_or(u32::MAX);
        self.inbox.show_sessions(sessions);
    }

    /// Closes the sessions because the worker leaves: one after another, so that their clients do not all connect again at once.
    fn restart_sessions(&self, py: Python<'_>) {
        let mut state = self.lock(py);
        if std::mem::replace(&mut state.is_restart_told, true) {
            return;
        }
        let event_loop = state
            .begun
            .as_ref()
            .map(|begun| begun.event_loop.clone_ref(py));
        let running = state.running.iter().flatten();
        let sockets: Vec<_> = running
            .filter_map(|running| match running {
                Running::Socket(socket) => Some(socket.clone_ref(py)),
                Running::Request(_) => None,
            })
            .collect();
        drop(state);
        let each = self.worker.settings().session_spread() / sockets.len().max(1) as u32;
        for (socket, number) in sockets.iter().zip(0..) {
            let told = match &event_loop {
                Some(event_loop) if number > 0 => {
                    AsgiSocket::restart_later(socket.bind(py), event_loop.bind(py), each * number)
                }
                _ => AsgiSocket::restart(socket.bind(py)),
            };
            if let Err(failure) = told {
                error!("cannot close a WebSocket although the worker leaves: {failure}");
            }
        }
    }

    /// Sets the event that each scope has, which wakes the tasks that wait for it.
    fn show_leaving(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock(py);
        let begun = state.begun.as_mut();
        let leaving = begun.and_then(|begun| begun.leaving.take());
        drop(state);
        leaving.map_or(Ok(()), |leaving| {
            leaving.call_method0(py, intern!(py, "set")).map(drop)
        })
    }

    /// Whether the sessions were notified that the worker leaves.
    fn is_restart_told(&self, py: Python<'_>) -> bool {
        self.lock(py).is_restart_told
    }

    /// Frees a seat whose request is over.
    fn is_free(&self, py: Python<'_>, number: u16) {
        self.lock(py).seats.is_free(number);
    }

    /// The task of a request has ended, and the slot was given back. A WebSocket that had opened has no `seat` any more.
    fn ended(
        this: &Bound<'_, Self>,
        slot: u32,
        object: &Bound<'_, PyAny>,
        seat: Option<u16>,
    ) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let mut state = puller.lock(py);
        // Another request may be in the slot already, if the app went on after its answer.
        let ended = state.running.get_mut(slot as usize);
        let is_it = |running: &Running| running.is(object);
        let ended = ended.filter(|running| running.as_ref().is_some_and(is_it));
        let _ended = ended.and_then(Option::take);
        let is_pulling = state.is_pulling;
        if seat.is_none() {
            state.sessions -= 1;
            puller.show_sessions(&state);
        }
        drop(state);
        if let Some(number) = seat {
            puller.is_free(py, number);
        }
        if is_pulling {
            // The task has ended as soon as it began, and [`Self::pull`] goes on itself.
            return Ok(());
        }
        // Takes the next request in the same turn, without a system call.
        Self::go_on(this)
    }
}

impl LoopPuller for Puller {
    const LOOP: &'static str = "loop";

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
        let state = self.lock(py);
        let begun = state.begun.as_ref();
        begun.map(|begun| begun.hasten.clone_ref(py))
    }

    /// Has the request of the slot look.
    fn bring_news(&self, py: Python<'_>, slot: u32) {
        let state = self.lock(py);
        let running = state.running.get(slot as usize).and_then(Option::as_ref);
        let running = running.map(|running| running.clone_ref(py));
        drop(state);
        has_looked(running.map(|running| running.look(py)));
    }

    /// Starts a task for each request.
    fn pull(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        if puller.worker.is_draining() {
            puller.show_leaving(py)?;
        }
        let mut state = puller.lock(py);
        let share = state.seats.share();
        state.is_pulling = true;
        drop(state);
        for _ in 0..share {
            let Some(seated) = puller.take(py) else {
                break;
            };
            let number = seated.number;
            match Self::prepare(this, seated) {
                Ok((scope, running)) => {
                    if let Err(failure) = Self::start(this, &scope, &running) {
                        error!("cannot track the task of a request: {failure}");
                    }
                }
                Err(failure) => {
                    error!("cannot give a request to the app, and its client gets 502: {failure}");
                    puller.is_free(py, number);
                }
            }
        }
        puller.lock(py).is_pulling = false;
        Ok(())
    }

    fn leave_in_the_end(&self, py: Python<'_>) -> PyResult<()> {
        self.show_leaving(py)?;
        self.restart_sessions(py);
        let state = self.lock(py);
        if state.seats.running() == 0
            && state.sessions == 0
            && let Some(begun) = &state.begun
        {
            let over = begun.over.clone_ref(py);
            drop(state);
            over.call_method0(py, intern!(py, "set"))?;
        }
        Ok(())
    }

    fn call_again(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::call_soon(this, intern!(this.py(), "turn_again"))
    }
}

#[pymethods]
impl Puller {
    /// The descriptor that becomes readable when the acceptor has news.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.inbox.fd().as_raw_fd()
    }

    /// Reads the descriptor empty.
    fn silence(&self) {
        self.inbox.silence();
    }

    /// The app is ready: starts to take requests. `over` is an `asyncio.Event`.
    #[pyo3(signature = (app, event_loop, state, over, hasten, task_options))]
    fn begin(
        this: &Bound<'_, Self>,
        app: Py<PyAny>,
        event_loop: &Bound<'_, PyAny>,
        state: Option<Py<PyDict>>,
        over: Py<PyAny>,
        hasten: Py<PyAny>,
        task_options: Option<Py<PyDict>>,
    ) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let outside = PyDict::new(py);
        let context = py.import("contextvars")?.call_method0("copy_context")?;
        outside.set_item("context", context)?;
        let leaving = py.import("asyncio")?.call_method0("Event")?.unbind();
        let begun = AsgiCallables {
            app,
            create_task: match &task_options {
                Some(_) => py.import("asyncio")?.getattr("Task")?.unbind(),
                None => event_loop.getattr("create_task")?.unbind(),
            },
            task_options,
            event_loop: event_loop.clone().unbind(),
            over,
            leaving: Some(leaving.clone_ref(py)),
            hasten,
            outside: outside.unbind(),
        };
        let mut held = puller.lock(py);
        // This replaces nothing yet, so no object is dropped under the lock.
        if let Some(reader) = &mut held.reader {
            reader.share(state, leaving);
        }
        held.begun = Some(begun);
        drop(held);
        Self::turn(this)
    }

    /// Looks for news, and takes requests.
    fn turn(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::unless_broken(this, || {
            this.get().lock(this.py()).seats.turns(false);
            Self::look_and_pull(this)
        })
    }

    /// The same, in a turn that the puller has asked for.
    fn turn_again(this: &Bound<'_, Self>) -> PyResult<()> {
        Self::unless_broken(this, || {
            this.get().lock(this.py()).seats.turns(true);
            Self::look_and_pull(this)
        })
    }

    /// The loop's other tasks had their turn: each WebSocket that waits to have a message decompressed goes on.
    fn decompress_on(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        Self::unless_broken(this, || futures::wake(py, puller.compression.renew(py)))
    }

    /// How many seconds the next call of [`Puller::beat`] comes after this one, which the loop makes right after this call.
    fn pace(&self, py: Python<'_>) -> f64 {
        let mut state = self.lock(py);
        let has_sessions = state.sessions > 0;
        state.seats.pace_s(has_sessions)
    }

    /// Records a heartbeat: the loop turns, `lag_us` later than planned. The loop calls it at intervals. It looks for news as if the loop had been
    /// woken, so that a wake-up is not lost for longer, whatever another worker writes over this worker's inbox.
    fn beat(this: &Bound<'_, Self>, lag_us: u64) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        Self::unless_broken(this, || {
            let mut state = puller.lock(py);
            state.seats.beat(lag_us);
            let is_begun = state.begun.is_some();
            drop(state);
            if !is_begun {
                return Ok(());
            }
            puller.inbox.awake();
            puller.look_at_part(py);
            Self::look_and_pull(this)
        })
    }

    /// Notes that the loop turns no more.
    fn rest(&self) {
        self.inbox.rest();
    }

    /// Ends the process if it is a child that the app has forked, which may have `raised` something: then this does not return.
    #[pyo3(name = "end_if_forked", signature = (raised=None))]
    fn end_child(&self, py: Python<'_>, raised: Option<Bound<'_, PyAny>>) {
        self.end_if_forked(py, raised.map(PyErr::from_value).as_ref());
    }

    /// Whether the worker should leave.
    fn is_leaving(&self) -> bool {
        self.worker.should_leave()
    }

    /// The app has failed to start up, or ended by itself: has the worker leave.
    fn leave(&self) {
        self.worker.leave();
    }
}
