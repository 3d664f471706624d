//! Python strings made of a request's bytes, kept while they are likely to come again.

use std::io::Write;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// How many strings a seat keeps. A new string replaces the one at the place that its bytes select.
const PLACES: usize = 128;
/// A longer string is kept neither here nor in a template.
pub(crate) const KEPT_BYTES_MAX: usize = 256;
/// For how many ports a seat keeps strings: clients that stay connected come from the same ports.
const PORTS: usize = 256;

/// Bytes in the form of PEP 3333: a str whose characters are the bytes (latin-1).
pub(crate) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    if bytes.is_ascii() {
        return PyString::from_bytes(py, bytes).expect("there is memory for a string of ASCII");
    }
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    PyString::new(py, &text)
}

/// The value of `X-Request-Start` for a moment, in microseconds since the epoch. Of the forms that proxies have for it, all
/// middleware that knows the field reads this one.
pub(crate) fn request_start<T>(us: u64, make: impl FnOnce(&[u8]) -> T) -> T {
    let mut value = *b"t=....................";
    let mut rest = &mut value[2..];
    write!(rest, "{us}").expect("no number of 64 bits has more digits");
    let unused = rest.len();
    make(&value[..value.len() - unused])
}

/// Strings by their bytes. Each seat has its own, so that a look-up takes no lock.
pub(crate) struct Strings {
    places: Vec<Option<(Vec<u8>, Py<PyString>)>>,
    ports: Vec<Option<(u16, Py<PyString>)>>,
}

impl Strings {
    pub(crate) fn new() -> Self {
        Self {
            places: vec_of_none(PLACES),
            ports: vec_of_none(PORTS),
        }
    }

    /// [`text`] for bytes that are likely to come again.
    pub(crate) fn text<'py>(&mut self, py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
        if bytes.len() > KEPT_BYTES_MAX {
            return text(py, bytes);
        }
        let place = &mut self.places[place_of(bytes)];
        if let Some((kept, string)) = place
            && kept == bytes
        {
            return string.bind(py).clone();
        }
        let string = text(py, bytes);
        // Reuses the memory of the bytes before.
        let mut kept = place.take().map(|(kept, _)| kept).unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(bytes);
        *place = Some((kept, string.clone().unbind()));
        string
    }

    /// A port in decimal.
    pub(crate) fn port<'py>(&mut self, py: Python<'py>, port: u16) -> Bound<'py, PyString> {
        // Linux gives clients the even one of two neighbouring ports.
        let place = &mut self.ports[usize::from(port / 2) % PORTS];
        if let Some((kept, string)) = place
            && *kept == port
        {
            return string.bind(py).clone();
        }
        let string = PyString::new(py, &port.to_string());
        *place = Some((port, string.clone().unbind()));
        string
    }
}

fn vec_of_none<T>(len: usize) -> Vec<Option<T>> {
    std::iter::repeat_with(|| None).take(len).collect()
}

/// Spreads strings over the places that differ in length, at the start, in the middle or at the end. It need not resist attacks: for a client that
/// makes strings collide they are made again each time, as without places.
fn place_of(bytes: &[u8]) -> usize {
    let word = |at: usize| {
        let mut word = [0; 8];
        let part = &bytes[at..bytes.len().min(at + 8)];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    };
    let (middle, end) = (bytes.len() / 2, bytes.len().saturating_sub(8));
    let mixed = word(0) ^ word(middle).rotate_left(21) ^ word(end).rotate_left(42);
    // Fibonacci hashing.
    let spread = (mixed ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread >> 32) as usize % PLACES
}
