//! How many cores this process may use.

use std::fmt;
use std::thread::available_parallelism;

use rustix::thread::sched_getaffinity;

use crate::control_group::cpu_limit;

/// The cores of this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Those on which the kernel may run it (`sched_setaffinity(2)`).
    pub affinity: u32,
    /// So many of them at a time as a mean, by its control groups; `None` if they do not limit that.
    pub quota: Option<f64>,
}

impl Cores {
    /// Asks the kernel. If there are more than the 1024 of a `cpu_set_t`, the standard library counts them.
    pub fn read() -> Self {
        let counted = || available_parallelism().map_or(1, |cores| cores.get() as u32);
        let affinity = sched_getaffinity(None).map_or_else(|_| counted(), |set| set.count());
        Self {
            affinity: affinity.max(1),
            quota: cpu_limit(),
        }
    }

    /// The lesser of both, rounded up, at least 1: half a core runs a worker too.
    pub fn count(self) -> u32 {
        let quota = self.quota.map_or(u32::MAX, |quota| quota.ceil() as u32);
        self.affinity.min(quota).max(1)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} by affinity", self.affinity)?;
        match self.quota {
            Some(quota) => write!(out, ", {quota:.1} by cpu.max"),
            None => write!(out, ", no cpu.max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_limit_counts_and_a_part_of_a_core_is_a_core() {
        for (affinity, quota, count, words) in [
            (8, None, 8, "8 by affinity, no cpu.max"),
            (8, Some(1.5), 2, "8 by affinity, 1.5 by cpu.max"),
            (2, Some(6.0), 2, "2 by affinity, 6.0 by cpu.max"),
            (8, Some(0.1), 1, "8 by affinity, 0.1 by cpu.max"),
            (8, Some(0.0), 1, "8 by affinity, 0.0 by cpu.max"),
        ] {
            let cores = Cores { affinity, quota };
            assert_eq!((cores.count(), cores.to_string().as_str()), (count, words));
        }
        assert!(Cores::read().affinity >= 1);
    }
}
