//! Which answers of an app the server compresses, and how it changes their heads then (RFC 9110 sections 8.4 and 12.5.3). Where servers differ, this
//! follows nginx, with the exceptions in `docs/static-files.md`.

use crate::answer::{field_lines, fields, put_field, split_status};
use crate::coding::{Coding, codings_taken};
use crate::head::Head;
use crate::octets::trimmed;
use crate::rules::{content_length, has_body, is_token, lists};

/// Fields with a digest of a body's exact bytes (RFC 9530, and RFC 1864 before it): an app that sends one wants those bytes to arrive unchanged.
const OF_BYTES: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];
/// RFC 9110 section 15.3.7.
const PARTIAL: u16 = 206;
/// RFC 9110 section 15.3.6: it has no body either.
const RESET: u16 = 205;

/// Which answers are compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressRules {
    /// The codings on offer; where a client states no preference it gets the first.
    codings: Vec<Coding>,
    types: Vec<TypeRule>,
    /// A shorter body is sent as it is.
    size_min: u64,
}

/// Types of content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TypeRule {
    /// This type only.
    Exactly(String),
    /// All types that begin with this text, which ends in a slash, except `text/event-stream`: a client that waits for an event should not wait for a
    /// compressor as well.
    Below(String),
    /// All types that end with this text, such as `+json`.
    EndingIn(String),
}

/// A stream of events (HTML section 9.2): a client waits for each of them.
const EVENT_STREAM: &str = "text/event-stream";

/// The decision about one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Every client gets it as it is.
    Never,
    /// This client gets it as it is, but others get it compressed: `Vary` has to say so to caches.
    NotForThisClient,
    /// The server compresses it.
    With(Coding),
}

impl CompressRules {
    /// Reads the settings: names of codings and of types, separated by commas. `None` if there are no codings.
    ///
    /// # Errors
    /// The first name that is unknown, malformed or listed twice.
    pub fn new(codings: &str, types: &str, size_min: u64) -> Result<Option<Self>, String> {
        let codings = codings_of(codings)?;
        let types = types_of(types)?;
        Ok((!codings.is_empty()).then_some(Self {
            codings,
            types,
            size_min,
        }))
    }

    /// Decides about the answer to a request, with this status and this head in wire form. `len` is the length of its body, if the caller knows a
    /// length that the head does not give.
    pub fn judge(&self, request: &Head, status: u16, wire: &[u8], len: Option<u64>) -> Compression {
        if !has_body(status) || matches!(status, PARTIAL | RESET) {
            return Compression::Never;
        }
        let Some(told) = ContentFields::of(wire) else {
            return Compression::Never;
        };
        let is_meant = |kind: &[u8]| self.types.iter().any(|rule| rule.fits(kind));
        let len = told.len.or(len);
        let is_short = len.is_some_and(|len| len < self.size_min.max(1));
        if is_short || !told.content_type.is_some_and(is_meant) {
            return Compression::Never;
        }
        // Without a length the server cannot know whether GET would get this answer compressed.
        let is_unknown = request.method() == "HEAD" && len.is_none();
        match codings_taken(request, &self.codings).first() {
            Some(&coding) if !is_unknown => Compression::With(coding),
            _ => Compression::NotForThisClient,
        }
    }
}

/// The fields of an answer's head that decide whether it may be compressed.
struct ContentFields<'w> {
    content_type: Option<&'w [u8]>,
    len: Option<u64>,
}

impl<'w> ContentFields<'w> {
    /// `None` if the head forbids compression.
    fn of(wire: &'w [u8]) -> Option<Self> {
        let (mut content_type, mut len) = (None, None);
        for (name, value) in fields(wire) {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match name.len() {
                12 if is(b"content-type") => {
                    let kind = value.split(|&byte| byte == b';').next();
                    if content_type.replace(trimmed(kind?)).is_some() {
                        return None;
                    }
                }
                14 if is(b"content-length") => len = content_length(value),
                16 if is(b"content-encoding") => return None,
                13 if is(b"content-range") => return None,
                13 if is(b"cache-control") && lists(value, b"no-transform") => return None,
                _ if OF_BYTES.iter().any(|known| is(known)) => return None,
                _ => {}
            }
        }
        Some(Self { content_type, len })
    }
}

impl TypeRule {
    fn of(text: &str) -> Option<Self> {
        let is_part = |part: &str| is_token(part.as_bytes()) && !part.contains('*');
        match text.split_once('/') {
            Some((kind, "*")) if is_part(kind) => Some(Self::Below(format!("{kind}/"))),
            Some((kind, sort)) if is_part(kind) && is_part(sort) => {
                Some(Self::Exactly(text.into()))
            }
            None => {
                let ending = text.strip_prefix('*')?;
                let is_ending = ending.strip_prefix('+').is_some_and(is_part);
                is_ending.then(|| Self::EndingIn(ending.into()))
            }
            Some(_) => None,
        }
    }

