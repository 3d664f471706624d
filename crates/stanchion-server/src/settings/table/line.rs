//! Settings of the waiting line.

use super::{ANY_TIME, Group, Kind, OnReload, Preset, Range, Setting};
use crate::settings::Lane;

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
A request that arrives when this many wait already is answered 503 at \
once, with a Retry-After worked out from how fast the line moves. Those \
who wait in a lane with a bound of its own are not among them.",
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
            help: "Of which of one client (0: any number)",
            long_help: "\
A further request of the same client address is answered 429 at once, \
with a Retry-After. What a worker already has does not count, so a \
client alone at an idle server is not limited. Nor does what waits in a \
lane with room of its own.

The address is the peer's. Where forwarded_allow_ips believes the peer, \
it is the last one in X-Forwarded-For that is not itself listed there. A \
network of IPv6 (/64) is one client. \
Requests without an address (over a unix socket, without \
X-Forwarded-For) are not limited.",
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
            help: "Who in the line is served first",
            long_help: "\
fifo: whoever came first. adaptive: the same until the line stands, that \
is until its oldest request has waited for queue_target; then whoever \
came last, whose client is still there most likely. While it stands the \
oldest are answered 503: the first after another queue_target, and then \
ever faster (RFC 8289). When nobody waits for so long any more it is \
whoever came first again. Each lane stands for itself.",
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
            help: "A wait past which the line stands",
            long_help: "\
For queue_order adaptive: longer than anybody waits on a normal day, and \
shorter than clients wait before they give up. 0 leaves it at fifo.",
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

Whose it is: path (a path, and all below it: /healthz, /healthz/db, not \
/healthzzz; as it was sent, without decoding), method, header (NAME, or \
NAME:VALUE). Where several kinds are given each must hold; of several \
values, with commas between or repeated, one must.

What it gets: priority (10: the smaller number goes first; lanes with \
the same are served as one; one that was passed over 8 times has the \
next turn), seats (0: kept for it, so that the other lanes together \
cannot take them; fewer than there are), waiting (how many may wait in \
it, apart from max_waiting; without it they share that, or, if seats \
are kept, have as much for themselves). For `default`: priority and \
seats.

As long as any seats are kept, no request is handed out ahead of a seat \
that is free, which costs very short requests throughput. Requests at \
the port of one worker (worker_port_base) are in no lane.",
        },
    ],
};

fn lane(text: &str) -> Result<(), String> {
    Lane::parse(text).map(drop)
}
