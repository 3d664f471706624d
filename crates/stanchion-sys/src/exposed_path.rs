//! Paths that root follows, and that other users may be able to redirect.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// The most links in one path; the kernel follows no more either (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// The first place of a path from which users other than root may redirect it.
#[derive(Debug)]
pub(crate) struct Exposed {
    place: PathBuf,
    /// The names after it, backwards.
    rest: Vec<OsString>,
}

/// The first place on this absolute path where users other than root may redirect the path or change its target; `None`
/// if there is none. Each directory on the way, and each link, must either lie in a directory that only root can write
/// to, or belong to root in a sticky directory, where other users cannot rename it (`S_ISVTX` in inode(7)).
pub fn first_not_roots_alone(path: &Path) -> io::Result<Option<PathBuf>> {
    Ok(first_exposed(path)?.map(|exposed| exposed.place))
}

/// As [`first_not_roots_alone`], with the rest of the path from there. Only root can change the answer.
pub(crate) fn first_exposed(path: &Path) -> io::Result<Option<Exposed>> {
    let mut at = PathBuf::from("/");
    let mut rest = names_backwards(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let (here, next) = (at.metadata()?, at.join(&name));
        let is_sticky = here.uid() == 0 && here.mode() & libc::S_ISVTX != 0;
        let is_held = is_roots_alone(&here)
            || is_sticky && next.symlink_metadata().is_ok_and(|found| found.uid() == 0);
        if !is_held {
            rest.push(name);
            return Ok(Some(Exposed { place: at, rest }));
        }
        let found = next.symlink_metadata()?;
        if found.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = next.read_link()?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(names_backwards(&target));
        } else {
            at = next;
        }
    }
    let is_held = is_roots_alone(&at.metadata()?);
    Ok((!is_held).then_some(Exposed { place: at, rest }))
}

impl Exposed {
    /// Opens the directory at the end of the path, and follows no link that another user may have put there.
    pub(crate) fn open_without_links(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut directory = openat(CWD, &self.place, flags, Mode::empty())?;
        for name in self.rest.iter().rev() {
            // The error for a link is ENOTDIR (O_NOFOLLOW in open(2)).
            directory = openat(&directory, name, flags, Mode::empty()).map_err(|error| {
                let error = io::Error::from(error);
                let (name, place) = (name.display(), self.place.display());
                let problem = format!(
                    "{name}: {error}; users other than root may write to {place}, so root follows no link from there on \
                     but to a directory of the log's own user"
                );
                io::Error::new(error.kind(), problem)
            })?;
        }
        Ok(directory)
    }
}

fn names_backwards(path: &Path) -> Vec<OsString> {
    let is_name = |one: &Component<'_>| matches!(one, Component::Normal(_) | Component::ParentDir);
    let names = path.components().filter(is_name);
    let mut names: Vec<_> = names.map(|one| one.as_os_str().to_owned()).collect();
    names.reverse();
    names
}

/// Root's group may have members too, and with an access control list the bits of the group are those of all users on
/// the list (acl(5)).
fn is_roots_alone(found: &Metadata) -> bool {
    found.uid() == 0 && found.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_way_is_roots_alone_or_its_first_exposed_place_is_known() {
        if crate::identity::effective_uid() != 0 {
            return; // an ordinary user has no such places to make
        }
        let home = std::env::temp_dir().join(format!("stanchion-way-{}", crate::process::pid()));
        fs::create_dir(&home).expect("made");
        let at = |name: &str| home.join(name);
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        };
        let first = |name: &str| first_not_roots_alone(&at(name)).expect("asked");
        for name in ["sub", "open", "theirs"] {
            fs::create_dir(at(name)).expect("made");
            set(&at(name), 0o755);
        }
        set(&at("open"), 0o777);
        std::os::unix::fs::chown(at("theirs"), Some(65534), None).expect("given");
        symlink("../sub", at("open/way")).expect("linked");
        symlink("sub/../open/../sub", at("way")).expect("linked");
        symlink("loop", at("loop")).expect("linked");
        for (mode, expected) in [
            (0o755, None),
            (0o775, Some(home.clone())), // root's group has members, or there is an ACL
            (0o1777, None),
            (0o757, Some(home.clone())),
        ] {
            set(&home, mode);
            assert_eq!(first("sub"), expected, "{mode:o}");
        }
        set(&home, 0o1777);
        assert_eq!(first("theirs"), Some(home.clone()), "sticky, but theirs");
        set(&home, 0o755);
        assert_eq!(first("theirs"), Some(at("theirs")));
        assert_eq!(first("open"), Some(at("open")));
        assert_eq!(first("open/way"), Some(at("open")), "the link stands there");
        assert_eq!(first("way"), None);
        let without_links = |name: &str| {
            let exposed = first_exposed(&at(name)).expect("asked");
            exposed.expect("others").open_without_links()
        };
        fs::create_dir(at("open/real")).expect("made");
        assert!(without_links("open").is_ok() && without_links("open/real").is_ok());
        let refusal = without_links("open/way").expect_err("a link").to_string();
        assert!(refusal.starts_with("way: Not a directory"), "{refusal}");
        assert!(without_links("open/real/../way").is_err());
        assert!(first_not_roots_alone(&at("loop")).is_err());
        assert!(first_not_roots_alone(&at("nothing")).is_err());
        fs::remove_dir_all(&home).expect("removed");
    }
}
