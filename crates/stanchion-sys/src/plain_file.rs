//! Files that root opens where others may have put something else in their place.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// The kernel follows no more either (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// Whether only root can make and replace files in a directory.
pub fn is_directory_roots_alone(directory: &Path) -> io::Result<bool> {
    Ok(is_roots_alone(&std::fs::metadata(directory)?))
}

/// What others than root may change of where this absolute path leads, or of what is there: the first such place, or
/// `None`. Each directory on the way, links included, must stand in one that is root's alone, or be root's in one that
/// is sticky, where others cannot rename it (`S_ISVTX` in inode(7)).
pub fn first_not_roots_alone(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut at = PathBuf::from("/");
    let mut rest = names_backwards(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let (here, next) = (at.metadata()?, at.join(&name));
        let found = next.symlink_metadata()?;
        let is_sticky = here.uid() == 0 && here.mode() & libc::S_ISVTX != 0;
        let is_held = is_roots_alone(&here) || is_sticky && found.uid() == 0;
        if !is_held {
            return Ok(Some(at));
        }
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
    Ok((!is_roots_alone(&at.metadata()?)).then_some(at))
}

fn names_backwards(path: &Path) -> Vec<OsString> {
    let is_name = |one: &Component<'_>| matches!(one, Component::Normal(_) | Component::ParentDir);
    let names = path.components().filter(is_name);
    let mut names: Vec<_> = names.map(|one| one.as_os_str().to_owned()).collect();
    names.reverse();
    names
}

fn is_roots_alone(found: &Metadata) -> bool {
    let others = if found.gid() == 0 { 0o002 } else { 0o022 };
    found.uid() == 0 && found.mode() & others == 0
}

/// Opens a file that is there, in a directory that is not root's alone: whoever may write there may
/// have put a link in its place, to have root write to what it leads to, or a pipe, at whose opening
/// one waits for a reader (fifo(7)).
pub fn append_to(path: &Path) -> io::Result<File> {
    let refused = |what| {
        let problem = format!("it is {what}, in a directory that others than root may write to");
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    };
    let opened = File::options()
        .append(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(refused("a link")),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(refused("no plain file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_plain_file_is_appended_to_and_all_else_refused() {
        let home = std::env::temp_dir().join(format!("stanchion-plain-{}", crate::process::pid()));
        fs::create_dir(&home).expect("made");
        let at = |name: &str| home.join(name);
        fs::write(at("plain"), "one\n").expect("written");
        let mut plain = append_to(&at("plain")).expect("opened");
        plain.write_all(b"two\n").expect("written");
        assert_eq!(fs::read_to_string(at("plain")).expect("read"), "one\ntwo\n");
        symlink(at("plain"), at("link")).expect("linked");
        symlink(at("nothing"), at("dangling")).expect("linked");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR)
            .expect("a pipe that nobody reads");
        symlink("/dev/null", at("device")).expect("linked");
        for name in ["link", "dangling", "pipe", "device"] {
            assert!(append_to(&at(name)).is_err(), "{name}");
        }
        assert!(append_to(Path::new("/dev/null")).is_err(), "no plain file");
        assert!(!at("nothing").exists());
        for mode in [0o757, 0o1777] {
            fs::set_permissions(&home, fs::Permissions::from_mode(mode)).expect("set");
            assert!(!is_directory_roots_alone(&home).expect("asked"), "{mode:o}");
        }
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("set");
        let is_roots = crate::identity::effective_uid() == 0;
        assert_eq!(is_directory_roots_alone(&home).expect("asked"), is_roots);
        fs::remove_dir_all(&home).expect("removed");
    }

    #[test]
    fn a_way_is_roots_alone_or_tells_where_it_is_not() {
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
            (0o775, None), // root's own group
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
        assert!(first_not_roots_alone(&at("loop")).is_err());
        assert!(first_not_roots_alone(&at("nothing")).is_err());
        fs::remove_dir_all(&home).expect("removed");
    }
}
