//! Settings of files that are answered without a worker.

use super::{Group, Kind, OnReload, Preset, Range, Setting};
use crate::settings::StaticDir;

/// A year, the longest that a cache is told (RFC 9111 section 1.2.2 knows no limit; more means nothing).
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
Written as in /static=/srv/shop/static: GET and HEAD of /static/css/a.css \
get /srv/shop/static/css/a.css, without a worker and without waiting in \
the line. Of several prefixes the first in the list that fits counts.

Only plain files below the directory are served: no directories, no names \
that begin with a dot, and no links that lead out of it. Beside a text file \
such as a.css there may be a.css.br, a.css.zst and a.css.gz: a client that \
takes one of these codings gets it. The content type is that of \
/etc/mime.types, where the system has it, and of a small list of ours. Conditional requests and ranges \
work as RFC 9110 has them; ETag and Last-Modified are made as nginx makes \
them.

The directory is opened when the server starts or reloads: if it is \
replaced by another one of the same name, reload.",
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
            help: "Who answers where there is no such file",
            long_help: "\
app: the app gets the request, like any other. 404: the server answers, \
and no worker is bothered. Methods other than GET and HEAD always go to \
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
Says `Cache-Control: public, max-age=SECONDS`. 0 says nothing: browsers \
then ask whether a file has changed. Names with a hash of their content, \
such as app.0f3c9a2b41de.css (12 or more hexadecimal digits between dots, at \
least one of them a letter) never mean anything else: caches may keep those for a year, `immutable`, \
whatever is set here.",
        },
    ],
};

fn static_dir(text: &str) -> Result<(), String> {
    StaticDir::parse(text).map(drop)
}
