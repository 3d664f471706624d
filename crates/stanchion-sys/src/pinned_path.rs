//! A name in a directory that is held open, for files that root makes, gives away and removes in places where other
//! users may write.
//!
//! Every call resolves a path again, and a user who may write to a directory on the way can redirect it between two
//! calls. So this opens the directory once (`O_PATH` in open(2)) and does everything to a name in it. It never follows
//! a link at that name, and it changes owner and mode of the file that it has opened, whatever name that file has at
//! that moment.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chmod, chownat, fstat, mkdirat,
    openat, renameat, unlinkat,
};

use crate::call::InCall;
use crate::exposed_path;
use crate::identity::effective_uid;

/// A name in an open directory, whether or not a file has it.
#[derive(Debug)]
pub struct PinnedPath {
    directory: OwnedFd,
    name: OsString,
}

/// The file that was found at a pinned path; it stays the same file even if another one has that name now.
#[derive(Debug)]
pub struct PinnedFile {
    fd: OwnedFd,
    stat: Stat,
}

/// The identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The device (stat(2)).
    pub device: u64,
    /// The inode on it.
    pub inode: u64,
}

impl PinnedPath {
    /// Opens the directory that `path` leads to now.
    pub fn of(path: &Path) -> io::Result<Self> {
        let no_file = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path does not end with a file name",
            )
        };
        let name = path.file_name().ok_or_else(no_file)?.to_owned();
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        Ok(Self { directory, name })
    }

    /// As [`Self::of`], for a log: if users other than root may redirect the path, this follows no link of theirs,
    /// except to a directory of `owner`, the log's own user. Also returns whether root alone may redirect the path.
    pub fn of_log(path: &Path, owner: u32) -> io::Result<(Self, bool)> {
        let mut pinned = Self::of(path)?;
        let exposed = match path.parent() {
            Some(directory) => exposed_path::first_exposed(directory)?,
            None => None,
        };
        if let Some(exposed) = &exposed
            && fstat(&pinned.directory)?.st_uid != owner
        {
            pinned.directory = exposed.open_without_links()?;
        }
        Ok((pinned, exposed.is_none()))
    }

    /// Another name in the same directory.
    pub fn beside(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self {
            directory: self.directory.try_clone()?,
            name: name.to_owned(),
        })
    }

    /// The file at this name; a link itself, not its target.
    pub fn find(&self) -> io::Result<Option<PinnedFile>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(PinnedFile {
                stat: fstat(&fd)?,
                fd,
            })),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The file that this process has made there a moment ago. If root made it, this accepts it only if it belongs to
    /// root and has no other name: a user can rename our file in a directory of theirs, and put another file there.
    pub fn made(&self, is_kind: fn(&PinnedFile) -> bool) -> io::Result<PinnedFile> {
        let is_ours = |found: &PinnedFile| {
            let is_roots =
                found.stat.st_uid == 0 && (found.is_directory() || found.stat.st_nlink == 1);
            is_kind(found) && (effective_uid() != 0 || is_roots)
        };
        self.find()?.filter(is_ours).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "another user has put another file in its place while it was made: choose a directory that \
                 only root may write to",
            )
        })
    }

    /// Makes a directory; `AlreadyExists` if the name is taken.
    pub fn make_directory(&self, mode: u32) -> io::Result<PinnedFile> {
        mkdirat(&self.directory, &self.name, Mode::from_raw_mode(mode)).in_call("mkdirat")?;
        self.made(PinnedFile::is_directory)
    }

    /// Makes a file for writing; `AlreadyExists` if the name is taken.
    pub fn make_file(&self, mode: u32) -> io::Result<std::fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        Ok(openat(&self.directory, &self.name, flags, mode)?.into())
    }

    /// Makes a file for appending; `AlreadyExists` if the name is taken.
    pub fn make_log(&self) -> io::Result<std::fs::File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode(0o666);
        Ok(openat(&self.directory, &self.name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Opens a plain file for appending. It refuses a link, and a pipe, whose opening would wait for a reader
    /// (fifo(7)).
    pub fn append_plain(&self) -> io::Result<std::fs::File> {
        let refused = |what| {
            let problem = format!("it is {what}, and users other than root may redirect its path");
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        };
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: std::fs::File = match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP) => return Err(refused("a link")),
            opened => opened?.into(),
        };
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(refused("no plain file"))
        }
    }

    /// Opens a plain file for reading. It refuses a pipe, whose opening would wait for a writer (fifo(7)).
    pub fn open_plain(&self) -> io::Result<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: std::fs::File = openat(&self.directory, &self.name, flags, Mode::empty())?.into();
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is no plain file",
            ))
        }
    }

    /// Removes this name, whatever file has it; fails for a directory.
    pub fn remove(&self) -> io::Result<()> {
        unlinkat(&self.directory, &self.name, AtFlags::empty()).in_call("unlinkat")
    }

    /// Removes the directory at this name, with the files in it, if it is the directory `id` and not one that another
    /// process has put in its place. It does not remove a directory inside it, which this server did not make.
    pub fn remove_directory(&self, id: FileId) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&self.directory, &self.name, flags, Mode::empty())?;
        let stat = fstat(&directory)?;
        if (stat.st_dev, stat.st_ino) != (id.device, id.inode) {
            let problem = "another process has put another directory in its place";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
            }
        }
        // If another directory has the name by now, this removes it only if it is empty (rmdir(2)).
        Ok(unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR)?)
    }

    /// Gives the file at this name the other name, and replaces a file that has it (rename(2)).
    pub fn rename_to(&self, other: &Self) -> io::Result<()> {
        renameat(&self.directory, &self.name, &other.directory, &other.name).in_call("renameat")
    }
}

