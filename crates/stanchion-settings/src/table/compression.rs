//! Settings of answers that are compressed.

use stanchion_http::CompressRules;

use super::{Group, Kind, OnReload, Preset, Range, Setting};

/// A gibibyte: an operator who wants nothing compressed says so.
const SIZE_MAX: u64 = 1 << 30;

pub(super) const COMPRESSION: Group = Group {
    title: "Compression",
    settings: &[
        Setting {
            name: "compress",
            flags: &["--compress"],
            metavar: "LIST",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: codings,
            },
            default: Preset::Text(""),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Compress answers: zstd,br,gzip",
            long_help: "\
Answers of the app are compressed for clients that accept one of these codings \
(Accept-Encoding), with commas between; the first in this list where a client \
accepts several alike. Helper threads compress. Empty: nothing is compressed.

Do not compress pages that have both a secret and something that the client \
has sent: an attacker who can have a browser load them, and sees how long \
they are, finds out the secret (BREACH). An answer with its own \
Content-Encoding, such as identity, or with Cache-Control: no-transform, is \
sent as it is. Static files are never compressed here: they may lie beside \
their compressed copies.",
        },
        Setting {
            name: "compress_types",
            flags: &["--compress-types"],
            metavar: "LIST",
            env: None,
            kind: Kind::Text {
                nullable: false,
                check: types,
            },
            default: Preset::Text(
                "text/*, *+json, *+xml, application/json, application/javascript, application/xml, \
                 application/wasm, application/x-ndjson",
            ),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Content types that are compressed",
            long_help: "\
With commas between. text/* stands for all types that begin like that, \
except text/event-stream, which has to be named itself; *+json stands for \
all types that end like that.",
        },
        Setting {
            name: "compress_min_size",
            flags: &["--compress-min-size"],
            metavar: "BYTES",
            env: None,
            kind: Kind::Bytes(Range::between(0, SIZE_MAX)),
            default: Preset::Number(1024),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Shortest body that is compressed",
            long_help: "\
A body that fits one packet arrives no earlier if it is shorter. A body of \
unknown length, which comes in pieces, is compressed in any case.",
        },
    ],
};

fn codings(text: &str) -> Result<(), String> {
    CompressRules::new(text, "", 0).map(drop)
}

fn types(text: &str) -> Result<(), String> {
    CompressRules::new("", text, 0).map(drop)
}
