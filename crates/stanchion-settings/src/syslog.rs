//! The address of a syslog daemon, and the facility that messages to it have.

use serde::Deserialize;

use super::DatagramAddress;

/// The port of syslog over UDP (RFC 3164 section 2).
const PORT: u16 = 514;

/// `unix:///dev/log` or `udp://HOST:PORT`, as gunicorn writes them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SyslogAddress(pub DatagramAddress);

impl SyslogAddress {
    /// Reads it. The error says what is wrong, without naming the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("unix://") {
            let path = match rest.split_once('#') {
                None | Some((_, "dgram")) => rest.trim_end_matches("#dgram"),
                Some(_) => return Err("only unix datagram sockets are spoken to".into()),
            };
            return DatagramAddress::unix(path).map(Self);
        }
        if text.starts_with("tcp://") {
            return Err("syslog is spoken over udp:// and unix:// only".into());
        }
        let rest = text
            .strip_prefix("udp://")
            .ok_or("it is written unix://PATH or udp://HOST:PORT")?;
        DatagramAddress::udp(rest, PORT).map(Self)
    }
}

impl TryFrom<String> for SyslogAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl std::fmt::Display for SyslogAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let DatagramAddress::Udp { .. } = self.0 {
            out.write_str("udp://")?;
        }
        self.0.fmt(out)
    }
}

/// Words for [`Facility`], in the order of their numbers, where 12 to 15 have none that is common;
/// and gunicorn's other word for `auth`.
pub(super) const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
    "security",
];
/// How many of them come before the gap, and where it ends.
const BEFORE_GAP: u8 = 12;
const AFTER_GAP: u8 = 16;

/// The kind of program that sends a message (RFC 3164 section 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Facility(u8);

impl Facility {
    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl TryFrom<String> for Facility {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let text = if text == "security" { "auth" } else { &text };
        let index = FACILITIES.iter().position(|name| *name == text);
        let index = index.ok_or("there is no such facility")? as u8;
        Ok(Self(if index < BEFORE_GAP {
            index
        } else {
            index - BEFORE_GAP + AFTER_GAP
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_gunicorn_reads_them() {
        let udp = |host: &str, port| {
            let host = host.into();
            SyslogAddress(DatagramAddress::Udp { host, port })
        };
        let unix = |path: &str| SyslogAddress(DatagramAddress::Unix(path.into()));
        for (text, expected) in [
            ("udp://localhost:514", udp("localhost", 514)),
            ("udp://Logs", udp("logs", 514)),
            ("udp://", udp("localhost", 514)),
            ("udp://[::1]:5140", udp("::1", 5140)),
            ("udp://[::1]", udp("::1", 514)),
            ("unix:///dev/log", unix("/dev/log")),
            ("unix:///dev/log#dgram", unix("/dev/log")),
        ] {
            assert_eq!(SyslogAddress::parse(text), Ok(expected), "{text}");
        }
        for text in [
            "localhost:514",
            "tcp://localhost:514",
            "unix:///dev/log#stream",
            "unix://",
            "udp://h:x",
            "udp://h:99999",
        ] {
            assert!(SyslogAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn facilities_have_their_numbers() {
        for (name, number) in [
            ("kern", 0),
            ("security", 4),
            ("ftp", 11),
            ("local0", 16),
            ("local7", 23),
        ] {
            assert_eq!(
                Facility::try_from(name.to_owned()).map(Facility::number),
                Ok(number)
            );
        }
        assert!(Facility::try_from("nobody".to_owned()).is_err());
    }
}
