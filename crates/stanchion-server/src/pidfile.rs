//! The file with the master's pid.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use stanchion_sys::pinned_path::PinnedPath;
use stanchion_sys::process;
use tracing::warn;

use stanchion_log::cure;

/// At most so many bytes of a file are read for the pid in it.
const BYTES_MAX: u64 = 32;

/// The file, removed when the master ends that wrote it, unless another master has written its own
/// pid there since.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: Option<PathBuf>,
    owner: i32,
}

impl PidFile {
    /// Writes our pid to `path`, if any. A file that names another process which is alive is an
    /// error, unless that is `predecessor`.
    pub(crate) fn create(path: Option<&Path>, predecessor: Option<i32>) -> Result<Self, String> {
        let owner = process::pid();
        let path = path.map(ToOwned::to_owned);
        if let Some(path) = &path {
            let shown = path.display();
            let earlier = pid_in(path).filter(|&pid| pid != owner && Some(pid) != predecessor);
            if let Some(pid) = earlier.filter(|&pid| process::is_alive(pid)) {
                return Err(format!(
                    "the pid file {shown} names process {pid}, which is alive: is this server running already? If not, remove the file"
                ));
            }
            write_whole(path, &format!("{owner}\n")).map_err(|error| {
                format!(
                    "cannot write the pid file {}",
                    cure::told_of_file(path, &error)
                )
            })?;
        }
        Ok(Self { path, owner })
    }

    /// Moves it: a master does so on its way out, and a new master that stays.
    pub(crate) fn rename(&mut self, to: &Path) {
        // By now the file may belong to a master after this one, which moves or removes it itself.
        if let Some(path) = &mut self.path
            && let Some(pinned) = pinned_path_of_pid(path, self.owner)
        {
            match PinnedPath::of(to).and_then(|to| pinned.rename_to(&to)) {
                Ok(()) => to.clone_into(path),
                Err(error) => warn!(
                    "the pid file {} cannot be renamed to {}: {error}",
                    path.display(),
                    to.display()
                ),
            }
        }
    }
}

/// A reader of the file finds all of it, or the file from before: as in gunicorn and Unicorn, it is written beside its place and renamed.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let pinned = PinnedPath::of(path)?;
    let name = with_suffix(path, &format!(".{}.new", process::pid()));
    let beside = pinned.beside(name.file_name().unwrap_or_default())?;
    // A file of the same pid may be left, such as of the first process of a container that was killed here.
    match beside.remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = beside.make_file(0o666)?;
    let done = file
        .write_all(text.as_bytes())
        .and_then(|()| beside.rename_to(&pinned));
    done.inspect_err(|_| {
        // The first error says more.
        let _ = beside.remove();
    })
}

/// `path` with `suffix` behind its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn pid_in(path: &Path) -> Option<i32> {
    pid_at(&PinnedPath::of(path).ok()?)
}

fn pid_at(pinned: &PinnedPath) -> Option<i32> {
    let mut text = String::new();
    let file = pinned.open_plain().ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Where the file is, if it names this process.
fn pinned_path_of_pid(path: &Path, pid: i32) -> Option<PinnedPath> {
    PinnedPath::of(path)
        .ok()
        .filter(|pinned| pid_at(pinned) == Some(pid))
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        // A child has a copy of this, and the file is not its to remove.
        if process::pid() == self.owner
            && let Some(pinned) = pinned_path_of_pid(path, self.owner)
            && let Err(error) = pinned.remove()
        {
            warn!("the pid file {} stays: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn whoever_reads_it_finds_all_of_it() {
        let path = std::env::temp_dir().join(format!("stanchion-whole-{}", process::pid()));
        fs::write(&path, "0\n").expect("written");
        let link = with_suffix(&path, ".link");
        fs::hard_link(&path, &link).expect("linked");
        let beside = with_suffix(&path, &format!(".{}.new", process::pid()));
        fs::write(&beside, "left by another").expect("written");
        let file = PidFile::create(Some(&path), None).expect("written");
        assert_eq!(pid_in(&path), Some(process::pid()));
        // A file that is written in place is empty for a moment.
        assert_eq!(
            pid_in(&link),
            Some(0),
            "the file was replaced, not written to"
        );
        drop(file);
        fs::remove_file(&link).expect("removed");
        // A directory is in the way, and nothing is left beside it.
        fs::create_dir(&path).expect("made");
        assert!(PidFile::create(Some(&path), None).is_err());
        assert!(!beside.exists());
        fs::remove_dir(&path).expect("removed");
    }

    #[test]
    fn another_masters_file_is_neither_moved_nor_removed() {
        let path = std::env::temp_dir().join(format!("stanchion-pidfile-{}", process::pid()));
        let (ours, moved) = (with_suffix(&path, ".2"), with_suffix(&path, ".moved"));
        let mut file = PidFile::create(Some(&ours), None).expect("written");
        // As by an heir of ours, while the master before us has not left yet.
        fs::write(&ours, "1\n").expect("written");
        file.rename(&moved);
        assert_eq!((pid_in(&ours), pid_in(&moved)), (Some(1), None));
        fs::write(&ours, format!("{}\n", process::pid())).expect("written");
        file.rename(&moved);
        assert_eq!(
            (pid_in(&ours), pid_in(&moved)),
            (None, Some(process::pid()))
        );
        drop(file);
        assert!(!moved.exists());
    }
}
