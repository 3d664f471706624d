//! The port that clients in clear text are sent on to (`redirect_to_https`).

/// The port of the redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpsPort {
    /// The port of the first listener with TLS.
    OfTls,
    /// This port, perhaps of another process, that leads there.
    Is(u16),
}

impl HttpsPort {
    /// From its spelling.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::OfTls);
        }
        let port = text.parse().ok().filter(|port| *port > 0);
        port.map(Self::Is)
            .ok_or_else(|| format!("expected auto or a port from 1 to 65535, got {text:?}"))
    }
}
