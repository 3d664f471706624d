//! Where a socket listens, in gunicorn's spelling.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The port of an address that names only a host, as gunicorn has it.
const DEFAULT_PORT: u16 = 8000;

/// The longest name of a unix socket: `sun_path` holds 108 bytes, one of them a NUL, which ends a
/// path and starts an abstract name (unix(7)).
const UNIX_NAME_BYTES_MAX: usize = 107;

/// One address to listen on. `Display` prints the spelling that [`BindAddress::parse`] reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// `host:port`, `[v6]:port`, `:port` or `host`.
    Tcp {
        /// A name or an address; an IPv6 address without its brackets. Never empty.
        host: String,
        /// 0 lets the kernel choose a free port.
        port: u16,
    },
    /// `unix:/path`: a unix socket in the file system, relative paths from the working directory.
    Unix(PathBuf),
    /// `unix:@name`: a unix socket without a file (unix(7), abstract).
    Abstract(String),
    /// `fd://N`: a listening socket that was opened by the process that started us, such as systemd.
    Fd(i32),
}

impl BindAddress {
    /// Reads one address. The error says what is wrong, without naming the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("an address holds no NUL byte".into());
        }
        if let Some(name) = text.strip_prefix("unix:") {
            parse_unix(name.strip_prefix("//").unwrap_or(name))
        } else if let Some(number) = text.strip_prefix("fd://") {
            parse_fd(number)
        } else {
            parse_tcp(text.strip_prefix("tcp://").unwrap_or(text))
        }
    }

    /// Whether two spellings are of one address. Names of hosts are not looked up, and a port that the kernel is to choose
    /// is another one each time.
    pub(super) fn is_one_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp { port: 0, .. }, _) => false,
            (Self::Tcp { host, port }, Self::Tcp { host: h, port: p }) => {
                let is_one_ip = || host.parse::<IpAddr>().is_ok_and(|ip| h.parse() == Ok(ip));
                port == p && (host == h || is_one_ip())
            }
            // Paths are compared part by part.
            _ => self == other,
        }
    }
}

fn parse_unix(name: &str) -> Result<BindAddress, String> {
    let (name, of_path) = name
        .strip_prefix('@')
        .map_or((name, true), |name| (name, false));
    match name.len() {
        0 => Err("a unix socket needs a path (unix:/run/app.sock) or a name (unix:@app)".into()),
        1..=UNIX_NAME_BYTES_MAX if of_path => Ok(BindAddress::Unix(name.into())),
        1..=UNIX_NAME_BYTES_MAX => Ok(BindAddress::Abstract(name.into())),
        long => Err(format!(
            "the name of a unix socket has at most {UNIX_NAME_BYTES_MAX} bytes, this one {long}"
        )),
    }
}

fn parse_fd(number: &str) -> Result<BindAddress, String> {
    match number.parse() {
        Ok(fd) if fd >= 0 => Ok(BindAddress::Fd(fd)),
        _ => Err(format!("'{number}' is not the number of a file descriptor")),
    }
}

fn parse_tcp(text: &str) -> Result<BindAddress, String> {
    let (host, port) = split_host(text)?;
    if host.contains(|c: char| c.is_whitespace() || c == '/' || c == '[' || c == ']') {
        return Err(format!(
            "'{host}' is not a host (a unix socket is written unix:/path)"
        ));
    }
    if !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "'{host}' is not a host (a port alone is written :{host})"
        ));
    }
    let port = match port {
        None => DEFAULT_PORT,
        // u16::from_str takes a leading plus sign, which is no port.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| not_a_port(digits))?
        }
        Some(other) => return Err(not_a_port(other)),
    };
    let host = if host.is_empty() {
        "0.0.0.0".into()
    } else {
        host.to_ascii_lowercase()
    };
    Ok(BindAddress::Tcp { host, port })
}

/// Parts `[v6]:port` and `host:port`, the port where there is one.
fn split_host(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let Some((host, rest)) = bracketed.split_once(']') else {
            return Err("an IPv6 address is written [::1]:8000; the ']' is missing".into());
        };
        if !host.contains(':') {
            return Err(format!("'{host}' is not an IPv6 address"));
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("'{rest}' after the ']' is not :port")),
        };
    }
    match text.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            Err("an IPv6 address is written in brackets, such as [::1]:8000".into())
        }
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

fn not_a_port(text: &str) -> String {
    format!("'{text}' is not a port (0 to 65535)")
}

impl fmt::Display for BindAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
            // `unix:` swallows one `//`, so a path that begins with it must bring a second.
            Self::Unix(path) if path.to_string_lossy().starts_with("//") => {
                write!(out, "unix://{}", path.display())
            }
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
            Self::Abstract(name) => write!(out, "unix:@{name}"),
            Self::Fd(number) => write!(out, "fd://{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp(host: &str, port: u16) -> BindAddress {
        BindAddress::Tcp {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn every_documented_form() {
        for (text, address) in [
            ("127.0.0.1:8000", tcp("127.0.0.1", 8000)),
            ("Example.ORG:80", tcp("example.org", 80)),
            ("localhost", tcp("localhost", 8000)),
            ("", tcp("0.0.0.0", 8000)),
            (":9000", tcp("0.0.0.0", 9000)),
            ("[::1]:8000", tcp("::1", 8000)),
            ("[::]", tcp("::", 8000)),
            ("tcp://[::1]:0", tcp("::1", 0)),
            (
                "unix:/run/app.sock",
                BindAddress::Unix("/run/app.sock".into()),
            ),
            (
                "unix:///run/app.sock",
                BindAddress::Unix("/run/app.sock".into()),
            ),
            ("unix:app.sock", BindAddress::Unix("app.sock".into())),
            ("unix:@app", BindAddress::Abstract("app".into())),
            ("fd://3", BindAddress::Fd(3)),
        ] {
            assert_eq!(BindAddress::parse(text), Ok(address), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_told_apart() {
        for (text, part) in [
            ("127.0.0.1:http", "not a port"),
            ("127.0.0.1:65536", "not a port"),
            ("127.0.0.1:+80", "not a port"),
            ("127.0.0.1:", "not a port"),
            ("8000", "written :8000"),
            ("::1", "in brackets"),
            ("[::1", "missing"),
            ("[::1]8000", "not :port"),
            ("[localhost]:80", "not an IPv6"),
            ("/run/app.sock", "unix:/path"),
            ("unix:", "needs a path"),
            ("unix:@", "needs a path"),
            ("fd://x", "file descriptor"),
            ("fd://-1", "file descriptor"),
            ("a\0b:80", "NUL"),
        ] {
            let error = BindAddress::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_longest_unix_name() {
        let name = |bytes: usize| format!("unix:/{}", "a".repeat(bytes - 1));
        assert!(BindAddress::parse(&name(107)).is_ok());
        assert!(BindAddress::parse(&name(108)).is_err());
    }

    proptest! {
        #[test]
        fn parse_never_panics_and_display_is_its_inverse(
            text in r"(unix:|fd://|tcp://|\[)?(//?|@)?\PC{0,30}(\])?(:[0-9]{0,6})?",
        ) {
            if let Ok(address) = BindAddress::parse(&text) {
                prop_assert_eq!(BindAddress::parse(&address.to_string()), Ok(address));
            }
        }

        #[test]
        fn every_port_round_trips(port: u16, v6 in any::<std::net::Ipv6Addr>()) {
            for host in ["localhost".to_owned(), v6.to_string()] {
                let address = BindAddress::Tcp { host, port };
                prop_assert_eq!(BindAddress::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
