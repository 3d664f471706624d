//! The keys of session tickets. They are in a file of the kernel's memory that the master has open and never reads, as
//! template and workers are forks of it. Acceptors read it, and put a new key into it when it is time: so keys outlive
//! acceptors and generations, and go over to the master of an upgrade.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use stanchion_sys::clock::wall_s;
use stanchion_sys::memory::KeptFile;
use stanchion_tls::{TICKET_KEY_BYTES, TICKET_KEYS_MAX, TicketKey};

/// How long tickets are issued by a key. After that they are taken for twice as long, which is as long as clients keep them.
const ROTATION_S: u64 = 12 * 3600;
/// How long a client may resume a session without another handshake (RFC 8446 section 4.6.1 allows for a week).
pub const TICKET_LIFETIME_S: u32 = 24 * 3600;

const STAMP_BYTES: usize = size_of::<u64>();
const RECORD_BYTES: usize = STAMP_BYTES + TICKET_KEY_BYTES;
const FILE_BYTES: usize = TICKET_KEYS_MAX * RECORD_BYTES;

/// The file, until the acceptor takes it, or a process that is not the acceptor drops it.
#[derive(Debug)]
pub struct TicketKeys(Mutex<Option<KeptFile>>);

/// The file in the acceptor.
pub struct TicketKeyFile(KeptFile);

/// A key, and since when it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dated {
    /// By the clock on the wall, in seconds since 1970.
    since_s: u64,
    key: TicketKey,
}

impl TicketKeys {
    /// Without any key.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create() -> io::Result<Self> {
        KeptFile::create("stanchion-tickets").map(Self::of)
    }

    /// The keys of the master before us.
    ///
    /// # Errors
    /// The descriptor is none.
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        KeptFile::inherit(fd).map(Self::of)
    }

    fn of(file: KeptFile) -> Self {
        Self(Mutex::new(Some(file)))
    }

    /// Another descriptor of the same, for the master after us.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone_fd(&self) -> io::Result<Option<OwnedFd>> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map(KeptFile::try_clone_fd).transpose()
    }

    /// For the acceptor; and for a process that is to have none of it, to drop it.
    pub fn take(&self) -> Option<TicketKeyFile> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.take().map(TicketKeyFile)
    }
}

impl TicketKeyFile {
    /// The keys, the newest first. If that is too old there is a newer one, unless another acceptor makes one just now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keys(&self) -> io::Result<Vec<TicketKey>> {
        let mut keys = self.read()?;
        if is_due(&keys, wall_s()) && self.0.try_lock()? {
            let renewed = self.renew();
            self.0.unlock()?;
            keys = renewed?;
        }
        Ok(keys.iter().map(|dated| dated.key).collect())
    }

    fn renew(&self) -> io::Result<Vec<Dated>> {
        let (mut keys, now_s) = (self.read()?, wall_s());
        if is_due(&keys, now_s) {
            let mut key = [0; TICKET_KEY_BYTES];
            stanchion_sys::random::fill(&mut key)?;
            let since_s = now_s;
            keys.insert(0, Dated { since_s, key });
            keys.truncate(TICKET_KEYS_MAX);
            self.0.write(&written(&keys))?;
        }
        Ok(keys)
    }

    fn read(&self) -> io::Result<Vec<Dated>> {
        self.0.read(FILE_BYTES).map(|bytes| read(&bytes))
    }
}

/// Whether it is time for another key: there is none, or the newest is old, or the clock was set back since it was made.
fn is_due(keys: &[Dated], now_s: u64) -> bool {
    keys.first()
        .is_none_or(|newest| !(newest.since_s..newest.since_s + ROTATION_S).contains(&now_s))
}

fn read(bytes: &[u8]) -> Vec<Dated> {
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let records = records.iter().filter_map(|record| {
        let (since_s, rest) = record.split_first_chunk::<STAMP_BYTES>()?;
        let (key, _) = rest.split_first_chunk()?;
        Some(Dated {
            since_s: u64::from_le_bytes(*since_s),
            key: *key,
        })
    });
    records.collect()
}

fn written(keys: &[Dated]) -> Vec<u8> {
    let records = keys
        .iter()
        .map(|dated| [&dated.since_s.to_le_bytes()[..], &dated.key].concat());
    records.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_due_when_there_is_none_or_it_is_half_a_day_old_or_from_the_future() {
        let key = [7; TICKET_KEY_BYTES];
        let since_s = 1_000_000;
        let keys = [Dated { since_s, key }];
        assert!(is_due(&[], since_s));
        for (now_s, expected) in [
            (since_s - 1, true),
            (since_s, false),
            (since_s + ROTATION_S - 1, false),
            (since_s + ROTATION_S, true),
        ] {
            assert_eq!(is_due(&keys, now_s), expected, "{now_s}");
        }
    }

    #[test]
    fn all_that_have_the_file_have_the_same_keys_and_old_ones_are_kept_as_long_as_tickets() {
        let master = TicketKeys::create().unwrap();
        let heir = master.try_clone_fd().unwrap().unwrap();
        let heir = TicketKeyFile(KeptFile::from(heir));
        let acceptor = master.take().unwrap();
        assert!(master.take().is_none());
        let first = acceptor.keys().unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(heir.keys().unwrap(), first);
        let mut before = first;
        for _ in 0..TICKET_KEYS_MAX {
            let aged: Vec<_> = acceptor.read().unwrap();
            let aged: Vec<_> = aged
                .into_iter()
                .map(|one| Dated {
                    since_s: one.since_s - ROTATION_S,
                    ..one
                })
                .collect();
            acceptor.0.write(&written(&aged)).unwrap();
            let after = heir.keys().unwrap();
            assert_eq!(after[1..], before[..before.len().min(TICKET_KEYS_MAX - 1)]);
            assert!(!before.contains(&after[0]));
            before = after;
        }
        let kept_s = (TICKET_KEYS_MAX as u64 - 1) * ROTATION_S;
        assert!(kept_s >= u64::from(TICKET_LIFETIME_S));
    }
}
