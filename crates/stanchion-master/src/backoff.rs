//! Waiting longer after each failure in a row.

/// The wait after a first failure, in milliseconds.
const FIRST_MS: u64 = 100;
/// The longest wait, in milliseconds.
const LONGEST_MS: u64 = 30_000;

/// How often something has failed in a row, and when it may be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    not_before_ms: u64,
}

impl Backoff {
    /// It has failed; each failure in a row doubles the wait. Failures during one wait are one failure: they were tried together, and a database that
    /// is down fails them all.
    pub(crate) fn failed(&mut self, now_ms: u64) {
        if !self.is_over(now_ms) {
            return;
        }
        self.failures += 1;
        let doubled_ms = FIRST_MS << (self.failures - 1).min(20);
        self.not_before_ms = now_ms + doubled_ms.min(LONGEST_MS);
    }

    /// Failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether it may be tried now.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.not_before_ms
    }

    /// When it may be tried.
    pub(crate) fn not_before_ms(&self) -> u64 {
        self.not_before_ms
    }

    /// Milliseconds until then.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> u64 {
        self.not_before_ms.saturating_sub(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let mut now_ms = 0;
        let waits: Vec<u64> = (0..12)
            .map(|_| {
                assert!(backoff.is_over(now_ms));
                backoff.failed(now_ms);
                assert!(!backoff.is_over(backoff.not_before_ms() - 1));
                let wait_ms = backoff.wait_ms(now_ms);
                now_ms += wait_ms;
                wait_ms
            })
            .collect();
        let doubling = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600];
        assert_eq!(waits[..9], doubling);
        assert_eq!(waits[9..], [30_000; 3]);
    }

    #[test]
    fn what_fails_during_one_wait_is_one_failure() {
        let mut backoff = Backoff::default();
        for now_ms in [1_000, 1_000, 1_099] {
            backoff.failed(now_ms);
        }
        assert_eq!((backoff.failures(), backoff.not_before_ms()), (1, 1_100));
        backoff.failed(1_100);
        assert_eq!((backoff.failures(), backoff.not_before_ms()), (2, 1_300));
    }
}
