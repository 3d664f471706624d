//! Content types of files, by the endings of their names.

use std::collections::HashMap;
use std::sync::Arc;

use stanchion_http::rules::is_plain_text;

/// The system's table.
const TABLE: &str = "/etc/mime.types";
/// The type of a file whose ending no table has (RFC 2046 section 4.5.1).
const UNKNOWN: &str = "application/octet-stream";
/// The types of the files of web pages, for systems without a table: small container images have none.
const KNOWN: &[(&str, &str)] = &[
    ("avif", "image/avif"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("eot", "application/vnd.ms-fontobject"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// The type of a file, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) name: Arc<str>,
    /// Compression of the file saves something, so that there may be coded files beside it.
    pub(super) pays: bool,
}

/// The types by endings, in lower case.
pub(super) struct Types {
    known: HashMap<String, Type>,
    /// The type of all other files.
    other: Type,
}

impl Types {
    /// The types of the system's table, and of `KNOWN` for endings that the table lacks.
    pub(super) fn of_system() -> Self {
        // Small container images have no table: `KNOWN` will do.
        Self::of_table(&std::fs::read_to_string(TABLE).unwrap_or_default())
    }

    /// A line is a type and its endings; `#` begins a comment.
    fn of_table(table: &str) -> Self {
        let mut types = HashMap::new();
        for line in table.lines() {
            let words = line.split('#').next().unwrap_or_default();
            let mut words = words.split_whitespace();
            let Some(name) = words.next().filter(|name| is_plain_text(name.as_bytes())) else {
                continue;
            };
            for ending in words {
                types.insert(ending.to_ascii_lowercase(), Type::of(name));
            }
        }
        for (ending, name) in KNOWN {
            let given = types.entry((*ending).to_owned());
            given.or_insert_with(|| Type::of(name));
        }
        Self {
            known: types,
            ..Self::default()
        }
    }

    pub(super) fn of(&self, path: &[u8]) -> &Type {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let ending = name.iter().rposition(|&byte| byte == b'.');
        let ending = ending.map_or(&b""[..], |at| &name[at + 1..]);
        let ending = String::from_utf8_lossy(ending).to_ascii_lowercase();
        self.known.get(&ending).unwrap_or(&self.other)
    }
}

impl Default for Types {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            other: Type::of(UNKNOWN),
        }
    }
}

impl Type {
    fn of(name: &str) -> Self {
        Self {
            name: name.into(),
            pays: pays(name),
        }
    }
}

/// Text, in one form or another: everything else that browsers load is compressed by itself.
fn pays(name: &str) -> bool {
    let is_text = |ending: &&str| name.ends_with(ending);
    name.starts_with("text/")
        || ["javascript", "json", "xml", "/wasm", "font/ttf", "font/otf"]
            .iter()
            .any(is_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_goes_by_the_ending_of_a_name() {
        let types = Types::of_table(
            "# none\ntext/x-mine\tone TWO # three\nimage/png\n\nimage/own png\nbad\u{7} ico",
        );
        for (path, name, pays) in [
            ("a.one", "text/x-mine", true),
            ("a.two", "text/x-mine", true),
            ("a.b.Two", "text/x-mine", true),
            ("a.three", UNKNOWN, false),
            ("a.png", "image/own", false),
            ("a.ico", "image/x-icon", false),
            ("a.css", "text/css", true),
            ("x/a.js", "text/javascript", true),
            ("a.svg", "image/svg+xml", true),
            ("a.wasm", "application/wasm", true),
            ("a.woff2", "font/woff2", false),
            ("x.css/a", UNKNOWN, false),
            ("css", UNKNOWN, false),
            ("a.", UNKNOWN, false),
            ("", UNKNOWN, false),
        ] {
            let name = name.into();
            assert_eq!(types.of(path.as_bytes()), &Type { name, pays }, "{path}");
        }
    }
}
