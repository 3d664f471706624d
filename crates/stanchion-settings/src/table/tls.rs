//! Settings of TLS.

use super::{Group, Kind, OPTIONAL, OnReload, Preset, Range, Setting, without_nul};
use crate::HttpsPort;

pub(super) const TLS: Group = Group {
    title: "TLS",
    settings: &[
        Setting {
            name: "certfile",
            flags: &["--certfile"],
            metavar: "FILE",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: without_nul,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Serve TLS with this certificate",
            long_help: "\
In PEM: the server's own certificate first, then those of the authorities \
between it and one that clients know. The flag may be repeated. Every listener of `bind` speaks TLS \
then, but for those with the option tls=false, and every socket that a \
service manager passes, but for those which it calls `http` \
(FileDescriptorName=). The admin listener and the ports of single workers do not.

If there are several, a client gets the first that is for the name which it \
asks for (SNI), and the first of all if none is. If two are for one name, \
one with an ECDSA key and one with an RSA key, each client gets the one \
whose key it knows.

The master reads the files, at the start, at each reload and upgrade: they \
have to be readable for its user, which may be root while `user` is not. \
Only the acceptor gets their content. A reload with a certificate or key \
that cannot be used fails, and the old generation goes on with the old ones.",
        },
        Setting {
            name: "keyfile",
            flags: &["--keyfile"],
            metavar: "FILE",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: without_nul,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "The certificate's private key",
            long_help: "\
In PEM, without a password: RSA of 2048 to 8192 bits, ECDSA (P-256, P-384) \
or Ed25519. One for each `certfile`, in their order; or none at all if each \
key is in the file of its certificate.",
        },
        Setting {
            name: "ca_certs",
            flags: &["--ca-certs"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Authorities of clients' certificates",
            long_help: "\
Certificates in PEM of the authorities that issue certificates to clients. \
Needed, and used, with `cert_reqs` only.",
        },
        Setting {
            name: "cert_reqs",
            flags: &["--cert-reqs"],
            metavar: "N",
            env: None,
            kind: Kind::Int(Range::between(0, 2)),
            default: Preset::Number(0),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Ask clients for certificates",
            long_help: "\
By the numbers of Python's ssl module. 0: clients are not asked. 1: clients \
are asked, and a certificate that a client shows has to be one of \
`ca_certs`; a client that shows none is served too. 2: a client that shows \
none is not served. The app finds the certificate in environ by the names of \
Apache's mod_ssl, such as SSL_CLIENT_S_DN, and in a scope by ASGI's \
extension tls.",
        },
        Setting {
            name: "ciphers",
            flags: &["--ciphers"],
            metavar: "NAMES",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "The cipher suites to serve",
            long_help: "\
Names of OpenSSL or IANA, with colons, commas or spaces between them, in the \
order in which they are preferred. All suites here have forward secrecy and \
authenticated encryption, so there is no need to choose. A name that is not \
known here stops the start, and the error lists the known ones. OpenSSL's \
words for sets, such as HIGH:!aNULL, are not taken.",
        },
        Setting {
            name: "tls_min_version",
            flags: &["--tls-min-version"],
            metavar: "VERSION",
            env: None,
            kind: Kind::Choice(&["1.2", "1.3"]),
            default: Preset::Text("1.2"),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "The oldest version of TLS to serve",
            long_help: "\
1.2 or 1.3. Older versions are not there (RFC 8996 forbids them).",
        },
        Setting {
            name: "redirect_to_https",
            flags: &["--redirect-to-https"],
            metavar: "PORT",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: https_port,
            },
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Send clients in clear text on to https",
            long_help: "\
With auto, to the port of the first listener of bind that speaks TLS; \
otherwise to this port, such as 443, if clients see another one. The server \
itself answers each request that came in clear text, without waiting: 301 \
for GET and HEAD, 308 for others, to the same host, path and query. A body \
is neither asked for nor read. A request without a proper Host gets 400. \
Requests that came by https to a proxy that is believed \
(forwarded_allow_ips) are served, and so are probes (health_path) and \
challenges (acme_challenge_dir). An example is --bind 0.0.0.0:443 --bind \
0.0.0.0:80?tls=false --redirect-to-https auto.",
        },
        Setting {
            name: "acme_challenge_dir",
            flags: &["--acme-challenge-dir"],
            metavar: "DIR",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Answer a certificate authority's challenges",
            long_help: "\
The directory that certbot gets as --webroot-path. On listeners in clear text \
the server itself answers GET and HEAD of \
/.well-known/acme-challenge/TOKEN (HTTP-01 in RFC 8555) with the file of that \
path below the directory, before redirect_to_https and before the app. So a \
certificate is issued and renewed while the server runs.

A token has letters, digits, - and _ only. Regular files of up to 4 KiB are \
served, and no links that lead out of the directory; all else is 404. The \
directory is opened when the server starts or reloads, those below it when a \
request comes: clients for ACME make and remove them.",
        },
    ],
};

fn https_port(text: &str) -> Result<(), String> {
    HttpsPort::parse(text)
        .map(drop)
        .ok_or_else(|| format!("expected auto or a port from 1 to 65535, got {text:?}"))
}
