//! Settings of event loops, and of the apps that they run.

use super::{ANY_TIME, Group, Kind, OnReload, Preset, Range, SIZE_BYTES_MIN, Setting};

/// As in gunicorn's `worker_connections`.
const CONCURRENCY: u64 = 1000;
/// As in gunicorn, too. Each costs a few hundred bytes of the acceptor's, used or not.
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
            help: "Interface of the app: auto, wsgi or asgi",
            long_help: "\
asgi: the app is asynchronous (ASGI 3, as FastAPI, Starlette, Quart and \
Django's get_asgi_application() are), and each worker runs one event loop \
for it. wsgi: each worker runs threads. auto looks at the app: it is \
asynchronous if it is a coroutine function, or an object whose __call__ \
is one.

The server starts for a WSGI app. If auto finds an asynchronous one, the \
server starts again for that, with the process that has imported the app. \
With --no-preload, a logging setup of gunicorn's, or at a reload that brings \
another kind of app, the app is imported once more; a line in the log says \
so, and --interface asgi saves it. Until auto knows, clients wait outside, \
in the kernel's queue; otherwise they come in at once and wait in the line. \
A reload or an upgrade looks again, and takes the app for what it was. An \
app of another kind than the one named here is refused.",
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
Applies to asynchronous apps, and to WSGI apps under gevent. Further \
requests wait in the line, where another worker can take them, and where the \
limits of the line apply. All workers together, counting 8 for successors, \
run at most 65535; if workers times worker_concurrency is more, each has an \
equal share.",
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
            help: "Most open WebSockets of one event loop",
            long_help: "\
Applies to asynchronous apps. An open WebSocket does not count towards \
worker_concurrency. The server has at most workers times worker_sessions \
open, and one client has at most half of them, or \
max_connections_per_client; a further client is answered 503 with \
Retry-After instead of 101.",
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
Applies to asynchronous apps. When the server shuts down, or a reload or an \
upgrade replaces its workers, open WebSockets are closed with code 1012 \
(service restart), one after the other over this time, so that not all \
clients connect again at once. At most half of graceful_timeout.",
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
Applies to asynchronous apps. The server sends a ping to the client of each \
open WebSocket this often, to learn whether it is still there. 0 sends none.",
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
Applies to asynchronous apps. If a client has not answered a ping after this \
time, its WebSocket is closed with code 1011. 0 waits for ever.",
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
            help: "Longest WebSocket message, in bytes",
            long_help: "\
Applies to asynchronous apps. A longer message is not given to the app, and \
its WebSocket is closed with code 1009. A compressed message may be no \
longer as it comes, and no longer once it is decompressed.",
        },
        Setting {
            name: "ws_per_message_deflate",
            flags: &["--ws-per-message-deflate"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Compress messages of WebSockets",
            long_help: "\
Applies to asynchronous apps. Messages are compressed if the client offers \
it (permessage-deflate, RFC 7692). Each message is compressed by itself, so \
an idle WebSocket needs no more memory. The worker compresses, and its event \
loop runs nothing else meanwhile. Messages of the app below 1 KiB are sent \
as they are. Do not compress messages that have both a secret and text that \
strangers choose: an attacker who sees their lengths can guess the secret.",
        },
        Setting {
            name: "max_ws_memory",
            flags: &["--max-ws-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(256 << 20),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory of WebSocket messages, in bytes",
            long_help: "\
Applies to asynchronous apps. The memory for messages of all clients \
together that are not complete yet, or that the app has not received and its \
queue has no room for. A WebSocket that needs more is closed with code 1013 \
(try again later). The first 16 KiB of each WebSocket do not count. The \
rest of a longer message must arrive as fast as that of a body: see \
body_timeout and min_body_rate.",
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
For asynchronous apps, auto takes uvloop if it is installed, and asyncio's \
own loop otherwise. uvloop stops the start if it is not installed.

gevent is for WSGI apps: each request runs in a greenlet, and each worker \
runs up to worker_concurrency of them. Each worker lets gevent change \
Python's modules (gevent.monkey.patch_all) before it imports the app, so the \
app is not preloaded. gevent must be installed.",
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
            help: "Log an event loop that is blocked so long",
            long_help: "\
Code that does not await, or under gevent does not switch to other \
greenlets, blocks the event loop of its worker, and so all requests that run \
there. When a loop has been blocked for this long, the log names the worker \
and shows its stack. Requests that wait in the line go to other workers. A \
worker whose loop is blocked for `timeout` is killed and replaced. 0 logs \
nothing.",
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
Applies to asynchronous apps. If a request has run for `timeout` and its \
answer has not begun, the client is answered 504, the app receives \
http.disconnect, and its task goes on. With this setting the task is \
cancelled, too: asyncio.CancelledError is raised where it awaits. Some \
libraries do not survive that, such as connection pools of databases.",
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
            help: "Call the app when the body is complete",
            long_help: "\
Applies to asynchronous apps. By default a request joins the line before its \
body is complete: once 64 KiB of it are there, or some of it, and no more \
for 50 ms. The app receives the rest as it comes. With this setting a \
request joins the line when its body is complete, as for WSGI apps: a slow \
upload takes none of worker_concurrency, and a large body is kept in a file \
meanwhile.",
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
Applies to asynchronous apps. Each worker calls the app once with the \
lifespan scope, so that the app can set up what it needs before the first \
request, and close it at the end. auto: if the app raises at that call, it \
is taken for one that has no lifespan, and served without. on: a worker \
whose app raises there ends. off: the app is not called for it.",
        },
    ],
};
