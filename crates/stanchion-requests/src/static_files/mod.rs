//! The server answers requests for files without a worker (`static_files`).

mod answer;
mod challenge;
mod lookup;
mod types;
mod uncoded;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use httpdate::parse_http_date;
use rustix::fs::{CWD, Mode, OFlags, openat};
use stanchion_http::{Coding, Head, codings_taken, percent_decoded};

use super::file::FILE_TIMEOUT;
use answer::StaticAnswer;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::request::Request;
use stanchion_dispatch::storage::disk::{self, Disk, FileSystem, Job};
use stanchion_dispatch::storage::shortage::Shortage;
use stanchion_dispatch::ticket::Answer;
use stanchion_generation::tally::Outcome;
use stanchion_settings::{Settings, StaticMissing};
use types::Types;
use uncoded::Uncoded;

/// The directories, and facts about their files.
pub(crate) struct StaticFiles {
    mounts: Vec<Mount>,
    /// Where a client for ACME puts its files.
    challenges: Option<Mount>,
    types: Types,
    /// For how long caches may keep a file (`static_max_age`); 0 = the server says nothing of it.
    max_age_s: u32,
    missing: StaticMissing,
    /// Files that cannot be read.
    unread: Shortage,
}

/// A directory, and the prefix of the paths that are below it.
struct Mount {
    prefix: String,
    directory: Arc<OwnedFd>,
    file_system: FileSystem,
    uncoded: Uncoded,
}

/// The static file that a request asks for.
#[derive(Debug)]
pub(crate) struct RequestedFile {
    /// The number of its mount; `None`: it is a challenge.
    mount: Option<usize>,
    directory: Arc<OwnedFd>,
    file_system: FileSystem,
    /// The path below the directory.
    path: CString,
    content_type: Arc<str>,
    /// The codings that the client takes, the best first.
    codings: Vec<Coding>,
    /// There may be files beside it with the same content in a coding, so that the server looks for them.
    may_be_coded: bool,
}

/// A file that was asked for.
#[derive(Debug)]
pub struct Opened {
    file: File,
    attributes: Attributes,
    wanted: RequestedFile,
}

impl Opened {
    /// Whether the server sends the file. A challenge is short.
    fn is_served(&self) -> bool {
        self.wanted.mount.is_some() || self.attributes.len <= challenge::FILE_BYTES_MAX
    }
}

/// The attributes of a file that was asked for.
#[derive(Debug)]
struct Attributes {
    file_system: FileSystem,
    len: u64,
    modified_s: u64,
    /// Nanoseconds behind that second.
    modified_ns: u64,
    /// The coding that it is in.
    coding: Option<Coding>,
    /// A client that takes other codings gets another file.
    varies: bool,
}

impl Attributes {
    /// The `ETag` has the time to the nanosecond: a file that is changed twice in a second, and stays as long, is another
    /// one. For a time in whole seconds the `ETag` is the one that nginx makes of the same file.
    fn etag(&self) -> String {
        let Self {
            len,
            modified_s,
            modified_ns,
            ..
        } = self;
        match modified_ns {
            0 => format!("\"{modified_s:x}-{len:x}\""),
            _ => format!("\"{modified_s:x}.{modified_ns:x}-{len:x}\""),
        }
    }
}

/// A look for a file by a helper thread.
pub type Looking = Job<Option<Opened>>;

impl Mount {
    /// Opens a directory. Errors name it.
    fn open(setting: &str, prefix: &str, path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let named = |error: io::Error| {
            let path = path.display();
            let cure = match error.kind() {
                io::ErrorKind::NotFound => "; make it, for the user that the server runs as",
                _ => "",
            };
            let text = format!("{setting}: the directory {path} cannot be opened: {error}{cure}");
            io::Error::new(error.kind(), text)
        };
        let directory = openat(CWD, path, flags, Mode::empty());
        let directory = directory.map_err(|error| named(error.into()))?;
        lookup::probe(directory.as_fd()).map_err(named)?;
        Ok(Self {
            prefix: prefix.to_owned(),
            file_system: disk::file_system_of(&directory),
            directory: Arc::new(directory),
            uncoded: Uncoded::default(),
        })
    }
}

impl StaticFiles {
    /// Opens the directories. Errors name the directory that cannot be opened.
    pub(crate) fn open(settings: &Settings) -> io::Result<Self> {
        let dirs = settings.answers.static_files.iter();
        let mounts = dirs.map(|dir| Mount::open("static_files", &dir.prefix, &dir.directory));
        let mounts: Vec<_> = mounts.collect::<io::Result<_>>()?;
        let challenges = settings.tls.acme_challenge_dir.as_deref();
        let challenges = challenges.map(|dir| Mount::open("acme_challenge_dir", "", dir));
        Ok(Self {
            challenges: challenges.transpose()?,
            types: if mounts.is_empty() {
                Types::default()
            } else {
                Types::of_system()
            },
            mounts,
            max_age_s: settings.answers.static_max_age,
            missing: settings.answers.static_missing,
            unread: Shortage::of(
                "a static file cannot be read (permissions? open files? see --static)",
            ),
        })
    }

