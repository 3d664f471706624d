//! What a request is called in the logs of everybody who has to do with it.

use std::cell::RefCell;
use std::io;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::proxies::only_value;
use super::random::{Random, hexadecimal};

/// Longest id that is taken from a proxy, in bytes; one that is longer is replaced.
const LEN_MAX: usize = 128;
/// Random bytes of an id that we make, and its length in hexadecimal.
const RANDOM_BYTES: usize = 16;
const MADE_LEN: usize = 2 * RANDOM_BYTES;

/// The name of one request.
pub(super) enum RequestId {
    /// A proxy's that we believe.
    Given(HeaderValue),
    /// Ours, in hexadecimal.
    Made([u8; MADE_LEN]),
}

impl RequestId {
    pub(super) fn as_str(&self) -> &str {
        let text = match self {
            Self::Given(value) => std::str::from_utf8(value.as_bytes()),
            Self::Made(digits) => std::str::from_utf8(digits),
        };
        text.expect("both are ASCII, which was checked or made so")
    }
}

/// Gives requests their names.
pub(super) struct RequestIds {
    header: HeaderName,
    random: RefCell<Random>,
}

impl RequestIds {
    /// With the name of the field that carries them.
    pub(super) fn new(header: &str) -> io::Result<Self> {
        Ok(Self {
            header: header.parse().map_err(io::Error::other)?,
            random: RefCell::new(Random::new()?),
        })
    }

    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// The name of a request with these fields: what it brings, if that is from a trusted peer, there
    /// once, and in order, or a new one.
    pub(super) fn name(&self, headers: &HeaderMap, trusted: bool) -> RequestId {
        let given = trusted.then(|| only_value(headers, &self.header)).flatten();
        match given {
            Some(value) if is_sane(value.as_bytes()) => RequestId::Given(value.clone()),
            _ => RequestId::Made(hexadecimal(&self.made())),
        }
    }

    fn made(&self) -> [u8; RANDOM_BYTES] {
        self.random.borrow_mut().take()
    }
}

/// What the ids of proxies are made of (UUIDs, ULIDs, base64, `1-67891233-abcdef012345678912345678`),
/// and nothing that means something to a shell, a log or a page.
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

    fn named(ids: &RequestIds, value: &[u8], trusted: bool) -> String {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(value).expect("a value");
        headers.insert("x-request-id", value);
        ids.name(&headers, trusted).as_str().to_owned()
    }

    #[test]
    fn a_proxys_is_taken_if_it_is_one() {
        let ids = ids();
        let longest = "a".repeat(LEN_MAX);
        for id in ["3f2504e0-4f89-11d3-9a0c-0305e82c3301", "a/b+c=", &longest] {
            assert_eq!(named(&ids, id.as_bytes(), true), id);
            assert_ne!(
                named(&ids, id.as_bytes(), false),
                id,
                "anybody could say so"
            );
        }
        let too_long = "a".repeat(LEN_MAX + 1);
        for id in [
            &b""[..],
            b"a b",
            b"<script>",
            b"a\"b",
            b"\xe9",
            b"a,b",
            too_long.as_bytes(),
        ] {
            assert_eq!(named(&ids, id, true).len(), MADE_LEN);
        }
    }

    #[test]
    fn of_two_neither_is_taken() {
        let mut headers = HeaderMap::new();
        for id in ["clients", "proxys"] {
            headers.append("x-request-id", HeaderValue::from_static(id));
        }
        assert_eq!(ids().name(&headers, true).as_str().len(), MADE_LEN);
    }

    #[test]
    fn ours_are_hexadecimal_and_never_the_same() {
        let ids = ids();
        let headers = HeaderMap::new();
        let mut seen = HashSet::new();
        // More than the random bytes that are fetched at a time.
        for _ in 0..400 {
            let id = ids.name(&headers, true).as_str().to_owned();
            assert!(id.len() == MADE_LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert!(seen.insert(id));
        }
    }
}
