//! Where a statsd server is.

use super::DatagramAddress;

/// The port of statsd, and of the dogstatsd agent.
const PORT: u16 = 8125;

/// `HOST:PORT`, `unix://PATH` or `unix:PATH`, as gunicorn reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdAddress(pub DatagramAddress);

impl StatsdAddress {
    /// Reads it. The error says what is wrong, without naming the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_port = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        match text.strip_prefix("unix:") {
            // gunicorn keeps this for hosts that are called so.
            Some(rest) if !is_port(rest) => {
                DatagramAddress::unix(rest.strip_prefix("//").unwrap_or(rest))
            }
            Some(_) | None => DatagramAddress::udp(text, PORT),
        }
        .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_gunicorn_reads_them() {
        let udp = |host: &str, port| {
            let host = host.into();
            StatsdAddress(DatagramAddress::Udp { host, port })
        };
        let unix = |path: &str| StatsdAddress(DatagramAddress::Unix(path.into()));
        for (text, expected) in [
            ("localhost:8125", udp("localhost", 8125)),
            ("Stats", udp("stats", 8125)),
            (":9125", udp("localhost", 9125)),
            ("[::1]:9125", udp("::1", 9125)),
            ("[::1]", udp("::1", 8125)),
            ("unix:///run/statsd", unix("/run/statsd")),
            ("unix:/run/statsd", unix("/run/statsd")),
            ("unix:8126", udp("unix", 8126)),
        ] {
            assert_eq!(StatsdAddress::parse(text), Ok(expected), "{text}");
        }
        for text in ["h:x", "h:99999", "udp://h:8125", "unix:", "unix://", "::1"] {
            assert!(StatsdAddress::parse(text).is_err(), "{text}");
        }
    }
}
