//! Writes the parts of lines without an allocation.

use stanchion_dispatch::random::hexadecimal;

/// Appends a number.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends microseconds as seconds: `0.000043`.
pub(super) fn decimal_s(out: &mut Vec<u8>, us: u64) {
    const US_PER_S: u64 = 1_000_000;
    number(out, us / US_PER_S);
    let from = out.len();
    // One more digit than there are, and the first of them makes way for the point.
    number(out, US_PER_S + us % US_PER_S);
    out[from] = b'.';
}

/// Appends what a client sent so that it stays on its line and harmless to a terminal, as
/// [`stanchion_log::escape_into`] does.
pub(super) fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    if is_all_plain(text) {
        out.extend_from_slice(text);
        return;
    }
    for &byte in text {
        match byte {
            _ if is_plain(byte) => out.push(byte),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            _ => byte_escaped(out, byte),
        }
    }
}

/// Whether all bytes are plain, as they nearly always are. Without a branch for each byte the core compares many at a time.
#[inline]
pub(super) fn is_all_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |all, &byte| all & is_plain(byte))
}

/// Appends a byte that is not to be shown, as `\xe9`.
pub(super) fn byte_escaped(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\x");
    out.extend_from_slice(&hexadecimal::<1, 2>(&[byte]));
}

/// Whether a byte of ASCII is visible, and neither quotes nor escapes.
pub(super) fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_a_client_sends_cannot_end_the_line() {
        let shown = written(|out| escaped(out, b"a\"b\\c\r\nd\xe9~\x7f"));
        assert_eq!(shown, "a\\\"b\\\\c\\x0d\\x0ad\\xe9~\\x7f");
    }

    #[test]
    fn seconds_have_six_decimals() {
        for (us, expected) in [
            (0, "0.000000"),
            (43, "0.000043"),
            (1_000_000, "1.000000"),
            (61_999_999, "61.999999"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(written(|out| decimal_s(out, us)), expected);
        }
    }

    proptest! {
        #[test]
        fn both_logs_escape_alike(text: Vec<u8>, visible in "[ -~]{0,40}") {
            for text in [&text[..], visible.as_bytes()] {
                let mut expected = String::new();
                stanchion_log::escape_into(&mut expected, text);
                prop_assert_eq!(written(|out| escaped(out, text)), expected);
            }
        }
    }
}
