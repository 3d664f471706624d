//! Settings of how much a client may ask of the server.

use super::{ANY_TIME, Group, Kind, OPTIONAL, OnReload, Preset, Range, Setting};

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
Name and value of one field. A request with a longer one is answered \
431. 0 leaves only the bound on the whole head that the parser has.",
        },
        Setting {
            name: "limit_request_body",
            flags: &["--limit-request-body", "--max-body"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(GIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Largest request body, in bytes (0: any)",
            long_help: "\
A larger body is answered 413: before it is read where its length is \
announced, as soon as it is too long where it is chunked. 0 leaves only \
the room in tmp_upload_dir.",
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
Counted from the first byte of the request. Past it the connection is \
closed. A slow client holds no worker meanwhile, only a connection. 0 \
switches it off.",
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
A body that arrives more slowly than this is answered 408. A body begins \
with a credit of five seconds. Time uses it up, and each byte adds the \
time that it takes at this rate, up to body_timeout in all (a minute \
without one). So a sender may pause for a while, but a quick start does \
not make up for a slow rest. Time in which the server itself did not \
read does not count. Messages of WebSockets of which more than 16 KiB have \
come are measured likewise, and code 1008 closes those that are too slow. \
While connections wait because of max_connections, bodies that are hardly \
faster than this are answered 408 to make room; and those that an \
asynchronous app receives as they come, while other requests have waited \
for a second because each seat has one. 0 leaves only body_timeout.",
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
A client that reads nothing of its answer for this long, while the \
kernel's buffers for it are full, is cut off. min_response_rate limits \
clients that read slowly. 0 switches it off.",
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
A client that reads its answer more slowly than this is cut off. The rate \
is measured as for min_body_rate, over write_timeout (a minute without \
one), and only while more is to be sent than the kernel's buffers hold: \
not while the app is still making the answer. While connections wait \
because of max_connections, those that are hardly faster than this rate \
are closed to make room. 0 leaves only write_timeout.",
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
Past it, connections that have been idle for a second or more are closed, \
longest idle first, and answers say that the connection ends, so that \
clients share what there is. If that makes no room, further connections \
wait in the kernel, up to backlog, until one ends.

Each connection takes a descriptor or two: if the hard limit of open \
files (RLIMIT_NOFILE, LimitNOFILE of systemd) allows fewer, that wins.",
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
single client has them all. It does not apply to proxies in \
forwarded_allow_ips, which serve many clients, so with * to nobody, nor to \
peers on unix sockets, which have no address.",
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
The last answer says that the connection ends, and then it is \
closed. Useful behind a balancer that spreads connections, not requests.",
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
A larger request body is written to a spool file in tmp_upload_dir and \
read from there. This much shared memory is set aside for each request \
that is being handed over, so the memory of the cgroup bounds it too.",
        },
        Setting {
            name: "max_body_memory",
            flags: &["--max-body-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(64 * MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory of all request bodies, in bytes",
            long_help: "\
Bodies that are being read and those whose requests wait in the line, \
together. Past it bodies go to spool files, however small they are; \
what a connection has just read (some 64 KiB at most) is in memory \
until it is written.",
        },
        Setting {
            name: "response_buffer",
            flags: &["--response-buffer"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Response bytes in memory for a reader",
            long_help: "\
Up to this much of a response is held in memory for a client that reads \
slowly, so that the worker is free for the next request. Past it the \
worker waits for a moment (50 ms, and longer for a client that takes \
32 MiB/s); then the rest goes to a spool file (response_spool).",
        },
        Setting {
            name: "max_response_memory",
            flags: &["--max-response-memory"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(256 * MIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Memory of all responses, in bytes",
            long_help: "\
Responses that wait for slow readers, together. Past it they are written \
to spool files, as past response_buffer. 128 KiB of each response may be \
in memory all the same, since they are needed to send it.",
        },
        Setting {
            name: "response_spool",
            flags: &["--response-spool"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(GIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Response bytes spooled for one slow reader",
            long_help: "\
Up to this much of a response is kept in a file in tmp_upload_dir for a \
client that reads slowly. Past it the worker waits for the client, until \
that has taken all that is in the file. 0 switches such files off. They \
have no name, so that nothing of them can be left behind.",
        },
        Setting {
            name: "max_spool",
            flags: &["--max-spool"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::from(0)),
            default: Preset::Number(4 * GIB),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Size of all spool files, in bytes (0: any)",
            long_help: "\
Request bodies and responses together. Past it a request whose body \
would have to be spooled is answered 503, and the worker of a response \
waits for its client. 0 leaves only the room in tmp_upload_dir: when that \
file system is full, the same follows.

No client may have more of it than is left for all others: one alone has \
half of it, two have a third each, and so on, so that a few clients \
cannot use it up. A body past that is answered 429. With the defaults, one \
client may have two of the largest bodies. What a client is, \
max_waiting_per_client says; if a proxy does not name the client, only \
max_spool itself applies.",
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
A private directory (mode 0700) is made in it and removed at the end. \
Without it the system's temporary directory is used, which often is a \
tmpfs: the files are then memory after all. When the file system is \
full, a request is answered 503, and the worker of a response waits for \
its client.",
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
A regular file that the app returns by wsgi.file_wrapper is handed over \
as a descriptor: the worker is free at once, and the acceptor sends the \
file as fast as the client takes it. Switched off, its bytes go through \
the worker.",
        },
    ],
};
