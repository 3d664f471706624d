//! Where a statsd server is, and what its metrics are called.

use serde::Deserialize;

use super::DatagramAddress;

/// The port of statsd, and of the dogstatsd agent.
const PORT: u16 = 8125;

/// `HOST:PORT`, `unix://PATH` or `unix:PATH`, as gunicorn reads them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
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

impl TryFrom<String> for StatsdAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// Whether this can stand before the name of a metric, where it must not end the name.
pub(super) fn check_prefix(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b":|@#".contains(&byte);
    if text.bytes().all(is_plain) {
        Ok(())
    } else {
        Err("it holds only visible ASCII, and none of : | @ #".into())
    }
}

/// Whether these can stand behind a metric, which ends with the line.
pub(super) fn check_tags(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'|';
    if text.bytes().all(is_plain) {
        Ok(())
    } else {
        Err("they hold only ASCII, no | and no line break".into())
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

    #[test]
    fn nothing_in_a_prefix_or_in_tags_ends_the_metric() {
        for text in ["", "shop", "shop.eu-1.", "a/b"] {
            assert_eq!(check_prefix(text), Ok(()), "{text}");
        }
        for text in ["a b", "a:1", "a|c", "a@b", "a#b", "a\nb", "\u{e9}"] {
            assert!(check_prefix(text).is_err(), "{text:?}");
        }
        for text in ["", "env:prod,service:shop", "name:my shop#1"] {
            assert_eq!(check_tags(text), Ok(()), "{text}");
        }
        for text in ["a|b", "a\nb", "env:\u{e9}"] {
            assert!(check_tags(text).is_err(), "{text:?}");
        }
    }
}
