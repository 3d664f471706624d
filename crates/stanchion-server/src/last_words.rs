//! Before it serves, a new master writes why it leaves, and its predecessor passes that to the client that has asked for the upgrade.
//!
//! The predecessor gives it a file of the kernel's memory as standard error, so that it also reads why an interpreter found no stanchion.
//! The new master goes back to the real one as soon as it runs our code and has read its settings, and from then on writes into the file
//! only why it leaves.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stanchion_sys::memory::KeptFile;
use stanchion_sys::process;

use stanchion_generation::messages::REASON_CHARS_MAX;

/// Bytes of the file that are read.
const BYTES_MAX: usize = 64 << 10;
/// How a report of Python's begins whose last line says what it is about.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// In a new master that does not serve yet: where it writes why it leaves.
static LEFT_TO: Mutex<Option<KeptFile>> = Mutex::new(None);

/// The descriptors of a new master, as they go over to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streams {
    /// The real standard error.
    pub(crate) standard_error: RawFd,
    /// Once more the file that it has as standard error.
    pub(crate) file: RawFd,
}

/// In the old master: what the new one says.
#[derive(Debug)]
pub(crate) struct LastWords(KeptFile);

/// Descriptors for the new master, which it has once they are kept over the exec.
pub(crate) struct GivenStreams {
    standard_error: OwnedFd,
    file: OwnedFd,
}

impl GivenStreams {
    pub(crate) fn streams(&self) -> Streams {
        Streams {
            standard_error: self.standard_error.as_raw_fd(),
            file: self.file.as_raw_fd(),
        }
    }

    pub(crate) fn into_fds(self) -> [OwnedFd; 2] {
        [self.standard_error, self.file]
    }

    /// In the child that is going to be the new master.
    pub(crate) fn replace_standard_error(&self) -> io::Result<()> {
        Ok(rustix::stdio::dup2_stderr(&self.file)?)
    }
}

impl LastWords {
    /// Before the fork. The error is the kernel's, or there is no standard error.
    pub(crate) fn make() -> io::Result<(Self, GivenStreams)> {
        let file = KeptFile::create("stanchion-last-words")?;
        let given = GivenStreams {
            standard_error: rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?,
            file: file.try_clone_fd()?,
        };
        Ok((Self(file), given))
    }

    /// All that the new master wrote, and the part of it that is the reason for its end.
    pub(crate) fn read(&self) -> io::Result<Option<(String, String)>> {
        let bytes = self.0.read(BYTES_MAX)?;
        let all = String::from_utf8_lossy(&bytes).trim().to_owned();
        Ok(reason(&all).map(|reason| (reason, all)))
    }
}

/// In one line: the last line of a traceback, otherwise the whole text.
fn reason(said: &str) -> Option<String> {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let reason = if said.contains(TRACEBACK) {
        lines.next_back()?.to_owned()
    } else {
        lines.collect::<Vec<_>>().join(" ")
    };
    let cut = reason.chars().take(REASON_CHARS_MAX).collect::<String>();
    (!cut.is_empty()).then_some(cut)
}

/// A new master does this first: its standard error is that of the old master again, and it repeats there all that it has said until then.
pub(crate) fn go_back_to_standard_error(streams: Streams) -> io::Result<()> {
    let file = KeptFile::inherit(streams.file)?;
    let real = process::inherited_fd(streams.standard_error)?;
    rustix::stdio::dup2_stderr(&real)?;
    // If no process reads it, that changes nothing.
    let _ = io::stderr().write_all(&file.read(BYTES_MAX)?);
    file.write(b"")?;
    *left_to() = Some(file);
    Ok(())
}

/// In a new master that is about to leave.
pub(crate) fn leave_because(reason: &str) {
    if let Some(file) = &*left_to() {
        // The old master says that this one has ended, with or without the reason.
        let _ = file.write(reason.as_bytes());
    }
}

/// In a new master that serves, and in the children of one.
pub(crate) fn say_no_more() {
    drop(left_to().take());
}

fn left_to() -> std::sync::MutexGuard<'static, Option<KeptFile>> {
    LEFT_TO.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_one_line() {
        for (said, expected) in [
            ("", None),
            (" \n\n", None),
            (
                "python: No module named stanchion\n",
                Some("python: No module named stanchion"),
            ),
            (
                "a warning\nTraceback (most recent call last):\n  File \"a\", line 1\nModuleNotFoundError: No module named 'a'\n\n",
                Some("ModuleNotFoundError: No module named 'a'"),
            ),
            (
                "--bind: 'x'\n  expected HOST:PORT\n",
                Some("--bind: 'x' expected HOST:PORT"),
            ),
        ] {
            assert_eq!(reason(said).as_deref(), expected, "{said}");
        }
        let long = reason(&"e\u{301}".repeat(9_999)).expect("a reason");
        assert_eq!(long.chars().count(), REASON_CHARS_MAX);
    }

    #[test]
    fn what_is_left_is_read() {
        let (words, given) = LastWords::make().expect("made");
        assert_eq!(words.read().expect("read"), None);
        let [_, fd] = given.into_fds();
        rustix::io::write(&fd, b"it is broken\n").expect("written");
        let said = words.read().expect("read").expect("something");
        assert_eq!(said, ("it is broken".to_owned(), "it is broken".to_owned()));
    }
}
