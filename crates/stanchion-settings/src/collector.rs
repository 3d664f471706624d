//! Where spans are sent (`otlp_endpoint`).

use http::Uri;
use http::uri::Authority;

/// The path at which a collector takes traces, below the one that its URL names (OTLP specification, "OTLP/HTTP Request").
const TRACES: &str = "/v1/traces";
/// The scheme's port (RFC 9110 section 4.2.1).
const PORT: u16 = 80;

/// A collector that takes OTLP over HTTP, in the clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    authority: Authority,
    /// Where traces go.
    path: String,
}

impl Collector {
    /// Reads `http://HOST[:PORT][/PATH]`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let example = "as http://127.0.0.1:4318";
        let uri: Uri = text
            .parse()
            .map_err(|_| format!("it is a URL, {example}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(format!(
                    "there is no TLS to collectors: have one nearby that passes spans on, {example}"
                ));
            }
            _ => return Err(format!("it begins with http://, {example}")),
        }
        let authority = uri.authority().filter(|one| !one.as_str().contains('@'));
        match authority {
            Some(authority) if uri.query().is_none() => Ok(Self {
                authority: authority.clone(),
                path: format!("{}{TRACES}", uri.path().trim_end_matches('/')),
            }),
            _ => Err(format!("it has a host and at most a path, {example}")),
        }
    }

    /// The host, and the port unless that is the scheme's, as the Host field has them.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// A name, or an address without brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_matches(['[', ']'])
    }

    /// The TCP port: that of the URL, or 80.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(PORT)
    }

    /// Where traces go.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl std::fmt::Display for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_a_host_a_port_and_a_path() {
        for (text, host, port, path) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/v1/traces"),
            ("http://127.0.0.1:1/", "127.0.0.1", 1, "/v1/traces"),
            ("HTTP://otel.local", "otel.local", 80, "/v1/traces"),
            ("http://[::1]:80/a/b/", "::1", 80, "/a/b/v1/traces"),
        ] {
            let collector = Collector::parse(text).expect(text);
            let parts = (collector.host(), collector.port(), collector.path());
            assert_eq!(parts, (host, port, path), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_and_why_is_said() {
        for (text, reason) in [
            ("https://otel.example", "there is no TLS"),
            ("127.0.0.1:4318", "it begins with http://"),
            ("grpc://a:4317", "it begins with http://"),
            ("/v1/traces", "it begins with http://"),
            ("http://", "it is a URL"),
            ("http://a b", "it is a URL"),
            ("http://a:1/?b", "it has a host"),
            ("http://user@a:1", "it has a host"),
        ] {
            let refused = Collector::parse(text).unwrap_err();
            assert!(refused.starts_with(reason), "{text}: {refused}");
        }
    }
}
