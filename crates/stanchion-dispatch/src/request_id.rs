//! The id of a request, by which proxies, the server and the app name the request in their logs.

use std::cell::RefCell;
use std::io;

use stanchion_http::Head;
use stanchion_http::rules::is_token;

use super::random::{Random, hexadecimal};

/// The longest id that the server takes from a proxy, in bytes; it replaces a longer one.
const LEN_MAX: usize = 128;
/// Random bytes of an id that the server makes, and its length in hexadecimal.
const RANDOM_BYTES: usize = 16;
const MADE_LEN: usize = 2 * RANDOM_BYTES;
/// The longest that is kept without an allocation: a UUID has 36 digits and dashes.
const SHORT_LEN_MAX: usize = 38;

/// The id of one request: an id from a proxy that the server believes, or the server's own, in hexadecimal.
pub struct RequestId(IdText);

enum IdText {
    Short { len: u8, bytes: [u8; SHORT_LEN_MAX] },
    Long(Box<[u8]>),
}

impl RequestId {
    fn new(name: &[u8]) -> Self {
        if name.len() > SHORT_LEN_MAX {
            return Self(IdText::Long(name.into()));
        }
        let mut bytes = [0; SHORT_LEN_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Self(IdText::Short {
            len: name.len() as u8,
            bytes,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        let name = match &self.0 {
            IdText::Short { len, bytes } => &bytes[..usize::from(*len)],
            IdText::Long(bytes) => bytes,
        };
        std::str::from_utf8(name).expect("it is ASCII, which was checked or made so")
    }
}

/// Gives requests their ids.
pub struct RequestIds {
    /// The field that carries them, as the operator writes it and as it is looked for.
    header: String,
    lower_case: String,
    random: RefCell<Random>,
}

impl RequestIds {
    /// `header` is the name of the field that carries ids.
    pub fn new(header: &str) -> io::Result<Self> {
        if !is_token(header.as_bytes()) {
            let what = format!("request_id_header {header:?} is not the name of a field");
            return Err(io::Error::other(what));
        }
        Ok(Self {
            header: header.to_owned(),
            lower_case: header.to_ascii_lowercase(),
            random: RefCell::new(Random::new()?),
        })
    }

    /// The name of the field, for the answer.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// The id of a request: the id that it brings, if it is from a trusted peer, there once, and sane; else a new one.
    pub fn name(&self, head: &Head, trusted: bool) -> RequestId {
        let given = trusted.then(|| head.only(&self.lower_case)).flatten();
        match given.filter(|given| is_sane(given)) {
            Some(given) => RequestId::new(given),
            None => RequestId::new(&hexadecimal::<RANDOM_BYTES, MADE_LEN>(&self.made())),
        }
    }

    fn made(&self) -> [u8; RANDOM_BYTES] {
        self.random.borrow_mut().take()
    }
}

/// Whether an id has only characters of which proxies make ids (UUIDs, ULIDs, base64,
/// `1-67891233-abcdef012345678912345678`), and none that means something to a shell, a log or a page.
fn is_sane(id: &[u8]) -> bool {
    let is_of_ids = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(byte);
    (1..=LEN_MAX).contains(&id.len()) && id.iter().all(is_of_ids)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn ids() -> RequestIds {
        RequestIds::new("X-Request-Id").expect("random bytes")
    }

    fn head(ids: &[&str]) -> Head {
        let fields: Vec<_> = ids.iter().map(|id| ("X-Request-ID", *id)).collect();
        Head::of("GET", "/", &fields)
    }

    fn named(ids: &RequestIds, value: &str, trusted: bool) -> String {
        ids.name(&head(&[value]), trusted).as_str().to_owned()
    }

    #[test]
    fn a_proxys_is_taken_if_it_is_one() {
        let ids = ids();
        let longest = "a".repeat(LEN_MAX);
        let short = "b".repeat(SHORT_LEN_MAX);
        let uuid = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";
        for id in [uuid, "a/b+c=", &short, &format!("{short}c"), &longest] {
            assert_eq!(named(&ids, id, true), id);
            assert_ne!(named(&ids, id, false), id, "anybody could say so");
        }
        let too_long = "a".repeat(LEN_MAX + 1);
        for id in ["", "a b", "<script>", "a\"b", "\u{e9}", "a,b", &too_long] {
            assert_eq!(named(&ids, id, true).len(), MADE_LEN);
        }
    }

    #[test]
    fn of_two_neither_is_taken() {
        let two = head(&["clients", "proxys"]);
        assert_eq!(ids().name(&two, true).as_str().len(), MADE_LEN);
    }

    #[test]
    fn ours_are_hexadecimal_and_never_the_same() {
        let ids = ids();
        let head = head(&[]);
        let mut seen = HashSet::new();
        // More than the random bytes that are fetched at a time.
        for _ in 0..400 {
            let id = ids.name(&head, true).as_str().to_owned();
            assert!(id.len() == MADE_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert!(seen.insert(id));
        }
    }
}
