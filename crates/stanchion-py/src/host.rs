//! Python as the host of an app.
//!
//! The template makes the objects that each seat of a worker needs for its first request (`stanchion_sys::heap` says
//! why).

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use stanchion_server::{Fork, Hook, Host, LoadError, Logging, NotLoaded, Seat, StartedAs, Worker};
use stanchion_settings::Settings;
use stanchion_sys::{signal, symbol};
use tracing::{error, warn};

use crate::asgi::Puller;
use crate::gevent::GreenPuller;
use crate::hooks::{self, RequestHooks};
use crate::scribe::PythonLogging;
use crate::traceback::describe;
use crate::warm_up;
use crate::wsgi::{App, Gateway};

/// How long a request of the warm-up may take if `timeout` is 0: a start must not hang for ever.
const WARM_UP_LIMIT: Duration = Duration::from_secs(60);

/// Hosts the app that a Python object loads.
pub(crate) struct PythonHost {
    host: Py<PyAny>,
    /// Whether the configuration has hooks. If not, no process runs Python code to look for them.
    has_hooks: bool,
    app: Option<Py<PyAny>>,
    /// Gateways that the template has made for the seats of its workers.
    gateways: Vec<Gateway>,
    /// The object that runs the event loop, in a worker that has one.
    event_loop: Option<Py<PyAny>>,
}

impl PythonHost {
    pub(crate) fn new(host: Py<PyAny>) -> Self {
        Self {
            has_hooks: has_hooks(&host),
            host,
            app: None,
            gateways: Vec::new(),
            event_loop: None,
        }
    }

    /// Makes objects in the template that each worker would otherwise make for itself, in memory that is not shared.
    fn prepare(&mut self, py: Python<'_>, settings: &Settings) -> PyResult<()> {
        crate::environ::prepare(py)?;
        signal_function(py)?;
        // A hook in a worker may change the facts that gateways hold.
        if !settings.is_event_loop() && !self.has_hooks {
            let seats = 0..settings.seats_per_worker();
            let made = seats.map(|_| Gateway::new(py, settings, None));
            self.gateways = made.collect::<PyResult<_>>()?;
        }
        Ok(())
    }

    /// The gateway of one seat.
    fn gateway(&mut self, py: Python<'_>, settings: &Settings) -> PyResult<Gateway> {
        let prepared = self.gateways.pop().map(Ok);
        prepared.unwrap_or_else(|| Gateway::new(py, settings, None))
    }

    /// The hooks for requests; `None` if the configuration has none.
    fn request_hooks(&self, py: Python<'_>) -> PyResult<Option<RequestHooks>> {
        if !self.has_hooks {
            return Ok(None);
        }
        RequestHooks::of(py, &self.host)
    }

    /// Runs each seat in a thread that Python started, so that the app finds the threads that it expects in `threading`; the main thread waits until
    /// the worker should leave.
    fn run_threads(
        &mut self,
        py: Python<'_>,
        worker: &'static Worker,
        app: &Arc<App>,
    ) -> PyResult<()> {
        // The interpreter's state contains its lock, also that of its main interpreter (`pycore_runtime.h` of CPython).
        if let Some(data) = symbol::extent(c"_PyRuntime") {
            worker.watch_gil(data);
        }
        let threading = py.import("threading")?;
        let mut threads = Vec::new();
        for index in 0..worker.seats() {
            let gateway = self.gateway(py, worker.settings())?;
            // The compiler requires the lock; only this thread uses the gateway.
            let gateway = Mutex::new(gateway);
            let app = Arc::clone(app);
            let run = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
                let py = arguments.py();
                let mut gateway = gateway.lock().unwrap_or_else(PoisonError::into_inner);
                worker.work(|| pull(py, &app, &worker.seat(index), &mut gateway));
            };
            let target = PyCFunction::new_closure(py, None, None, run)?;
            let options = PyDict::new(py);
            options.set_item("target", target)?;
            options.set_item("name", format!("stanchion-seat-{index}"))?;
            let thread = threading.getattr("Thread")?.call((), Some(&options))?;
            thread.call_method0("start")?;
            threads.push(thread);
        }
        while !py.detach(|| worker.wait_until_leaving()) {
            hooks::depart_if_told(py, &self.host, worker);
        }
        hooks::depart_if_told(py, &self.host, worker);
        for thread in threads {
            thread.call_method0("join")?;
        }
        Ok(())
    }
}

/// The function that Python's `signal.signal` wraps. The wrapper makes enums of its arguments and results, which would cost each worker a tenth of a
/// megabyte of memory that it otherwise shares with the others.
fn signal_function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static SIGNAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    SIGNAL.import(py, "_signal", "signal")
}

impl Host for PythonHost {
    fn load(&mut self, settings: &Settings) -> Result<(), NotLoaded> {
        let expected = if settings.is_asgi() { "asgi" } else { "wsgi" };
        Python::attach(|py| {
            let loaded = self.host.call_method1(py, intern!(py, "load"), (expected,));
            self.app = Some(loaded.map_err(|error| not_loaded(py, &error))?);
            Ok(())
        })
    }

