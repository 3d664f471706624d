//! Settings of the logs.

use super::{Group, Kind, OPTIONAL, Preset, Setting, without_nul};
use crate::settings::SyslogAddress;
use crate::settings::syslog::FACILITIES;

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
            help: "Log requests to this file ('-': stdout)",
            long_help: "\
One line for each request, written by the acceptor. Without it none are \
written.",
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
            help: "What a line of the access log holds",
            long_help: "\
gunicorn's atoms. h: client address; l: '-'; u: user name; t: time; r: \
request line; m: method; U: path; q: query; H: protocol; s: status; B: \
response bytes; b: the same, '-' for none; f: referer; a: user agent; \
T, M, D, L: time in seconds, milliseconds, microseconds, decimal \
seconds; p: process id; {name}i, {name}o, {name}e: a request header, a \
response header, a variable.",
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
            help: "Log events to this file ('-': stderr)",
            long_help: "\
What the server has to say, tracebacks, and what the app writes to \
wsgi.errors.",
        },
        Setting {
            name: "loglevel",
            flags: &["--log-level"],
            metavar: "LEVEL",
            env: None,
            kind: Kind::Choice(&["debug", "info", "warning", "error", "critical"]),
            default: Preset::Text("info"),
            gunicorn: true,
            help: "debug, info, warning, error or critical",
            long_help: "\
Events below this level are not logged. The access log does not depend \
on it.",
        },
        Setting {
            name: "syslog",
            flags: &["--log-syslog"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            help: "Send both logs to syslog as well",
            long_help: "\
The error log and the access log, each besides its file; the access log \
needs none for it. Text that the app writes to wsgi.errors is not sent. \
A message is stanchion.PREFIX.error or stanchion.PREFIX.access, the \
process id in brackets, and what the line says.",
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
            help: "unix://PATH or udp://HOST:PORT",
            long_help: "\
unix:///dev/log is the daemon of this machine. A name is looked up once, \
at the start. There is no tcp://. What a daemon does not take is dropped \
and counted.",
        },
        Setting {
            name: "syslog_prefix",
            flags: &["--log-syslog-prefix"],
            metavar: "NAME",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            help: "A name to find its messages by",
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
            help: "user, daemon, local0 and so on",
            long_help: "\
By which the daemon sorts messages, in the words of syslog.conf(5).",
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
            help: "Keep the access log out of it",
            long_help: "\
With syslog, send the error log alone. --log-syslog-error-only is a \
shorter word for the same flag.",
        },
    ],
};

/// A text that names a file or '-'.
fn path(text: &str) -> Result<(), String> {
    if text.is_empty() {
        Err("it names no file".into())
    } else {
        without_nul(text)
    }
}

/// Where a syslog daemon is.
fn syslog_address(text: &str) -> Result<(), String> {
    SyslogAddress::parse(text).map(drop)
}
