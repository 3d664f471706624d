//! A log that is a file, a pipe, a terminal or a socket: written without waiting for its reader.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::net::SendFlags;
use stanchion_sys::channel::poll_writable;
use stanchion_sys::identity::{Identity, effective_uid};
use stanchion_sys::pinned_path::PinnedPath;
use stanchion_sys::process;

use crate::cure;

/// A write of up to so many bytes into a pipe is whole or not at all (`PIPE_BUF` in pipe(7)).
const PIPE_BYTES_ATOMIC: usize = 4096;

/// A log that is appended to, and that can be reopened while threads write to it.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    /// `None` for a standard stream. Absolute, since an app may change its directory.
    path: Option<PathBuf>,
    kind: FileKind,
}

/// How to write to it without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    /// A regular file, which takes what it is given.
    Regular,
    /// A pipe or a terminal, opened by us with `O_NONBLOCK`.
    Pipe,
    /// A pipe or terminal that we could not open ourselves: a flag would hold for all processes that have it, so each write asks first whether there
    /// is room.
    SharedPipe,
    /// A socket, as systemd gives its services: each send(2) has its own flag.
    Socket,
}

impl LogFile {
    /// Opens it; `-` is `standard`.
    pub fn open(path: &Path, standard: BorrowedFd<'_>) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::standard(standard);
        }
        let path = std::path::absolute(path)?;
        let file = append_to(&path, owner())?;
        let kind = if file.metadata()?.is_file() {
            FileKind::Regular
        } else {
            FileKind::Pipe
        };
        Ok(Self {
            file,
            path: Some(path),
            kind,
        })
    }

    /// `O_NONBLOCK` belongs to an open file, not to a descriptor (open(2)): set on the one we were given, it would surprise the app and the process
    /// that started us. Opening a pipe or a terminal by its name in /proc makes another open file. That is refused to a user other than its owner.
    fn standard(standard: BorrowedFd<'_>) -> io::Result<Self> {
        let mut file = File::from(standard.try_clone_to_owned()?);
        let kind = file.metadata()?.file_type();
        let kind = if kind.is_fifo() || kind.is_char_device() {
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            match nonblocking().append(true).open(name) {
                Ok(own) => {
                    file = own;
                    FileKind::Pipe
                }
                Err(_) => FileKind::SharedPipe,
            }
        } else if kind.is_socket() {
            FileKind::Socket
        } else {
            FileKind::Regular
        };
        Ok(Self {
            file,
            path: None,
            kind,
        })
    }

    /// Reopens its path; false if it has none: a daemon then leaves the standard stream. The descriptor's number stays and never dangles, so that no
    /// thread that writes meanwhile needs to know, and no lock can be held by a thread that a fork leaves behind.
    pub fn reopen(&self) -> io::Result<bool> {
        let Some(path) = &self.path else {
            if let Some(streams) = super::streams() {
                streams.leave_by(self.file.as_fd())?;
            }
            return Ok(false);
        };
        let file = append_to(path, owner())?;
        process::replace_file(self.file.as_fd(), file.as_fd())?;
        Ok(true)
    }

    /// Has stdout and stderr lead to it, also in what this process starts; nothing if it is a standard stream itself.
    pub(super) fn capture_output(&self) -> io::Result<()> {
        if self.path.is_some() {
            rustix::stdio::dup2_stdout(&self.file)?;
            rustix::stdio::dup2_stderr(&self.file)?;
        }
        Ok(())
    }

    /// Writes what goes at once, in whole lines where others may write in between.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.kind {
            FileKind::Regular => (&self.file).write(bytes),
            FileKind::Pipe => (&self.file).write(whole_lines(bytes)),
            // As many bytes as one write may have fit a pipe that has room at all (pipe(7)). Two processes that ask at the same moment may both find
            // room; then the second waits.
            FileKind::SharedPipe if poll_writable(self.as_fd(), Duration::ZERO)? => {
                (&self.file).write(whole_lines(bytes))
            }
            FileKind::SharedPipe => Err(io::ErrorKind::WouldBlock.into()),
            FileKind::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                Ok(rustix::net::send(&self.file, bytes, flags)?)
            }
        }
    }

    /// Whether it is the stream that journald gave to this service (`JOURNAL_STREAM` in
    /// systemd.exec(5)).
    pub(super) fn is_journal(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let (Ok(stream), Ok(metadata)) = (std::env::var("JOURNAL_STREAM"), self.file.metadata())
        else {
            return false;
        };
        self.kind == FileKind::Socket && stream == format!("{}:{}", metadata.dev(), metadata.ino())
    }

    /// `None` for a standard stream.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        let path = self.path.as_deref();
        path.map_or("-".to_owned(), |path| path.display().to_string())
    }
}

impl AsFd for LogFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The start of `bytes` that one write into a pipe does not tear apart.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= PIPE_BYTES_ATOMIC {
        return bytes;
    }
    let start = &bytes[..PIPE_BYTES_ATOMIC];
    let end = start.iter().rposition(|&byte| byte == b'\n');
    end.map_or(start, |end| &start[..=end])
}

