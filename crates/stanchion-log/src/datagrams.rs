//! A socket to a daemon that takes datagrams, which may not be there: no process waits for it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use stanchion_settings::DatagramAddress;

/// A way to such a daemon.
#[derive(Debug)]
pub(crate) enum Datagrams {
    Unix { socket: UnixDatagram, path: PathBuf },
    Udp { socket: UdpSocket, to: SocketAddr },
}

impl Datagrams {
    /// Opens one. A daemon that is not there yet is no error: it may come.
    pub(crate) fn open(address: &DatagramAddress) -> io::Result<Self> {
        match address {
            DatagramAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                let path = path.clone();
                Ok(Self::Unix { socket, path })
            }
            DatagramAddress::Udp { host, port } => {
                let to = (host.as_str(), *port).to_socket_addrs()?.next();
                let to =
                    to.ok_or_else(|| io::Error::other(format!("the name {host} has no address")))?;
                let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp { socket, to })
            }
        }
    }

    /// Sends one, if that goes at once.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp { socket, to } => socket.send_to(message, to)?,
            Self::Unix { socket, path } => match socket.send(message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // Not connected yet, or the daemon was restarted.
                Err(_) => {
                    socket.connect(path)?;
                    socket.send(message)?
                }
                Ok(sent) => sent,
            },
        };
        Ok(())
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix { socket, .. } => socket.as_fd(),
            Self::Udp { socket, .. } => socket.as_fd(),
        }
    }
}

/// Where they go, for messages.
impl fmt::Display for Datagrams {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path, .. } => write!(out, "{}", path.display()),
            Self::Udp { to, .. } => write!(out, "{to}"),
        }
    }
}
