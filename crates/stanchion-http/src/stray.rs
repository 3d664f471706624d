//! The fault of a byte that is forbidden at its place in a request line: it names the byte, and says how to write it.

use crate::fault::Fault;
use crate::octets::HEX_DIGITS;

const BEFORE: &[u8] = b"a request line cannot have the byte 0x";
const BETWEEN: &[u8] = b": in a target, write it as %";
const LEN: usize = BEFORE.len() + 2 + BETWEEN.len() + 2;

/// A fault borrows static text, so there is a text for each byte of ASCII; no other byte is ever refused.
static TEXTS: [[u8; LEN]; 128] = texts();

/// The fault of a request with this byte in its first line: a control character, or a space in its target.
pub(crate) fn stray(byte: u8) -> Fault {
    if byte == b' ' {
        return Fault::BadRequest("a target cannot have a space: write it as %20");
    }
    let text = TEXTS.get(usize::from(byte));
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    Fault::BadRequest(text.unwrap_or("a control character in the request line"))
}

const fn texts() -> [[u8; LEN]; 128] {
    let mut texts = [[0; LEN]; 128];
    let mut byte = 0;
    while byte < texts.len() {
        texts[byte] = text(byte as u8);
        byte += 1;
    }
    texts
}

const fn text(byte: u8) -> [u8; LEN] {
    let text = put([0; LEN], 0, BEFORE);
    let text = put_digits(text, BEFORE.len(), byte);
    let text = put(text, BEFORE.len() + 2, BETWEEN);
    put_digits(text, BEFORE.len() + 2 + BETWEEN.len(), byte)
}

const fn put(mut text: [u8; LEN], at: usize, words: &[u8]) -> [u8; LEN] {
    let mut done = 0;
    while done < words.len() {
        text[at + done] = words[done];
        done += 1;
    }
    text
}

const fn put_digits(text: [u8; LEN], at: usize, byte: u8) -> [u8; LEN] {
    let [high, low] = [byte >> 4, byte & 15];
    let digits = [HEX_DIGITS[high as usize], HEX_DIGITS[low as usize]];
    put(text, at, &digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_named_with_how_to_write_it() {
        for byte in (0..b' ').chain([0x7f]) {
            let expected = format!(
                "a request line cannot have the byte 0x{byte:02X}: in a target, write it as %{byte:02X}"
            );
            assert_eq!(stray(byte).reason(), expected);
        }
        assert_eq!(
            stray(b' ').reason(),
            "a target cannot have a space: write it as %20"
        );
    }
}
