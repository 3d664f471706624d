//! Socket files: whose they are, and who may connect to them.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};

/// Who may connect to a unix socket: whoever may write to its file (unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Permission bits.
    pub mode: u32,
    /// The owner, where it is not to be us.
    pub uid: Option<u32>,
    /// The group, where it is not to be ours.
    pub gid: Option<u32>,
}

impl Default for FileOptions {
    /// Everybody, as gunicorn has it by its umask of 0, because the proxy in front commonly runs
    /// as another user.
    fn default() -> Self {
        Self {
            mode: 0o777,
            uid: None,
            gid: None,
        }
    }
}

impl FileOptions {
    pub(super) fn apply(self, path: &Path) -> io::Result<()> {
        // The owner first: chown(2) may clear bits of the mode.
        if self.uid.is_some() || self.gid.is_some() {
            std::os::unix::fs::lchown(path, self.uid, self.gid)?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(self.mode))
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The device (stat(2)).
    pub device: u64,
    /// The inode on it.
    pub inode: u64,
}

impl FileId {
    /// Of the socket file at `path`; `None` if there is none.
    pub(super) fn of_socket(path: &Path) -> Option<Self> {
        let found = std::fs::symlink_metadata(path).ok()?;
        found.file_type().is_socket().then(|| Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// Whether somebody listens is asked by connecting, as Unicorn does: only a refusal proves that
/// nobody does.
pub(crate) fn remove_if_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket is in the way",
            ));
        }
        Ok(_) => {}
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        // Connected, or EAGAIN: a listener with a full queue is a listener.
        _ => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}
