//! The user name that a client gives.

/// The user of HTTP basic authentication (RFC 7617), by the value of an Authorization field.
pub(super) fn user(authorization: &[u8]) -> Option<String> {
    let value = std::str::from_utf8(authorization).ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64(encoded.trim())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    String::from_utf8(decoded[..colon].to_vec())
        .ok()
        .filter(|user| !user.is_empty())
}

/// RFC 4648 section 4, for the one place that needs it.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_basic_authentication_is_shown() {
        for (value, expected) in [
            ("Basic YWRhOnNlY3JldA==", Some("ada")),
            ("basic YWRhOg==", Some("ada")),
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
