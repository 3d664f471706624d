//! Settings of what proxies say, and of which requests are taken.

use super::{Env, Group, Kind, OnReload, Preset, Setting, without_nul};
use crate::settings::AllowedPeers;
use stanchion_http::rules::{is_field_text, is_token};

pub(super) const PROXIES: Group = Group {
    title: "Proxies",
    settings: &[
        FORWARDED_ALLOW_IPS,
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
            help: "Fields in which a proxy says https",
            long_help: "\
Names of fields, and what each says for https; any other value says http. \
They count from peers in forwarded_allow_ips, and one that has come says so \
for the whole request. Proxies that contradict each other, in two fields or \
in one that came twice, are answered 400. Case does not matter. Have your \
proxy set or remove them all.",
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
            help: "Fields with an underscore that may pass",
            long_help: "\
Names with commas between, or * for any: fields with an underscore in their \
names that the app sees if a peer in forwarded_allow_ips sends them, \
whatever header_map says. REMOTE_USER becomes HTTP_REMOTE_USER, as any field \
does; SCRIPT_NAME says besides where the app is mounted. Have your proxy set \
or remove them all: what a client sends in them, it passes on.",
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
What SCRIPT_NAME says, so that the app makes its links with it. Of a path \
that begins with it PATH_INFO has the rest; any other path is taken as it is, \
as a proxy passes it on that has stripped the prefix. It comes before the \
environment variable SCRIPT_NAME, and a SCRIPT_NAME field of a proxy \
(forwarder_headers) before both. In gunicorn it counts for ASGI apps only.",
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
    title: "Which requests are taken",
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
            help: "Names with _: drop, refuse or dangerous",
            long_help: "\
What becomes of fields with an underscore in their names: X_Real_IP would be \
HTTP_X_REAL_IP, the same as X-Real-IP, which your proxy vouches for. drop: \
the app does not see them. refuse: such a request is answered 400. dangerous: \
the app sees them, joined with those of the other spelling, and cannot tell \
who said what. Content_Length and Transfer_Encoding are never shown, and \
SCRIPT_NAME counts only from a peer in forwarded_allow_ips.",
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
            help: "Take methods such as get, or PU",
            long_help: "\
Methods of less than 3 or more than 20 characters, with lower case or with \
a #. Otherwise they are answered 400. A rule of your proxy that names a \
method in upper case does not hold for it.",
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
            help: "Make methods upper case",
            long_help: "\
get becomes GET, where permit_unconventional_http_method lets it in; without \
that it changes nothing, as in gunicorn. Methods differ by case (RFC 9110 \
section 9.1), so your proxy and the app may see two methods in one request.",
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
            help: "Take versions such as 1.2 and 2.0",
            long_help: "\
A request line may end in HTTP/ and any two digits with a dot between. What \
is below 1.1 is read as HTTP/1.0, all else as HTTP/1.1; SERVER_PROTOCOL is what \
was sent. Otherwise they are answered 505. It does not make the server speak \
HTTP/2.",
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
            help: "Take fields that go on in the next line",
            long_help: "\
A line that begins with a space or a tab goes on with the value before it \
(RFC 9112 section 5.2); a space stands for the break. Otherwise it is answered \
400, and so it is in Content-Length, Transfer-Encoding, Connection, Expect and \
Host whatever is said here.",
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
            help: "Take spaces before the colon of a field",
            long_help: "\
Name : value is taken for Name: value. Otherwise it is answered 400, as \
RFC 9112 section 5.1 demands, and so are Content-Length and Transfer-Encoding \
whatever is said here.",
        },
    ],
};

/// What the operator is told who lets in what nobody should send: setting, value, risk.
pub(in crate::settings) const RISKS: &[(&str, &str, &str)] = &[
    (
        "header_map",
        "dangerous",
        "a client may send X_Real_IP, and the app takes it for the X-Real-IP of your proxy",
    ),
    (
        "forwarder_headers",
        "*",
        "an app that takes REMOTE_USER or the like from its proxy takes it from clients too, where the proxy does not remove it",
    ),
    (
        "permit_unconventional_http_method",
        "true",
        "a proxy or firewall that has rules for methods may have none for these",
    ),
    (
        "casefold_http_method",
        "true",
        "your proxy may see another method than the app, and so apply other rules",
    ),
    (
        "permit_unconventional_http_version",
        "true",
        "your proxy may take such a request for something else, and end it elsewhere (request smuggling)",
    ),
    (
        "permit_obsolete_folding",
        "true",
        "your proxy may take the second line for a field of its own, and see another request than the app (request smuggling)",
    ),
    (
        "strip_header_spaces",
        "true",
        "your proxy may not know the field, or pass it on by another name: it sees another request than the app (request smuggling)",
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
