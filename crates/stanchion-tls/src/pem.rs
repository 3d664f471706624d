//! Certificates as text (RFC 7468).

use data_encoding::BASE64;

/// Characters of a line.
const LINE: usize = 64;

/// A certificate in DER as PEM, with a line end behind it.
pub fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in der.chunks(LINE / 4 * 3) {
        BASE64.encode_append(line, &mut text);
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::certificates;

    #[test]
    fn what_was_read_is_written() {
        for text in [
            &include_str!("../tests/keys/one.pem"),
            &include_str!("../tests/keys/two.pem"),
            &include_str!("../tests/keys/root.pem"),
        ] {
            let der = certificates(text.as_bytes()).unwrap().remove(0);
            assert_eq!(pem(&der), **text);
        }
    }

    #[test]
    fn what_is_left_over_is_padded() {
        for (bytes, expected) in [(&b"f"[..], "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")] {
            assert_eq!(pem(bytes).lines().nth(1), Some(expected));
        }
    }
}
