//! Settings of files that are answered without a worker.

use super::{Group, Kind, OnReload, Preset, Range, Setting};
use crate::StaticDir;

/// A year, the longest max-age that is sent (RFC 9111 section 1.2.2 knows no limit; more means nothing).
const MAX_AGE_S_MAX: u64 = 31_536_000;

pub(super) const STATIC_FILES: Group = Group {
    title: "Static files",
    settings: &[
        Setting {
            name: "static_files",
            flags: &["--static"],
            metavar: "PATH=DIR",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: static_dir,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Serve a directory (may be repeated)",
            long_help: "\
With /static=/srv/shop/static, GET and HEAD of /static/css/a.css are \
answered with the file /srv/shop/static/css/a.css, without a worker and \
without waiting in the line. If several prefixes fit, the first in the list \
counts.

Only regular files below the directory are served: no directories, no names \
that begin with a dot, and no links that lead out of it. Compressed copies \
may lie beside a file, such as a.css.br, a.css.zst and a.css.gz: a client \
that accepts one of these codings gets it. The content type is that of \
/etc/mime.types, if the system has it, or else of a short list of the \
server's own. Conditional requests and ranges work as in RFC 9110. \
Last-Modified is the one that nginx makes, and so is the ETag of a file \
whose time is a whole second; the ETag of any other file has the \
nanoseconds, too.

The directory is opened when the server starts or reloads. If you replace it \
by another one of the same name, reload.",
        },
        Setting {
            name: "static_missing",
            flags: &["--static-missing"],
            metavar: "WHO",
            env: None,
            kind: Kind::Choice(&["app", "404"]),
            default: Preset::Text("app"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Answer to a missing file: app or 404",
            long_help: "\
app: the app gets the request, like any other. 404: the server answers, \
without a worker. Requests with methods other than GET and HEAD always go to \
the app.",
        },
        Setting {
            name: "static_max_age",
            flags: &["--static-max-age"],
            metavar: "SECONDS",
            env: None,
            kind: Kind::Int(Range::between(0, MAX_AGE_S_MAX)),
            default: Preset::Number(0),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "How long caches may keep a static file",
            long_help: "\
Sent as `Cache-Control: public, max-age=SECONDS`. With 0 it is not sent, and \
browsers ask whether the file has changed. A file whose name has a hash of \
its content, such as app.0f3c9a2b41de.css (12 or more hexadecimal digits \
between dots, at least one of them a letter), is always sent with a max-age \
of a year and `immutable`: when its content changes, so does its name.",
        },
    ],
};

fn static_dir(text: &str) -> Result<(), String> {
    StaticDir::parse(text).map(drop)
}
