//! Settings of proxies, and of the requests that are taken.

use super::{Env, Group, Kind, OnReload, Preset, Setting, without_nul};
use crate::AllowedPeers;
use stanchion_http::rules::{is_field_text, is_token};

pub(super) const PROXIES: Group = Group {
    title: "Proxies",
    settings: &[
        FORWARDED_ALLOW_IPS,
        Setting {
            name: "forwarded_header",
            flags: &["--forwarded-header"],
            metavar: "HEADER",
            env: None,
            kind: Kind::Choice(&["x-forwarded-for", "forwarded"]),
            default: Preset::Text("x-forwarded-for"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Header in which your proxy names the client",
            long_help: "\
x-forwarded-for: the client is in X-Forwarded-For, and the scheme in \
secure_scheme_headers. forwarded: both are in Forwarded (RFC 7239, for= and \
proto=), and those others do not count. Either way the header counts only \
from peers in forwarded_allow_ips; of several addresses, the last one that \
is not in that list is the client. A Forwarded header of such a peer that \
cannot be read is answered 400. host= and by= are left to the app. Your \
proxy must set this header in every request, or add to it.",
        },
        Setting {
            name: "proxy_protocol",
            flags: &["--proxy-protocol"],
            metavar: "VERSION",
            env: None,
            kind: Kind::Choice(&["off", "v1", "v2", "auto"]),
            default: Preset::Text("off"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "PROXY protocol: off, v1, v2 or auto",
            long_help: "\
Connections of peers in proxy_allow_ips begin with a PROXY header (HAProxy: \
send-proxy or send-proxy-v2). The client that it names is the peer from then \
on: in REMOTE_ADDR and REMOTE_PORT, in logs, for limits per client, and for \
forwarded_allow_ips, so that the forwarding headers of the client itself are \
not believed. SERVER_NAME and SERVER_PORT are the address that the client \
connected to. With v1 and v2, a connection without such a header is refused \
(400); with auto, the header may be of either version, or missing. If your \
proxy checks the health of the server, let it send the header there too \
(check-send-proxy). A header from any other peer is refused (403). It must \
come within header_timeout and be no longer than 4096 bytes.",
        },
        Setting {
            name: "proxy_allow_ips",
            flags: &["--proxy-allow-from"],
            metavar: "LIST",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: allowed_peers,
            },
            default: Preset::Text("127.0.0.1,::1,unix"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Proxies that send a PROXY header",
            long_help: "\
Addresses and networks with commas between, the word unix for peers on unix \
sockets, or * for all. It counts only with proxy_protocol. In gunicorn peers \
on unix sockets always count; here a list without unix leaves them out. Do \
not use * where others than your proxy can reach the port: they could claim \
to be anybody.",
        },
        Setting {
            name: "protocol",
            flags: &["--protocol"],
            metavar: "NAME",
            env: None,
            kind: Kind::Choice(&["http", "uwsgi"]),
            default: Preset::Text("http"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Protocol of requests: http or uwsgi",
            long_help: "\
With uwsgi, every listener of bind takes requests of the uwsgi protocol, as \
nginx's uwsgi_pass sends them, and no HTTP. The variables of a request \
become its environ, as in uWSGI: REMOTE_ADDR, HTTPS, REMOTE_USER and all \
others that uwsgi_param sets. Variables that make uWSGI load something \
(UWSGI_FILE and all other UWSGI_ ones) are ignored. Limits on requests are \
the same as for HTTP. Probes have to go to the admin listener, which speaks \
HTTP.",
        },
        Setting {
            name: "uwsgi_allow_ips",
            flags: &["--uwsgi-allow-from"],
            metavar: "LIST",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: allowed_peers,
            },
            default: Preset::Text("127.0.0.1,::1,unix"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Proxies that may speak the uwsgi protocol",
            long_help: "\
Addresses and networks with commas between, the word unix for peers on unix \
sockets, or * for all. Any other peer is answered 403. It counts only with \
protocol uwsgi. Such a peer says who the client is and who is logged in, so \
do not use * where others than your proxy can reach the port. In gunicorn \
peers on unix sockets always count; here a list without unix leaves them out.",
        },
        Setting {
            name: "secure_scheme_headers",
            flags: &[],
            metavar: "",
            env: None,
            kind: Kind::Map {
                check: scheme_field,
            },
            default: Preset::Map(&[
                ("X-FORWARDED-PROTOCOL", "ssl"),
                ("X-FORWARDED-PROTO", "https"),
                ("X-FORWARDED-SSL", "on"),
            ]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Headers by which a proxy says https",
            long_help: "\
Header names, and for each the value that means https; any other value means \
http. Only headers from peers in forwarded_allow_ips count. If two of them \
disagree, or one came twice with different values, the request is answered \
400. Upper and lower case are the same. Your proxy must set or remove each \
of these headers.",
        },
        Setting {
            name: "forwarder_headers",
            flags: &["--forwarder-headers"],
            metavar: "NAMES",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: field_names,
            },
            default: Preset::Text("SCRIPT_NAME,PATH_INFO"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Headers with _ that your proxy may send",
            long_help: "\
Header names with an underscore, separated by commas, or * for all. If a \
peer in forwarded_allow_ips sends one, the app sees it, whatever header_map \
says: REMOTE_USER as HTTP_REMOTE_USER, like any header. SCRIPT_NAME also \
sets where the app is mounted. Your proxy must set or remove each of these \
headers; otherwise clients can set them.",
        },
        Setting {
            name: "root_path",
            flags: &["--root-path"],
            metavar: "PATH",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: mount_point,
            },
            default: Preset::Text(""),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Where the app is mounted, such as /shop",
            long_help: "\
The app finds it in SCRIPT_NAME and puts it in front of its links. If the \
path of a request begins with it, PATH_INFO is the rest. If not, because the \
proxy has removed it, PATH_INFO is the whole path. A SCRIPT_NAME header from \
a trusted proxy (forwarder_headers) takes precedence over this setting, and \
this setting over the environment variable SCRIPT_NAME. gunicorn uses it for \
ASGI apps only.",
        },
    ],
};

const FORWARDED_ALLOW_IPS: Setting = Setting {
    name: "forwarded_allow_ips",
    flags: &["--forwarded-allow-ips"],
    metavar: "LIST",
    env: Some(Env {
        name: "FORWARDED_ALLOW_IPS",
        format: "{}",
    }),
    kind: Kind::Text {
        nullable: false,
        check: allowed_peers,
    },
    default: Preset::Text("127.0.0.1,::1,unix"),
    gunicorn: true,
    on_reload: OnReload::Applies,
    help: "Proxies whose forwarding headers count",
    long_help: "\
Addresses and networks with commas between, the word unix for peers on \
unix sockets, which have no address, or * for all. Such a peer is \
believed in X-Forwarded-Proto, X-Forwarded-For, SCRIPT_NAME, \
X-Request-Id and X-Request-Start, so have your proxy set them all. Do not \
use * where others than your proxy can reach the port: they could claim \
to be anybody. In gunicorn peers on unix sockets always count; here a \
list without unix leaves them out.",
};

pub(super) const REQUESTS: Group = Group {
    title: "Accepted requests",
    settings: &[
        Setting {
            name: "header_map",
            flags: &["--header-map"],
            metavar: "HOW",
            env: None,
            kind: Kind::Choice(&["drop", "refuse", "dangerous"]),
            default: Preset::Text("drop"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Headers with _: drop, refuse or dangerous",
            long_help: "\
What to do with headers whose names contain an underscore. To the app \
X_Real_IP and X-Real-IP are the same name, HTTP_X_REAL_IP, so a client could \
replace what your proxy says. drop: remove them. refuse: answer 400. \
dangerous: keep them; the values of both spellings are joined with a comma. \
Content_Length and Transfer_Encoding are always removed, and SCRIPT_NAME \
sets where the app is mounted only if it comes from a peer in \
forwarded_allow_ips.",
        },
        Setting {
            name: "permit_unconventional_http_method",
            flags: &["--permit-unconventional-http-method"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Accept methods such as get or PU",
            long_help: "\
Accept methods that have lower-case letters or a #, or that are shorter than \
3 or longer than 20 characters. By default they are answered 400. Rules of a \
proxy or firewall for GET or POST do not match get or post.",
        },
        Setting {
            name: "casefold_http_method",
            flags: &["--casefold-http-method"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Convert methods to upper case",
            long_help: "\
get becomes GET. As in gunicorn, this has an effect only together with \
permit_unconventional_http_method, because get is refused otherwise. Methods \
are case-sensitive (RFC 9110 section 9.1): your proxy may treat get \
differently from GET.",
        },
        Setting {
            name: "permit_unconventional_http_version",
            flags: &["--permit-unconventional-http-version"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Accept versions such as 1.2 and 2.0",
            long_help: "\
Accept any HTTP/X.Y with two digits in a request line. Versions below 1.1 \
are read as HTTP/1.0, all others as HTTP/1.1; the app finds the version that \
was sent in SERVER_PROTOCOL. By default they are answered 505. HTTP/2 has \
other frames and settings of its own.",
        },
        Setting {
            name: "permit_obsolete_folding",
            flags: &["--permit-obsolete-folding"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Accept header values over several lines",
            long_help: "\
A line that begins with a space or a tab continues the value of the line \
before (RFC 9112 section 5.2); the parts are joined with a space. By default \
such a request is answered 400. It always is if the header is Content- \
Length, Transfer-Encoding, Connection, Expect or Host.",
        },
        Setting {
            name: "strip_header_spaces",
            flags: &["--strip-header-spaces"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Accept spaces before a header's colon",
            long_help: "\
Read 'Name : value' as 'Name: value'. By default it is answered 400, as RFC \
9112 section 5.1 requires. Content-Length and Transfer-Encoding with a space \
are always answered 400.",
        },
    ],
};

/// Warnings to an operator who lets in requests that no client should send: setting, value, risk.
pub(crate) const RISKS: &[(&str, &str, &str)] = &[
    (
        "header_map",
        "dangerous",
        "a client can send X_Real_IP, which the app cannot tell from the X-Real-IP of your proxy",
    ),
    (
        "forwarder_headers",
        "*",
        "every header with an underscore that your proxy passes on reaches the app, such as a REMOTE_USER from a client",
    ),
    (
        "permit_unconventional_http_method",
        "true",
        "rules of your proxy or firewall for GET or POST do not match get or post",
    ),
    (
        "casefold_http_method",
        "true",
        "your proxy may treat get differently from GET, which is what the app sees",
    ),
    (
        "permit_unconventional_http_version",
        "true",
        "your proxy may read such a request differently from this server (request smuggling)",
    ),
    (
        "permit_obsolete_folding",
        "true",
        "your proxy may read the second line as a header of its own (request smuggling)",
    ),
    (
        "strip_header_spaces",
        "true",
        "your proxy may overlook such a header, or remove only the usual spelling of it (request smuggling)",
    ),
];

/// A list of addresses and networks.
fn allowed_peers(text: &str) -> Result<(), String> {
    AllowedPeers::parse(text).map(drop)
}

/// A field of `secure_scheme_headers`, and what it says.
fn scheme_field(name: &str, value: &str) -> Result<(), String> {
    if !is_token(name.as_bytes()) {
        return Err("a name in it is not a name of a field".into());
    }
    if !is_field_text(value.as_bytes()) {
        return Err("a value in it is none that a field can have".into());
    }
    Ok(())
}

/// Names of fields with commas between, or `*`, which is a token too.
fn field_names(text: &str) -> Result<(), String> {
    let mut names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    match names.find(|name| !is_token(name.as_bytes())) {
        Some(name) => Err(format!("'{name}' is not a name of a field")),
        None => Ok(()),
    }
}

/// Empty, or a path that others can be put behind.
fn mount_point(text: &str) -> Result<(), String> {
    let is_path = text.starts_with('/') && !text.ends_with('/');
    if !is_path && !text.is_empty() || text.contains(['?', '#', '\r', '\n']) {
        return Err("it is written /PATH, with no slash at its end".into());
    }
    without_nul(text)
}
