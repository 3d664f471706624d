//! Socket files: their owner, and the users who may connect to them.

use std::io;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::pinned_path::{PinnedFile, PinnedPath};

/// The permissions of a unix socket: a process may connect if it may write to the socket's file (unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Permission bits.
    pub mode: u32,
    /// The owner, if it is not this process's user.
    pub uid: Option<u32>,
    /// The group, if it is not this process's group.
    pub gid: Option<u32>,
}

impl Default for FileOptions {
    /// The owner and the group may connect.
    fn default() -> Self {
        Self {
            mode: 0o660,
            uid: None,
            gid: None,
        }
    }
}

impl FileOptions {
    pub(super) fn apply(self, file: &PinnedFile) -> io::Result<()> {
        // The owner first: chown(2) may clear bits of the mode.
        if self.uid.is_some() || self.gid.is_some() {
            file.give_to(self.uid, self.gid)?;
        }
        file.set_mode(self.mode)
    }
}

/// The socket file at `path`, if there is one.
pub(super) fn socket_at(path: &Path) -> io::Result<Option<(PinnedPath, PinnedFile)>> {
    let pinned = match PinnedPath::of(path) {
        Ok(pinned) => pinned,
        // If the directory is gone, so is the file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = pinned.find()?.filter(PinnedFile::is_socket);
    Ok(found.map(|found| (pinned, found)))
}

/// Removes a socket file on which no process listens. It connects to find out, as Unicorn does: only a refusal proves
/// that no process listens.
pub(crate) fn remove_if_stale(pinned: &PinnedPath) -> io::Result<()> {
    let Some(found) = pinned.find()? else {
        return Ok(());
    };
    if !found.is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is in the way",
        ));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(found.path())?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => pinned.remove(),
        // Connected, or EAGAIN: a listener with a full queue is a listener.
        _ => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}
