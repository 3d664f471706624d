//! Files that root opens where others may have put something else in their place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Whether only root can make and replace files in a directory.
pub fn is_directory_roots_alone(directory: &Path) -> io::Result<bool> {
    let found = std::fs::metadata(directory)?;
    let others = if found.gid() == 0 { 0o002 } else { 0o022 };
    Ok(found.uid() == 0 && found.mode() & others == 0)
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
}