fn nonblocking() -> OpenOptions {
    // Terminals are not to become ours (O_NOCTTY); regular files do not care.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.custom_flags(flags.bits().cast_signed());
    options
}

fn append_to(path: &Path, owner: Option<FileOwner>) -> io::Result<File> {
    // A FIFO without a reader is an error (ENXIO), not something to wait for.
    let mut options = nonblocking();
    options.append(true);
    if let Some(owner) = owner {
        let (pinned, is_way_roots) = PinnedPath::of_log(path, owner.uid)?;
        // Only a file that we have just made is given away: a file that is there already might be a link that another user has put there, to get the
        // file behind it.
        match pinned.make_log() {
            Ok(file) => {
                owner.take(&file)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if !is_way_roots {
            return pinned.append_plain();
        }
    }
    options.create(true).open(path)
}

/// The owner of the log files that root makes for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The group may write to them too.
    pub group_writes: bool,
}

impl FileOwner {
    /// The owner that an identity makes; `None` without one.
    pub fn of(identity: Option<&Identity>) -> Option<Self> {
        identity.map(|identity| Self {
            uid: identity.uid(),
            gid: identity.gid(),
            group_writes: false,
        })
    }

    fn take(self, file: &File) -> io::Result<()> {
        std::os::unix::fs::fchown(file, Some(self.uid), Some(self.gid))?;
        if self.group_writes {
            let mode = file.metadata()?.permissions().mode();
            file.set_permissions(Permissions::from_mode(mode | 0o020))?;
        }
        Ok(())
    }
}

/// The owner of the error log, if root makes it for another user.
static OWNER: Mutex<Option<FileOwner>> = Mutex::new(None);

/// From now on, a new error log belongs to this owner, so that the owner's processes can open it themselves.
pub fn belong_to(owner: Option<FileOwner>) {
    *OWNER.lock().unwrap_or_else(PoisonError::into_inner) = owner;
}

fn owner() -> Option<FileOwner> {
    let owner = *OWNER.lock().unwrap_or_else(PoisonError::into_inner);
    owner.filter(|_| effective_uid() == 0)
}

/// Makes a log file that another process is going to open.
pub fn create(path: Option<&Path>, owner: Option<FileOwner>) -> io::Result<()> {
    match path {
        Some(path) if owner.is_some() && path.as_os_str() != "-" => {
            append_to(path, owner).map(drop).map_err(|error| {
                let problem = format!("the access log {}", cure::told_of_file(path, &error));
                io::Error::new(error.kind(), problem)
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_log_is_opened_anew_and_one_that_cannot_be_goes_on() {
        let directory = std::env::temp_dir().join(format!("stanchion-log-{}", process::pid()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (path, renamed) = (directory.join("log"), directory.join("log.1"));
        let log = LogFile::open(&path, io::stderr().as_fd()).expect("opened");
        let write =
            |text: &str| assert_eq!(log.write(text.as_bytes()).expect("written"), text.len());
        let read = |path: &Path| std::fs::read_to_string(path).expect("read");

        write("one\n");
        std::fs::rename(&path, &renamed).expect("renamed");
        write("two\n");
        assert!(log.reopen().expect("opened anew"));
        write("three\n");
        assert_eq!(read(&renamed), "one\ntwo\n");
        assert_eq!(read(&path), "three\n");

        std::fs::rename(&path, &renamed).expect("renamed");
        std::fs::create_dir(&path).expect("something in the way");
        assert!(log.reopen().is_err());
        write("four\n");
        assert_eq!(read(&renamed), "three\nfour\n");
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_standard_stream_is_left_alone() {
        let log = LogFile::open(Path::new("-"), io::stderr().as_fd()).expect("a copy");
        assert!(!log.reopen().expect("nothing to do"));
    }

    #[test]
    fn a_pipe_gets_whole_lines_and_is_not_waited_for() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let log = LogFile::open(Path::new("-"), writer.as_fd()).expect("a copy");
        assert_eq!(log.kind, FileKind::Pipe);
        let lines = format!("{}\n", "a".repeat(99)).repeat(50);
        assert_eq!(log.write(lines.as_bytes()).expect("room"), 4000);
        let error = loop {
            if let Err(error) = log.write(lines.as_bytes()) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!poll_writable(log.as_fd(), Duration::ZERO).expect("asked"));
        let shared = rustix::fs::fcntl_getfl(&writer).expect("flags");
        assert!(!shared.contains(OFlags::NONBLOCK), "it is not only ours");
        drop(reader);
    }

    #[test]
    fn a_socket_is_not_waited_for() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let log = LogFile::open(Path::new("-"), ours.as_fd()).expect("a copy");
        let error = loop {
            if let Err(error) = log.write(&[b'a'; 1000]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
