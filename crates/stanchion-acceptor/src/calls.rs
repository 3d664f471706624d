//! System calls without which the acceptor serves no client. A filter (seccomp(2)) in a container or a unit may refuse them,
//! and each refusal would look like the fault of one connection: accept(2) gives EPERM for a firewall's too. So the acceptor
//! tries the calls before it reports that it is ready, and a server that cannot serve does not start, as without epoll(7).
//! If the acceptor only never became ready, the server would wait for it for ever.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, acceptfrom_with, recv, send, sendmsg,
};
use rustix::rand::{GetRandomFlags, getrandom};
use stanchion_sys::call::named;

/// Makes a call, with this descriptor if it takes one.
type SystemCall = fn(BorrowedFd<'_>) -> Result<(), Errno>;

/// The calls, by the names that filters have for them.
const NEEDED: [(&str, SystemCall); 5] = [
    // Each thread makes the keys of its hash tables with it. The way around it, /dev/urandom, is closed to a confined
    // acceptor.
    ("getrandom", |_| {
        getrandom(&mut [0][..], GetRandomFlags::NONBLOCK).map(drop)
    }),
    ("accept4", |fd| {
        acceptfrom_with(fd, SocketFlags::NONBLOCK).map(drop)
    }),
    ("recvfrom", |fd| {
        recv(fd, &mut [0][..], RecvFlags::DONTWAIT).map(drop)
    }),
    ("sendto", |fd| send(fd, b"", SendFlags::DONTWAIT).map(drop)),
    ("sendmsg", |fd| {
        let mut nothing = SendAncillaryBuffer::default();
        sendmsg(fd, &[], &mut nothing, SendFlags::DONTWAIT).map(drop)
    }),
];

/// Tries each call. Socket calls get a descriptor that is no socket: a kernel that makes the call answers ENOTSOCK, and does
/// nothing else. A machine that has just started may have no random bytes yet (EAGAIN); the code that needs them waits for
/// them.
///
/// # Errors
/// The first call that the kernel refuses, by its name.
pub(super) fn try_on(no_socket: &impl AsFd) -> io::Result<()> {
    for (name, call) in NEEDED {
        match call(no_socket.as_fd()) {
            Ok(()) | Err(Errno::NOTSOCK | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(named(name, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use stanchion_sys::eventfd::EventFd;

    use super::*;

    #[test]
    fn a_kernel_without_a_filter_refuses_none() {
        try_on(&EventFd::new().expect("one")).expect("all are made");
    }
}
