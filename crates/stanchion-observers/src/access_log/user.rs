//! The user name that a client gives.

use std::sync::LazyLock;

use data_encoding::{BASE64_NOPAD, Encoding};

/// Base64 whose last digit may have bits that stand for nothing: Python's decoder takes such a digit, so a client could
/// log in to the app and have no name in the log.
static BASE64: LazyLock<Encoding> = LazyLock::new(|| {
    let mut base64 = BASE64_NOPAD.specification();
    base64.check_trailing_bits = false;
    base64.encoding().expect("base64 without a check")
});

/// The user of HTTP basic authentication (RFC 7617), by the value of an Authorization field.
pub(super) fn user(authorization: &[u8]) -> Option<String> {
    let value = std::str::from_utf8(authorization).ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    // RFC 4648 section 4; clients that leave the padding out exist.
    let digits = encoded.trim().trim_end_matches('=').as_bytes();
    let decoded = BASE64.decode(digits).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    String::from_utf8(decoded[..colon].to_vec())
        .ok()
        .filter(|user| !user.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_basic_authentication_is_shown() {
        for (value, expected) in [
            ("Basic YWRhOnNlY3JldA==", Some("ada")),
            ("basic YWRhOg==", Some("ada")),
            ("basic YWRhOg", Some("ada")),
            ("basic YWRhOh", Some("ada")),
            ("Basic OnNlY3JldA==", None),
            ("Basic !!!", None),
            ("Basic", None),
            ("Bearer YWRhOg==", None),
        ] {
            assert_eq!(user(value.as_bytes()).as_deref(), expected, "{value}");
        }
        assert_eq!(user(b"Basic \xff"), None);
    }
}
