//! Counts that the master makes and the acceptors show: each of them can answer for the whole server.

use std::io;

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::counts::SharedCounts;

use crate::demand_seconds::DemandSeconds;
use crate::tally::counted;

counted! {
    /// Why a worker ended that was to stay.
    Cause {
        /// It had served `max_requests`.
        MaxRequests = "max_requests",
        /// It had lived for `max_lifetime`.
        MaxLifetime = "max_lifetime",
        /// It became the template, or was replaced by a fork of that.
        Refork = "refork",
        /// It took more than `max_memory`.
        MaxMemory = "max_memory",
        /// It took more than `max_memory_hard`, and was killed.
        MaxMemoryHard = "max_memory_hard",
        /// A request ran past its timeout, and the worker was killed.
        Timeout = "timeout",
        /// It wrote where it should not, and was killed.
        Corrupt = "corrupt",
        /// It had closed the descriptors that it was given.
        Descriptors = "descriptors",
        /// The kernel killed it, since there was no memory left.
        OutOfMemory = "out_of_memory",
        /// Another signal killed it that was not ours.
        Killed = "killed",
        /// It left by itself.
        Exited = "exited",
        /// It ended before it was ready.
        Boot = "boot",
    }
}

/// Attempts with the server as a whole, and how they ended.
#[derive(Clone, Copy, Debug)]
pub enum Attempt {
    /// A generation was replaced by another.
    Reloaded,
    /// A generation was to be replaced, and goes on.
    ReloadFailed,
    /// Another master has taken over.
    Upgraded,
    /// Another master was to take over, and this one goes on.
    UpgradeFailed,
}

const ATTEMPTS: usize = Cause::ALL.len();
const COUNTS: usize = ATTEMPTS + Attempt::UpgradeFailed as usize + 1;

/// Counts since the master started.
#[derive(Debug)]
pub struct Figures {
    counts: SharedCounts,
    /// What requests demanded in the last minute.
    pub demand: DemandSeconds,
    /// When the master started, on the monotonic clock.
    pub started_us: u64,
}

impl Figures {
    /// All 0, but for the demand that an old master may have handed over. Errors are the kernel's.
    pub fn create(demand: DemandSeconds) -> io::Result<Self> {
        Ok(Self {
            demand,
            counts: SharedCounts::create("stanchion-figures", COUNTS)?,
            started_us: monotonic_us(),
        })
    }

    /// Seconds since the master started, at this time of the monotonic clock.
    pub fn uptime_s(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.started_us) / 1_000_000
    }

    /// In the master: a worker has ended.
    pub fn restarted(&self, cause: Cause) {
        self.counts.add(cause as usize, 1);
    }

    /// How often a worker ended so.
    pub fn restarts(&self, cause: Cause) -> u64 {
        self.counts.get(cause as usize)
    }

    /// In the master: this has happened.
    pub fn attempted(&self, attempt: Attempt) {
        self.counts.add(ATTEMPTS + attempt as usize, 1);
    }

    /// How often it has.
    pub fn attempts(&self, attempt: Attempt) -> u64 {
        self.counts.get(ATTEMPTS + attempt as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_count_of_its_own() {
        let figures = Figures::create(DemandSeconds::create().unwrap()).unwrap();
        for (number, cause) in Cause::ALL.iter().enumerate() {
            (0..=number).for_each(|_| figures.restarted(*cause));
        }
        figures.attempted(Attempt::UpgradeFailed);
        for (number, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(figures.restarts(*cause), number as u64 + 1, "{cause:?}");
        }
        let others = [Attempt::Reloaded, Attempt::ReloadFailed, Attempt::Upgraded];
        assert_eq!(others.map(|one| figures.attempts(one)), [0; 3]);
        assert_eq!(figures.attempts(Attempt::UpgradeFailed), 1);
    }
}