    /// The file that a request asks for, if its path is below one of the prefixes. `Err` for a path that no file here
    /// may have.
    pub(crate) fn wanted(&self, head: &Head, now_us: u64) -> Option<Result<RequestedFile, NoFile>> {
        if self.mounts.is_empty() || !matches!(head.method(), "GET" | "HEAD") {
            return None;
        }
        let path = percent_decoded(head.path());
        let mut mounts = self.mounts.iter().enumerate();
        let (number, mount, path) = mounts.find_map(|(number, mount)| {
            let rest = path.strip_prefix(mount.prefix.as_bytes())?;
            Some((number, mount, rest.strip_prefix(b"/")?))
        })?;
        let is_name = |name: &[u8]| !name.is_empty() && name[0] != b'.';
        if !path.split(|&byte| byte == b'/').all(is_name) {
            return Some(Err(NoFile));
        }
        let Ok(path) = CString::new(path) else {
            return Some(Err(NoFile));
        };
        let kind = self.types.of(path.as_bytes());
        let may_be_coded = kind.pays && !mount.uncoded.has(&path, now_us);
        Some(Ok(RequestedFile {
            mount: Some(number),
            directory: Arc::clone(&mount.directory),
            file_system: mount.file_system,
            path,
            content_type: Arc::clone(&kind.name),
            codings: if may_be_coded {
                codings_taken(head, &Coding::ALL)
            } else {
                Vec::new()
            },
            may_be_coded,
        }))
    }

    /// Looks for the static file that a request asks for. Gives the answer, if a file or the lack of it is one; else the app
    /// is to answer.
    ///
    /// # Errors
    /// A helper thread has to look first: it gives what [`Self::found`] takes.
    pub(crate) fn seek(
        &mut self,
        request: &Request,
        disk: &Disk,
        connection: u32,
        now_us: u64,
    ) -> Result<Option<Answer>, Looking> {
        let wanted = if self.is_challenge(request) {
            Some(self.challenge(request.head.path()))
        } else {
            self.wanted(&request.head, now_us)
        };
        let found = match wanted {
            None => return Ok(None),
            Some(Err(NoFile)) => Ok(None),
            Some(Ok(wanted)) => wanted.look(disk, connection)?,
        };
        Ok(self.found(request, found, disk, now_us))
    }

    /// The answer when the look for a static file is over, if it is not the app's.
    pub(crate) fn found(
        &mut self,
        request: &Request,
        found: io::Result<Option<Opened>>,
        disk: &Disk,
        now_us: u64,
    ) -> Option<Answer> {
        let answered = match found {
            Ok(Some(opened)) if opened.is_served() => {
                self.answer(&request.head, opened, disk, now_us)
            }
            Ok(_) => return self.no_file(request),
            Err(error) => Err(error),
        };
        Some(match answered {
            Ok(StaticAnswer::File(answer)) => Answer::Static(answer),
            Ok(StaticAnswer::Reply(reply)) => Answer::Ours(reply, Outcome::Static),
            Err(error) => {
                self.unread.failed(now_us, &error);
                let (status, outcome) = verdict(error.kind());
                Answer::Ours(Reply::text(status, "the file cannot be read\n"), outcome)
            }
        })
    }

    /// The answer to a request if there is no static file of that name. No app answers for a challenge.
    fn no_file(&self, request: &Request) -> Option<Answer> {
        if self.missing == StaticMissing::App && !self.is_challenge(request) {
            return None;
        }
        let reply = Reply::text(404, "there is no such file\n");
        Some(Answer::Ours(reply, Outcome::Static))
    }

    /// Looks whether files can be read again, and logs that.
    pub(crate) fn settle(&self, now_us: u64) {
        self.unread.settle(now_us);
    }
}

/// The outcome of a look for a file that has taken as long as it may.
pub(crate) fn too_long<T>() -> io::Result<T> {
    let limit_s = FILE_TIMEOUT.as_secs();
    let why = format!("its file system has not answered for {limit_s} s");
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}

/// The status and the outcome for a file that is there and cannot be read.
fn verdict(why: io::ErrorKind) -> (u16, Outcome) {
    match why {
        // 403 is as good an answer as that there is no file.
        io::ErrorKind::PermissionDenied => (403, Outcome::Static),
        io::ErrorKind::ResourceBusy | io::ErrorKind::TimedOut => (503, Outcome::FileFailed),
        _ => (500, Outcome::FileFailed),
    }
}

/// A path that names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFile;

/// A date of HTTP, in seconds of Unix time.
fn date_s(value: &[u8]) -> Option<u64> {
    let date = parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests;
