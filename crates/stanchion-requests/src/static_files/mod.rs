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
use std::rc::Rc;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use httpdate::parse_http_date;
use rustix::fs::{CWD, Mode, OFlags, openat};
use stanchion_http::{Coding, Head, codings_taken, percent_decoded};

use super::Requests;
use super::file::FILE_TIMEOUT;
use answer::Found;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::storage::disk::{self, FileSystem, Job};
use stanchion_dispatch::ticket::{Answer, Ticket};
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
pub(crate) struct Wanted {
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
    wanted: Wanted,
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

/// The result of a look for a file, as far as there is one.
pub(crate) enum Look {
    Done(io::Result<Option<Opened>>),
    /// A helper thread looks.
    Waits(Looking),
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
        let dirs = settings.static_files.iter();
        let mounts = dirs.map(|dir| Mount::open("static_files", &dir.prefix, &dir.directory));
        let mounts: Vec<_> = mounts.collect::<io::Result<_>>()?;
        let challenges = settings.acme_challenge_dir.as_deref();
        let challenges = challenges.map(|dir| Mount::open("acme_challenge_dir", "", dir));
        Ok(Self {
            challenges: challenges.transpose()?,
            types: if mounts.is_empty() {
                Types::default()
            } else {
                Types::of_system()
            },
            mounts,
            max_age_s: settings.static_max_age,
            missing: settings.static_missing,
        })
    }

    /// The file that a request asks for, if its path is below one of the prefixes. `Err` for a path that no file here
    /// may have.
    pub(crate) fn wanted(&self, head: &Head, now_us: u64) -> Option<Result<Wanted, NoFile>> {
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
        Some(Ok(Wanted {
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
}

impl Requests {
    /// Answers a request for a static file, and has all others join the line.
    pub(super) fn seek_file(&mut self, ticket: &Rc<Ticket>, connection: u32) -> Option<Looking> {
        match self.static_files.wanted(&ticket.request.head, self.now_us) {
            None => self.dispatch.join(ticket, self.now_us),
            Some(wanted) => return self.seek(ticket, wanted, connection),
        }
        None
    }

    fn seek(
        &mut self,
        ticket: &Rc<Ticket>,
        wanted: Result<Wanted, NoFile>,
        connection: u32,
    ) -> Option<Looking> {
        match wanted.map(|wanted| wanted.look(&self.disk, connection)) {
            Err(NoFile) => self.no_file(ticket),
            Ok(Look::Done(found)) => self.found(ticket, found),
            Ok(Look::Waits(looking)) => return Some(looking),
        }
        None
    }

    /// Answers a request if a helper thread has found its file by now. Gives whether the thread still looks.
    pub fn look_again(&mut self, ticket: &Rc<Ticket>, looking: &mut Looking) -> bool {
        let found = looking.take();
        let still = found.is_none();
        if let Some(found) = found {
            self.found(ticket, found);
        }
        still
    }

    /// Gives up a look for a file that has taken as long as it may. The helper thread goes on with it, but no
    /// connection waits for that.
    pub fn give_up_looking(&mut self, ticket: &Rc<Ticket>) {
        let limit_s = FILE_TIMEOUT.as_secs();
        let why = format!("its file system has not answered for {limit_s} s");
        self.found(ticket, Err(io::Error::new(io::ErrorKind::TimedOut, why)));
    }

    /// Answers a request when the look for its static file is over.
    fn found(&mut self, ticket: &Rc<Ticket>, found: io::Result<Option<Opened>>) {
        let answered = match found {
            Ok(Some(opened)) if !opened.is_served() => return self.no_file(ticket),
            Ok(Some(opened)) => {
                let (head, disk) = (&ticket.request.head, &self.disk);
                self.static_files.answer(head, opened, disk, self.now_us)
            }
            Ok(None) => return self.no_file(ticket),
            Err(error) => Err(error),
        };
        ticket.answer(match answered {
            Ok(Found::File(answer)) => Answer::Static(answer),
            Ok(Found::Reply(reply)) => Answer::Ours(reply, Outcome::Static),
            Err(error) => {
                self.unread.failed(self.now_us, &error);
                let (status, outcome) = verdict(error.kind());
                Answer::Ours(Reply::text(status, "the file cannot be read\n"), outcome)
            }
        });
    }

    /// Answers a request if there is no static file of that name. No app answers for a challenge.
    fn no_file(&mut self, ticket: &Rc<Ticket>) {
        let missing = if self.is_challenge(&ticket.request) {
            StaticMissing::NotFound
        } else {
            self.static_files.missing
        };
        match missing {
            // A refusal may be due: the helper thread looked until after the others were refused.
            StaticMissing::App => match self.refusal() {
                Some(refusal) => ticket.answer(Answer::Refused(refusal)),
                None => self.dispatch.join(ticket, self.now_us),
            },
            StaticMissing::NotFound => {
                let reply = Reply::text(404, "there is no such file\n");
                ticket.answer(Answer::Ours(reply, Outcome::Static));
            }
        }
    }
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