    fn warm_up(&mut self, settings: &Settings) {
        let warmed = Python::attach(|py| {
            let app = self
                .app
                .as_ref()
                .expect("the server loads before it warms up");
            let limit = settings.workers.timeout.as_duration();
            warm_up::warm_up(py, app.bind(py), settings, limit.or(Some(WARM_UP_LIMIT)))
        });
        if let Err(error) = warmed {
            error!("our fault: the warm-up breaks off, and the start goes on: {error}");
        }
    }

    fn answer_one(&mut self, settings: &Settings, limit: Duration) -> Result<(), String> {
        Python::attach(|py| {
            let app = self
                .app
                .as_ref()
                .expect("the server loads before it serves");
            warm_up::answer_one(py, app.bind(py), settings, limit)
        })
        .unwrap_or_else(|error: PyErr| Err(format!("our fault: {error}")))
    }

    fn settle(&mut self, settings: &Settings) {
        let settled = Python::attach(|py| {
            self.prepare(py, settings)?;
            // Collects garbage first, so that it is not kept for ever. Then all living objects move out of the collector's sight, which would
            // otherwise write to each of them and unshare its page.
            let gc = py.import("gc")?;
            gc.call_method0("collect")?;
            py.import("stanchion.leaving")?.call_method0("note_files")?;
            gc.call_method0("freeze").map(drop)
        });
        if let Err(error) = settled {
            warn!("workers share less memory with the template: {error}");
        }
    }

    fn write_stacks_to(&mut self, dumps: BorrowedFd<'static>) -> Result<(), String> {
        let arguments = (signal::DUMP, dumps.as_raw_fd());
        let done = Python::attach(|py| {
            self.host
                .call_method1(py, intern!(py, "write_stacks_to"), arguments)
        });
        done.map(drop).map_err(|error| error.to_string())
    }

    fn fork(&mut self) -> io::Result<Fork> {
        Python::attach(crate::fork::fork)
    }

    fn fork_worker(&mut self) -> io::Result<Fork> {
        Python::attach(crate::fork::fork_for_subreaper)
    }

    fn start_up(&mut self, worker: &'static Worker) -> Result<bool, String> {
        if worker.inbox().is_none() {
            return Ok(true);
        }
        Python::attach(|py| {
            let app = self
                .app
                .as_ref()
                .expect("the server loads before it serves");
            if worker.settings().is_gevent() {
                let hooks = self.request_hooks(py)?;
                let app = Arc::new(App::new(app.clone_ref(py), worker, hooks));
                let puller = GreenPuller::new(py, worker, app)?;
                let hub_loop = self
                    .host
                    .call_method1(py, intern!(py, "gevent_loop"), (puller,))?;
                self.event_loop = Some(hub_loop);
                // A WSGI app has no start-up of its own.
                return Ok(true);
            }
            let puller = Puller::new(py, worker)?;
            let event_loop =
                self.host
                    .call_method1(py, intern!(py, "event_loop"), (app, puller))?;
            let has_started = event_loop.call_method0(py, intern!(py, "start_up"))?;
            self.event_loop = Some(event_loop);
            has_started.extract(py)
        })
        .map_err(|error: PyErr| Python::attach(|py| describe(py, &error)))
    }

    fn serve(&mut self, worker: &'static Worker) -> Result<(), String> {
        Python::attach(|py| {
            if let Some(event_loop) = &self.event_loop {
                event_loop.call_method0(py, intern!(py, "serve"))?;
                hooks::depart_if_told(py, &self.host, worker);
                return Ok(());
            }
            let app = self
                .app
                .as_ref()
                .expect("the server loads before it serves")
                .clone_ref(py);
            let app = Arc::new(App::new(app, worker, self.request_hooks(py)?));
            if worker.seats() == 1 {
                let mut gateway = self.gateway(py, worker.settings())?;
                worker.work(|| pull(py, &app, &worker.seat(0), &mut gateway));
                hooks::depart_if_told(py, &self.host, worker);
                return Ok(());
            }
            self.run_threads(py, worker, &app)
        })
        .map_err(|error: PyErr| {
            // Threads that were started must not go on without the main thread, which watches them.
            worker.leave();
            error.to_string()
        })
    }

