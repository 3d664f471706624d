//! What the last minute demanded, second by second, in memory that outlives acceptors, generations and, at an upgrade, masters: the seats
//! that are wanted do not jump because the server was replaced.
//!
//! Each acceptor adds what it has counted to the present second, so two acceptors of one server make one sum. If both begin a second in the same
//! moment, the counts of one of them up to then can get lost: a quarter of a second of an estimate.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, PoisonError};

use stanchion_line::{Demand, DemandSecond};
use stanchion_sys::counts::SharedCounts;
use stanchion_sys::memory::SharedMemory;

/// A few more seconds than are looked at: an acceptor begins a second while another one reads.
const SLOTS: usize = Demand::SECONDS + 4;
/// Each second has its number before its counts. A slot that was never used has the number 0, which the monotonic clock has only at boot.
const SLOT_WORDS: usize = 1 + DemandSecond::COUNTS;
/// The last word: the mean service time that was last known, in microseconds.
const SERVICE: usize = SLOTS * SLOT_WORDS;
const WORDS: usize = SERVICE + 1;

/// The seconds.
#[derive(Debug)]
pub struct DemandSeconds {
    words: SharedCounts,
    /// For the master after this one; only a master has it.
    file: Mutex<Option<OwnedFd>>,
}

impl DemandSeconds {
    /// Empty.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create() -> io::Result<Self> {
        let file = SharedMemory::file("stanchion-demand", SharedCounts::bytes(WORDS))?;
        Self::of(file)
    }

    /// Those of the master before us.
    ///
    /// # Errors
    /// The descriptor is none of such a file, or the kernel's.
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        Self::of(SharedMemory::inherit(fd, SharedCounts::bytes(WORDS))?)
    }

    fn of(file: OwnedFd) -> io::Result<Self> {
        let words = SharedCounts::of_file(&file, WORDS)?;
        let file = Mutex::new(Some(file));
        Ok(Self { words, file })
    }

    /// Another descriptor of the same, for the master after us.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone_fd(&self) -> io::Result<Option<OwnedFd>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// In a child of the master, which hands nothing over.
    pub fn drop_file(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        drop(file.take());
    }

    /// In an acceptor: this was counted, by this time.
    pub fn add(&self, now_us: u64, more: DemandSecond) {
        let now = second_of(now_us);
        let start = slot_of(now);
        let words = &self.words.atomics()[start..start + SLOT_WORDS];
        let before = words[0].load(Relaxed);
        if before != now
            && words[0]
                .compare_exchange(before, now, Release, Relaxed)
                .is_ok()
        {
            words[1..].iter().for_each(|word| word.store(0, Relaxed));
        }
        for (word, more) in words[1..].iter().zip(more.counts()) {
            if more > 0 {
                word.fetch_add(more, Relaxed);
            }
        }
    }

    /// The last seconds that are over, the oldest first.
    pub fn read(&self, now_us: u64) -> Vec<DemandSecond> {
        let now = second_of(now_us);
        let seconds = (now.saturating_sub(Demand::SECONDS as u64)..now).map(|second| {
            let start = slot_of(second);
            let words = &self.words.atomics()[start..start + SLOT_WORDS];
            if words[0].load(Relaxed) != second {
                return DemandSecond::default();
            }
            let mut counts = [0; DemandSecond::COUNTS];
            for (count, word) in counts.iter_mut().zip(&words[1..]) {
                *count = word.load(Relaxed);
            }
            counts.into()
        });
        seconds.collect()
    }

    /// In an acceptor: the mean service time is this.
    pub fn keep_service_us(&self, service_us: f64) {
        self.words.atomics()[SERVICE].store(service_us as u64, Relaxed);
    }

    /// The mean service time that was last known; 0 if none was.
    pub fn service_us(&self) -> f64 {
        self.words.get(SERVICE) as f64
    }
}

fn second_of(now_us: u64) -> u64 {
    now_us / 1_000_000
}

fn slot_of(second: u64) -> usize {
    (second % SLOTS as u64) as usize * SLOT_WORDS
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::IntoRawFd;

    use super::*;

    const S: u64 = 1_000_000;

    fn arrived(count: u64) -> DemandSecond {
        DemandSecond {
            arrived: count,
            ..DemandSecond::default()
        }
    }

    fn shown(seconds: &DemandSeconds, now_us: u64) -> Vec<u64> {
        let all = seconds.read(now_us);
        let all: Vec<_> = all.iter().map(|one| one.arrived).collect();
        assert_eq!(all.len(), Demand::SECONDS);
        all[Demand::SECONDS - 3..].to_vec()
    }

    #[test]
    fn a_second_is_read_once_it_is_over_and_forgotten_after_a_minute() {
        let seconds = DemandSeconds::create().unwrap();
        seconds.add(100 * S, arrived(1));
        seconds.add(100 * S + 999_999, arrived(2));
        assert_eq!(shown(&seconds, 100 * S + 999_999), [0, 0, 0]);
        seconds.add(102 * S, arrived(4));
        assert_eq!(shown(&seconds, 103 * S), [3, 0, 4]);
        assert_eq!(seconds.read(160 * S)[0].arrived, 3);
        let later = 100 + SLOTS as u64;
        seconds.add(later * S, arrived(8));
        assert_eq!(shown(&seconds, (later + 1) * S), [0, 0, 8]);
        let is_empty = |one: &DemandSecond| *one == DemandSecond::default();
        assert!(seconds.read(later * S).iter().all(is_empty));
    }

    #[test]
    fn another_master_goes_on_with_the_same_seconds() {
        let ours = DemandSeconds::create().unwrap();
        ours.add(100 * S, arrived(1));
        ours.keep_service_us(50_000.0);
        let fd = ours.try_clone_fd().unwrap().unwrap().into_raw_fd();
        let theirs = DemandSeconds::inherit(fd).unwrap();
        theirs.add(100 * S, arrived(2));
        ours.add(100 * S, arrived(4));
        assert_eq!(shown(&theirs, 101 * S), [0, 0, 7]);
        assert!((theirs.service_us() - 50_000.0).abs() < 1.0);
    }

    #[test]
    fn a_file_of_another_layout_is_none_and_no_app_changes_the_size_of_ours() {
        for words in [1, WORDS - 1, WORDS + 1] {
            let other = SharedMemory::file("other", SharedCounts::bytes(words));
            DemandSeconds::inherit(other.unwrap().into_raw_fd()).unwrap_err();
        }
        let ours = DemandSeconds::create().unwrap();
        let file = File::from(ours.try_clone_fd().unwrap().unwrap());
        file.set_len(0).unwrap_err();
        ours.drop_file();
        assert!(ours.try_clone_fd().unwrap().is_none());
    }
}
