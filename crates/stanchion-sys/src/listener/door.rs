//! Closing a listener to newcomers only: a TCP one by the least TTL that is let through.
//!
//! `IP_MINTTL` (ip(7)) and `IPV6_MINHOPCOUNT` have the kernel drop what comes to a socket with less. 255 is the most
//! there can be, and hosts send with 64 or 128: so every SYN is dropped, and its client tries again
//! within a second. A handshake under way is found before the TTL is looked at (`tcp_v4_rcv` in
//! `net/ipv4/tcp_ipv4.c`), so it completes. It takes no privilege, unlike a socket filter, which newer
//! kernels let only `CAP_NET_ADMIN` attach to a TCP socket. listen(2) with a backlog of 0 is
//! no door: one at a time gets in all the same.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{Listener, ListenerAddress};

use crate::call::last_error;

impl Listener {
    /// Closes the door behind those who wait already: they can still be accepted, and nobody can
    /// join them, so that a shutdown may empty the kernel's queue and then close the socket
    /// without resetting anybody. Nobody needs privileges for it.
    ///
    /// Unix sockets know this as shutdown(2) of the reading side (a later connect(2) is refused).
    /// For TCP that call would reset the queue; instead the SYN of whoever comes later is
    /// dropped, while handshakes under way still complete. The kernel of such a client tries
    /// again within a second and is then refused by the closed port. Each connection that is
    /// accepted from now on must be [let through](Self::let_through).
    ///
    /// Never of one that was passed: whatever is done to a socket is done for all who hold it, and a
    /// unix socket that was shut stays so.
    pub fn close_door(&self) -> io::Result<()> {
        if self.is_passed() {
            return Err(io::Error::other("it is not ours to close"));
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

    /// Takes from a connection what it has from its listener if that was closed to newcomers before
    /// the handshake was complete. What came meanwhile the client sends again.
    pub fn let_through(&self, connection: impl AsFd) -> io::Result<()> {
        match self.address {
            ListenerAddress::Tcp(address) => {
                set_least_ttl(connection.as_fd(), address.is_ipv6(), LeastTtl::Any)
            }
            ListenerAddress::Unix(_) | ListenerAddress::Abstract(_) => Ok(()),
        }
    }
}

/// With which TTL a segment is let through.
#[derive(Clone, Copy)]
enum LeastTtl {
    Any = 0,
    /// None, but from a host beside this one that sends with 255.
    Highest = 255,
}

/// For a listener, or for a connection, which has it from its listener.
fn set_least_ttl(socket: BorrowedFd, is_v6: bool, least: LeastTtl) -> io::Result<()> {
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, least)?;
    }
    // Of an IPv6 socket too: its clients may come by IPv4 (ipv6(7)).
    set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, least)
}

fn set(socket: BorrowedFd, level: i32, name: i32, least: LeastTtl) -> io::Result<()> {
    let ttl = least as libc::c_int;
    // SAFETY: `ttl` lives through the call, which reads as many bytes as it has.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const ttl).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == -1 {
        Err(last_error("setsockopt"))
    } else {
        Ok(())
    }
}
