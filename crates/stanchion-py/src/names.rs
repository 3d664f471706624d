//! The keys of fields in an environ, remembered by the names that clients send.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pyo3::prelude::*;
use pyo3::types::PyString;
use stanchion_http::VARIABLE;
use stanchion_http::gateway::{FieldDecision, FieldRules, environ_name};

/// How many names are remembered; a client cannot make a worker keep more.
const NAMES_MAX: usize = 256;
/// A longer name is not remembered.
const NAME_BYTES_MAX: usize = 64;

/// Fields whose values clients send again and again, in lower case. None of them is a secret or identifies a client.
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

/// The role of a field in an environ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its name has an underscore: the app sees it if a trusted proxy sends it, or any client, as these say.
    Underscored {
        proxy: bool,
        anybody: bool,
    },
    /// A proxy gives it in the uwsgi protocol, under this very key.
    Variable,
    /// A `Content-Length` or `Content-Type`, of which the last one counts.
    Content,
    Host,
    Other,
}

/// The name of a field.
pub(crate) struct FieldName {
    /// Its key in an environ.
    pub(crate) key: Py<PyString>,
    pub(crate) role: Role,
    /// Its value is likely to come again.
    pub(crate) is_usual: bool,
    /// The same number for all spellings of the name. `None` if the name is not remembered.
    number: Option<usize>,
}

type Places = HashMap<Box<[u8]>, usize, BuildHasherDefault<NameHasher>>;

/// Names by their bytes. Each seat has its own, so that a look-up takes no lock.
pub(crate) struct Names {
    rules: FieldRules,
    places: Places,
    /// Places by keys of an environ; for each key, the spelling that came first.
    places_of_keys: Places,
    known: Vec<FieldName>,
    /// The last name that is not remembered.
    unknown: Option<FieldName>,
}

/// The names that came already in one head.
#[derive(Default)]
pub(crate) struct SeenNames([u64; NAMES_MAX.div_ceil(64)]);

impl SeenNames {
    /// Whether a field of this name may have come before; notes that it has come now.
    pub(crate) fn again(&mut self, name: &FieldName) -> bool {
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

    pub(crate) fn get(&mut self, py: Python<'_>, name: &[u8]) -> &FieldName {
        if let Some(&place) = self.places.get(name) {
            return &self.known[place];
        }
        let mut key = String::new();
        environ_name(name, &mut key);
        let same = self.places_of_keys.get(key.as_bytes()).copied();
        let known_key = same.map(|place| self.known[place].key.clone_ref(py));
        if self.known.len() == NAMES_MAX || name.len() > NAME_BYTES_MAX {
            // Some versions of CPython never free an interned string, and a client could have a worker make any number of them (PEP 683).
            let key = known_key.unwrap_or_else(|| PyString::new(py, &key).unbind());
            return self
                .unknown
                .insert(FieldName::new(name, key, same, &self.rules));
        }
        let place = self.known.len();
        let number = same.unwrap_or(place);
        let interned = known_key.unwrap_or_else(|| PyString::intern(py, &key).unbind());
        self.places.insert(name.into(), place);
        if same.is_none() {
            self.places_of_keys.insert(key.into_bytes().into(), place);
        }
        let name = FieldName::new(name, interned, Some(number), &self.rules);
        self.known.push(name);
        &self.known[place]
    }
}

impl FieldName {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            key: self.key.clone_ref(py),
            ..*self
        }
    }

    fn new(name: &[u8], key: Py<PyString>, number: Option<usize>, rules: &FieldRules) -> Self {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let is_shown = |from_proxy| rules.fate(name, from_proxy) == FieldDecision::Shown;
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

/// `HTTP_X_REQUEST_ID` for `X-Request-Id`, as an interned string. It must not be used for names that a client chooses.
pub(crate) fn environ_key(py: Python<'_>, name: &[u8]) -> Py<PyString> {
    let mut key = String::new();
    environ_name(name, &mut key);
    PyString::intern(py, &key).unbind()
}

/// FNV-1a by words. The number of names is bounded, so no client can slow down the table by its choice of names.
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

    /// The table uses the uppermost bits and the lowest.
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