    fn fits(&self, kind: &[u8]) -> bool {
        let is = |known: &str| kind.eq_ignore_ascii_case(known.as_bytes());
        match self {
            Self::Exactly(name) => is(name),
            Self::Below(start) => {
                let begins = kind.get(..start.len());
                begins.is_some_and(|begins| begins.eq_ignore_ascii_case(start.as_bytes()))
                    && !is(EVENT_STREAM)
            }
            Self::EndingIn(end) => {
                let from = kind.len().checked_sub(end.len());
                from.is_some_and(|from| kind[from..].eq_ignore_ascii_case(end.as_bytes()))
            }
        }
    }
}

/// The words of a list with commas between, in lower case. `Err` names a word that is listed twice.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        if words.contains(&word) {
            return Err(format!("{word} is listed twice"));
        }
        if !word.is_empty() {
            words.push(word);
        }
    }
    Ok(words)
}

fn codings_of(text: &str) -> Result<Vec<Coding>, String> {
    let coding = |word: &String| {
        let mut all = Coding::ALL.into_iter();
        let found = all.find(|coding| coding.name() == word);
        found.ok_or_else(|| format!("expected gzip, br and zstd with commas between, got '{word}'"))
    };
    words(text)?.iter().map(coding).collect()
}

fn types_of(text: &str) -> Result<Vec<TypeRule>, String> {
    let rule = |word: &String| {
        let rule = TypeRule::of(word);
        rule.ok_or_else(|| {
            format!("expected types such as text/html, text/* or *+json with commas between, got '{word}'")
        })
    };
    words(text)?.iter().map(rule).collect()
}

/// Writes the head of an answer whose body gets this coding: it loses its length and its offer of ranges, and a strong validator becomes a weak one,
/// because the bytes change (RFC 9110 section 8.8.3.3).
pub fn put_compressed(out: &mut Vec<u8>, wire: &[u8], coding: Coding) {
    let (status, lines) = split_status(wire);
    out.extend_from_slice(status);
    for (name, value) in field_lines(lines) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("content-length") || is("accept-ranges") {
            continue;
        }
        if is("etag") && value.starts_with(b"\"") {
            put_field(out, name, &[b"W/", value].concat());
        } else {
            put_field(out, name, value);
        }
    }
    put_field(out, b"Content-Encoding", coding.name().as_bytes());
    put_vary(out, wire);
}

/// Writes the head of an answer that this client gets uncompressed and others compressed.
pub fn put_varied(out: &mut Vec<u8>, wire: &[u8]) {
    out.extend_from_slice(wire);
    put_vary(out, wire);
}

