//! Hosts an ASGI 3 app: one event loop, which pulls requests as its seats are free, and runs each in a task of its own.
//!
//! The loop sleeps in its selector with the worker's inbox among what it watches. When that wakes it, [`Puller::turn`]
//! looks at the slots that have news, takes requests, and goes on in the next turn of the loop if there are more: so what
//! the loop runs already has its turn in between.

mod awaited;
mod messages;
mod progress;
mod request;
mod running;
mod scope;
mod socket;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;
use stanchion_server::record::RequestBuffer;
use stanchion_server::{Inbox, Seat, Taken, Worker};
use stanchion_sys::clock::monotonic_us;
use tracing::{error, info};

use request::Request;
use running::Running;
use scope::Scopes;
use socket::Socket;

/// So long a request is left to a worker that runs fewer.
const LEFT_US: u64 = 500;

/// Pulls requests for an event loop. It belongs to one loop, and only that one's thread calls it.
#[pyclass(frozen, module = "stanchion")]
pub(crate) struct Puller {
    worker: &'static Worker,
    inbox: Inbox<'static>,
    state: Mutex<State>,
}

struct State {
    seats: Vec<Arc<Seat<'static>>>,
    /// Which of them have no request; the last to be freed is taken next.
    idle: Vec<u16>,
    /// What runs in each slot.
    running: Vec<Option<Running>>,
    /// Sessions, `WebSocket`s that are open: they have a slot and no seat.
    sessions: usize,
    /// They were told that the worker leaves.
    is_restart_told: bool,
    buffer: RequestBuffer,
    scopes: Scopes,
    /// `None` until the app has started up.
    begun: Option<Begun>,
    /// The request that was left to other workers, and since when. The acceptor calls again if nobody takes it.
    left: Option<(u64, u64)>,
    /// A further turn is to come by itself.
    is_turning: bool,
    /// Requests are being taken: who ends meanwhile leaves its seat to that.
    is_pulling: bool,
}

/// A turn looks so often whether there is more before what the loop runs has its turn.
const LOOKS_MAX: usize = 4;

/// What is called for each request.
struct Begun {
    app: Py<PyAny>,
    event_loop: Py<PyAny>,
    create_task: Py<PyAny>,
    task_options: Option<Py<PyDict>>,
    /// Set once the worker is to leave and nothing runs any more.
    over: Py<PyAny>,
}

impl Puller {
    /// Sits down at all seats of the worker, which must be those of an event loop.
    pub(crate) fn new(py: Python<'_>, worker: &'static Worker) -> PyResult<Self> {
        let inbox = worker.inbox().expect("the worker has an event loop");
        let seats: Vec<_> = worker.all_seats().into_iter().map(Arc::new).collect();
        Ok(Self {
            worker,
            inbox,
            state: Mutex::new(State {
                idle: (0..seats.len() as u16).rev().collect(),
                seats,
                running: Vec::new(),
                sessions: 0,
                is_restart_told: false,
                buffer: RequestBuffer::default(),
                scopes: Scopes::new(py, worker)?,
                begun: None,
                left: None,
                is_turning: false,
                is_pulling: false,
            }),
        })
    }

