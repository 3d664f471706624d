//! A listener on its way from one master to the next: what the kernel does not know of it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};
use stanchion_sys::listener::{Listener, Provenance, SocketOrigin};
use stanchion_sys::pinned_path::FileId;

/// A listener as a descriptor and words. Keys may be missing: then it is taken for one that a
/// master has made, with the file that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InheritedListener {
    /// The descriptor, open over execve(2).
    pub(crate) fd: RawFd,
    /// How `bind` spelled the address.
    #[serde(default)]
    asked: Option<String>,
    /// The maker of the socket.
    #[serde(default)]
    maker: Maker,
    /// Device and inode of its file.
    #[serde(default)]
    file: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Maker {
    #[default]
    Master,
    Starter,
    ServiceManager,
}

impl InheritedListener {
    /// Describes a listener that goes over as `fd`, a descriptor of the same socket.
    pub(crate) fn of(listener: &Listener, fd: &OwnedFd) -> Self {
        let provenance = listener.provenance();
        Self {
            fd: fd.as_raw_fd(),
            asked: Some(provenance.asked.clone()),
            maker: match provenance.origin {
                SocketOrigin::Bound => Maker::Master,
                SocketOrigin::Passed => Maker::Starter,
                SocketOrigin::Activated => Maker::ServiceManager,
            },
            file: provenance.file.map(|file| (file.device, file.inode)),
        }
    }

    /// Takes the listener over.
    pub(crate) fn take_over(&self) -> io::Result<Listener> {
        let listener = Listener::inherit(self.fd)?;
        let found = listener.provenance().clone();
        let origin = match self.maker {
            Maker::Master => SocketOrigin::Bound,
            Maker::Starter => SocketOrigin::Passed,
            Maker::ServiceManager => SocketOrigin::Activated,
        };
        let told = self.file.map(|(device, inode)| FileId { device, inode });
        let file = if origin == SocketOrigin::Bound {
            told.or(found.file)
        } else {
            None
        };
        Ok(listener.with_provenance(Provenance {
            origin,
            asked: self.asked.clone().unwrap_or(found.asked),
            file,
        }))
    }
}

#[cfg(test)]
mod tests {
    use stanchion_sys::listener::SocketOptions;

    use super::*;

    #[test]
    fn what_goes_over_arrives() {
        let path = std::env::temp_dir().join(format!(
            "stanchion-inherited_listener-{}",
            std::process::id()
        ));
        let listener = Listener::unix(&path, &SocketOptions::with_backlog(16))
            .expect("bound")
            .asked_as("unix:here".into());
        let fd = listener.try_clone_fd().expect("cloned");
        let inherited_listener = InheritedListener::of(&listener, &fd);
        let text = serde_json::to_string(&inherited_listener).expect("written");
        let read: InheritedListener = serde_json::from_str(&text).expect("read");
        assert_eq!(read, inherited_listener);
        // As over an execve(2), after which no value here owns it.
        let _gone = std::os::fd::IntoRawFd::into_raw_fd(fd);
        let arrived = read.take_over().expect("it listens");
        assert_eq!(arrived.provenance(), listener.provenance());
        assert_eq!(arrived.address(), listener.address());
        arrived.remove_file().expect("it is ours");
        assert!(!path.exists());
    }

    #[test]
    fn missing_words_are_guessed() {
        let read: InheritedListener = serde_json::from_str(r#"{"fd": 5}"#).expect("read");
        assert_eq!(
            (read.asked, read.maker, read.file),
            (None, Maker::Master, None)
        );
    }
}
