//! Options of sockets that are numbers, for which rustix and socket2 have no function.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::call::checked;

/// Sets an option (setsockopt(2)).
pub(crate) fn set(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    let socket = socket.as_raw_fd();
    // SAFETY: `value` lives through the call, which reads as many bytes as it has.
    let set = unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), len) };
    checked("setsockopt", set).map(drop)
}
