//! For tests: a directory, a disk and a spool of a test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::DirBuilder;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};

use super::disk::Disk;
use super::spool::Spool;
use super::woken::Woken;

/// No test waits for longer.
const BOUND: Duration = Duration::from_secs(10);

/// The disk and the spool of a test, and a directory that must be empty in the end.
pub struct Scratch {
    /// The directory of the spool.
    pub directory: PathBuf,
    /// A disk with threads.
    pub disk: Disk,
    /// The spool.
    pub spool: Rc<Spool>,
    /// The notes that the disk's threads leave.
    pub woken: Rc<Woken>,
}

impl Scratch {
    /// A directory for this test, and a spool for so many bytes.
    pub fn new(test: &str, bytes_max: u64) -> Self {
        let name = format!("stanchion-test-{test}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        DirBuilder::new().create(&directory).unwrap();
        let woken = Rc::default();
        Self {
            disk: Disk::new(16).unwrap(),
            spool: Spool::new(&directory, bytes_max, &woken),
            directory,
            woken,
        }
    }

    /// How many files the directory has.
    pub fn files(&self) -> usize {
        std::fs::read_dir(&self.directory).unwrap().count()
    }

    /// Asks again whenever the disk has done something, until there is an answer.
    pub fn until<T>(&self, mut ask: impl FnMut() -> Option<T>) -> T {
        until(&self.disk, &self.woken, &mut ask)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.disk.finish(BOUND);
        // The removal fails if the directory is not empty.
        let removed = std::fs::remove_dir(&self.directory);
        assert!(std::thread::panicking() || removed.is_ok(), "{removed:?}");
    }
}

/// Asks again whenever the bell has rung, until there is an answer.
pub(crate) fn until<T>(disk: &Disk, woken: &Woken, ask: &mut dyn FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let mut bell = [PollFd::new(disk.bell(), PollFlags::IN)];
        let bound = rustix::time::Timespec::try_from(BOUND).unwrap();
        assert_eq!(
            poll(&mut bell, Some(&bound)),
            Ok(1),
            "the bell does not ring"
        );
        // The ring is read here, unlike in an event loop, to which the kernel reports each ring once anyway.
        let _rung = rustix::io::read(disk.bell(), &mut [0; 8]).unwrap();
        disk.done(woken);
    }
}

/// So many bytes, none of them like its neighbour.
pub fn bytes(len: usize) -> Bytes {
    (0..len).map(|n| (n % 251) as u8).collect()
}