impl PinnedFile {
    /// The identity of the file.
    pub fn id(&self) -> FileId {
        FileId {
            device: self.stat.st_dev,
            inode: self.stat.st_ino,
        }
    }

    /// Whether it is a socket file.
    pub fn is_socket(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Socket
    }

    fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    /// The file's owner when it was found.
    pub fn uid(&self) -> u32 {
        self.stat.st_uid
    }

    /// A path to this very file (`/proc/PID/fd/` in proc(5)), for calls that take only paths.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    /// Gives the file to a user, a group, or both.
    pub fn give_to(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        chownat(&self.fd, c"", uid, gid, AtFlags::EMPTY_PATH).in_call("fchownat")
    }

    /// Sets the file's permission bits. fchmod(2) refuses an `O_PATH` descriptor, and many kernels are older than the
    /// call that does not (fchmodat2(2), Linux 6.6). So this uses the file's name in /proc, which leads to this very
    /// file.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        chmod(self.path(), Mode::from_raw_mode(mode)).in_call("chmod")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn home(name: &str) -> PathBuf {
        let home = std::env::temp_dir().join(format!(
            "stanchion-pinned-path-{name}-{}",
            crate::process::pid()
        ));
        fs::create_dir(&home).expect("made");
        home
    }

    #[test]
    fn the_file_that_was_found_is_changed_whatever_is_there_by_now() {
        let home = home("found");
        let (file, victim, moved) = (home.join("f"), home.join("victim"), home.join("moved"));
        for path in [&file, &victim] {
            fs::write(path, "").expect("written");
            fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("set");
        }
        let found = PinnedPath::of(&file)
            .expect("a directory")
            .find()
            .expect("asked");
        let found = found.expect("it is there");
        fs::rename(&file, &moved).expect("renamed");
        symlink(&victim, &file).expect("linked");
        found.set_mode(0o777).expect("set");
        found
            .give_to(None, Some(fs::metadata(&moved).expect("there").gid()))
            .expect("given");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o7777;
        assert_eq!((mode(&moved), mode(&victim)), (0o777, 0o640));
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn the_directory_is_the_one_that_was_opened() {
        let home = home("directory");
        for name in ["one", "two"] {
            fs::create_dir(home.join(name)).expect("made");
            fs::write(home.join(name).join("f"), name).expect("written");
        }
        let pinned = PinnedPath::of(&home.join("one/f")).expect("a directory");
        fs::rename(home.join("one"), home.join("was-one")).expect("renamed");
        symlink(home.join("two"), home.join("one")).expect("linked");
        pinned.remove().expect("removed");
        assert!(home.join("two/f").exists() && !home.join("was-one/f").exists());
        drop(pinned.make_file(0o600).expect("made"));
        pinned
            .rename_to(&pinned.beside(OsStr::new("g")).expect("a name"))
            .expect("renamed");
        assert!(home.join("was-one/g").exists());
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn no_link_is_followed_and_no_pipe_is_waited_for() {
        let home = home("links");
        fs::write(home.join("f"), "text").expect("written");
        symlink(home.join("f"), home.join("link")).expect("linked");
        rustix::fs::mkfifoat(CWD, home.join("pipe"), Mode::RUSR)
            .expect("a pipe that nobody writes to");
        for name in ["link", "pipe"] {
            let pinned = PinnedPath::of(&home.join(name)).expect("a directory");
            assert!(pinned.open_plain().is_err(), "{name}");
            assert!(pinned.make_file(0o600).is_err() && pinned.make_directory(0o700).is_err());
            assert!(pinned.made(PinnedFile::is_socket).is_err());
        }
        let nothing = PinnedPath::of(&home.join("nothing")).expect("a directory");
        assert!(nothing.find().expect("asked").is_none());
        assert!(PinnedPath::of(Path::new("/")).is_err());
        assert!(PinnedPath::of(Path::new("relative")).is_ok());
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn a_plain_file_is_appended_to_and_all_else_refused() {
        use std::io::Write;
        let home = home("append");
        let at = |name: &str| PinnedPath::of(&home.join(name)).expect("a directory");
        let append = |name: &str| at(name).append_plain();
        let mut made = at("plain").make_log().expect("made");
        made.write_all(b"one\n").expect("written");
        assert!(at("plain").make_log().is_err());
        fs::write(home.join("plain"), "ONE\n").expect("written");
        let mut plain = append("plain").expect("opened");
        plain.write_all(b"two\n").expect("written");
        made.write_all(b"three\n").expect("written");
        let read = fs::read_to_string(home.join("plain")).expect("read");
        assert_eq!(read, "ONE\ntwo\nthree\n");
        symlink(home.join("plain"), home.join("link")).expect("linked");
        symlink(home.join("nothing"), home.join("dangling")).expect("linked");
        rustix::fs::mkfifoat(CWD, home.join("pipe"), Mode::RUSR).expect("a pipe that nobody reads");
        symlink("/dev/null", home.join("device")).expect("linked");
        for name in ["link", "dangling", "pipe", "device"] {
            assert!(append(name).is_err(), "{name}");
            assert!(at(name).make_log().is_err(), "{name}");
        }
        let device = PinnedPath::of(Path::new("/dev/null")).expect("a directory");
        assert!(device.append_plain().is_err(), "no plain file");
        assert!(!home.join("nothing").exists());
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn the_way_to_a_log_leads_over_no_link_of_others_but_into_its_owners_own() {
        if effective_uid() != 0 {
            return; // an ordinary user has no others to tell apart
        }
        let home = home("log");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("set");
        for (name, uid) in [("roots", 0), ("theirs", 65534), ("strangers", 65533)] {
            fs::create_dir(home.join(name)).expect("made");
            std::os::unix::fs::chown(home.join(name), Some(uid), None).expect("given");
        }
        for name in ["roots", "strangers", "theirs"] {
            symlink(home.join(name), home.join("theirs").join(name)).expect("linked");
        }
        fs::create_dir(home.join("theirs/moved")).expect("made");
        let of =
            |path: &str| PinnedPath::of_log(&home.join(path), 65534).map(|(_, is_roots)| is_roots);
        assert!(of("roots/log").expect("root's alone"));
        for path in [
            "theirs/log",
            "theirs/theirs/log",
            "theirs/moved/log",
            "strangers/log",
        ] {
            assert!(!of(path).expect(path), "{path}");
        }
        assert!(of("theirs/roots/log").is_err() && of("theirs/strangers/log").is_err());
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn a_directory_is_removed_with_its_files_but_none_that_took_its_place() {
        let home = home("remove");
        let pinned = PinnedPath::of(&home.join("ours")).expect("a directory");
        let id = pinned.make_directory(0o700).expect("made").id();
        let fill = |name: &str| {
            for number in 0..300 {
                fs::write(home.join(name).join(number.to_string()), "").expect("written");
            }
        };
        fill("ours");
        fs::create_dir(home.join("other")).expect("made");
        fill("other");
        fs::rename(home.join("ours"), home.join("moved")).expect("renamed");
        for put in [0, 1] {
            match put {
                0 => fs::rename(home.join("other"), home.join("ours")).expect("renamed"),
                _ => symlink(home.join("moved"), home.join("ours")).expect("linked"),
            }
            assert!(pinned.remove_directory(id).is_err());
            if put == 0 {
                fs::rename(home.join("ours"), home.join("other")).expect("renamed");
            }
        }
        for name in ["other", "moved"] {
            assert_eq!(fs::read_dir(home.join(name)).expect("read").count(), 300);
        }
        let moved = PinnedPath::of(&home.join("moved")).expect("a directory");
        moved.remove_directory(id).expect("removed");
        assert!(!home.join("moved").exists());
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn what_root_did_not_make_is_not_taken_for_its_own() {
        if effective_uid() != 0 {
            return; // it is root's rule
        }
        let home = home("ours");
        let at = |name: &str| PinnedPath::of(&home.join(name)).expect("a directory");
        let bound = |name: &str| {
            drop(std::os::unix::net::UnixListener::bind(home.join(name)).expect("bound"));
        };
        bound("ours");
        assert!(at("ours").made(PinnedFile::is_socket).is_ok());
        assert!(at("ours").made(PinnedFile::is_directory).is_err());
        fs::hard_link(home.join("ours"), home.join("second")).expect("linked");
        assert!(
            at("second").made(PinnedFile::is_socket).is_err(),
            "it has two names"
        );
        bound("theirs");
        std::os::unix::fs::chown(home.join("theirs"), Some(65534), None).expect("given");
        assert!(at("theirs").made(PinnedFile::is_socket).is_err());
        fs::remove_dir_all(&home).expect("removed");
    }
}
