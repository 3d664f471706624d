//! The address of a syslog daemon, and the facility that messages to it have.

use super::DatagramAddress;
use super::words::Worded;

/// The port of syslog over UDP (RFC 3164 section 2).
const PORT: u16 = 514;

/// `unix:///dev/log` or `udp://HOST:PORT`, as gunicorn writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl std::fmt::Display for SyslogAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let DatagramAddress::Udp { .. } = self.0 {
            out.write_str("udp://")?;
        }
        self.0.fmt(out)
    }
}

/// The kind of program that sends a message (RFC 3164 section 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facility(u8);

impl Facility {
    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Worded for Facility {
    /// 12 to 15 have no common word. `security` is gunicorn's other word for `auth`.
    #[rustfmt::skip]
    const WORDS: &'static [(&'static str, Self)] = &[
        ("kern", Self(0)), ("user", Self(1)), ("mail", Self(2)), ("daemon", Self(3)), ("auth", Self(4)), ("syslog", Self(5)), ("lpr", Self(6)),
        ("news", Self(7)), ("uucp", Self(8)), ("cron", Self(9)), ("authpriv", Self(10)), ("ftp", Self(11)), ("local0", Self(16)),
        ("local1", Self(17)), ("local2", Self(18)), ("local3", Self(19)), ("local4", Self(20)), ("local5", Self(21)), ("local6", Self(22)),
        ("local7", Self(23)), ("security", Self(4)),
    ];
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
}
