//! Settings of the state that the server shows.

use super::{ANY_TIME, Env, Group, Kind, OPTIONAL, OnReload, Preset, Range, Setting};
use crate::statsd::{check_prefix, check_tags};
use crate::{Bind, Collector, StatsdAddress};

pub(super) const ADMIN: Group = Group {
    title: "Seeing the line",
    settings: &[
        Setting {
            name: "admin",
            flags: &["--admin"],
            metavar: "ADDRESS",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: bind,
            },
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Show the server's state and metrics here",
            long_help: "\
HOST:PORT or unix:PATH, with the options that bind takes. GET / is a page \
with live charts, /status the same as JSON, /metrics for Prometheus, \
/live and /ready for probes. Requests here never wait in the line. \
It shows the paths of requests, so keep it on a private address.",
        },
        Setting {
            name: "admin_allowed_hosts",
            flags: &["--admin-allowed-host"],
            metavar: "NAME",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: host_name,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "A name for admin (may be repeated)",
            long_help: "\
A request to the admin listener whose Host is a name is answered 421, \
unless it is localhost, the name in admin, or one of these. Otherwise a \
web page could read it through a browser (DNS rebinding). IP addresses need not \
be listed, nor anything for /live and /ready. * allows every name.",
        },
        Setting {
            name: "ready_waiting_max",
            flags: &["--ready-waiting-max"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(0, u32::MAX as u64)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Not ready while more than N wait (0: any)",
            long_help: "\
/ready then answers 503, so that a load balancer sends new clients \
elsewhere. Requests that arrive nevertheless are served. Off by default: \
when all servers are full, taking them all out makes an outage of a jam. \
docs/reference/admin.md says when to set it.",
        },
        Setting {
            name: "ready_wait_max",
            flags: &["--ready-wait-max"],
            metavar: "SECONDS",
            env: None,
            kind: ANY_TIME,
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Not ready after a longer wait (0: any)",
            long_help: "\
/ready also answers 503 while the oldest request in the line has waited \
for longer than this. Off by default, for the same reason; where the \
balancer goes on when too few are ready, half of the clients' timeout.",
        },
        Setting {
            name: "health_path",
            flags: &["--health-path"],
            metavar: "PREFIX",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: path_prefix,
            },
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Answer PREFIX/live and /ready here too",
            long_help: "\
On the listeners of bind, by the server itself and without waiting, whatever \
the app has at these paths. An example is /-, for /-/ready. While the server \
starts with interface auto, no probe is answered there until the app is \
imported; on the admin listener probes are.",
        },
        Setting {
            name: "statsd_host",
            flags: &["--statsd-host"],
            metavar: "ADDRESS",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: statsd_address,
            },
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "statsd",
                differs: |old, new| old.statsd_host != new.statsd_host,
            },
            help: "Send metrics to this statsd server",
            long_help: "\
HOST:PORT, 8125 without a port, or unix://PATH for a datagram socket. \
docs/monitoring.md lists the metrics: gunicorn's, and the line's. A name is \
looked up once, at the start. Metrics that the statsd server does not take \
are dropped and counted; no process waits for it.",
        },
        Setting {
            name: "statsd_prefix",
            flags: &["--statsd-prefix"],
            metavar: "PREFIX",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: check_prefix,
            },
            default: Preset::Text(""),
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "statsd",
                differs: |old, new| old.statsd_prefix != new.statsd_prefix,
            },
            help: "Begin the name of each metric with this",
            long_help: "\
One dot comes between it and the name, whether it ends with dots or not.",
        },
        Setting {
            name: "dogstatsd_tags",
            flags: &["--dogstatsd-tags"],
            metavar: "TAGS",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: check_tags,
            },
            default: Preset::Text(""),
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "statsd",
                differs: |old, new| old.dogstatsd_tags != new.dogstatsd_tags,
            },
            help: "Tag each metric, as Datadog reads it",
            long_help: "\
Written behind each metric as |#tag:value,other:value. Other statsd \
servers may not understand it.",
        },
        Setting {
            name: "enable_backlog_metric",
            flags: &["--enable-backlog-metric"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Send gunicorn.backlog too",
            long_help: "\
How many connections the kernel holds that were not accepted yet, at all \
listeners together, once a second. The admin listener shows the same without \
it, for each listener.",
        },
        Setting {
            name: "otlp_endpoint",
            flags: &["--otlp-endpoint"],
            metavar: "URL",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: collector,
            },
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Send spans to an OpenTelemetry collector",
            long_help: "\
Such as http://127.0.0.1:4318, by OTLP over HTTP, without TLS; /v1/traces \
is added. A request has a span, its wait in the line and its run at a \
worker are two more, and the traceparent that the app sees names the run. \
Up to 2048 requests wait for a collector that does not answer; spans \
beyond are dropped and counted. OTEL_EXPORTER_OTLP_ENDPOINT does not \
switch it on, as that is the app's; OTEL_RESOURCE_ATTRIBUTES counts.",
        },
        Setting {
            name: "otlp_service_name",
            flags: &["--otlp-service-name"],
            metavar: "NAME",
            env: Some(Env {
                name: "OTEL_SERVICE_NAME",
                format: "{}",
            }),
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Name of the service in its spans",
            long_help: "\
Without it, service.name of OTEL_RESOURCE_ATTRIBUTES is taken, or else \
stanchion.",
        },
        Setting {
            name: "otlp_sample_one_in",
            flags: &["--otlp-sample-one-in"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(1, u32::MAX as u64)),
            default: Preset::Number(1),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Trace one in N requests without a trace",
            long_help: "\
The app finds in its traceparent whether its request is traced. A request \
that comes with a valid traceparent is traced if that says so, whatever this \
is.",
        },
    ],
};

fn bind(text: &str) -> Result<(), String> {
    Bind::parse(text).map(drop)
}

/// A name without a port, or `*`.
fn host_name(text: &str) -> Result<(), String> {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text == "*" || (!text.is_empty() && text.bytes().all(is_of_names)) {
        Ok(())
    } else {
        Err("it is a name alone, as metrics.example, or *".into())
    }
}

/// Where a statsd server is.
fn statsd_address(text: &str) -> Result<(), String> {
    StatsdAddress::parse(text).map(drop)
}

fn collector(text: &str) -> Result<(), String> {
    Collector::parse(text).map(drop)
}

/// The beginning of a path.
fn path_prefix(text: &str) -> Result<(), String> {
    let is_path = text.starts_with('/') && !text.ends_with('/');
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
    if is_path && is_plain {
        Ok(())
    } else {
        Err("it begins with / and does not end with it, as /-".into())
    }
}
