//! Codes of close frames (RFC 6455 section 7.4, and IANA's registry of them).

/// The conversation has ended as it should.
pub const NORMAL: u16 = 1000;
/// The client has broken the protocol.
pub const PROTOCOL: u16 = 1002;
/// A close frame without a code; never sent.
pub const NONE: u16 = 1005;
/// The connection ended without a close frame; never sent.
pub const ABNORMAL: u16 = 1006;
/// A text is not UTF-8, or a compressed message cannot be decompressed.
pub const BAD_PAYLOAD: u16 = 1007;
/// A message breaks the server's rules, and no other code fits.
pub const POLICY: u16 = 1008;
/// A message is longer than allowed.
pub const TOO_BIG: u16 = 1009;
/// The server, or its app, has failed.
pub const FAILED: u16 = 1011;
/// The server restarts: the client may come again.
pub const RESTART: u16 = 1012;
/// The server has too much to do: the client may come again later.
pub const TRY_LATER: u16 = 1013;

/// Whether a close frame may have this code, from either side. Some codes suit a client and others a server, but this
/// accepts all of them: a client behind a proxy may hand on what a server says.
pub fn is_sendable(code: u16) -> bool {
    match code {
        // 1004 means nothing yet, 1005 and 1006 say that there was no code, and 1015 that TLS failed.
        1004..=1006 => false,
        // Codes up to 1011 are the RFC's own; 1012, 1013 and 1014 (bad gateway) are IANA's. Libraries register theirs
        // from 3000, and apps may use any from 4000 (section 7.4.2).
        1000..=1014 | 3000..=4999 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_may_be_sent() {
        for (codes, may_be_sent) in [
            (0..=999, false),
            (1000..=1003, true),
            (1004..=1006, false),
            (1007..=1014, true),
            (1015..=2999, false),
            (3000..=4999, true),
            (5000..=u16::MAX, false),
        ] {
            for code in codes {
                assert_eq!(is_sendable(code), may_be_sent, "{code}");
            }
        }
    }
}