/// Adds `Accept-Encoding` to the fields that the answer varies by (RFC 9110 section 12.5.5), if the app has not done so.
fn put_vary(out: &mut Vec<u8>, wire: &[u8]) {
    let mut varies = fields(wire).filter(|(name, _)| name.eq_ignore_ascii_case(b"vary"));
    if !varies.any(|(_, value)| lists(value, b"accept-encoding") || lists(value, b"*")) {
        put_field(out, b"Vary", b"Accept-Encoding");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: &str = "text/*,*+json,application/json";
    const TEXT: &str = "Content-Type: text/html; charset=utf-8\r\n";

    fn rules(codings: &str, types: &str) -> CompressRules {
        let rules = CompressRules::new(codings, types, 100);
        rules.expect("they make sense").expect("it is on")
    }

    fn judged(method: &str, accepted: Option<&str>, told: &str, len: Option<u64>) -> Compression {
        let field = accepted.map(|value| ("Accept-Encoding", value));
        let request = Head::of(method, "/", field.as_slice());
        let (status, fields) = told.split_once('|').unwrap_or(("200", told));
        let wire = format!("HTTP/1.1 {status} Some\r\n{fields}");
        let status = status.parse().expect("a status");
        rules("zstd,gzip", TYPES).judge(&request, status, wire.as_bytes(), len)
    }

    #[test]
    fn what_pays_is_compressed_for_who_takes_it() {
        use Compression::{Never, NotForThisClient, With};
        let gzip = With(Coding::Gzip);
        let of = |lines: &str| format!("{TEXT}{lines}\r\n");
        for (told, len, expected) in [
            (TEXT.to_owned(), None, gzip),
            (TEXT.to_owned(), Some(100), gzip),
            (TEXT.to_owned(), Some(99), Never),
            (of("Content-Length: 100"), None, gzip),
            (of("Content-Length: 99"), None, Never),
            (format!("404|{TEXT}"), None, gzip),
            (format!("206|{TEXT}"), None, Never),
            (format!("205|{TEXT}"), None, Never),
            (format!("204|{TEXT}"), None, Never),
            (format!("304|{TEXT}"), None, Never),
            (of("Content-Encoding: br"), None, Never),
            (of("content-encoding: identity"), None, Never),
            (of("Content-Range: bytes */7"), None, Never),
            (of("Cache-Control: no-transform"), None, Never),
            (of("cache-control: max-age=1 , No-Transform"), None, Never),
            (of("Cache-Control: no-transformation"), None, gzip),
            (of("Content-Digest: sha-256=:x:"), None, Never),
            (of("Content-MD5: x"), None, Never),
            (of("Content-Type: text/html"), None, Never),
            ("Content-Type: TEXT/Plain\r\n".to_owned(), None, gzip),
            (
                "Content-Type: application/ld+JSON;x\r\n".to_owned(),
                None,
                gzip,
            ),
            ("Content-Type: application/json \r\n".to_owned(), None, gzip),
            ("Content-Type: image/png\r\n".to_owned(), None, Never),
            ("Content-Type: text\r\n".to_owned(), None, Never),
            (
                "Content-Type: text/event-stream\r\n".to_owned(),
                None,
                Never,
            ),
            (String::new(), None, Never),
        ] {
            assert_eq!(
                judged("GET", Some("gzip"), &told, len),
                expected,
                "{told:?}"
            );
            let unwanted = if expected == gzip {
                NotForThisClient
            } else {
                Never
            };
            for accepted in [None, Some("br"), Some("gzip;q=0")] {
                assert_eq!(judged("GET", accepted, &told, len), unwanted, "{told:?}");
            }
        }
        // Among equal weights the server's order decides.
        assert_eq!(
            judged("GET", Some("gzip, zstd"), TEXT, None),
            With(Coding::Zstandard)
        );
        assert_eq!(judged("GET", Some("gzip, zstd;q=0.9"), TEXT, None), gzip);
    }

    #[test]
    fn a_head_alone_is_that_of_a_get_where_that_is_known() {
        let told = format!("{TEXT}Content-Length: 100\r\n");
        let gzip = Compression::With(Coding::Gzip);
        assert_eq!(judged("HEAD", Some("gzip"), &told, None), gzip);
        let unknown = Compression::NotForThisClient;
        assert_eq!(judged("HEAD", Some("gzip"), TEXT, None), unknown);
    }

    #[test]
    fn events_are_compressed_only_if_they_are_named() {
        let request = Head::of("GET", "/", &[("Accept-Encoding", "gzip")]);
        let wire = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        for (types, expected) in [
            ("text/*", Compression::Never),
            ("text/*,text/event-stream", Compression::With(Coding::Gzip)),
        ] {
            let judged = rules("gzip", types).judge(&request, 200, wire, None);
            assert_eq!(judged, expected, "{types}");
        }
    }

    #[test]
    fn settings_that_make_no_sense() {
        for (codings, types, expected) in [
            ("", TYPES, Ok(false)),
            (" , ", TYPES, Ok(false)),
            ("gzip", "", Ok(true)),
            (" GZIP, br ", " Text/HTML , *+xml", Ok(true)),
            (
                "deflate",
                TYPES,
                Err("expected gzip, br and zstd with commas between, got 'deflate'"),
            ),
            ("gzip,gzip", TYPES, Err("gzip is listed twice")),
            (
                "",
                "text",
                Err(
                    "expected types such as text/html, text/* or *+json with commas between, got 'text'",
                ),
            ),
            ("gzip", "a/b,a/b", Err("a/b is listed twice")),
        ] {
            let made = CompressRules::new(codings, types, 0).map(|rules| rules.is_some());
            assert_eq!(
                made,
                expected.map_err(str::to_owned),
                "{codings:?} {types:?}"
            );
        }
        for types in [
            "*/*",
            "*",
            "text/**",
            "*json",
            "*+",
            "a/b/c",
            "a b/c",
            "/",
            "te*t/html",
            "*+a/b",
        ] {
            let made = CompressRules::new("gzip", types, 0);
            assert!(made.is_err(), "{types}");
        }
    }

    #[test]
    fn a_head_says_what_its_body_has_become() {
        // (the app's fields, the fields that are sent, whether the app's `Vary` lacks Accept-Encoding)
        for (told, kept, is_missing) in [
            ("", "", true),
            ("Content-Length: 7\r\n", "", true),
            ("Accept-Ranges: bytes\r\n", "", true),
            ("ETag: \"x\"\r\n", "ETag: W/\"x\"\r\n", true),
            ("etag: W/\"x\"\r\n", "etag: W/\"x\"\r\n", true),
            ("ETag: bare\r\n", "ETag: bare\r\n", true),
            ("Vary: Cookie\r\n", "Vary: Cookie\r\n", true),
            (
                "Vary: a, accept-encoding\r\n",
                "Vary: a, accept-encoding\r\n",
                false,
            ),
            ("vary: *\r\n", "vary: *\r\n", false),
            ("A: 1\r\nA: 2\r\n", "A: 1\r\nA: 2\r\n", true),
        ] {
            let vary = if is_missing {
                "Vary: Accept-Encoding\r\n"
            } else {
                ""
            };
            let wire = format!("HTTP/1.1 200 OK\r\n{told}");
            let (mut compressed, mut varied) = (Vec::new(), Vec::new());
            put_compressed(&mut compressed, wire.as_bytes(), Coding::Zstandard);
            put_varied(&mut varied, wire.as_bytes());
            let expected = format!("HTTP/1.1 200 OK\r\n{kept}Content-Encoding: zstd\r\n{vary}");
            assert_eq!(String::from_utf8_lossy(&compressed), expected);
            assert_eq!(String::from_utf8_lossy(&varied), format!("{wire}{vary}"));
        }
    }
}
