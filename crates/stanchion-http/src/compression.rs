//! Which answers of an app are compressed on their way to a client, and what their heads say then (RFC 9110 sections 8.4
//! and 12.5.3). Where servers differ it is as nginx does it, but for what `docs/compression.md` says.

use crate::answer::{field_lines, fields, put_field, split_status};
use crate::coding::{Coding, codings_taken};
use crate::head::Head;
use crate::octets::trimmed;
use crate::rules::{content_length, has_body, is_token};

/// What tells of the very bytes of a body (RFC 9530, and RFC 1864 before it): who sends it wants them to arrive.
const OF_BYTES: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];
/// RFC 9110 section 15.3.7.
const PARTIAL: u16 = 206;
/// RFC 9110 section 15.3.6: it has no body either.
const RESET: u16 = 205;

/// Which answers are compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressRules {
    /// Those that are on offer, and which is taken where a client has no preference: the first.
    codings: Vec<Coding>,
    types: Vec<TypeRule>,
    /// What is shorter is sent as it is.
    size_min: u64,
}

/// Types of content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TypeRule {
    /// This one.
    Exactly(String),
    /// All that begin like that, slash included, but those that are exchanged in time: who waits for an event of
    /// `text/event-stream` should wait for nothing else.
    Below(String),
    /// All that end like that: `+json`.
    EndingIn(String),
}

/// A stream of events (HTML section 9.2), each of which its client waits for.
const EVENT_STREAM: &str = "text/event-stream";

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// It is sent as it is, whoever asks.
    Never,
    /// It is sent as it is, but others get it compressed: caches have to know.
    NotForThisClient,
    /// It is compressed.
    With(Coding),
}

impl CompressRules {
    /// For the settings: names of codings and types, with commas between. `None` if there are no codings.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn new(codings: &str, types: &str, size_min: u64) -> Result<Option<Self>, String> {
        let codings = codings_of(codings)?;
        let types = types_of(types)?;
        Ok((!codings.is_empty()).then_some(Self {
            codings,
            types,
            size_min,
        }))
    }

    /// What becomes of the answer to a request, of this status and with this head, in wire form. `len` is the length of its
    /// body, if that is known and its head does not say.
    pub fn judge(&self, request: &Head, status: u16, wire: &[u8], len: Option<u64>) -> Compression {
        if !has_body(status) || matches!(status, PARTIAL | RESET) {
            return Compression::Never;
        }
        let Some(told) = Told::of(wire) else {
            return Compression::Never;
        };
        let is_meant = |kind: &[u8]| self.types.iter().any(|rule| rule.fits(kind));
        let len = told.len.or(len);
        let is_short = len.is_some_and(|len| len < self.size_min.max(1));
        if is_short || !told.content_type.is_some_and(is_meant) {
            return Compression::Never;
        }
        // What GET gets is not known then.
        let is_unknown = request.method() == "HEAD" && len.is_none();
        match codings_taken(request, &self.codings).first() {
            Some(&coding) if !is_unknown => Compression::With(coding),
            _ => Compression::NotForThisClient,
        }
    }
}

/// What the head of an answer says that may be compressed.
struct Told<'w> {
    content_type: Option<&'w [u8]>,
    len: Option<u64>,
}

impl<'w> Told<'w> {
    /// `None` if it says that it is not to be.
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

/// Words of a list with commas between, in lower case. `Err`: one that stands there twice.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        if words.contains(&word) {
            return Err(format!("{word} stands there twice"));
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

/// Whether a list has this member (RFC 9110 section 5.6.1), in whatever case.
fn lists(list: &[u8], member: &[u8]) -> bool {
    let mut members = list.split(|&byte| byte == b',').map(trimmed);
    members.any(|one| one.eq_ignore_ascii_case(member))
}

/// Writes the head of an answer for its body in this coding: nothing is known of its length, nor are parts of it to be had,
/// and a validator is no longer one of the very bytes (RFC 9110 section 8.8.3.3).
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

/// Writes the head of an answer that others get compressed.
pub fn put_varied(out: &mut Vec<u8>, wire: &[u8]) {
    out.extend_from_slice(wire);
    put_vary(out, wire);
}

/// Says that the answer goes by what its client takes (RFC 9110 section 12.5.5), if the app does not.
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
        // Among equals it is the server's order.
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
            ("gzip,gzip", TYPES, Err("gzip stands there twice")),
            (
                "",
                "text",
                Err(
                    "expected types such as text/html, text/* or *+json with commas between, got 'text'",
                ),
            ),
            ("gzip", "a/b,a/b", Err("a/b stands there twice")),
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
        // (what the app says, what is kept of it, whether `Vary` is missing)
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
