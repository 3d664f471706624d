//! Times in which the master stood, and its workers with it: a freezer of control groups, or a pause of the machine. No request
//! is overdue for them.

/// The master looks ten times a second for requests that are overdue. A look that comes so long after the one before says that it
/// stood.
const PAUSE_US_MIN: u64 = 2_000_000;

/// The last time that the master stood.
#[derive(Debug, Default)]
pub struct Pause {
    looked_us: u64,
    until_us: u64,
    lasted_us: u64,
}

impl Pause {
    /// The master looks at this time of the kernel's, which is `now_us` for requests.
    pub fn look(&mut self, kernel_us: u64, now_us: u64) {
        let between_us = kernel_us.saturating_sub(self.looked_us);
        if self.looked_us > 0 && between_us >= PAUSE_US_MIN {
            self.until_us = now_us;
            self.lasted_us = between_us;
        }
        self.looked_us = kernel_us;
    }

    /// The time by which a request counts that a worker has begun then: one that stood too could not answer it.
    pub fn without(&self, started_us: u64, now_us: u64) -> u64 {
        if started_us < self.until_us {
            now_us.saturating_sub(self.lasted_us)
        } else {
            now_us
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_began_before_a_pause_has_as_much_time_as_without_it() {
        let mut pause = Pause::default();
        for now_us in [5_000_000, 5_100_000, 5_200_000, 65_200_000, 65_300_000] {
            pause.look(now_us, now_us);
        }
        assert_eq!(pause.without(5_150_000, 65_300_000), 5_300_000);
        assert_eq!(pause.without(65_250_000, 65_300_000), 65_300_000);
    }

    #[test]
    fn looks_that_are_late_by_little_are_no_pause() {
        let mut pause = Pause::default();
        for now_us in [5_000_000, 6_900_000, 8_800_000] {
            pause.look(now_us, now_us);
        }
        assert_eq!(pause.without(5_000_000, 8_800_000), 8_800_000);
    }
}
