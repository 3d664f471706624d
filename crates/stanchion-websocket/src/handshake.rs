//! The opening handshake (RFC 6455 section 4.2), as far as it concerns the fields of the request.

use tungstenite::handshake::derive_accept_key;

/// A key is 16 bytes in base64 (section 4.1, point 7).
const KEY_BYTES: usize = 24;
const KEY_PADDING: &[u8] = b"==";

/// The WebSocket that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake<'a> {
    /// The request does not ask for a WebSocket.
    Absent,
    /// The request asks for a WebSocket, but breaks this rule.
    Bad(&'static str),
    /// The request asks for another version than 13.
    OtherVersion,
    /// The request asks for a WebSocket, with this key.
    Asked(&'a [u8]),
}

/// Reads from the `fields` of a request whether it asks for a WebSocket. Only a GET of HTTP/1.1 can: for any other
/// request the server ignores `Upgrade` (RFC 9110 section 7.8).
pub fn handshake<'a>(
    method: &str,
    minor_version: u8,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Handshake<'a> {
    if method != "GET" || minor_version == 0 {
        return Handshake::Absent;
    }
    let (mut upgrades, mut is_named) = (false, false);
    let (mut keys, mut versions) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            7 if is("upgrade") => upgrades |= has_token(value, b"websocket"),
            10 if is("connection") => is_named |= has_token(value, b"upgrade"),
            17 if is("sec-websocket-key") => keys.push(value),
            21 if is("sec-websocket-version") => versions.push(value),
            _ => {}
        }
    }
    if !upgrades {
        return Handshake::Absent;
    }
    if !is_named {
        return Handshake::Bad("Connection does not name Upgrade");
    }
    match versions[..] {
        [b"13"] => {}
        [] => return Handshake::Bad("there is no Sec-WebSocket-Version"),
        [_] => return Handshake::OtherVersion,
        _ => return Handshake::Bad("there is more than one Sec-WebSocket-Version"),
    }
    match keys[..] {
        [key] if is_key(key) => Handshake::Asked(key),
        [_] => Handshake::Bad("Sec-WebSocket-Key is not 16 bytes in base64"),
        [] => Handshake::Bad("there is no Sec-WebSocket-Key"),
        _ => Handshake::Bad("there is more than one Sec-WebSocket-Key"),
    }
}

/// The value of `Sec-WebSocket-Accept` (section 4.2.2, point 5.4).
pub fn accept_value(key: &[u8]) -> String {
    derive_accept_key(key)
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    let mut tokens = value.split(|byte| *byte == b',');
    tokens.any(|one| one.trim_ascii().eq_ignore_ascii_case(token))
}

fn is_key(key: &[u8]) -> bool {
    let digits = key.strip_suffix(KEY_PADDING).unwrap_or_default();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == KEY_BYTES && digits.iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (&str, &str) = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    const UPGRADE: (&str, &str) = ("Upgrade", "websocket");
    const CONNECTION: (&str, &str) = ("Connection", "Upgrade");
    const VERSION: (&str, &str) = ("Sec-WebSocket-Version", "13");

    fn asked<'a>(method: &str, minor: u8, fields: &[(&'a str, &'a str)]) -> Handshake<'a> {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        handshake(method, minor, fields)
    }

    #[test]
    fn the_accept_value_is_that_of_the_rfc() {
        assert_eq!(
            accept_value(KEY.1.as_bytes()),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_handshake_is_told_from_other_requests_and_from_bad_ones() {
        let key = KEY.1.as_bytes();
        let whole = [UPGRADE, CONNECTION, KEY, VERSION];
        assert_eq!(asked("GET", 1, &whole), Handshake::Asked(key));
        assert_eq!(asked("POST", 1, &whole), Handshake::Absent);
        assert_eq!(asked("GET", 0, &whole), Handshake::Absent);
        let listed = [
            ("upgrade", "h2c, WebSocket"),
            ("CONNECTION", "keep-alive,upgrade "),
            KEY,
            VERSION,
        ];
        assert_eq!(asked("GET", 1, &listed), Handshake::Asked(key));
        let h2c = [("Upgrade", "h2c"), CONNECTION, KEY, VERSION];
        assert_eq!(asked("GET", 1, &h2c), Handshake::Absent);
        let old = [UPGRADE, CONNECTION, KEY, ("Sec-WebSocket-Version", "8")];
        assert_eq!(asked("GET", 1, &old), Handshake::OtherVersion);
        for bad in [
            &[UPGRADE, KEY, VERSION][..],
            &[UPGRADE, ("Connection", "close"), KEY, VERSION],
            &[UPGRADE, CONNECTION, VERSION],
            &[UPGRADE, CONNECTION, KEY, KEY, VERSION],
            &[UPGRADE, CONNECTION, KEY],
            &[UPGRADE, CONNECTION, KEY, VERSION, VERSION],
            &[
                UPGRADE,
                CONNECTION,
                (KEY.0, "dGhlIHNhbXBsZSBub25jZQ="),
                VERSION,
            ],
            &[
                UPGRADE,
                CONNECTION,
                (KEY.0, "dGhlIHNhbXBsZSBub25jZQ!=="),
                VERSION,
            ],
            &[
                UPGRADE,
                CONNECTION,
                (KEY.0, "dGhlIHNhbXBsZSBub25j!Q=="),
                VERSION,
            ],
        ] {
            let found = asked("GET", 1, bad);
            assert!(matches!(found, Handshake::Bad(_)), "{bad:?}: {found:?}");
        }
    }
}
