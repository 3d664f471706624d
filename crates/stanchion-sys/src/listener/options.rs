//! The options of a listener.

use std::io;
use std::os::fd::AsFd;

use socket2::Socket;

use super::file::FileOptions;

use crate::call::InCall;
use crate::socket_option;

/// The options of a listener. Connections inherit those that concern them (tcp(7)), so setting an option here saves a
/// system call for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// How many unaccepted connections the kernel may hold (listen(2)); `None` keeps the number that the socket's maker
    /// has set.
    pub backlog: Option<u32>,
    /// Bytes of the receive buffer (`SO_RCVBUF` in socket(7)); `None` leaves them to the kernel.
    pub receive_bytes: Option<u32>,
    /// Bytes of the send buffer (`SO_SNDBUF`).
    pub send_bytes: Option<u32>,
    /// Options of a TCP socket.
    pub tcp: TcpOptions,
    /// The permissions of the file, if a unix socket is made.
    pub file: FileOptions,
}

/// The options of a TCP listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // as many as the kernel has switches
pub struct TcpOptions {
    /// The kernel sends small segments at once (`TCP_NODELAY`).
    pub nodelay: bool,
    /// The kernel asks from time to time whether the other side is still there (`SO_KEEPALIVE`).
    pub keepalive: bool,
    /// The kernel hands out a connection only once the client has sent something, or after this many seconds
    /// (`TCP_DEFER_ACCEPT`); 0 = at once.
    pub defer_accept_s: u32,
    /// Other sockets of this user may bind the address too (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// An IPv6 socket takes no IPv4 clients (`IPV6_V6ONLY`).
    pub only_v6: bool,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            nodelay: true,
            keepalive: true,
            defer_accept_s: 0,
            reuse_port: false,
            only_v6: true,
        }
    }
}

impl SocketOptions {
    /// The defaults, with this backlog.
    pub fn with_backlog(backlog: u32) -> Self {
        Self {
            backlog: Some(backlog),
            ..Self::adopted()
        }
    }

    /// The defaults for a socket that another process made.
    pub fn adopted() -> Self {
        Self {
            backlog: None,
            receive_bytes: None,
            send_bytes: None,
            tcp: TcpOptions::default(),
            file: FileOptions::default(),
        }
    }

    /// Applies the options that can be set at any time. The buffer sizes hold for connections made from now on.
    pub(super) fn apply(&self, socket: &Socket, is_tcp: bool) -> io::Result<()> {
        if let Some(bytes) = self.receive_bytes {
            socket
                .set_recv_buffer_size(bytes as usize)
                .in_call("setsockopt")?;
        }
        if let Some(bytes) = self.send_bytes {
            socket
                .set_send_buffer_size(bytes as usize)
                .in_call("setsockopt")?;
        }
        if is_tcp {
            socket
                .set_tcp_nodelay(self.tcp.nodelay)
                .in_call("setsockopt")?;
            socket
                .set_keepalive(self.tcp.keepalive)
                .in_call("setsockopt")?;
            // The kernel rounds up to the time of a whole number of retransmissions (tcp(7)).
            let defer_s = libc::c_int::try_from(self.tcp.defer_accept_s);
            socket_option::set(
                socket.as_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_DEFER_ACCEPT,
                defer_s.unwrap_or(libc::c_int::MAX),
            )?;
        }
        Ok(())
    }
}
