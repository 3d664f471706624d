//! A place where lines go.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use stanchion_arrivals::RECORD_BYTES;
use stanchion_sys::channel::{Channel, poll_writable};

use super::entry;
use super::file::LogFile;
use super::recording::RecordingFiles;
use super::syslog::Syslog;

/// How long a process that has no thread to wait for it lets a log make room for a line, once for
/// each time that it is full: a reader that is only busy loses nothing by that.
const PATIENCE: Duration = Duration::from_millis(100);

/// A place where lines go.
#[derive(Debug)]
pub enum Outlet {
    /// Text, one line an event.
    File(LogFile),
    /// Datagrams, one an event.
    Syslog(Syslog),
    /// Messages to the scribe, a JSON object for each event.
    Scribe(Channel),
    /// Records of arrivals.
    Recording(RecordingFiles),
}

impl Outlet {
    /// Writes what goes at once: the start of `bytes`, and how much.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Syslog(syslog) => syslog.write(bytes),
            Self::Recording(files) => files.write(bytes),
            Self::Scribe(channel) => {
                let message = entry::first_message(bytes);
                channel.send(message, None)?;
                Ok(message.len())
            }
        }
    }

    /// Waits until there may be room, for at most so long.
    pub(super) fn wait(&self, limit: Duration) -> io::Result<bool> {
        let fd = match self {
            Self::File(file) => file.as_fd(),
            Self::Syslog(syslog) => syslog.as_fd(),
            Self::Scribe(channel) => channel.as_fd(),
            // A regular file always has room, or an error.
            Self::Recording(_) => return Ok(true),
        };
        poll_writable(fd, limit)
    }

    /// Reopens it; false if there is nothing to open.
    pub(super) fn reopen(&self) -> io::Result<bool> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Recording(files) => files.begin_next().map(|()| true),
            Self::Syslog(_) | Self::Scribe(_) => Ok(false),
        }
    }

    /// Has this process's stdout and stderr lead there, if it has a name.
    pub(super) fn capture_output(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.capture_output(),
            Self::Syslog(_) | Self::Scribe(_) | Self::Recording(_) => Ok(()),
        }
    }

    /// How long a process may wait for it. No process waits for the scribe, which runs the operator's code; its channel has room for some hundred
    /// lines.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::File(_) | Self::Syslog(_) => PATIENCE,
            Self::Scribe(_) | Self::Recording(_) => Duration::ZERO,
        }
    }

    /// Its file, if it has one that has a name.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => file.path(),
            Self::Syslog(_) | Self::Scribe(_) | Self::Recording(_) => None,
        }
    }

    /// The last byte of each line; `None` for records, which have a length instead, and are never half written.
    pub(super) fn terminator(&self) -> Option<u8> {
        match self {
            Self::File(_) | Self::Scribe(_) => Some(b'\n'),
            Self::Syslog(_) => Some(0),
            Self::Recording(_) => None,
        }
    }

    /// Lines that end in `bytes`, or one that has no end.
    pub(super) fn lines(&self, bytes: &[u8]) -> u64 {
        let ends = match self.terminator() {
            Some(terminator) => bytes.split(|&byte| byte == terminator).count() - 1,
            None => bytes.len() / RECORD_BYTES,
        };
        ends.max(1) as u64
    }

    /// How much of `bytes` is written at once, where that is whole messages.
    pub(super) fn first_message(&self, bytes: &[u8]) -> usize {
        match self {
            Self::File(_) | Self::Recording(_) => bytes.len(),
            Self::Syslog(_) => Syslog::first_message(bytes),
            Self::Scribe(_) => entry::first_message(bytes).len(),
        }
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::File(file) => file.shown(),
            Self::Syslog(syslog) => syslog.shown(),
            Self::Scribe(_) => "the scribe".to_owned(),
            Self::Recording(files) => files.shown(),
        }
    }
}
