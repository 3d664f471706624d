//! How fast a head or a body comes.

use std::time::Duration;

use super::refusal::Refusal;

/// A body's first seconds do not count for its rate: a connection takes time to get going.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// A head that comes more slowly than this after its first second drips.
const DRIP_BYTES_PER_S: u64 = 100;
const DRIP_AFTER_US: u64 = 1_000_000;
/// The longest time between two looks at a head that drips.
const DOZE_US_MAX: u64 = 5_000_000;

/// How long to wait until a head is looked at again of which so many bytes have come in that time, if
/// it drips: half as long as it took so far at most, and its sender will hardly notice.
pub(super) fn doze_us(bytes: u64, took_us: u64) -> Option<u64> {
    let drips = took_us >= DRIP_AFTER_US && bytes * 1_000_000 < DRIP_BYTES_PER_S * took_us;
    drips.then(|| (took_us / 2).min(DOZE_US_MAX))
}

/// What a body's sender may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaceLimits {
    /// The longest pause.
    pub(super) pause: Option<Duration>,
    /// The least bytes a second, on average from the start; 0 = no such limit.
    pub(super) bytes_per_s: u64,
}

/// The progress of a body that is being read. Time in which we do not read does not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    began_us: u64,
    last_us: u64,
    bytes: u64,
    /// Since when we are not reading.
    held_since_us: Option<u64>,
}

impl Pace {
    /// The head is here, and the body is waited for.
    pub(super) fn begin(now_us: u64) -> Self {
        Self {
            began_us: now_us,
            last_us: now_us,
            bytes: 0,
            held_since_us: None,
        }
    }

    /// Bytes came, and until they are stored no more are read.
    pub(super) fn came(&mut self, bytes: usize, now_us: u64) {
        self.bytes += bytes as u64;
        self.last_us = now_us;
        self.held_since_us = Some(now_us);
    }

    /// They are stored.
    pub(super) fn go_on(&mut self, now_us: u64) {
        if let Some(held_since_us) = self.held_since_us.take() {
            let held_us = now_us.saturating_sub(held_since_us);
            self.began_us += held_us;
            self.last_us += held_us;
        }
    }

    /// What the sender is to be told, if it is too slow.
    pub(super) fn too_slow(&self, limits: PaceLimits, now_us: u64) -> Option<Refusal> {
        if self.held_since_us.is_some() {
            return None;
        }
        let since = |us: u64| Duration::from_micros(now_us.saturating_sub(us));
        if limits
            .pause
            .is_some_and(|pause| since(self.last_us) >= pause)
        {
            return Some(Refusal::BodyTimeout);
        }
        let took = since(self.began_us);
        let least = u128::from(limits.bytes_per_s) * took.as_micros();
        (took > GRACE && u128::from(self.bytes) * 1_000_000 < least).then_some(Refusal::BodyTooSlow)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000;
    const LIMITS: PaceLimits = PaceLimits {
        pause: Some(Duration::from_secs(60)),
        bytes_per_s: 240,
    };

    /// A body of which `bytes` come each second, for so many seconds.
    fn steady(bytes: usize, seconds: u64) -> Pace {
        let mut pace = Pace::begin(0);
        for second in 1..=seconds {
            pace.came(bytes, second * S);
            pace.go_on(second * S);
        }
        pace
    }

    #[test]
    fn a_body_may_be_slow_but_not_too_slow() {
        for (bytes, seconds, expected) in [
            (1, 5, None),
            (1, 6, Some(Refusal::BodyTooSlow)),
            (239, 6, Some(Refusal::BodyTooSlow)),
            (240, 6, None),
            (240, 3600, None),
        ] {
            let pace = steady(bytes, seconds);
            assert_eq!(
                pace.too_slow(LIMITS, seconds * S),
                expected,
                "{bytes} {seconds}"
            );
        }
    }

    #[test]
    fn a_head_that_drips_is_looked_at_less_often() {
        for (bytes, took_us, expected) in [
            (1, S - 1, None),
            (1, S, Some(S / 2)),
            (99, S, Some(S / 2)),
            (100, S, None),
            (8, 8 * S, Some(4 * S)),
            (20, 20 * S, Some(5 * S)),
            (1_999, 20 * S, Some(5 * S)),
            (2_000, 20 * S, None),
        ] {
            assert_eq!(doze_us(bytes, took_us), expected, "{bytes} {took_us}");
        }
    }

    #[test]
    fn a_pause_is_measured_from_the_last_byte() {
        let pace = steady(1_000_000, 10);
        assert_eq!(pace.too_slow(LIMITS, 69 * S), None);
        assert_eq!(pace.too_slow(LIMITS, 70 * S), Some(Refusal::BodyTimeout));
    }

    #[test]
    fn limits_can_be_switched_off() {
        let off = PaceLimits {
            pause: None,
            bytes_per_s: 0,
        };
        assert_eq!(Pace::begin(0).too_slow(off, 1_000_000 * S), None);
    }

    proptest! {
        /// However long each piece took to be stored, it is as if it had taken no time.
        #[test]
        fn time_in_which_we_do_not_read_does_not_count(
            pieces in proptest::collection::vec((0..500_usize, 0..3_000_000_u64, 0..3_000_000_u64), 0..50),
            rest_us in 0..70_000_000_u64,
        ) {
            let (mut held, mut free) = (Pace::begin(0), Pace::begin(0));
            let (mut held_us, mut free_us) = (0, 0);
            for (bytes, wait_us, store_us) in pieces {
                held_us += wait_us;
                free_us += wait_us;
                held.came(bytes, held_us);
                free.came(bytes, free_us);
                prop_assert_eq!(held.too_slow(LIMITS, held_us + store_us), None);
                held_us += store_us;
                held.go_on(held_us);
                free.go_on(free_us);
            }
            let expected = free.too_slow(LIMITS, free_us + rest_us);
            prop_assert_eq!(held.too_slow(LIMITS, held_us + rest_us), expected);
        }
    }
}
