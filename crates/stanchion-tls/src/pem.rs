//! Certificates as text (RFC 7468).

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line.
const LINE: usize = 64;

/// A certificate in DER as PEM, with a line end behind it.
pub fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in der.chunks(LINE / 4 * 3) {
        for three in line.chunks(3) {
            put_base64(&mut text, three);
        }
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// Three bytes as four digits; fewer are padded (RFC 4648 section 4).
fn put_base64(text: &mut String, bytes: &[u8]) {
    let mut padded = [0; 3];
    padded[..bytes.len()].copy_from_slice(bytes);
    let bits = u32::from_be_bytes([0, padded[0], padded[1], padded[2]]);
    for place in 0..4 {
        let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
        text.push(if place <= bytes.len() {
            char::from(digit)
        } else {
            '='
        });
    }
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
