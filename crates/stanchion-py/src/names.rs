//! What the fields of requests are called in an environ, remembered by how they were sent.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pyo3::prelude::*;
use pyo3::types::PyString;
use stanchion_http::VARIABLE;
use stanchion_http::gateway::{Fate, FieldRules, environ_name};

/// How many names are remembered; a client cannot make us keep more.
const NAMES_MAX: usize = 256;
/// A longer one is not remembered.
const NAME_BYTES_MAX: usize = 64;

/// Fields whose values clients send again and again, in lower case. None that is secret or one client's.
const USUAL: [&[u8]; 26] = [
    b"accept",
    b"accept-charset",
    b"accept-encoding",
    b"accept-language",
    b"cache-control",
    b"connection",
    b"content-type",
    b"dnt",
    b"host",
    b"origin",
    b"pragma",
    b"priority",
    b"sec-ch-ua",
    b"sec-ch-ua-mobile",
    b"sec-ch-ua-platform",
    b"sec-fetch-dest",
    b"sec-fetch-mode",
    b"sec-fetch-site",
    b"sec-fetch-user",
    b"upgrade-insecure-requests",
    b"user-agent",
    b"via",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-proto",
    b"x-requested-with",
];

/// What a field is to an environ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its name has an underscore: the app sees it if it is from one of these.
    Underscored {
        proxy: bool,
        anybody: bool,
    },
    /// A proxy says it of the request by the uwsgi protocol, under this very key.
    Variable,
    /// The last one counts.
    Content,
    Host,
    Other,
}

/// The name of a field.
pub(crate) struct Name {
    /// Its key in an environ.
    pub(crate) key: Py<PyString>,
    pub(crate) role: Role,
    /// Its value is likely to come again.
    pub(crate) is_usual: bool,
    /// The same for all ways to write it. `None` if it is not remembered.
    number: Option<usize>,
}

type Places = HashMap<Box<[u8]>, usize, BuildHasherDefault<NameHasher>>;

/// Names by their bytes. One seat's, so that looking takes no lock.
pub(crate) struct Names {
    rules: FieldRules,
    places: Places,
    /// By their keys in an environ, the first way to write each.
    places_of_keys: Places,
    known: Vec<Name>,
    /// The last one that is not remembered.
    unknown: Option<Name>,
}

/// Which names came already in one head.
#[derive(Default)]
pub(crate) struct Seen([u64; NAMES_MAX.div_ceil(64)]);

impl Seen {
    /// Whether a field of this name may have come before; now it has.
    pub(crate) fn again(&mut self, name: &Name) -> bool {
        let Some(number) = name.number else {
            return true;
        };
        let (word, bit) = (&mut self.0[number / 64], 1 << (number % 64));
        let before = *word & bit != 0;
        *word |= bit;
        before
    }
}

impl Names {
    pub(crate) fn new(rules: FieldRules) -> Self {
        Self {
            rules,
            places: HashMap::default(),
            places_of_keys: HashMap::default(),
            known: Vec::new(),
            unknown: None,
        }
    }

    pub(crate) fn get(&mut self, py: Python<'_>, name: &[u8]) -> &Name {
        if let Some(&place) = self.places.get(name) {
            return &self.known[place];
        }
        let mut key = String::new();
        environ_name(name, &mut key);
        let same = self.places_of_keys.get(key.as_bytes()).copied();
        let known_key = same.map(|place| self.known[place].key.clone_ref(py));
        if self.known.len() == NAMES_MAX || name.len() > NAME_BYTES_MAX {
            // Some versions of CPython never free an interned string, and a client could have us make as many
            // as it likes (PEP 683).
            let key = known_key.unwrap_or_else(|| PyString::new(py, &key).unbind());
            return self.unknown.insert(Name::new(name, key, same, &self.rules));
        }
        let place = self.known.len();
        let number = same.unwrap_or(place);
        let interned = known_key.unwrap_or_else(|| PyString::intern(py, &key).unbind());
        self.places.insert(name.into(), place);
        if same.is_none() {
            self.places_of_keys.insert(key.into_bytes().into(), place);
        }
        let name = Name::new(name, interned, Some(number), &self.rules);
        self.known.push(name);
        &self.known[place]
    }
}

impl Name {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            key: self.key.clone_ref(py),
            ..*self
        }
    }

    fn new(name: &[u8], key: Py<PyString>, number: Option<usize>, rules: &FieldRules) -> Self {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let is_shown = |from_proxy| rules.fate(name, from_proxy) == Fate::Shown;
        let role = if name.starts_with(&[VARIABLE]) {
            Role::Variable
        } else if name.contains(&b'_') {
            Role::Underscored {
                proxy: is_shown(true),
                anybody: is_shown(false),
            }
        } else if is(b"content-length") || is(b"content-type") {
            Role::Content
        } else if is(b"host") {
            Role::Host
        } else {
            Role::Other
        };
        Self {
            key,
            role,
            is_usual: USUAL.into_iter().any(is),
            number,
        }
    }
}

/// `HTTP_X_REQUEST_ID` for `X-Request-Id`, as an interned string. Not for names that a client has chosen.
pub(crate) fn environ_key(py: Python<'_>, name: &[u8]) -> Py<PyString> {
    let mut key = String::new();
    environ_name(name, &mut key);
    PyString::intern(py, &key).unbind()
}

/// FNV-1a by words. Names are bounded in number, so nobody can make the table slow by choosing them.
#[derive(Default)]
pub(crate) struct NameHasher(u64);

impl NameHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    /// The table looks at the uppermost bits and the lowest.
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
