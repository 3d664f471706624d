//! Waiting longer after each failure in a row.

/// The wait after a first failure, in milliseconds.
const FIRST_MS: u64 = 100;
/// The longest wait, in milliseconds.
const LONGEST_MS: u64 = 30_000;

/// How often something has failed in a row, and when it may be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
    not_before_ms: u64,
}

impl Backoff {
    /// It has failed; each failure in a row doubles the wait.
    pub fn failed(&mut self, now_ms: u64) {
        self.failures += 1;
        let doubled = FIRST_MS.saturating_mul(1 << (self.failures - 1).min(20));
        self.not_before_ms = now_ms + doubled.min(LONGEST_MS);
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether it may be tried now.
    pub fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.not_before_ms
    }

    /// When it may be tried.
    pub fn not_before_ms(&self) -> u64 {
        self.not_before_ms
    }

    /// Milliseconds until then.
    pub fn wait_ms(&self, now_ms: u64) -> u64 {
        self.not_before_ms.saturating_sub(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_a_bound() {
        let mut backoff = Backoff::default();
        assert!(backoff.is_over(0));
        let waits: Vec<u64> = (0..12)
            .map(|_| {
                backoff.failed(1_000);
                backoff.wait_ms(1_000)
            })
            .collect();
        let doubling = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600];
        assert_eq!(waits[..9], doubling);
        assert_eq!(waits[9..], [30_000; 3]);
        assert!(!backoff.is_over(30_999));
        assert!(backoff.is_over(31_000));
    }
}
