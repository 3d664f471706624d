//! The door: a closed one lets no new connection in. A TCP listener closes it by the least TTL that it accepts.
//!
//! `IP_MINTTL` (ip(7)) and `IPV6_MINHOPCOUNT` make the kernel drop packets to a socket with a lower TTL. 255 is the
//! highest TTL, and hosts send with 64 or 128: so the kernel drops every SYN, and the client tries again within a
//! second. The kernel finds a handshake under way before it looks at the TTL (`tcp_v4_rcv` in `net/ipv4/tcp_ipv4.c`),
//! so the handshake completes. This takes no privilege, unlike a socket filter, which newer kernels let only
//! `CAP_NET_ADMIN` attach to a TCP socket. listen(2) with a backlog of 0 is no door: it still lets in one connection at
//! a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::{Listener, ListenerAddress};

use crate::socket_option::set;

impl Listener {
    /// Closes the door behind the connections in the kernel's queue: the acceptor can still accept them, and no new one
    /// can join them. So a shutdown may empty the queue and then close the socket without resetting any client. This
    /// takes no privilege.
    ///
    /// For unix sockets this is shutdown(2) of the reading side (the kernel refuses a later connect(2)). For TCP that
    /// call would reset the queue; instead the kernel drops the SYN of a later client, while handshakes under way still
    /// complete. The kernel of such a client tries again within a second, and the closed port then refuses it. The
    /// acceptor must [let through](Self::let_through) each connection that it accepts from now on.
    ///
    /// Fails for a listener that was passed to us: any change to a socket affects all processes that hold it, and a
    /// unix socket that was shut stays so.
    pub fn close_door(&self) -> io::Result<()> {
        if self.is_passed() {
            return Err(io::Error::other(
                "other processes may use this listener, so its door stays open",
            ));
        }
        match self.address {
            ListenerAddress::Tcp(address) => {
                set_least_ttl(self.as_fd(), address.is_ipv6(), LeastTtl::Highest)
            }
            ListenerAddress::Unix(_) | ListenerAddress::Abstract(_) => {
                self.socket.shutdown(std::net::Shutdown::Read)
            }
        }
    }

    /// Removes from a connection the TTL limit that it inherited, if its listener's door closed before the handshake
    /// was complete. The client sends again what the kernel has dropped meanwhile.
    pub fn let_through(&self, connection: impl AsFd) -> io::Result<()> {
        match self.address {
            ListenerAddress::Tcp(address) => {
                set_least_ttl(connection.as_fd(), address.is_ipv6(), LeastTtl::Any)
            }
            ListenerAddress::Unix(_) | ListenerAddress::Abstract(_) => Ok(()),
        }
    }
}

/// The least TTL of a segment that the kernel lets through.
#[derive(Clone, Copy)]
enum LeastTtl {
    Any = 0,
    /// Only a host next to this one that sends with 255 gets through.
    Highest = 255,
}

/// Sets the limit of a listener, or of a connection, which inherits it from its listener.
fn set_least_ttl(socket: BorrowedFd, is_v6: bool, least: LeastTtl) -> io::Result<()> {
    let ttl = least as libc::c_int;
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, ttl)?;
    }
    // An IPv6 socket needs this one too: its clients may come by IPv4 (ipv6(7)).
    set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, ttl)
}
