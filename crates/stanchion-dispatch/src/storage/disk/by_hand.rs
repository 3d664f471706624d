//! For tests and for the fuzzer: jobs that are done when the caller says so, and each time in the same order.

use std::io;

use super::{Crew, Disk};

impl Disk {
    /// A disk without threads: [`Self::work_off`] does the jobs that were begun.
    pub fn without_threads(jobs_max: usize) -> io::Result<Self> {
        let crew = Crew {
            name: "stanchion-none",
            threads_max: 0,
            overload: "more was begun than is worked off at a time",
        };
        Self::with_crew(crew, jobs_max)
    }

    /// The caller does what threads would do; false if there is nothing.
    pub fn work_off(&self) -> bool {
        let pool = &self.0.pool;
        let mut has_worked = false;
        loop {
            let next = pool.state().next();
            let Some((_, task)) = next else {
                return has_worked;
            };
            task();
            has_worked = true;
        }
    }
}
