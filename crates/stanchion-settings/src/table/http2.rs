//! Settings of HTTP/2.

use super::{Group, Kind, OnReload, Preset, Range, Setting};

/// RFC 9113 section 6.9.1.
const WINDOW_BYTES_MAX: u64 = (1 << 31) - 1;
/// RFC 9113 section 6.5.2.
const FRAME_BYTES_MIN: u64 = 1 << 14;
const FRAME_BYTES_MAX: u64 = (1 << 24) - 1;
/// Far more than a head may have, of which RFC 9113 section 6.5.2 counts 32 bytes more for each field.
const HEADER_LIST_BYTES_MAX: u64 = 1 << 20;
const STREAMS_MAX: u64 = 1 << 16;

pub(super) const HTTP2: Group = Group {
    title: "HTTP/2",
    settings: &[
        Setting {
            name: "http_protocols",
            flags: &["--http-protocols"],
            metavar: "LIST",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: protocols,
            },
            default: Preset::Text("h1"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "HTTP versions: h1, or h2,h1",
            long_help: "\
h1 is HTTP/1.1, h2 is HTTP/2, with commas between. HTTP/2 is spoken over \
TLS with clients that ask for it (ALPN), and on other connections that begin \
with it where http2_cleartext allows that. HTTP/1.1 is \
always spoken too, also with h2 alone, as in gunicorn.",
        },
        Setting {
            name: "http2_cleartext",
            flags: &["--http2-cleartext"],
            metavar: "HOW",
            env: None,
            kind: Kind::Choice(&["off", "prior-knowledge", "upgrade", "both"]),
            default: Preset::Text("off"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "HTTP/2 without TLS: off or prior-knowledge",
            long_help: "\
With prior-knowledge, a connection that begins with the preface of HTTP/2 \
(RFC 9113 section 3.4) carries HTTP/2; any other one is served as before. \
http_protocols has to have h2. Proxies such as HAProxy, Envoy and Caddy speak \
it to servers behind them; browsers do not. upgrade and both are refused: RFC \
9113 has removed the upgrade from HTTP/1.1, which hardly any client asks for. \
In gunicorn only peers in forwarded_allow_ips may speak it, and have to.",
        },
        Setting {
            name: "http2_max_concurrent_streams",
            flags: &["--http2-max-concurrent-streams"],
            metavar: "COUNT",
            env: None,
            kind: Kind::Int(Range::between(1, STREAMS_MAX)),
            default: Preset::Number(100),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Most requests at once on a connection",
            long_help: "\
More are refused, and the client may send them again. All connections \
together may have max_connections streams.",
        },
        Setting {
            name: "http2_initial_window_size",
            flags: &["--http2-initial-window-size"],
            metavar: "BYTES",
            env: None,
            kind: Kind::Bytes(Range::between(1, WINDOW_BYTES_MAX)),
            default: Preset::Number(65_535),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Bytes of a body that come unread",
            long_help: "\
A client may send so much of a request body before the server has read any \
of it, and a stream may take so much memory. All bodies on one connection \
together may be as far ahead as http2_max_concurrent_streams of them, but no \
further than 16 MiB, or than this if it is more. Larger windows make uploads \
over long distances faster.",
        },
        Setting {
            name: "http2_max_frame_size",
            flags: &["--http2-max-frame-size"],
            metavar: "SIZE",
            env: None,
            kind: Kind::Bytes(Range::between(FRAME_BYTES_MIN, FRAME_BYTES_MAX)),
            default: Preset::Number(16_384),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Largest frame that is taken, in bytes",
            long_help: "\
A client that sends a larger one is disconnected. A frame is kept in memory \
until it is whole, so each connection may take this much.",
        },
        Setting {
            name: "http2_max_header_list_size",
            flags: &["--http2-max-header-list-size"],
            metavar: "BYTES",
            env: None,
            kind: Kind::Bytes(Range::between(1, HEADER_LIST_BYTES_MAX)),
            default: Preset::Number(65_536),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Largest list of headers that is taken",
            long_help: "\
Names and values, and 32 bytes for each header (RFC 9113 section 6.5.2). A \
request with a larger list is answered 431; a list that is sixteen times as \
large ends its connection. limit_request_line, limit_request_fields and \
limit_request_field_size hold as well, and a head may have at most 64 KiB.",
        },
    ],
};

fn protocols(text: &str) -> Result<(), String> {
    let mut seen = Vec::new();
    for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        if !matches!(&*word, "h1" | "h2") {
            return Err(format!(
                "expected h1 or h2 with commas between, got '{word}'"
            ));
        }
        if seen.contains(&word) {
            return Err(format!("{word} stands there twice"));
        }
        seen.push(word);
    }
    Ok(())
}
