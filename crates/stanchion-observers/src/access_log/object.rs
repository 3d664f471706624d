//! Writes the parts of JSON objects (RFC 8259): those of [`super::json`] and [`super::record`], at each request, nearly always
//! without an allocation.

use std::io::Write as _;

use super::text::{byte_escaped, is_all_plain, is_plain, number as digits};
use stanchion_log::is_obeyed;

/// Appends a key that is not the first of its object.
pub(super) fn key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a key and a number, or null.
pub(super) fn number(out: &mut Vec<u8>, name: &str, number: Option<u64>) {
    key(out, name);
    match number {
        Some(number) => digits(out, number),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a key and a text, or null.
pub(super) fn text(out: &mut Vec<u8>, name: &str, text: Option<&[u8]>) {
    key(out, name);
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    quoted(out, text, escape);
}

/// Appends bytes in quotes, each as the character of that number. A program reads them and no terminal, so only what RFC
/// 8259 section 7 asks for is escaped: a record has a limit.
pub(super) fn latin1(out: &mut Vec<u8>, bytes: &[u8]) {
    quoted(out, bytes, |out, bytes| {
        for &byte in bytes {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                // Writing to memory cannot fail.
                ..b' ' => _ = write!(out, "\\u{byte:04x}"),
                _ => out.extend_from_slice(char::from(byte).encode_utf8(&mut [0; 2]).as_bytes()),
            }
        }
    });
}

fn quoted(out: &mut Vec<u8>, text: &[u8], escape: impl FnOnce(&mut Vec<u8>, &[u8])) {
    out.push(b'"');
    if is_all_plain(text) {
        out.extend_from_slice(text);
    } else {
        escape(out, text);
    }
    out.push(b'"');
}

/// Escapes what RFC 8259 section 7 asks for, and whatever else a terminal would obey, since operators read lines there
/// too.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        let mut rest = chunk.valid();
        // Plain bytes are ASCII, so the first other byte begins a character.
        while let Some(at) = rest.bytes().position(|byte| !is_plain(byte)) {
            let (plain, other) = rest.split_at(at);
            out.extend_from_slice(plain.as_bytes());
            let mut chars = other.chars();
            match chars.next().expect("its first byte is there") {
                char @ ('"' | '\\') => out.extend_from_slice(&[b'\\', char as u8]),
                char if is_obeyed(char) => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        // Writing to memory cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
            rest = chars.as_str();
        }
        out.extend_from_slice(rest.as_bytes());
        // Bytes that are no text are shown as in the other form of the log: `\xe9`.
        for &byte in chunk.invalid() {
            out.push(b'\\');
            byte_escaped(out, byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = b"{\"a\":1".to_vec();
        text(&mut out, "b", Some(bytes));
        out.push(b'}');
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn bytes_for_a_program_take_two_bytes_at_most_unless_json_asks_for_more() {
        let mut out = Vec::new();
        latin1(&mut out, b"a\"\\\x1f\x7f\x80\xad\xff");
        let expected = "\"a\\\"\\\\\\u001f\u{7f}\u{80}\u{ad}\u{ff}\"";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_is_json_on_one_line(bytes: Vec<u8>) {
            let json = written(&bytes);
            prop_assert!(!json.chars().any(char::is_control), "{json:?}");
            let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let shown = read["b"].as_str().expect("a text");
            if let Ok(text) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(shown, text);
            }
        }

        #[test]
        fn a_text_comes_out_as_it_went_in(text: String) {
            let read: serde_json::Value = serde_json::from_str(&written(text.as_bytes())).expect("JSON");
            prop_assert_eq!(read["b"].as_str(), Some(&text[..]));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown() {
        assert_eq!(
            written(b"a\xe9\"\\\n\xc3\xa9"),
            r#"{"a":1,"b":"a\\xe9\"\\\u000a"#.to_owned() + "\u{e9}\"}"
        );
    }
}
