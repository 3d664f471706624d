//! Where a daemon is that takes datagrams.

use std::path::PathBuf;

/// A unix datagram socket, or a host over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramAddress {
    /// A unix datagram socket.
    Unix(PathBuf),
    /// A host by name or address, and its port.
    Udp {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
    },
}

impl DatagramAddress {
    /// The socket at `path`. The error says what is wrong, without naming the setting.
    pub(super) fn unix(path: &str) -> Result<Self, String> {
        if path.is_empty() || path.contains('\0') {
            return Err("it names no socket".into());
        }
        Ok(Self::Unix(path.into()))
    }

    /// `HOST`, `HOST:PORT` or `[HOST]:PORT`; no host is this one.
    pub(super) fn udp(text: &str, default_port: u16) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            None => default_port,
            Some(port) => port
                .parse()
                .map_err(|_| format!("{port:?} is not a port"))?,
        };
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(Self::Udp {
            host: host.to_lowercase(),
            port,
        })
    }
}

/// Without a scheme for UDP.
impl std::fmt::Display for DatagramAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix://{}", path.display()),
            Self::Udp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Udp { host, port } => write!(out, "{host}:{port}"),
        }
    }
}
