//! Standard output and standard error of a server that goes into the background. The server leaves the streams that the
//! shell gave it, so that the terminal may close, and a process that reads a pipe to its end finds the end.
//!
//! Until the master serves, all processes have the shell's streams, so that the operator sees the reason for a failure.
//! Then the master has each process open the logs again, as for USR1, and so leave these streams.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::process::{replace_file, replace_file_for_all};

/// The streams that the server had when it started, and the file that takes their place.
#[derive(Debug)]
pub struct StandardStreams {
    null: File,
    /// Device and inode (inode(7)) of each stream to leave.
    left: Vec<(u64, u64)>,
}

impl StandardStreams {
    /// The present streams. With `only_terminals` the server keeps those that are no terminals. It keeps a socket in
    /// any case, since a socket leads to a log such as journald's.
    pub fn to_leave(only_terminals: bool) -> io::Result<Self> {
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        let mut left = Vec::new();
        for stream in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
            let stat = match rustix::fs::fstat(stream) {
                Err(Errno::BADF) => continue,
                other => other?,
            };
            let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
            let is_kept = only_terminals && !rustix::termios::isatty(stream);
            if !is_socket && !is_kept {
                left.push((stat.st_dev, stat.st_ino));
            }
        }
        Ok(Self { null, left })
    }

    /// Leaves the streams in this process: a stream that is still one of those becomes /dev/null. A file that has taken
    /// the place of one stays.
    pub fn leave(&self) -> io::Result<()> {
        for stream in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
            if self.is_left(stream)? {
                // Programs that the app starts get it too.
                replace_file_for_all(stream, self.null.as_fd())?;
            }
        }
        Ok(())
    }

    /// Makes one of our descriptors lead to /dev/null if it leads to one of those streams.
    pub fn leave_by(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_left(fd)? {
            replace_file(fd, self.null.as_fd())?;
        }
        Ok(())
    }

    fn is_left(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let stat = match rustix::fs::fstat(fd) {
            Err(Errno::BADF) => return Ok(false),
            other => other?,
        };
        Ok(self.left.contains(&(stat.st_dev, stat.st_ino)))
    }
}