    /// Whether the acceptor is to send files.
    fn sends_files(&self) -> bool {
        self.worker.settings().sendfile
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the requests look whose slots have news.
    fn look(&self, py: Python<'_>) {
        let mut slots = Vec::new();
        self.inbox.sweep(|slot| slots.push(slot));
        for slot in slots {
            let state = self.lock(py);
            let running = state.running.get(slot as usize).and_then(Option::as_ref);
            let running = running.map(|running| running.clone_ref(py));
            drop(state);
            let looked = running.map(|running| running.look(py));
            if let Some(Err(failure)) = looked {
                // Others have news too.
                error!("a request cannot be told what is new: {failure}");
            }
        }
    }

    /// How many requests to take now. What is another worker's part is left to it for a moment; if it is not taken
    /// then, whoever runs that one is not turning.
    fn share(&self, py: Python<'_>) -> usize {
        let now_us = monotonic_us();
        let mut state = self.lock(py);
        let left = state.left.take();
        let Some(oldest) = self.worker.oldest_ready() else {
            return self.worker.fair_share(now_us);
        };
        let share = self.worker.fair_share(now_us);
        if share > 0 {
            return share;
        }
        let since_us = match left {
            Some((position, since_us)) if position == oldest => since_us,
            _ => now_us,
        };
        if now_us - since_us >= LEFT_US {
            return 1;
        }
        state.left = Some((oldest, since_us));
        0
    }

    /// Takes requests, as many as are this worker's share, and starts their tasks.
    fn pull(this: &Bound<'_, Self>) {
        let (py, puller) = (this.py(), this.get());
        let share = puller.share(py);
        puller.lock(py).is_pulling = true;
        for _ in 0..share {
            let mut state = puller.lock(py);
            let Some(number) = state.idle.pop() else {
                break;
            };
            let seat = Arc::clone(&state.seats[usize::from(number)]);
            let Some(taken) = seat.take() else {
                state.idle.push(number);
                break;
            };
            drop(state);
            match Self::prepare(this, number, &seat, taken) {
                Ok((scope, running)) => {
                    if let Err(failure) = Self::start(this, &scope, &running) {
                        error!("the task of a request cannot be followed: {failure}");
                    }
                }
                Err(failure) => {
                    error!("a request cannot be given to the app, and is answered 502: {failure}");
                    puller.is_free(py, number, &seat);
                }
            }
        }
        puller.lock(py).is_pulling = false;
    }

    /// Makes what the app is called with. The slot is given back if that fails.
    fn prepare<'py>(
        this: &Bound<'py, Self>,
        number: u16,
        seat: &Arc<Seat<'static>>,
        taken: Taken<'static>,
    ) -> PyResult<(Bound<'py, PyDict>, Running)> {
        let (py, puller) = (this.py(), this.get());
        let slot = taken.slot() as usize;
        let mut guard = puller.lock(py);
        let state = &mut *guard;
        let record = state.buffer.read(&taken);
        let record = record.map_err(|bad| PyRuntimeError::new_err(format!("{bad}: our fault")))?;
        let scope = state.scopes.make(py, &record)?;
        let begun = state.begun.as_ref().expect("nothing is pulled before");
        let event_loop = begun.event_loop.clone_ref(py);
        let seat = Arc::clone(seat);
        let running = if record.facts.is_websocket {
            let socket = Socket::new(&record, taken, number, seat, event_loop, this);
            Running::Socket(Py::new(py, socket)?)
        } else {
            let request = Request::new(&record, taken, number, seat, event_loop, this)?;
            Running::Request(Py::new(py, request)?)
        };
        if state.running.len() <= slot {
            state.running.resize_with(slot + 1, || None);
        }
        state.running[slot] = Some(running.clone_ref(py));
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
            Ok(task) => running.keep(&task),
            Err(failure) => {
                if failure.is_instance_of::<PySystemExit>(py)
                    || failure.is_instance_of::<PyKeyboardInterrupt>(py)
                {
                    // An eager task hands it on; others hand it to the loop, which ends by it.
                    info!("the app asked to exit ({failure}): the worker leaves");
                    puller.worker.leave();
                }
                running.app_failed(py, &failure)
            }
        }
    }

    /// A WebSocket is open: its seat goes on to another request.
    fn session_begins(this: &Bound<'_, Self>, number: u16, seat: &Seat<'static>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        puller.lock(py).sessions += 1;
        puller.is_free(py, number, seat);
        Self::come_again(this)
    }

    /// Closes sessions, since the worker leaves.
    fn restart_sessions(&self, py: Python<'_>) {
        let mut state = self.lock(py);
        if std::mem::replace(&mut state.is_restart_told, true) {
            return;
        }
        let running = state.running.iter().flatten();
        let running: Vec<_> = running.map(|running| running.clone_ref(py)).collect();
        drop(state);
        for running in running {
            if let Running::Socket(socket) = running
                && let Err(failure) = Socket::restart(socket.bind(py))
            {
                error!("a WebSocket cannot be told that the worker leaves: {failure}");
            }
        }
    }

    /// Whether the task of a request ends with its deadline.
    fn cancels_on_timeout(&self) -> bool {
        self.worker.settings().cancel_on_timeout
    }

    /// A seat is through with its request.
    fn is_free(&self, py: Python<'_>, number: u16, seat: &Seat<'static>) {
        seat.served();
        self.lock(py).idle.push(number);
    }

    /// The task of a request has ended, whose slot has been given back.
    /// A WebSocket that was open has no seat any more.
    fn ended(
        this: &Bound<'_, Self>,
        slot: u32,
        object: &Bound<'_, PyAny>,
        seat: Option<(u16, &Seat<'static>)>,
    ) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let mut state = puller.lock(py);
        // Another one may be in the slot by now, if the app went on after its answer.
        let ended = state.running.get_mut(slot as usize);
        let is_it = |running: &Running| running.is(object);
        let ended = ended.filter(|running| running.as_ref().is_some_and(is_it));
        let _ended = ended.and_then(Option::take);
        let is_pulling = state.is_pulling;
        if seat.is_none() {
            state.sessions -= 1;
        }
        drop(state);
        if let Some((number, seat)) = seat {
            puller.is_free(py, number, seat);
        }
        if is_pulling {
            // Its task ended as soon as it began.
            return Ok(());
        }
        // In the same turn, without a system call.
        Self::go_on(this)
    }

    /// Pulls what is there; comes again by itself if more is left than was this worker's share.
    fn go_on(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let is_leaving = puller.worker.should_leave();
        if is_leaving {
            puller.restart_sessions(py);
        } else {
            Self::pull(this);
        }
        let state = puller.lock(py);
        let load = state.seats.len() - state.idle.len();
        if is_leaving {
            puller.inbox.show_load(Inbox::NO_ROOM);
            if load == 0
                && state.sessions == 0
                && let Some(begun) = &state.begun
            {
                let over = begun.over.clone_ref(py);
                drop(state);
                over.call_method0(py, intern!(py, "set"))?;
            }
            return Ok(());
        }
        puller.inbox.show_load(load as u32);
        let has_more =
            !state.idle.is_empty() && state.left.is_none() && state.seats[0].sees_request();
        drop(state);
        if has_more {
            Self::come_again(this)?;
        }
        Ok(())
    }

    /// Has the loop call [`Puller::turn`] once more when what it runs has had its turn.
    fn come_again(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let mut state = puller.lock(py);
        if std::mem::replace(&mut state.is_turning, true) {
            return Ok(());
        }
        let begun = state.begun.as_ref();
        let event_loop = begun.map(|begun| begun.event_loop.clone_ref(py));
        drop(state);
        if let Some(event_loop) = event_loop {
            let turn = this.getattr(intern!(py, "turn"))?;
            event_loop.call_method1(py, intern!(py, "call_soon"), (turn,))?;
        }
        Ok(())
    }

    /// Says that the loop may sleep; false if there is something for it.
    fn try_sleep(&self, py: Python<'_>) -> bool {
        if !self.inbox.try_sleep() {
            return false;
        }
        // Looked at once more: what came in between was announced to nobody.
        let state = self.lock(py);
        let sleeps = state.is_turning
            || state.idle.is_empty()
            || state.left.is_some()
            || self.worker.should_leave()
            || !state.seats[0].sees_request();
        drop(state);
        if !sleeps {
            self.inbox.awake();
        }
        sleeps
    }
}

