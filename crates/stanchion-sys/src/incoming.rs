//! Bytes that a socket has received.

use std::io;
use std::os::fd::BorrowedFd;

use crate::socket_option;

/// Makes poll(2) and epoll(7) call a TCP socket readable only once it holds so many bytes, or the other side has ended it
/// (`SO_RCVLOWAT` in socket(7)). The process can still read fewer bytes before. If the new number is lower, and the socket
/// holds that many, the socket is readable at once; an edge-triggered watch gets an edge for it. For a unix socket this
/// changes nothing.
pub fn wake_at(socket: BorrowedFd<'_>, bytes: u16) -> io::Result<()> {
    socket_option::set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use std::time::Duration;

    use crate::channel::poll_readable;

    use super::*;

    /// Whether it becomes readable, if that takes no longer than `wait_s`.
    fn is_readable(socket: &TcpStream, wait_s: u64) -> bool {
        poll_readable(&[socket.as_fd()], Duration::from_secs(wait_s)).unwrap() == [true]
    }

    #[test]
    fn a_socket_is_readable_with_so_many_bytes_or_at_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let (mut client, socket) = connect();
        wake_at(socket.as_fd(), 3).unwrap();
        client.write_all(b"ab").unwrap();
        assert!(!is_readable(&socket, 0));
        client.write_all(b"c").unwrap();
        assert!(is_readable(&socket, 10));
        wake_at(socket.as_fd(), 4).unwrap();
        assert!(!is_readable(&socket, 0));
        wake_at(socket.as_fd(), 1).unwrap();
        assert!(is_readable(&socket, 10));

        let (client, socket) = connect();
        wake_at(socket.as_fd(), 3).unwrap();
        drop(client);
        assert!(is_readable(&socket, 10));
    }
}
