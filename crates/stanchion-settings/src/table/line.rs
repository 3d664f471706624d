//! Settings of the waiting line.

use super::{ANY_TIME, Group, Kind, OnReload, Preset, Range, Setting};
use crate::Lane;

pub(super) const LINE: Group = Group {
    title: "The line",
    settings: &[
        Setting {
            name: "max_waiting",
            flags: &["--max-waiting"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(1, u32::MAX as u64)),
            default: Preset::Number(2048),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Requests that may wait in the line",
            long_help: "\
If this many requests wait already, the next one is answered 503 at \
once, with a Retry-After calculated from how fast the line moves. \
Requests in a lane with a limit of its own (waiting=) do not count.",
        },
        Setting {
            name: "max_waiting_per_client",
            flags: &["--max-waiting-per-client"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(0, u32::MAX as u64)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Waiting requests of one client (0: any)",
            long_help: "\
One more request of the same client is answered 429 at once, with a \
Retry-After. Requests that already run do not count, so a client alone at an \
idle server is not limited. Requests in a lane with a limit of its own do \
not count either.

A client is the address of the peer. If forwarded_allow_ips trusts the peer, \
it is the last address in X-Forwarded-For that is not listed there. A \
network of IPv6 (/64) is one client. Requests without an address (over a \
unix socket, without X-Forwarded-For) are not limited.",
        },
        Setting {
            name: "queue_timeout",
            flags: &["--queue-timeout"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(60),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Answer 503 after waiting in line this long",
            long_help: "\
A request that has waited this long in the line is answered 503 and \
never reaches the app. The default is as long as nginx waits for an \
answer (proxy_read_timeout). 0 switches it off.",
        },
        Setting {
            name: "queue_order",
            flags: &["--queue-order"],
            metavar: "ORDER",
            env: None,
            kind: Kind::Choice(&["fifo", "adaptive"]),
            default: Preset::Text("fifo"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Which waiting request is served first",
            long_help: "\
fifo: the oldest. adaptive: the oldest too, until that has waited for \
queue_target; then the newest, whose client has most likely not given up. \
While the line is over its target, its oldest requests are answered 503: \
the first after another queue_target, then ever faster (RFC 8289). When no request has waited for \
that long any more, the oldest goes first again. This is decided for \
each lane.",
        },
        Setting {
            name: "queue_target",
            flags: &["--queue-target"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(1),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "A wait past which the newest goes first",
            long_help: "\
For queue_order adaptive: longer than any request waits on a normal day, \
and shorter than clients wait before they give up. 0 leaves it at fifo.",
        },
        Setting {
            name: "lane",
            flags: &["--lane"],
            metavar: "LANE",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: lane,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "A lane of the line (may be repeated)",
            long_help: "\
Written NAME=PATH KEY=VALUE…, as in 'health=/healthz priority=0 seats=1 \
waiting=64'. A request is in the first lane of the list whose conditions \
it meets, else in the lane `default`.

Conditions: path (a path, and all below it: /healthz, /healthz/db, not \
/healthzzz; as it was sent, without decoding), method, header (NAME, or \
NAME:VALUE). Conditions of different kinds must all match; of several \
values of one kind, with commas between or repeated, one must.

What the lane gets: priority (10: the smaller number goes first; lanes \
with the same are served as one; a lane that was passed over 8 times goes \
next), seats (0: worker threads reserved for it, fewer than there are), \
waiting (how many requests may wait in it, in addition to max_waiting; \
without it the lane shares max_waiting or, if it has seats, may hold as \
many again). For `default`: priority and seats.

While any seats are reserved, no request is handed to a worker before it \
is free, which costs throughput with very short requests. Requests at \
the port of one worker (worker_port_base) are in no lane.",
        },
    ],
};

fn lane(text: &str) -> Result<(), String> {
    Lane::parse(text).map(drop)
}
