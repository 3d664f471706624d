//! A private directory of the master's, for bodies and answers that are too large for memory.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use stanchion_sys::call::InCall;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::pinned_path::{FileId, PinnedFile, PinnedPath};
use stanchion_sys::process;
use tracing::warn;

use stanchion_log::cure;

/// The directory, mode 0700, removed with what is in it when the master that made it lets go of it.
pub struct SpoolDir {
    path: PathBuf,
    id: FileId,
    owner: i32,
}

/// The owner of a directory that root makes.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The group may open files in it by name, and not list them: it may only go through the directory, and files get the
    /// directory's group (`S_ISGID` in inode(7)).
    pub group_reads: bool,
}

impl DirectoryOwner {
    fn take(self, directory: &PinnedFile) -> io::Result<()> {
        if self.group_reads {
            // First, while it is root's; another user can change what is there only after that.
            directory.set_mode(0o2710)?;
        }
        directory.give_to(Some(self.uid), Some(self.gid))
    }
}

impl SpoolDir {
    /// Makes it, for the user that is to work with it: in `parent`, or where temporary files are.
    pub fn create(parent: Option<&Path>, owner: Option<DirectoryOwner>) -> io::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, ToOwned::to_owned);
        // mkdir(2) fails if the name exists, so no other user can have put a directory there; pid and clock make the name free.
        let path = parent.join(format!("stanchion-{}-{}", process::pid(), monotonic_us()));
        let made = PinnedPath::of(&path).and_then(|pinned| pinned.make_directory(0o700));
        let given = made.and_then(|made| {
            owner.map_or(Ok(()), |owner| owner.take(&made))?;
            Ok(made.id())
        });
        let id = given.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "spool directory {}: {}; name a directory that can be written to with --tmp-upload-dir, or have one \
                     mounted (--tmpfs /tmp of a container)",
                    path.display(),
                    cure::told(&error)
                ),
            )
        })?;
        let owner = process::pid();
        Ok(Self { path, id, owner })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpoolDir {
    fn drop(&mut self) {
        // A child has a copy of this, and the directory is not its to remove.
        if process::pid() == self.owner
            && let Err(error) =
                PinnedPath::of(&self.path).and_then(|pinned| pinned.remove_directory(self.id))
        {
            warn!("the spool directory {} stays: {error}", self.path.display());
        }
    }
}

/// For the acceptor, whose user owns the directory: removes it with all files in it, in place of a master that is dead.
pub fn remove(directory: &Path) {
    if let Err(error) = std::fs::remove_dir_all(directory) {
        warn!("the spool directory {} stays: {error}", directory.display());
    }
}

/// The name of a file in the spool; it goes when this does.
#[derive(Debug)]
pub struct NamedFile {
    path: PathBuf,
}

impl NamedFile {
    /// Makes empty file `number` of this acceptor.
    pub fn create(directory: &Path, number: u64) -> io::Result<(Self, File)> {
        let path = directory.join(format!("{}-{number}", process::pid()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // The umask does not apply. The mode of the directory decides whether the group comes here.
        file.set_permissions(Permissions::from_mode(0o640))?;
        Ok((Self { path }, file))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            warn!("the spool file {} stays: {error}", self.path.display());
        }
    }
}

/// Removes what an earlier acceptor left behind.
pub fn clear(directory: &Path) -> io::Result<()> {
    let cleared = || {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .in_call("mkdir")?;
        for entry in std::fs::read_dir(directory)? {
            std::fs::remove_file(entry?.path()).in_call("unlink")?;
        }
        Ok(())
    };
    cleared().map_err(|error: io::Error| {
        let problem = format!(
            "spool directory {}: {}",
            directory.display(),
            cure::told(&error)
        );
        io::Error::new(error.kind(), problem)
    })
}