#[pymethods]
impl Puller {
    /// The descriptor that becomes readable when there is news.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.inbox.fd().as_raw_fd()
    }

    /// The app is ready: from now on requests are pulled. `over` is an `asyncio.Event`.
    #[pyo3(signature = (app, event_loop, state, over, task_options))]
    fn begin(
        this: &Bound<'_, Self>,
        app: Py<PyAny>,
        event_loop: &Bound<'_, PyAny>,
        state: Option<Py<PyDict>>,
        over: Py<PyAny>,
        task_options: Option<Py<PyDict>>,
    ) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        let mut held = puller.lock(py);
        held.scopes.share(state);
        held.begun = Some(Begun {
            app,
            create_task: match &task_options {
                Some(_) => py.import("asyncio")?.getattr("Task")?.unbind(),
                None => event_loop.getattr("create_task")?.unbind(),
            },
            task_options,
            event_loop: event_loop.clone().unbind(),
            over,
        });
        drop(held);
        Self::turn(this)
    }

    /// Looks for news, and pulls.
    fn turn(this: &Bound<'_, Self>) -> PyResult<()> {
        let (py, puller) = (this.py(), this.get());
        puller.lock(py).is_turning = false;
        puller.inbox.silence();
        puller.inbox.awake();
        for _ in 0..LOOKS_MAX {
            puller.look(py);
            Self::go_on(this)?;
            if puller.try_sleep(py) {
                return Ok(());
            }
        }
        Self::come_again(this)
    }

    /// The loop turns, so much later than this was to be called: to be called now and then.
    fn beat(&self, lag_us: u64) {
        self.inbox.beat(monotonic_us(), lag_us);
    }

    /// The loop turns no more.
    fn rest(&self) {
        self.inbox.rest();
    }

    /// Whether the worker is to leave.
    fn is_leaving(&self) -> bool {
        self.worker.should_leave()
    }

    /// The app has failed to start up, or ended by itself: the worker leaves.
    fn leave(&self) {
        self.worker.leave();
    }
}
