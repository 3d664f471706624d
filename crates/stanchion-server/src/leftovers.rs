//! Leftovers of the import of an app in the template that forked workers cannot have: threads, which a fork does not take along, and files that all
//! workers would use as one, the queues of event loops and connections.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use stanchion_sys::descriptors::{self, StreamSocket};

use crate::host::Host;
use crate::threads;

/// At most so many descriptors of a kind are named.
const NAMED_MAX: usize = 16;

/// Files that an event loop waits on, by the kernel's names for them (proc(5)): if one worker changes one, or takes something out of it, it does so
/// for all.
const OF_EVENT_LOOPS: [(&str, &str); 3] = [
    ("anon_inode:[eventpoll]", "epoll"),
    ("anon_inode:[eventfd]", "eventfd"),
    ("anon_inode:[io_uring]", "io_uring"),
];

/// The descriptors from before the import.
#[derive(Debug)]
pub(crate) struct OpenBefore(BTreeMap<RawFd, String>);

/// The leftovers, in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Threads, event loops, connections.
    pub(crate) not_for_workers: Vec<String>,
    /// Listening sockets, which processes may share.
    pub(crate) shared: Vec<String>,
    /// Open databases of `SQLite`: the connection to one does not bear a fork, if there is still one.
    pub(crate) databases: Vec<String>,
}

impl OpenBefore {
    pub(crate) fn now() -> io::Result<Self> {
        descriptors::open().map(Self)
    }

    /// This descriptor is ours, and no leftover.
    pub(crate) fn add(&mut self, ours: BorrowedFd<'_>) -> io::Result<()> {
        let ours = ours.as_raw_fd();
        self.0
            .extend(descriptors::open()?.remove(&ours).map(|file| (ours, file)));
        Ok(())
    }

    /// Looks again. Threads that are about to end are given a moment.
    pub(crate) fn leftovers(&self, host: &mut (impl Host + ?Sized)) -> io::Result<Leftovers> {
        let threads = threads::missed_after_a_fork(host)?;
        let mut new = descriptors::open()?;
        new.retain(|number, file| self.0.get(number) != Some(file));
        let streams = new.keys().filter_map(|&number| descriptors::stream(number));
        let mut left = Leftovers::of_descriptors(new.values(), streams);
        let databases = new
            .iter()
            .filter(|&(&number, _)| descriptors::is_sqlite(number));
        let databases = databases.map(|(_, path)| format!("the SQLite database {path}"));
        left.databases = counted(databases.collect()).collect();
        left.not_for_workers.splice(0..0, threads);
        Ok(left)
    }
}

impl Leftovers {
    fn of_descriptors<'a>(
        files: impl Iterator<Item = &'a String>,
        streams: impl Iterator<Item = StreamSocket>,
    ) -> Self {
        let (mut loops, mut to, mut at) = (Vec::new(), Vec::new(), Vec::new());
        for file in files {
            let known = OF_EVENT_LOOPS.iter().find(|(name, _)| name == file);
            loops.extend(known.map(|&(_, called)| called.to_owned()));
        }
        for stream in streams {
            match stream {
                StreamSocket::To(address) => to.push(format!("a connection to {address}")),
                StreamSocket::At(address) => at.push(format!("a socket that listens at {address}")),
            }
        }
        Self {
            not_for_workers: counted(loops).chain(counted(to)).collect(),
            shared: counted(at).collect(),
            databases: Vec::new(),
        }
    }
}

/// Equal ones together, such as `epoll (2)`, and the first ones of many.
fn counted(mut all: Vec<String>) -> impl Iterator<Item = String> {
    all.sort();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for one in all {
        match counts.last_mut() {
            Some((last, count)) if *last == one => *count += 1,
            _ => counts.push((one, 1)),
        }
    }
    let more = counts.len().saturating_sub(NAMED_MAX);
    let named = counts.into_iter().take(NAMED_MAX);
    let named = named.map(|(one, count)| match count {
        1 => one,
        _ => format!("{one} ({count})"),
    });
    named.chain((more > 0).then(|| format!("{more} more")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str], streams: &[StreamSocket]) -> Leftovers {
        let files: Vec<_> = files.iter().map(|&file| file.to_owned()).collect();
        Leftovers::of_descriptors(files.iter(), streams.iter().cloned())
    }

    #[test]
    fn event_loops_and_connections_are_not_for_workers_and_listening_sockets_are_shared() {
        let left = of(
            &[
                "anon_inode:[eventpoll]",
                "anon_inode:[eventfd]",
                "anon_inode:[eventpoll]",
                "anon_inode:[timerfd]",
                "/srv/app.db",
                "socket:[7]",
            ],
            &[
                StreamSocket::At("0.0.0.0:9090 (tcp)".to_owned()),
                StreamSocket::To("10.0.0.5:5432 (tcp)".to_owned()),
            ],
        );
        assert_eq!(
            left.not_for_workers,
            [
                "epoll (2)",
                "eventfd",
                "a connection to 10.0.0.5:5432 (tcp)"
            ]
        );
        assert_eq!(left.shared, ["a socket that listens at 0.0.0.0:9090 (tcp)"]);
    }

    #[test]
    fn files_are_nothing_to_tell() {
        assert_eq!(of(&["/dev/null", "pipe:[8]"], &[]), Leftovers::default());
    }

    #[test]
    fn of_many_some_are_named() {
        let streams: Vec<_> = (0..20)
            .map(|port| StreamSocket::To(format!("{port:02}")))
            .collect();
        let left = of(&[], &streams).not_for_workers;
        assert_eq!(left.len(), NAMED_MAX + 1);
        assert_eq!(left[NAMED_MAX], "4 more");
    }
}
