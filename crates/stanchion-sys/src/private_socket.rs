//! A unix socket for the users who may command this process: its own user and root.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use crate::call::{InCall, named};
use crate::listener::remove_if_stale;
use crate::peer::{PeerCredentials, peer_of};
use crate::pinned_path::{FileId, PinnedFile, PinnedPath};
use crate::{process, random};

/// How many connections wait in the kernel until the process accepts them.
const BACKLOG: i32 = 16;

/// A listening socket whose file has mode 0600.
#[derive(Debug)]
pub struct PrivateListener {
    socket: OwnedFd,
    path: PathBuf,
    /// The process that made it. A process forked from it must not remove the file.
    owner: i32,
    /// The identity of the file: another socket may have its path by now.
    file: FileId,
}

impl PrivateListener {
    /// Listens at `path`. If no process listens on a socket file that is there, replaces it; if a process does, the
    /// error is `AddrInUse`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let pinned = PinnedPath::of(path)?;
        remove_if_stale(&pinned)?;
        Self::bound(path, path, &pinned)
    }

    /// Listens at `path` in place of the process that listens there now. The file is made under another name beside it,
    /// and takes its place in one step (rename(2)), so that a process listens there at every moment.
    pub fn replace(path: &Path) -> io::Result<Self> {
        // The name must be short, since it has to fit into `sockaddr_un` (unix(7)) as well as `path` does, and random,
        // so that no other process can have taken it before us.
        let mut bits = [0; 4];
        random::fill(&mut bits)?;
        let name = format!(".{:08x}", u32::from_ne_bytes(bits));
        let pinned = PinnedPath::of(path)?;
        let beside = pinned.beside(name.as_ref())?;
        let listener = Self::bound(&path.with_file_name(&name), path, &beside)?;
        beside.rename_to(&pinned).inspect_err(|_| {
            // Return the first error.
            let _ = beside.remove();
        })?;
        Ok(listener)
    }

    fn bound(at: &Path, path: &Path, pinned: &PinnedPath) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .in_call("socket")?;
        bind(&socket, &SocketAddrUnix::new(at)?).in_call("bind")?;
        let file = pinned.made(PinnedFile::is_socket)?;
        // No client can connect before listen(2), so none finds the mode too wide.
        let ready = file
            .set_mode(0o600)
            .and_then(|()| listen(&socket, BACKLOG).in_call("listen"));
        ready.inspect_err(|_| {
            // Return the first error.
            let _ = pinned.remove();
        })?;
        Ok(Self {
            socket,
            // The working directory may be another one when the file is removed.
            path: std::path::absolute(path)?,
            owner: process::pid(),
            file: file.id(),
        })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the next connection, without waiting; the connection is non-blocking too.
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, PeerCredentials)>> {
        use rustix::io::Errno;
        loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let peer = peer_of(socket.as_fd())?;
                    return Ok(Some((socket, peer)));
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(named("accept4", error)),
            }
        }
    }

    /// Removes the file, if it is still this socket's and this process made it.
    pub fn remove_file(&self) -> io::Result<()> {
        if self.owner != process::pid() {
            return Ok(());
        }
        let pinned = match PinnedPath::of(&self.path) {
            Ok(pinned) => pinned,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match pinned.find()? {
            Some(found) if found.id() == self.file => pinned.remove(),
            _ => Ok(()),
        }
    }
}

impl AsFd for PrivateListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("stanchion-{name}-{}.ctl", process::pid()))
    }

    #[test]
    fn the_file_is_private_and_the_peer_is_known() {
        let path = path("peer");
        let listener = PrivateListener::open(&path).expect("opened");
        let mode = std::fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert!(listener.accept().expect("asked").is_none());
        let _client = UnixStream::connect(&path).expect("connected");
        let (_socket, peer) = listener.accept().expect("asked").expect("a client");
        let expected = PeerCredentials {
            pid: process::pid(),
            uid: crate::identity::effective_uid(),
        };
        assert_eq!(peer, expected);
        listener.remove_file().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn a_live_one_is_left_alone_and_a_stale_one_is_replaced() {
        let path = path("stale");
        let live = PrivateListener::open(&path).expect("opened");
        let refused = PrivateListener::open(&path).expect_err("somebody listens there");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(live);
        assert!(path.exists(), "as after a kill -9");
        let second = PrivateListener::open(&path).expect("nobody listens there any more");
        second.remove_file().expect("removed");
    }

    #[test]
    fn a_successor_takes_the_place_and_keeps_it() {
        let path = path("successor");
        let old = PrivateListener::open(&path).expect("opened");
        let new = PrivateListener::replace(&path).expect("replaced");
        old.remove_file().expect("there is nothing of its own");
        let _client = UnixStream::connect(&path).expect("connected");
        assert!(old.accept().expect("asked").is_none());
        assert!(new.accept().expect("asked").is_some());
        new.remove_file().expect("removed");
        assert!(!path.exists());
    }
}
