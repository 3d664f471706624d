//! The character classes of the grammar, as tables of bytes.

/// A set of bytes.
pub(crate) struct Octets([bool; 256]);

impl Octets {
    /// How many of `bytes` come before the first that is not in the set; it checks four at a time.
    pub(crate) fn run(&self, bytes: &[u8]) -> usize {
        let mut len = 0;
        while let Some(&[a, b, c, d]) = bytes[len..].first_chunk()
            && self.has(a) & self.has(b) & self.has(c) & self.has(d)
        {
            len += 4;
        }
        while bytes.get(len).is_some_and(|&byte| self.has(byte)) {
            len += 1;
        }
        len
    }

    /// Whether all of `bytes` are in the set.
    pub(crate) fn has_all(&self, bytes: &[u8]) -> bool {
        self.run(bytes) == bytes.len()
    }

    pub(crate) fn has(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }

    const fn with(self, bytes: &[u8]) -> Self {
        self.set(bytes, true)
    }

    const fn without(self, bytes: &[u8]) -> Self {
        self.set(bytes, false)
    }

    const fn set(mut self, bytes: &[u8], is_in: bool) -> Self {
        let mut at = 0;
        while at < bytes.len() {
            self.0[bytes[at] as usize] = is_in;
            at += 1;
        }
        self
    }

    const fn with_range(mut self, first: u8, last: u8) -> Self {
        let mut byte = first as usize;
        while byte <= last as usize {
            self.0[byte] = true;
            byte += 1;
        }
        self
    }
}

const NONE: Octets = Octets([false; 256]);

const UPPERCASE_AND_DIGITS: Octets = NONE.with_range(b'0', b'9').with_range(b'A', b'Z');

const ALPHANUMERIC: Octets = UPPERCASE_AND_DIGITS.with_range(b'a', b'z');

/// tchar: RFC 9110 section 5.6.2.
pub(crate) static TOKEN: Octets = Octets(ALPHANUMERIC.0).with(b"!#$%&'*+-.^_`|~");

/// Characters of conventional methods, as gunicorn defines them: a token without lower case and `#`.
pub(crate) static CONVENTIONAL_METHOD: Octets = UPPERCASE_AND_DIGITS.with(b"!$%&'*+-.^_`|~");

/// Characters of a field's value: VCHAR, obs-text, SP and HTAB (RFC 9110 section 5.5).
pub(crate) static FIELD_TEXT: Octets = NONE
    .with(b"\t")
    .with_range(0x20, 0x7e)
    .with_range(0x80, 0xff);

/// Characters of a request line: visible characters, obs-text, and the two spaces (RFC 9112 section 3).
pub(crate) static LINE_TEXT: Octets = NONE.with_range(0x20, 0x7e).with_range(0x80, 0xff);

/// Bytes of a target: the characters of a URI (RFC 3986 section 2), and those that clients send without encoding them. None of the latter ends a line
/// or a word for this server or for a known proxy (docs/internals/http.md has the table).
pub(crate) static TARGET: Octets = NONE.with_range(0x21, 0x7e).with_range(0x80, 0xff);

/// Bytes of the path of a target (RFC 3986 section 3.3).
pub(crate) static PATH: Octets = Octets(TARGET.0).without(b"#?");

/// Bytes of the query of a target (RFC 3986 section 3.4).
pub(crate) static QUERY: Octets = Octets(TARGET.0).without(b"#");

/// Bytes that the path and query of a URI hold without an encoding, and `%`, which begins one (RFC 3986 sections 3.3 and 3.4). The RFC requires
/// brackets to be encoded there, but browsers send them as they are.
static URI: Octets = Octets(ALPHANUMERIC.0).with(b"-._~!$&'()*+,;=:@/?%[]");

/// [`URI`] for a path whose percent-encoded bytes have been decoded.
static DECODED_PATH: Octets = Octets(URI.0).without(b"?%");

/// Characters of a reg-name, besides percent-encoded bytes (RFC 3986 section 3.2.2).
pub(crate) static REG_NAME: Octets = Octets(ALPHANUMERIC.0).with(b"-._~!$&'()*+,;=");

/// Whether a value or a reason has no control character, such as one that would end it (RFC 9110 section 5.5).
pub fn is_field_text(bytes: &[u8]) -> bool {
    let len = before_control(bytes);
    FIELD_TEXT.has_all(&bytes[len..])
}

/// Appends a path or a query of a target in the form of a URI: bytes that no URI may hold are percent-encoded (RFC 3986 section 2.1).
pub fn put_uri(out: &mut String, path_or_query: &[u8]) {
    put_encoded(out, path_or_query, &URI);
}

/// Appends a path whose percent-encoded bytes have been decoded, in the form of a URI.
pub(crate) fn put_decoded_path(out: &mut String, path: &[u8]) {
    put_encoded(out, path, &DECODED_PATH);
}

/// Digits of four bits each, in capitals as in RFC 3986 section 2.1.
pub(crate) const HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";

fn put_encoded(out: &mut String, bytes: &[u8], kept: &Octets) {
    let digit = |four_bits: u8| char::from(HEX_DIGITS[usize::from(four_bits)]);
    for &byte in bytes {
        if kept.has(byte) {
            out.push(char::from(byte));
        } else {
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// How many of `bytes` come before the first control character (HTAB is one); it checks eight at a time.
pub(crate) fn before_control(bytes: &[u8]) -> usize {
    let mut len = 0;
    while let Some(&word) = bytes[len..].first_chunk() {
        let controls = controls(u64::from_le_bytes(word));
        if controls != 0 {
            return len + controls.trailing_zeros() as usize / 8;
        }
        len += word.len();
    }
    let is_control = |byte: &u8| *byte < b' ' || *byte == 0x7f;
    let last = bytes[len..].iter().position(is_control);
    last.map_or(bytes.len(), |at| len + at)
}

/// Whether a value is printable ASCII, SP included, as most are: then it is field text, and the same bytes in UTF-8 and
/// latin-1. It checks eight bytes at a time.
pub fn is_plain_text(bytes: &[u8]) -> bool {
    let is_other = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (controls(word) | word & HIGHEST) != 0
    };
    match bytes.last_chunk() {
        // The last eight may overlap bytes that were checked before.
        Some(last) => !bytes.as_chunks().0.iter().any(is_other) && !is_other(last),
        None => bytes.iter().all(|byte| matches!(byte, b' '..=b'~')),
    }
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHEST: u64 = ONES << 7;

/// Sets the highest bit of each of eight bytes that is below 0x20 or DEL. Only the lowest bit that is set is certain: the subtraction borrows from
/// the bytes above, but a borrow begins only at such a byte.
fn controls(word: u64) -> u64 {
    let without_del = word ^ (ONES * 0x7f);
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let del = without_del.wrapping_sub(ONES) & !without_del;
    (below_space | del) & HIGHEST
}

/// The bytes without the whitespace around them: OWS of RFC 9110 section 5.6.3.
pub(crate) fn trimmed(bytes: &[u8]) -> &[u8] {
    let mut bytes = &bytes[leading_whitespace(bytes)..];
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// How many bytes of OWS are in front.
pub(crate) fn leading_whitespace(bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    end.unwrap_or(bytes.len())
}

/// 1*DIGIT as a number, if it fits into 64 bits.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
