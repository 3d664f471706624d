//! Settings of the logs.

use super::{Group, Kind, OPTIONAL, OnReload, Preset, Setting, without_nul};
use crate::SyslogAddress;
use crate::syslog::FACILITIES;

pub(super) const LOGGING: Group = Group {
    title: "Logging",
    settings: &[
        Setting {
            name: "accesslog",
            flags: &["--access-logfile"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Log requests to this file ('-': stdout)",
            long_help: "\
One line for each request, written by the acceptor. Without it there is no \
access log.",
        },
        Setting {
            name: "access_log_format",
            flags: &["--access-logformat"],
            metavar: "FORMAT",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: without_nul,
            },
            default: Preset::Text(r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Format of a line of the access log",
            long_help: "\
gunicorn's atoms. h: client address; l: '-'; u: user name; t: time; r: \
request line; m: method; U: path; q: query; H: protocol; s: status; B: \
response bytes; b: the same, '-' for none; f: referer; a: user agent; \
T, M, D, L: time in seconds, milliseconds, microseconds, decimal \
seconds; p: process id; {name}i, {name}o, {name}e: a request header, a \
response header, a variable. {client}x is the client's address also \
behind proxies; docs/reference/access-log.md has more of these.",
        },
        Setting {
            name: "access_log_json",
            flags: &["--access-log-json"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Write the access log as JSON lines",
            long_help: "\
One object a line, with the keys of docs/reference/access-log.md; \
access_log_format does not count then.",
        },
        Setting {
            name: "errorlog",
            flags: &["--error-logfile", "--log-file"],
            metavar: "FILE",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: path,
            },
            default: Preset::Text("-"),
            gunicorn: true,
            on_reload: OnReload::Stays(|old, new| old.errorlog != new.errorlog),
            help: "Log events to this file ('-': stderr)",
            long_help: "\
Events of the server, tracebacks, and text that the app writes to \
wsgi.errors.",
        },
        Setting {
            name: "capture_output",
            flags: &["--capture-output"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Send what the app prints to the error log",
            long_help: "\
Output of the app, and of the programs that it starts, to stdout and stderr \
goes to errorlog as it is, if that is a file. Python buffers output to a \
file: with PYTHONUNBUFFERED=1 it comes at once.",
        },
        Setting {
            name: "logconfig",
            flags: &["--log-config"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Set up logging by this file",
            long_help: "\
Python's logging is set up by it, for the app and, in a process of their \
own, for the access log and the server's own lines: an ini file of \
logging.config.fileConfig. See docs/logs.md.",
        },
        Setting {
            name: "logconfig_dict",
            flags: &[],
            metavar: "",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Set up logging by this dictionary",
            long_help: "\
As logconfig, by logging.config.dictConfig. Everything that it does not name \
is as in gunicorn's own. It counts before logconfig_json, and logconfig_json \
before logconfig.",
        },
        Setting {
            name: "logconfig_json",
            flags: &["--log-config-json"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Set up logging by this JSON file",
            long_help: "\
As logconfig_dict, from a file that holds the dictionary as JSON.",
        },
        Setting {
            name: "logger_class",
            flags: &["--logger-class"],
            metavar: "CLASS",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "The class that sets up logging",
            long_help: "\
MODULE.CLASS, derived from stanchion.glogging.Logger or from gunicorn's. It \
is made in the processes that run the app, and in a process of its own \
whose access() is called for each request. See docs/logs.md.",
        },
        Setting {
            name: "loglevel",
            flags: &["--log-level"],
            metavar: "LEVEL",
            env: None,
            kind: Kind::Choice(&["debug", "info", "warning", "error", "critical"]),
            default: Preset::Text("info"),
            gunicorn: true,
            on_reload: OnReload::Stays(|old, new| old.loglevel != new.loglevel),
            help: "debug, info, warning, error or critical",
            long_help: "\
Events below this level are not logged. At debug, the log also has what \
libraries report, such as each frame of HTTP/2: a client decides how much \
that is. The access log does not depend on it.",
        },
        Setting {
            name: "request_id_header",
            flags: &["--request-id-header"],
            metavar: "NAME",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: field_name,
            },
            default: Preset::Text("X-Request-Id"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "The field with a request's id; empty: none",
            long_help: "\
A proxy of forwarded_allow_ips may name a request in it, in up to 128 \
letters, digits and -_.:/+=@~; any other request gets 32 hexadecimal digits \
at random. The id is in both logs, in the environ as stanchion.request_id \
and as this field, and in answers that the server gives by itself. Empty: \
requests have no id, and the field is passed on as it came.",
        },
        Setting {
            name: "server_timing",
            flags: &["--server-timing"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Tell clients how long they waited",
            long_help: "\
Adds a Server-Timing field to every answer: wait, the time in the line; run, \
the time at a worker until its head was there; proxy, the time before, if a \
trusted proxy sends X-Request-Start. Browsers show it. It shows every client \
how busy the server is.",
        },
        Setting {
            name: "syslog",
            flags: &["--log-syslog"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "syslog",
                differs: |old, new| old.syslog != new.syslog,
            },
            help: "Send both logs to syslog as well",
            long_help: "\
The error log and the access log, each besides its file; the access log \
needs none for it. Text that the app writes to wsgi.errors is not sent. A \
message is stanchion.PREFIX.error or stanchion.PREFIX.access, the process id \
in brackets, and the text of the line.",
        },
        Setting {
            name: "syslog_addr",
            flags: &["--log-syslog-to"],
            metavar: "ADDR",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: syslog_address,
            },
            default: Preset::Text("udp://localhost:514"),
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "syslog",
                differs: |old, new| old.syslog_addr != new.syslog_addr,
            },
            help: "unix://PATH or udp://HOST:PORT",
            long_help: "\
unix:///dev/log is the daemon of this machine. A name is looked up once, at \
the start. There is no tcp://. Messages that the daemon does not take are \
dropped and counted.",
        },
        Setting {
            name: "syslog_prefix",
            flags: &["--log-syslog-prefix"],
            metavar: "NAME",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "syslog",
                differs: |old, new| old.syslog_prefix != new.syslog_prefix,
            },
            help: "A name for the server's messages there",
            long_help: "\
Comes between stanchion. and .error or .access. Without it there is \
nothing between.",
        },
        Setting {
            name: "syslog_facility",
            flags: &["--log-syslog-facility"],
            metavar: "NAME",
            env: None,
            kind: Kind::Choice(FACILITIES),
            default: Preset::Text("user"),
            gunicorn: true,
            on_reload: OnReload::StaysInErrorLog {
                what: "syslog",
                differs: |old, new| old.syslog_facility != new.syslog_facility,
            },
            help: "user, daemon, local0 and so on",
            long_help: "\
The daemon sorts messages by it; the words are those of syslog.conf(5).",
        },
        Setting {
            name: "disable_redirect_access_to_syslog",
            flags: &[
                "--log-syslog-error-only",
                "--disable-redirect-access-to-syslog",
            ],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Keep the access log out of syslog",
            long_help: "\
With syslog, send the error log alone. --log-syslog-error-only is a \
shorter word for the same flag.",
        },
    ],
};

/// A text that names a file or '-'.
fn path(text: &str) -> Result<(), String> {
    if text.is_empty() {
        Err("expected a file name or '-'".into())
    } else {
        without_nul(text)
    }
}

/// A name of a field (RFC 9110 section 5.1).
fn field_name(text: &str) -> Result<(), String> {
    let name = http::HeaderName::try_from(text);
    name.map(drop)
        .map_err(|_| "it is not a name of a field".into())
}

/// Where a syslog daemon is.
fn syslog_address(text: &str) -> Result<(), String> {
    SyslogAddress::parse(text).map(drop)
}
