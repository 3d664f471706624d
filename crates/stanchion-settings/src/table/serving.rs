//! Settings of what listens and what works.

use super::{ANY_TIME, Env, Group, Kind, OnReload, Preset, Range, Setting};
use crate::Bind;

/// No worker fits into less.
const WORKER_BYTES_MIN: u64 = 1 << 20;

pub(super) const SERVER_SOCKET: Group = Group {
    title: "Server socket",
    settings: &[
        Setting {
            name: "bind",
            flags: &["-b", "--bind"],
            metavar: "ADDRESS",
            env: Some(Env {
                name: "PORT",
                format: "0.0.0.0:{}",
            }),
            kind: Kind::List {
                may_be_empty: false,
                check: bind,
                from_map: Some(bind_of_map),
            },
            default: Preset::List(&["127.0.0.1:8000"]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Where to listen (may be repeated)",
            long_help: "\
One of: HOST:PORT, [V6]:PORT, :PORT (every IPv4 address), unix:PATH, \
unix:@NAME (a unix socket without a file), fd://N (a socket that \
another program opened, such as systemd). A port of 0 lets the kernel \
choose one. No address may be there twice, however it is spelled.

A bind on the command line replaces those of the config file; it does \
not add to them. Sockets that a service manager passed (LISTEN_FDS) are \
used instead of all of them.

Options of one listener follow its address, as in \
127.0.0.1:8000?backlog=64&tries=-1, or stand in a dict in the config \
file: {\"address\": \"127.0.0.1:8000\", \"backlog\": 64, \"tries\": -1}. They \
are: backlog; tries (1: attempts while the address is in use, -1 for \
ever) and delay (0.5: seconds between them); tcp_nodelay (true); \
defer_accept (0: seconds that the kernel keeps back a connection that \
sends nothing); keepalive (true: SO_KEEPALIVE); reuseport; ipv6only \
(true); rcvbuf and sndbuf (bytes); tls (true if there is a `certfile`). For unix:PATH: mode, or umask, and \
owner and group of the file.",
        },
        Setting {
            name: "backlog",
            flags: &["--backlog"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(1, i32::MAX as u64)),
            default: Preset::Number(2048),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Connections the kernel may hold unaccepted",
            long_help: "\
Connections are accepted as fast as they come and wait in the line, not \
in the kernel, so this counts only while the acceptor starts again.

The kernel silently uses net.core.somaxconn where that is lower \
(listen(2)). Past it a client on TCP tries again after a second or more; \
on a unix socket its connect fails with EAGAIN.",
        },
        Setting {
            name: "reuse_port",
            flags: &["--reuse-port"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Let other servers bind the same port too",
            long_help: "\
Sets SO_REUSEPORT on every TCP listener: the kernel then spreads new \
connections over all servers of this user that listen there (socket(7)). \
A forgotten second server is then no error, but gets half of the clients.",
        },
        Setting {
            name: "worker_port_base",
            flags: &["--worker-port-base"],
            metavar: "PORT",
            env: None,
            kind: Kind::Int(Range::between(0, u16::MAX as u64)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Give worker N the port PORT+N as well",
            long_help: "\
Requests that come to port PORT+N of 127.0.0.1 are answered by worker N \
alone (counted from 0): to look at one worker while the others serve, or \
to move traffic by hand. While that worker is busy they wait, even if \
others are idle, in a queue of their own, for queue_timeout at most. They \
count towards max_waiting, and each port may use its share of it. If the \
worker dies, its successor gets the port. 0 opens no such ports.

There are as many ports as `workers` says; workers added by TTIN have \
none.",
        },
    ],
};

pub(super) const WORKERS: Group = Group {
    title: "Workers",
    settings: &[
        Setting {
            name: "workers",
            flags: &["-w", "--workers"],
            metavar: "N",
            env: Some(Env {
                name: "WEB_CONCURRENCY",
                format: "{}",
            }),
            kind: Kind::Int(Range::from(1)),
            default: Preset::Number(1),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Worker processes",
            long_help: "\
Workers times threads is the number of requests that run at once; the others \
wait in the line. That product is at most 4096. With an asynchronous app, \
workers times worker_concurrency requests run at once, at most 65535.

Where the kernel allows fewer processes (RLIMIT_NPROC, pids.max of the \
cgroup) the fork fails, which is logged and tried again.",
        },
        Setting {
            name: "threads",
            flags: &["--threads"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::from(1)),
            default: Preset::Number(1),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Threads in each worker",
            long_help: "\
Each thread takes a request of its own from the line, so the app must \
be safe to call from several threads. Threads of one worker share \
Python's interpreter lock: they help an app that waits, not one that \
computes. An asynchronous app has one event loop in each worker instead.",
        },
        Setting {
            name: "timeout",
            flags: &["-t", "--timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(30),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Kill a worker that runs a request longer",
            long_help: "\
Counted from the moment a worker takes the request; time in the line is not \
part of it. Past it the worker is killed and replaced, and the client is \
answered 504. The other requests of its threads end with it and are answered \
502. 0 switches it off.

With an asynchronous app, only the client of that request is answered 504, \
and the worker goes on: see cancel_on_timeout and loop_timeout. An answer \
that has begun is not limited there, since streams of events have no end.",
        },
        Setting {
            name: "graceful_timeout",
            flags: &["--graceful-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(30),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Time to finish at shutdown and reload",
            long_help: "\
After TERM the requests that run and those that wait in the line are served \
for this long. Requests that are left then are answered 503, and their \
workers are killed. 0 leaves no time.

When nothing runs any more, threads of the app that are no daemons have two \
seconds. The log names those that stay, with their stacks, and the worker \
leaves without them.

The program that started the server must allow at least as long: systemd \
kills after TimeoutStopSec (90 s), Docker after 10 s.",
        },
        Setting {
            name: "keepalive",
            flags: &["--keep-alive"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(2),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Keep an idle connection open this long",
            long_help: "\
How long a connection may stay open between two requests. It is bound \
to no worker meanwhile, so a long time costs only a descriptor. Behind a \
proxy that keeps connections, use more than the proxy does, or it may \
send a request into a connection that has just been closed. 0 closes \
after each response.",
        },
        Setting {
            name: "half_close",
            flags: &["--half-close"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Serve clients that shut their sending side",
            long_help: "\
While a request waits or runs, a client that closes its sending side counts \
as gone, which it almost always is: browsers and proxies close both \
directions, and the server sees only one of them close. The request leaves \
the line, or its answer is dropped. With half_close such a client is served, \
for the few clients that send, shut down their side and read on, as `nc -N` \
does; the server then notices that a client has left only when the client's \
system resets the connection, or, over a unix socket, when the client has \
closed it.

Either way, if a client has already sent more than 16 KiB of later requests, \
the server notices that it has left only when its answer is sent.",
        },
        Setting {
            name: "early_hints",
            flags: &["--early-hints"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Send the app's early hints (103) to clients",
            long_help: "\
A hint that the app gives to wsgi.early_hints, or sends as \
http.response.early_hint, goes to the client at once as a response 103 (RFC \
8297), before the answer. Each request may have up to 32 hints, with 3.5 KiB \
each and 16 KiB in all. Hints beyond that are dropped, with a warning in the \
log. Clients that speak HTTP/1.0 get none, nor do requests of the method \
HEAD and peers of the uwsgi protocol.

Off by default, because nginx before 1.29 in front of this server takes a 103 \
for the answer: its client then waits for the rest until a timeout. Where \
such an nginx uses a connection for the next request, it may even give one \
client's answer to another. Do not set it behind one. Set it once the proxy \
passes early hints on, or if there is none. Without it the app's hints are \
dropped.",
        },
        Setting {
            name: "pathsend",
            flags: &["--pathsend"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Let asynchronous apps send files by path",
            long_help: "\
The scope of an asynchronous app then names the extension \
http.response.pathsend: FileResponse and StaticFiles of Starlette and FastAPI \
give the server the path of a file, and the file does not pass through the \
worker.

Off by default, because middleware cannot see such a body. Some middleware \
that compresses sends the file as it is, and some drops the message and all \
of the answer with it: the client gets a 500. uvicorn does not offer it. Set \
it for apps without such middleware.",
        },
        Setting {
            name: "retry_idempotent",
            flags: &["--retry-idempotent"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Repeat requests whose worker died",
            long_help: "\
A request whose worker dies before it has begun to answer is answered 502. \
With this, another worker gets it, once and ahead of all that wait, if its \
method is one that may be repeated: GET, HEAD, OPTIONS, TRACE, PUT or DELETE \
(RFC 9110 section 9.2.2), and its body is in memory (see body_memory). The \
app may have done half of the work when it died: turn this on if doing it \
again does no harm. A request that kills each worker it meets kills two \
then. A request that ran into its timeout is answered 504 and not repeated. \
Each repetition is logged, and counted as requests_retried.",
        },
        Setting {
            name: "max_requests",
            flags: &["--max-requests"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::from(0)),
            default: Preset::Number(0),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Replace a worker after this many (0: never)",
            long_help: "\
A worker that has answered this many requests leaves once it is idle \
and a new one is forked: a remedy for an app that leaks memory. No \
request is lost. Each message that an asynchronous app receives over a \
WebSocket counts like a request; those that are open are closed with \
code 1012, over session_grace. 0 keeps workers for ever.",
        },
        Setting {
            name: "max_requests_jitter",
            flags: &["--max-requests-jitter"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::from(0)),
            default: Preset::Number(0),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Random extra requests, up to this many",
            long_help: "\
Each worker adds a random number from 0 to N to max_requests, so that \
they are not all replaced at once.",
        },
        Setting {
            name: "max_lifetime",
            flags: &["--max-lifetime"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Replace a worker this old (0: never)",
            long_help: "\
A worker that has been ready for this long leaves once it is idle and a \
new one is forked. No request is lost. 0 keeps workers for ever.",
        },
        Setting {
            name: "max_lifetime_jitter",
            flags: &["--max-lifetime-jitter"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Random extra lifetime, up to this long",
            long_help: "\
Each worker adds a random time up to this to max_lifetime, so that they \
are not all replaced at once.",
        },
        Setting {
            name: "max_memory",
            flags: &["--max-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(WORKER_BYTES_MIN)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Replace a worker that has grown past this",
            long_help: "\
A worker with more memory than this leaves once it is idle and a new one is \
forked. No request is lost. Its proportional set size counts (PSS in \
proc(5)): its own pages, and its share of those it has in common with \
others. 0 sets no bound.

A worker that takes more before its first request is not replaced, since its \
successor would take as much; a warning says so.",
        },
        Setting {
            name: "max_memory_hard",
            flags: &["--max-memory-hard"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(WORKER_BYTES_MIN)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Kill a worker that has grown past this",
            long_help: "\
As max_memory, but the worker is killed at once, as for a request past \
its timeout: its clients are answered 502. A remedy for one request that \
would take the memory of all; set it well above max_memory. 0 sets no \
bound.",
        },
        Setting {
            name: "preload_app",
            flags: &["--preload", "--no-preload"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(true),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Import the app once, before the fork",
            long_help: "\
The app is imported once in the template, and workers are forked from \
it: they start in milliseconds and share its memory. This is the default \
here; in gunicorn it is not.

With one worker the template becomes that worker, and none stays beside it, \
unless --preload, --reload or a limit on a worker's requests, memory or \
lifetime is given. The first single worker that dies is then missing for the \
time of an import; from then on a template stays and forks the successors.

With --no-preload each worker imports the app for itself. If neither flag is \
given, this is also done if the import has started threads or an event loop, \
or is connected to something, none of which a fork brings to workers; a \
warning names what it was.",
        },
    ],
};

/// An address that can be listened on, with options.
fn bind(text: &str) -> Result<(), String> {
    Bind::parse(text).map(drop)
}

fn bind_of_map(map: &serde_json::Map<String, serde_json::Value>) -> Result<String, String> {
    Bind::from_map(map).map(|bind| bind.to_string())
}
