//! Settings of how much a client may ask of the server.

use super::{ANY_TIME, Group, Kind, OPTIONAL, OnReload, Preset, Range, SIZE_BYTES_MIN, Setting};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The longest URI that the parser takes (`http::Uri`).
const REQUEST_LINE_BYTES_MAX: u64 = 65_534;

/// Most header fields of a request, as in gunicorn.
const REQUEST_FIELDS_MAX: u64 = 32_768;

pub(super) const LIMITS: Group = Group {
    title: "Limits",
    settings: &[
        Setting {
            name: "limit_request_line",
            flags: &["--limit-request-line"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::between(0, REQUEST_LINE_BYTES_MAX)),
            default: Preset::Number(4094),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Longest request line, in bytes",
            long_help: "\
Method, target and version together. A longer line is answered 414. 0 \
means 65534, the most that the parser takes.",
        },
        Setting {
            name: "limit_request_fields",
            flags: &["--limit-request-fields"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(0, REQUEST_FIELDS_MAX)),
            default: Preset::Number(100),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Most header fields in a request",
            long_help: "\
A request with more is answered 431. 0 means 32768, the most that may \
be asked for.",
        },
        Setting {
            name: "limit_request_field_size",
            // gunicorn spells it with an underscore; that spelling works too.
            flags: &["--limit-request-field-size", "--limit-request-field_size"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(8190),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Longest header field, in bytes",
            long_help: "\
Name and value of one field together. A request with a longer one is \
answered 431. 0 means no limit for one field; the whole head may still have \
at most 64 KiB.",
        },
        Setting {
            name: "limit_request_body",
            flags: &["--limit-request-body", "--max-body"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(GIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Largest request body, in bytes (0: any)",
            long_help: "\
A larger body is answered 413: before any of it is read if its length is \
announced, and if it is chunked, as soon as the size of a chunk says that it \
will be too long. With 0, only the \
room in tmp_upload_dir and max_spool limit it.",
        },
        Setting {
            name: "header_timeout",
            flags: &["--header-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(30),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Time a client has to send a request's head",
            long_help: "\
Counted from the first byte of the request. A head that takes longer is \
answered 408, and the connection is closed. A slow client holds no worker \
meanwhile, only a connection. 0 switches it off.",
        },
        Setting {
            name: "body_timeout",
            flags: &["--body-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(60),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Longest pause between two parts of a body",
            long_help: "\
A client that sends nothing of its body for this long is answered 408. \
A WebSocket is closed with code 1008 if its client stops for this long \
within a message of which more than 16 KiB have come. min_body_rate limits \
bodies and messages that arrive slowly. 0 switches it off.",
        },
        Setting {
            name: "min_body_rate",
            flags: &["--min-body-rate"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(240),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Least bytes a second of a body (0: any)",
            long_help: "\
A body that arrives more slowly than this, on average, is answered 408. A \
short pause is no harm: a body starts with five seconds of credit, time uses \
the credit up, and each byte that arrives adds the time that it takes at \
this rate. The credit is never more than body_timeout (a minute without \
one), so a quick start does not make up for a slow rest. Time in which the \
server itself did not read is not counted. 0 switches the rate off, and \
leaves body_timeout.

Messages of WebSockets are measured in the same way once 16 KiB of one have \
arrived; a WebSocket whose message is too slow is closed with code 1008.

Bodies that are hardly faster than this rate are answered 408, too, while \
the server lacks room for others: while connections wait because of \
max_connections, and, of bodies that an asynchronous app receives as they \
come, while all seats are taken and other requests have waited for a second.",
        },
        Setting {
            name: "write_timeout",
            flags: &["--write-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(60),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Drop a client that reads nothing this long",
            long_help: "\
A connection whose client reads nothing of its answer for this long is \
closed, and the answer stays incomplete. Only time in which the kernel's \
buffers are full counts. min_response_rate limits clients that read slowly. \
0 switches it off.",
        },
        Setting {
            name: "min_response_rate",
            flags: &["--min-response-rate"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(240),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Least bytes a second of an answer (0: any)",
            long_help: "\
A connection whose client reads its answer more slowly than this is closed, \
and the answer stays incomplete. The rate is measured as for min_body_rate, \
with write_timeout (a minute without one) as the most credit. Only time in \
which the kernel's buffers are full counts, not time in which the app is \
still making the answer. While connections wait because of max_connections, \
those that are hardly faster than this rate are closed to make room. 0 \
switches the rate off, and leaves write_timeout.",
        },
        Setting {
            name: "max_connections",
            flags: &["--max-connections"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(1, u32::MAX as u64)),
            default: Preset::Number(16_384),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Most client connections at once",
            long_help: "\
When there are that many, the server closes connections that have been idle \
for a second or more, longest idle first, and sends `Connection: close` with \
its answers, so that clients take turns. New connections wait in the \
kernel's queue (backlog) until there is room.

Each connection takes one or two file descriptors. If the hard limit of open \
files (RLIMIT_NOFILE, LimitNOFILE of systemd) allows fewer connections, that \
limit applies.",
        },
        Setting {
            name: "max_connections_per_client",
            flags: &["--max-connections-per-client"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(0, u32::MAX as u64)),
            default: Preset::Number(1_024),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Most connections of a client (0: any)",
            long_help: "\
One more connection of this client is answered 429, with a Retry-After. \
If it opens many more, some of them are reset. A client is an \
IPv4 address, or a network of 64 bits in IPv6, which usually belongs to \
one host.

The limit is never more than half of max_connections, so that no \
single client has them all. A client may have as many HTTP/2 streams open, \
counted apart from its connections; the server refuses one more, and the \
client may open it again. A client may also have as many WebSockets open, \
but at most half of workers times worker_sessions.

For connections and streams the limit does not apply to proxies in \
forwarded_allow_ips, which serve many clients (with * no peer is limited), \
nor to peers on unix sockets, which have no address. WebSockets count for \
the client that such a proxy names.",
        },
        Setting {
            name: "keepalive_requests",
            flags: &["--keepalive-requests"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(0, u32::MAX as u64)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Most requests of a connection (0: any)",
            long_help: "\
The answer to the last of them says `Connection: close`, and the connection \
is closed. Useful behind a balancer that spreads connections, not requests.",
        },
    ],
};

pub(super) const BUFFERS: Group = Group {
    title: "Buffers",
    settings: &[
        Setting {
            name: "body_memory",
            flags: &["--body-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::between(0, MIB)),
            default: Preset::Number(112 * KIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Largest body kept in memory, in bytes",
            long_help: "\
A larger request body is written to a spool file in tmp_upload_dir, and the \
app reads it from there. The server reserves this much shared memory for \
each request that is handed to a worker, so a memory limit of the cgroup \
must have room for that.",
        },
        Setting {
            name: "max_body_memory",
            flags: &["--max-body-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(64 * MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory of all request bodies, in bytes",
            long_help: "\
For all bodies that are being read and all whose requests wait in the line, \
together. Above it, bodies are written to spool files, however small they \
are. The bytes of one read (64 KiB at most for each connection) are in \
memory until they are written.",
        },
        Setting {
            name: "max_client_memory",
            flags: &["--max-client-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(1024 * MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory for all clients, in bytes (0: any)",
            long_help: "\
The acceptor counts the memory that it allocates for each connection: heads, \
bodies, answers, TLS, HTTP/2, WebSocket messages, compressors. When all \
connections together have more than this, it cuts connections off until they \
have an eighth less: each time the slowest connection of the client that has \
most. A client is an address (a /64 network of IPv6), behind a trusted proxy \
the client that the proxy names. Buffers of the kernel and workers do not \
count. /status shows the clients that have most. In a control group with a \
memory limit, such as a container, the default is a quarter of that limit, \
if that is less.",
        },
        Setting {
            name: "response_buffer",
            flags: &["--response-buffer"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory for one response, in bytes",
            long_help: "\
If a client reads slowly, up to this much of its response is held in memory, \
so that the worker is free for the next request. When that is full, the \
worker waits for a moment (50 ms, or longer if the client takes 32 MiB/s), \
then the rest goes to a spool file (response_spool).",
        },
        Setting {
            name: "max_response_memory",
            flags: &["--max-response-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(256 * MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory of all responses, in bytes",
            long_help: "\
For all responses that wait for slow clients, together. Above it, they are \
written to spool files, as those larger than response_buffer are. Up to 128 \
KiB of each response may be in memory nevertheless: it takes that to send \
it.",
        },
        Setting {
            name: "response_spool",
            flags: &["--response-spool"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(GIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Spool file of one response, in bytes",
            long_help: "\
If a client reads slowly, up to this much of its response is kept in a file \
in tmp_upload_dir. When that is full, the worker waits until the client has \
taken all of it. 0 switches such files off. They have no name, so none is \
left behind when a process dies.",
        },
        Setting {
            name: "max_spool",
            flags: &["--max-spool"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::zero_or_from(SIZE_BYTES_MIN)),
            default: Preset::Number(4 * GIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Size of all spool files, in bytes (0: any)",
            long_help: "\
For request bodies and responses together. When it is used up, a request \
whose body would have to be spooled is answered 503, and the worker of a \
response waits for its client. With 0, only the room in tmp_upload_dir \
limits them: when that file system is full, the same happens.

One client may have at most as much of it as is left for all others: if it \
is alone half of it, if there are two a third each, and so on. So a few \
clients cannot use it up. A body that exceeds this is answered 429. With the \
defaults, one client may have two of the largest bodies. \
max_waiting_per_client says what a client is; if a proxy does not name the \
client, only max_spool itself applies.",
        },
        Setting {
            name: "tmp_upload_dir",
            flags: &["--tmp-upload-dir"],
            metavar: "DIR",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Where large bodies and responses are kept",
            long_help: "\
The server makes a private directory (mode 0700) in it, and removes it when \
it ends. By default it is the system's temporary directory, which often is a \
tmpfs: then the files take memory after all. When the file system is full, a \
request whose body would have to be spooled is answered 503, and the worker \
of a response waits for its client.",
        },
        Setting {
            name: "sendfile",
            flags: &["--sendfile", "--no-sendfile"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(true),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Have files sent by the acceptor",
            long_help: "\
If the app returns a regular file by wsgi.file_wrapper, the worker passes \
its descriptor to the acceptor and is free at once, and the acceptor sends \
the file as fast as the client takes it. Without it, the worker reads the \
file and sends its bytes.",
        },
    ],
};
