//! Sending: from memory that is shared with other processes, and how much the peer has not taken yet.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many stretches [`send_around`] takes before the shared ones.
pub const BEFORE_MAX: usize = 8;
const PARTS_MAX: usize = BEFORE_MAX + 3;

/// Sends in turn the stretches `before`, two stretches of memory that other processes may write to meanwhile, and
/// `after`: as much as there is room for, without waiting (sendmsg(2)). Returns how many bytes it sent.
///
/// # Errors
/// The kernel's. `InvalidInput` if there are more than [`BEFORE_MAX`] stretches before.
///
/// # Safety
/// Both stretches of `shared`, each a start and a number of bytes, must stay mapped and readable.
pub unsafe fn send_around(
    socket: BorrowedFd<'_>,
    before: &[&[u8]],
    shared: [(*const u8, usize); 2],
    after: &[u8],
) -> io::Result<usize> {
    if before.len() > BEFORE_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let ours = |bytes: &[u8]| (bytes.as_ptr(), bytes.len());
    let parts = before.iter().map(|bytes| ours(bytes));
    let parts = parts.chain(shared).chain([ours(after)]);
    let mut iovecs = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; PARTS_MAX];
    let mut count = 0;
    for (iovec, (start, len)) in iovecs.iter_mut().zip(parts) {
        iovec.iov_base = start.cast_mut().cast();
        iovec.iov_len = len;
        count += 1;
    }
    // SAFETY: a zeroed msghdr is a message without address, ancillary data or flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = count;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` names `count` stretches, which are borrowed or, by the caller's promise, stay mapped. The
    // kernel only copies from them, so it does not matter which process writes there meanwhile.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// How much of the data written to a stream socket the peer has not taken yet: bytes on TCP (tcp(7), `SIOCOUTQ`), and
/// on unix sockets the memory that the data takes (unix(7)). The number falls when the peer takes some.
pub fn untaken(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut left: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which has the number of SIOCOUTQ, writes one int to the address in its argument.
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
    fn stretches_are_sent_in_turn_and_too_many_are_not() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let shared = b"0123456789";
        let stretches = [(shared[7..].as_ptr(), 3), (shared.as_ptr(), 2)];
        // SAFETY: they are borrowed until the end of the test.
        let sent = unsafe { send_around(ours.as_fd(), &[b"a", b"", b"bc"], stretches, b"z") };
        assert_eq!(sent.unwrap(), 9);
        let mut got = [0; 16];
        assert_eq!(theirs.read(&mut got).unwrap(), 9);
        assert_eq!(&got[..9], b"abc78901z");
        let many: [&[u8]; BEFORE_MAX + 1] = [b"x"; BEFORE_MAX + 1];
        // SAFETY: as above.
        let refused = unsafe { send_around(ours.as_fd(), &many, stretches, b"") };
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

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
