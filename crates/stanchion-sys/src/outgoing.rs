//! What a socket still has to send.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How much the peer has not taken yet of what was written to a stream socket: bytes on TCP
/// (tcp(7), `SIOCOUTQ`), and on unix sockets the memory they take (unix(7)). It falls when the peer
/// takes some.
pub fn untaken(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut left: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which has the number of SIOCOUTQ, writes one int to where its argument
    // points.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(left.unsigned_abs().into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn it_grows_with_writing_and_falls_with_the_peers_reading() {
        let tcp = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, client)
        };
        tcp.0.set_nonblocking(true).unwrap();
        grows_and_falls(tcp.0, tcp.1);
        let unix = UnixStream::pair().unwrap();
        unix.0.set_nonblocking(true).unwrap();
        grows_and_falls(unix.0, unix.1);
    }

    fn grows_and_falls(mut ours: impl Write + AsFd, mut theirs: impl Read) {
        assert_eq!(untaken(ours.as_fd()).unwrap(), 0);
        let mut written = 0;
        while let Ok(len) = ours.write(&[0; 16384]) {
            written += len;
        }
        let full = untaken(ours.as_fd()).unwrap();
        assert!(full > 0);
        let mut taken = 0;
        while untaken(ours.as_fd()).unwrap() >= full {
            taken += theirs.read(&mut [0; 16384]).unwrap();
            assert!(taken < written, "all is taken, and it never fell");
        }
    }
}
