//! Finds a file below a directory: at once in what the kernel has in its caches, the rest by a helper thread.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use stanchion_http::Coding;

use super::{Attributes, Looking, Opened, RequestedFile};
use stanchion_dispatch::storage::disk::{Disk, FileSystem, file_system_of};

/// How often a look starts again while other processes rename what is around the file.
const TRIES_MAX: u32 = 100;

/// A file that is there.
type Present = (File, Attributes);

/// Whether a look may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskWait {
    /// The look finds only what the kernel has in memory (`RESOLVE_CACHED` in openat2(2)), and on the directory's own
    /// file system.
    None,
    Any,
}

/// Checks whether the server can look for files here at all: openat2(2) is younger than some kernels, and forbidden in
/// some containers.
pub(super) fn probe(directory: BorrowedFd<'_>) -> io::Result<()> {
    match open(directory, c".", OFlags::PATH, DiskWait::Any) {
        Ok(_) => Ok(()),
        Err(Errno::NOSYS | Errno::PERM) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel or the container does not allow openat2(2), which Linux has since 5.6, and \
             without which links could lead out of the directory",
        )),
        Err(error) => Err(error.into()),
    }
}

impl RequestedFile {
    /// Looks for the file, without waiting for the disk. Gives the outcome.
    ///
    /// # Errors
    /// A helper thread looks.
    pub(super) fn look(
        self,
        disk: &Disk,
        connection: u32,
    ) -> Result<io::Result<Option<Opened>>, Looking> {
        let found = match self.file_system {
            FileSystem::Own => self.find(DiskWait::None),
            FileSystem::Foreign => Err(Errno::XDEV),
        };
        let file_system = match found {
            // The kernel is too old for RESOLVE_CACHED (5.12), or does not have it all in memory.
            Err(Errno::AGAIN | Errno::INVAL) => FileSystem::Own,
            // The file is on a file system that is mounted below the directory, or a link leads out.
            Err(Errno::XDEV) => FileSystem::Foreign,
            found => return Ok(self.opened(found)),
        };
        let find = move || {
            let found = self.find_patiently();
            self.opened(found)
        };
        Err(disk.start(file_system, connection, find))
    }

    /// As [`Self::find`]. The kernel asks to try again if something was renamed or mounted meanwhile, wherever that was,
    /// since a link with `..` may then lead out (openat2(2)).
    fn find_patiently(&self) -> Result<Option<Present>, Errno> {
        let mut tries = 1;
        loop {
            match self.find(DiskWait::Any) {
                Err(Errno::AGAIN) if tries < TRIES_MAX => tries += 1,
                found => return found,
            }
        }
    }

    fn opened(self, found: Result<Option<Present>, Errno>) -> io::Result<Option<Opened>> {
        let found = found?;
        Ok(found.map(|(file, attributes)| Opened {
            file,
            attributes,
            wanted: self,
        }))
    }

    /// Finds the file, in the coding that its client wants most of those that are there.
    fn find(&self, wait: DiskWait) -> Result<Option<Present>, Errno> {
        if self.may_be_coded {
            for &coding in &self.codings {
                let path = coded(&self.path, coding);
                // A coded file that cannot be read is as good as none: there is the file itself.
                let found = match self.open_file(&path, wait) {
                    Err(Errno::ACCESS | Errno::PERM) => None,
                    found => found?,
                };
                if let Some((file, mut attributes)) = found {
                    attributes.coding = Some(coding);
                    attributes.varies = true;
                    return Ok(Some((file, attributes)));
                }
            }
        }
        let Some((file, mut attributes)) = self.open_file(&self.path, wait)? else {
            return Ok(None);
        };
        attributes.varies = self.may_be_coded && self.has_coded(wait)?;
        Ok(Some((file, attributes)))
    }

    /// Whether the file is there in a coding that its client does not take.
    fn has_coded(&self, wait: DiskWait) -> Result<bool, Errno> {
        for coding in Coding::ALL {
            if !self.codings.contains(&coding)
                && self
                    .open(&coded(&self.path, coding), OFlags::PATH, wait)?
                    .is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `None` if there is no such file.
    fn open(&self, path: &CStr, flags: OFlags, wait: DiskWait) -> Result<Option<OwnedFd>, Errno> {
        match open(self.directory.as_fd(), path, flags, wait) {
            // Perhaps the file is only on another file system than the directory.
            Err(Errno::XDEV) if wait == DiskWait::None => Err(Errno::XDEV),
            opened => there(opened),
        }
    }

    fn open_file(&self, path: &CStr, wait: DiskWait) -> Result<Option<Present>, Errno> {
        // The open does not wait for the other end of a pipe (open(2), O_NONBLOCK).
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Some(fd) = self.open(path, flags, wait)? else {
            return Ok(None);
        };
        let stat = fstat(&fd)?;
        let is_plain = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        Ok(is_plain.then(|| {
            let attributes = Attributes {
                file_system: match wait {
                    DiskWait::None => FileSystem::Own,
                    DiskWait::Any => file_system_of(&fd),
                },
                len: u64::try_from(stat.st_size).unwrap_or(0),
                modified_s: u64::try_from(stat.st_mtime).unwrap_or(0),
                modified_ns: stat.st_mtime_nsec,
                coding: None,
                varies: false,
            };
            (fd.into(), attributes)
        }))
    }
}

/// Opens what is below a directory, and nothing else.
fn open(
    directory: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlags,
    wait: DiskWait,
) -> Result<OwnedFd, Errno> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if wait == DiskWait::None {
        resolve |= ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
    }
    openat2(
        directory,
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
}

/// `None` if there is no such file, or a link that leads out (`XDEV` in openat2(2)) or round in a circle.
fn there(opened: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::NXIO,
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of the file beside it with the same content in a coding.
fn coded(path: &CStr, coding: Coding) -> CString {
    let ending = match coding {
        Coding::Brotli => c".br",
        Coding::Zstandard => c".zst",
        Coding::Gzip => c".gz",
    };
    let bytes = [path.to_bytes(), ending.to_bytes_with_nul()].concat();
    // There is no NUL within either.
    CString::from_vec_with_nul(bytes).unwrap_or_default()
}