    fn enter(&mut self, worker: &'static Worker) -> Result<(), String> {
        Python::attach(|py| {
            let host = self.host.clone_ref(py);
            let depart = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
                hooks::depart_if_told(arguments.py(), &host, worker);
            };
            let mut depart = PyCFunction::new_closure(py, None, None, depart)?;
            if worker.settings().is_gevent() {
                depart = hooks::from_any_greenlet(py, depart)?;
            }
            hooks::tell_of_forks(py, worker)?;
            let signal_function = signal_function(py)?;
            for number in [
                signal::SIGINT,
                signal::SIGQUIT,
                signal::SIGABRT,
                signal::SIGUSR1,
            ] {
                signal_function.call1((number, &depart))?;
            }
            if !self.has_hooks {
                return Ok(());
            }
            let listen = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
                let (wanted,) = arguments.extract::<(String,)>()?;
                hooks::listen(arguments.py(), worker, &wanted)
            };
            let listen = PyCFunction::new_closure(py, None, None, listen)?;
            self.host
                .call_method1(py, intern!(py, "enter"), (listen,))
                .map(drop)
        })
        .map_err(|error: PyErr| {
            format!("cannot set up Python's signal handlers and hooks in a worker: {error}")
        })
    }

    fn run_hook(&mut self, hook: Hook) -> Result<(), LoadError> {
        if !self.has_hooks {
            return Ok(());
        }
        Python::attach(|py| hooks::run(py, &self.host, hook))
    }

    fn has_scribe(&mut self) -> bool {
        let has_scribe = Python::attach(|py| {
            let has_scribe = self.host.getattr(py, intern!(py, "has_scribe"))?;
            has_scribe.extract::<bool>(py)
        });
        has_scribe.unwrap_or_else(|error| {
            error!(
                "cannot find out whether the settings ask for a scribe, so none starts: {error}"
            );
            false
        })
    }

    fn set_up_logging(&mut self) -> Result<Box<dyn Logging>, LoadError> {
        Python::attach(|py| {
            let made = self.host.call_method0(py, intern!(py, "set_up_scribe"));
            let scribe = made.map_err(|error| LoadError {
                report: describe(py, &error),
            })?;
            let logging: Box<dyn Logging> = Box::new(PythonLogging::new(scribe));
            Ok(logging)
        })
    }

    fn reopen_logs(&mut self) {
        Python::attach(|py| hooks::reopen_logs(py, &self.host));
    }

    fn let_threads_run(&mut self, moment: Duration) {
        // The master holds the interpreter's lock all the rest of the time.
        Python::attach(|py| py.detach(|| std::thread::sleep(moment)));
    }

    fn thread_names(&mut self) -> HashMap<i32, String> {
        let names = Python::attach(|py| {
            self.host
                .call_method0(py, intern!(py, "thread_names"))?
                .extract::<HashMap<i32, String>>(py)
        });
        names.unwrap_or_else(|error| {
            error!("Python's threads cannot be named: {error}");
            HashMap::new()
        })
    }

    fn reconfigure(&mut self) -> Result<Settings, String> {
        let text = Python::attach(|py| {
            self.host
                .call_method0(py, intern!(py, "reconfigure"))
                .and_then(|text| text.extract::<String>(py))
                .map_err(|error| describe(py, &error))
        })?;
        self.has_hooks = has_hooks(&self.host);
        // The same table has checked these settings a moment ago.
        Settings::from_json(&text).map_err(|error| error.to_string())
    }

    fn revert(&mut self) {
        let done = Python::attach(|py| self.host.call_method0(py, intern!(py, "revert")));
        self.has_hooks = has_hooks(&self.host);
        if let Err(error) = done {
            error!(
                "the configuration from before the failed reload cannot be restored, so restart the server: {error}"
            );
        }
    }

    fn started_as(&self) -> StartedAs {
        let found = Python::attach(|py| {
            let found = self.host.getattr(py, intern!(py, "started_as"))?;
            found.extract::<(Vec<OsString>, PathBuf)>(py)
        });
        let (command, directory) = found.unwrap_or_else(|error| {
            error!(
                "cannot find out how this process was started, so an upgrade will fail: {error}"
            );
            (Vec::new(), PathBuf::from("."))
        });
        StartedAs { command, directory }
    }

    fn watched_files(&mut self) -> Vec<PathBuf> {
        let files = Python::attach(|py| {
            self.host
                .call_method0(py, intern!(py, "watched_files"))?
                .extract::<Vec<PathBuf>>(py)
        });
        files.unwrap_or_else(|error| {
            error!("the files to watch cannot be listed, so no change reloads the server: {error}");
            Vec::new()
        })
    }
}

/// Whether the configuration in force has any hook.
fn has_hooks(host: &Py<PyAny>) -> bool {
    let has_hooks = Python::attach(|py| {
        host.getattr(py, intern!(py, "has_hooks"))?
            .extract::<bool>(py)
    });
    has_hooks.unwrap_or_else(|error| {
        error!("cannot find out whether there are hooks, so each event looks for one: {error}");
        true
    })
}

/// Sorts the loader's exceptions: the app has another interface, or cannot be loaded.
fn not_loaded(py: Python<'_>, error: &PyErr) -> NotLoaded {
    let other = py
        .import("stanchion.loader")
        .and_then(|loader| loader.getattr(intern!(py, "OtherInterfaceError")));
    if other.is_ok_and(|other| error.is_instance(py, &other)) {
        return NotLoaded::OtherInterface;
    }
    NotLoaded::Broken(LoadError {
        report: describe(py, error),
    })
}

/// Takes and answers requests until the worker should leave. The thread releases the interpreter only to wait.
fn pull(py: Python<'_>, app: &App, seat: &Seat<'static>, gateway: &mut Gateway) {
    while let Some(taken) = seat.take().or_else(|| py.detach(|| seat.wait())) {
        gateway.answer(py, app, seat, taken);
        seat.served();
    }
}
