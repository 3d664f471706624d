//! Settings of event loops, and of the apps that they run.

use super::{ANY_TIME, Group, Kind, OnReload, Preset, Range, Setting};

/// As in gunicorn's `worker_connections`.
const CONCURRENCY: u64 = 1000;
/// Likewise. Each costs a few hundred bytes of the acceptor's, used or not.
const SESSIONS: u64 = 1000;
const SESSIONS_MAX: u64 = 100_000;
/// Lengths in the exchange have 32 bits.
const WS_SIZE_MAX: u64 = 1 << 30;

pub(super) const EVENT_LOOP: Group = Group {
    title: "Asynchronous apps",
    settings: &[
        Setting {
            name: "interface",
            flags: &["--interface"],
            metavar: "NAME",
            env: None,
            kind: Kind::Choice(&["auto", "wsgi", "asgi"]),
            default: Preset::Text("auto"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "What the app is: auto, wsgi or asgi",
            long_help: "\
asgi: the app is asynchronous (ASGI 3, as FastAPI, Starlette, Quart and \
Django's get_asgi_application() are), and each worker runs one event loop \
for it. wsgi: each worker runs threads. auto looks at the app: it is \
asynchronous if it is a coroutine function, or an object whose __call__ \
is one.

The server starts for a WSGI app. If auto finds an asynchronous one, the \
server starts again for that, which costs a second import of the app; a \
line in the log says so, and --interface asgi saves it. Until auto knows, \
clients wait outside, in the kernel's queue; otherwise they come in at once \
and wait in the line. A reload or an upgrade looks again, and takes the \
app for what it was. An app that is not what is said here is refused.",
        },
        Setting {
            name: "worker_concurrency",
            flags: &["--worker-concurrency"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(1, u32::MAX as u64)),
            default: Preset::Number(CONCURRENCY),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Requests that one event loop runs at once",
            long_help: "\
Of asynchronous apps, and of WSGI apps under gevent. What is beyond that \
waits in the line, where it can be served by another worker, refused, or leave. All workers, and 8 \
more for successors, together have at most 65535; above that each has its \
share of them.",
        },
        Setting {
            name: "worker_sessions",
            flags: &["--worker-sessions"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(1, SESSIONS_MAX)),
            default: Preset::Number(SESSIONS),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "WebSockets that one event loop has open",
            long_help: "\
Of asynchronous apps only. An open WebSocket does not count for \
worker_concurrency. Workers times this may be open; the next client gets \
503 and Retry-After before its WebSocket begins.",
        },
        Setting {
            name: "session_grace",
            flags: &["--session-grace"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(10),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Time over which WebSockets are closed",
            long_help: "\
When the server shuts down, or a reload or an upgrade ends a generation, \
its WebSockets are closed with code 1012 (the client may come again), \
spread over this time, so that not all clients come again at once. Half \
of graceful_timeout, if that is less.",
        },
        Setting {
            name: "ws_ping_interval",
            flags: &["--ws-ping-interval"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(20),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "How often WebSocket clients are pinged",
            long_help: "\
A ping asks the client of a WebSocket whether it is still there. 0 = \
never.",
        },
        Setting {
            name: "ws_ping_timeout",
            flags: &["--ws-ping-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(20),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Close a WebSocket whose ping is unanswered",
            long_help: "\
A client that has not answered a ping after this time is taken for gone: \
its WebSocket is closed with code 1011. 0 = it may take for ever.",
        },
        Setting {
            name: "ws_max_size",
            flags: &["--ws-max-size"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::between(1, WS_SIZE_MAX)),
            default: Preset::Number(16 << 20),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Longest message of a WebSocket client",
            long_help: "\
A longer one closes the WebSocket with code 1009, before the app sees any \
of it.",
        },
        Setting {
            name: "max_ws_memory",
            flags: &["--max-ws-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(256 << 20),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory of WebSocket messages, in bytes",
            long_help: "\
Messages that have come in part, and those for which an app that does not \
receive has no room, of all clients together. Past it a WebSocket that \
needs more is closed with code 1013 (try again later). The first 16 KiB \
of each do not count. The rest of a longer message has to come as fast as \
that of a body: see body_timeout and min_body_rate.",
        },
        Setting {
            name: "loop",
            flags: &["--loop"],
            metavar: "NAME",
            env: None,
            kind: Kind::Choice(&["auto", "asyncio", "uvloop", "gevent"]),
            default: Preset::Text("auto"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Event loop: auto, asyncio, uvloop or gevent",
            long_help: "\
For asynchronous apps auto takes uvloop if it can be imported, and \
asyncio's own loop otherwise. uvloop is refused where it is not installed.

gevent is for WSGI apps: each request runs in a greenlet, up to \
worker_concurrency of them in each worker. Each worker has gevent change \
Python's modules (gevent.monkey.patch_all) before it imports the app, so \
the app is never preloaded. gevent must be installed.",
        },
        Setting {
            name: "loop_timeout",
            flags: &["--loop-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(5),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Log what blocks an event loop for so long",
            long_help: "\
Code that does not await, or under gevent does not let other greenlets \
run, blocks the event loop of its worker, and all requests that run there. When a loop has not \
turned for this long, one line of the log names the worker, and its \
stack follows. Requests that wait in the line go to the other workers. A \
worker whose loop has not turned for timeout is killed and replaced. 0 \
logs nothing.",
        },
        Setting {
            name: "cancel_on_timeout",
            flags: &["--cancel-on-timeout"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Cancel tasks of requests past their timeout",
            long_help: "\
Of asynchronous apps only. When a request has run for timeout and its \
answer has not begun, the client is answered 504. The app is told so by \
http.disconnect, and its task goes on. With this the task is cancelled \
too: asyncio.CancelledError is raised where it awaits. Some libraries do \
not bear that, such as pools of connections to databases.",
        },
        Setting {
            name: "whole_uploads",
            flags: &["--whole-uploads"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Call the app once the body is there",
            long_help: "\
Of asynchronous apps only. A request waits in the line when 64 KiB of its \
body are there, or when it has sent some and nothing for 50 ms; the app \
receives the rest while it comes. With this it waits when all of the body \
is there, as requests of WSGI apps do: a slow upload takes none of \
worker_concurrency, and a large body is kept in a file meanwhile.",
        },
        Setting {
            name: "lifespan",
            flags: &["--lifespan"],
            metavar: "MODE",
            env: None,
            kind: Kind::Choice(&["auto", "on", "off"]),
            default: Preset::Text("auto"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Tell the app when a worker starts and ends",
            long_help: "\
Of asynchronous apps only. Each worker calls the app once with the \
lifespan scope: what the app sets up there is ready before the first \
request. auto serves an app too that raises at that call, since many know \
no lifespan; on ends such a worker; off does not call.",
        },
    ],
};
