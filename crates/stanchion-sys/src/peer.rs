//! The process at the other end of a unix socket (`SO_PEERCRED` in unix(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::call::checked;

/// The process at the other end when it connected, according to the kernel (`SO_PEERCRED` in unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process, or 0 if it is outside our pid namespace.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
}

/// rustix has this too, but assumes that the pid is positive; for a peer in another pid namespace it is 0.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` and `len` live through the call, and `len` is the size of `found`, which is
    // all integers and so valid whatever the kernel writes there.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    checked("getsockopt", asked)?;
    Ok(PeerCredentials {
        pid: found.pid,
        uid: found.uid,
    })
}
