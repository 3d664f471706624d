//! Which settings have no effect in workers of one kind or another.

use serde_json::Value;

use super::Settings;
use super::row::Setting;
use super::table::rows;
use super::values::Values;
use super::words::{Interface, Lifespan};

/// The way in which a worker runs requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// Threads, for WSGI apps.
    Threads,
    /// Greenlets, for WSGI apps under gevent.
    Greenlets,
    /// The event loop of an asynchronous app.
    EventLoop,
}

/// A setting that an operator may give in vain.
#[derive(Debug)]
pub(super) struct WithoutEffect {
    pub(super) setting: &'static Setting,
    pub(super) runners: &'static [Runner],
    missed: Missed,
    /// A sentence without its end.
    pub(super) why: &'static str,
}

/// The values whose missing effect is worth a warning.
#[derive(Debug)]
enum Missed {
    /// All but the default.
    NoDefault,
    /// Values that ask for something else than what happens anyway.
    If(fn(&Settings) -> bool),
    /// None: what they ask for happens anyway, or gunicorn takes them in silence, too.
    Never,
}

use Missed::{If, Never, NoDefault};
use Runner::{EventLoop, Greenlets, Threads};

const WSGI: &[Runner] = &[Threads, Greenlets];
const LOOPS: &[Runner] = &[Greenlets, EventLoop];

const NO_WEBSOCKETS: &str = "a WSGI app has no WebSockets";

macro_rules! without_effect {
    ($($name:ident: $runners:expr, $missed:expr, $why:expr;)*) => {
        pub(super) static WITHOUT_EFFECT: &[WithoutEffect] = &[$(WithoutEffect {
            setting: &rows::$name.setting,
            runners: $runners,
            missed: $missed,
            why: $why,
        }),*];
    };
}

without_effect! {
    threads: LOOPS, NoDefault, "each worker has one thread, which runs up to worker_concurrency requests at once";
    preload_app: &[Greenlets], If(|set| set.workers.preload_app), "gevent changes Python's modules in each worker before that imports the app";
    // As worker_connections in many a config file.
    worker_concurrency: &[Threads], Never, "`threads` says how many requests a worker runs at once";
    event_loop: &[Threads], NoDefault, "asyncio and uvloop run asynchronous apps";
    loop_timeout: &[Threads], NoDefault, "threads have no event loop";
    worker_sessions: WSGI, NoDefault, NO_WEBSOCKETS;
    session_grace: WSGI, NoDefault, NO_WEBSOCKETS;
    ws_ping_interval: WSGI, NoDefault, NO_WEBSOCKETS;
    ws_ping_timeout: WSGI, NoDefault, NO_WEBSOCKETS;
    ws_max_size: WSGI, NoDefault, NO_WEBSOCKETS;
    ws_per_message_deflate: WSGI, NoDefault, NO_WEBSOCKETS;
    max_ws_memory: WSGI, NoDefault, NO_WEBSOCKETS;
    cancel_on_timeout: WSGI, NoDefault, "a WSGI app has no task that could be cancelled";
    whole_uploads: WSGI, Never, "a WSGI app is called when the whole body is there";
    lifespan: WSGI, If(|set| set.event_loop.lifespan == Lifespan::On), "a WSGI app is not told when a worker starts and ends; hooks are";
    response_spool: LOOPS, If(|set| set.buffers.response_spool > 0), "an answer that waits for its client holds no thread, and is never spooled";
}

impl Runner {
    /// As far as a setting names it.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        match settings.event_loop.interface {
            _ if settings.is_gevent() => Some(Greenlets),
            Interface::Asgi => Some(EventLoop),
            Interface::Wsgi => Some(Threads),
            Interface::Auto => None,
        }
    }

    /// As it stands after "with".
    pub(super) fn words(self) -> &'static str {
        match self {
            Threads => "threads",
            Greenlets => "gevent",
            EventLoop => "an asynchronous app",
        }
    }
}

impl WithoutEffect {
    /// Whether the operator, who has set it, may miss its effect.
    pub(super) fn is_missed(&self, settings: &Settings, values: &Values) -> bool {
        let value = &values[self.setting.name].value;
        match self.missed {
            NoDefault => *value != Value::from(self.setting.default),
            If(is_missed) => is_missed(settings),
            Never => false,
        }
    }

    /// All of these, as [`Runner::words`].
    pub(super) fn words(&self) -> String {
        let words: Vec<_> = self.runners.iter().map(|runner| runner.words()).collect();
        words.join(" or ")
    }
}
