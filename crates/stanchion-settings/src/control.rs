//! Where the master takes commands.

use std::path::{Path, PathBuf};

use super::BindAddress;

/// `unix:/path`, the only kind of address at which commands are taken: the mode of the file decides which users may give them, and neither a port nor
/// an abstract name has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlAddress(PathBuf);

impl ControlAddress {
    /// Reads it. The error says what is wrong, without naming the setting.
    pub fn parse(text: &str) -> Result<Self, String> {
        match BindAddress::parse(text)? {
            BindAddress::Unix(path) => Ok(Self(path)),
            _ => Err("expected unix:/PATH".into()),
        }
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl std::fmt::Display for ControlAddress {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        BindAddress::Unix(self.0.clone()).fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_will_do() {
        let control = ControlAddress::parse("unix:/run/s.ctl").unwrap();
        assert_eq!(control.path(), Path::new("/run/s.ctl"));
        assert_eq!(control.to_string(), "unix:/run/s.ctl");
        for text in ["127.0.0.1:1", "unix:@name", "unix:", "fd://3", "/run/s.ctl"] {
            assert!(ControlAddress::parse(text).is_err(), "{text}");
        }
    }
}
