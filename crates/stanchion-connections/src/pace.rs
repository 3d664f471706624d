//! How fast a head or a body comes.

use std::time::Duration;

use stanchion_settings::Settings;

/// How long a connection may take to get going, and how long the server waits for a client at least, whatever the rate.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long early bytes make up for late ones, where there is no limit on pauses.
const WINDOW: Duration = Duration::from_secs(60);

/// A head that comes more slowly than this after its first second drips.
const DRIP_BYTES_PER_S: u64 = 100;
const DRIP_AFTER_US: u64 = 1_000_000;
/// The longest time between two looks at a head that drips.
const DOZE_US_MAX: u64 = 5_000_000;

/// How long to wait until the next look at a head of which `bytes` have come in `took_us`; `None` if it does not drip. The wait is
/// at most half as long as the head took so far, which its sender will hardly notice.
pub(super) fn doze_us(bytes: u64, took_us: u64) -> Option<u64> {
    let drips = took_us >= DRIP_AFTER_US && bytes * 1_000_000 < DRIP_BYTES_PER_S * took_us;
    drips.then(|| (took_us / 2).min(DOZE_US_MAX))
}

/// How slow a client may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaceLimits {
    /// The longest pause.
    pub(super) pause: Option<Duration>,
    /// The least bytes a second; 0 = no such limit.
    pub(super) bytes_per_s: u64,
}

impl PaceLimits {
    /// How much time a client may have in hand: as long as a pause may be, so that no pause is too long for the rate alone.
    fn window_us(self) -> u64 {
        micros(self.pause.unwrap_or(WINDOW).max(GRACE))
    }

    /// How long these bytes last at the least rate.
    fn worth_us(self, bytes: u64) -> u64 {
        let us = u128::from(bytes) * 1_000_000 / u128::from(self.bytes_per_s.max(1));
        u64::try_from(us).unwrap_or(u64::MAX)
    }
}

/// The limit that a client breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slowness {
    /// No byte came for too long.
    Pause,
    /// Too few bytes came.
    Rate,
}

/// The progress of bytes that a client is to send, or to take. Time in which the server does not wait for the client does
/// not count.
///
/// Each byte buys as much time as it takes at the least rate, and time passes; a client that has none in hand any more is
/// too slow. The time in hand is bounded, so that no client lives for ever on a good start. In other words a leaky bucket,
/// by the virtual scheduling of ITU-T I.371.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    limits: PaceLimits,
    began_us: u64,
    /// When the time in hand is over.
    until_us: u64,
    last_us: u64,
    /// Since when the server does not wait for the client, if it does not.
    held_since_us: Option<u64>,
}

impl Pace {
    /// Begins to wait for bytes.
    pub(super) fn begin(limits: PaceLimits, now_us: u64) -> Self {
        Self {
            limits,
            began_us: now_us,
            until_us: now_us + micros(GRACE),
            last_us: now_us,
            held_since_us: None,
        }
    }

    /// Begins with all the time in hand that a client may have.
    pub(super) fn begin_ahead(limits: PaceLimits, now_us: u64) -> Self {
        Self {
            until_us: now_us.saturating_add(limits.window_us()),
            ..Self::begin(limits, now_us)
        }
    }

    /// Notes that bytes came, or were taken, and stops waiting for now.
    pub(super) fn came(&mut self, bytes: usize, now_us: u64) {
        let earned_us = self
            .until_us
            .saturating_add(self.limits.worth_us(bytes as u64));
        self.until_us = earned_us.min(now_us.saturating_add(self.limits.window_us()));
        self.last_us = now_us;
        self.hold(now_us);
    }

    /// Stops waiting for the client.
    pub(super) fn hold(&mut self, now_us: u64) {
        self.held_since_us.get_or_insert(now_us);
    }

    pub(super) fn is_held(&self) -> bool {
        self.held_since_us.is_some()
    }

    /// Waits for the client again.
    pub(super) fn go_on(&mut self, now_us: u64) {
        if let Some(held_since_us) = self.held_since_us.take() {
            let held_us = now_us.saturating_sub(held_since_us);
            self.until_us += held_us;
            self.last_us += held_us;
        }
    }

    /// The limit that the client breaks now, if it breaks one.
    pub(super) fn too_slow(&self, now_us: u64) -> Option<Slowness> {
        if self.held_since_us.is_some() {
            return None;
        }
        let paused_us = now_us.saturating_sub(self.last_us);
        let limits = self.limits;
        if limits.pause.is_some_and(|pause| paused_us >= micros(pause)) {
            return Some(Slowness::Pause);
        }
        (limits.bytes_per_s > 0 && now_us > self.until_us).then_some(Slowness::Rate)
    }

    /// Before this time the client is not too slow, if nothing changes.
    pub(super) fn due_us(&self) -> u64 {
        let pause_us = self.limits.pause.map_or(u64::MAX, micros);
        let rate_us = match self.limits.bytes_per_s {
            0 => u64::MAX,
            _ => self.until_us.saturating_add(1),
        };
        self.last_us.saturating_add(pause_us).min(rate_us)
    }

    /// The same if the server waits for the client; else there is no such time.
    pub(super) fn waits_until_us(&self) -> u64 {
        if self.is_held() {
            u64::MAX
        } else {
            self.due_us()
        }
    }

    /// Whether the client keeps to about the least rate, or less: a client that does better soon has all the time in hand
    /// that it may have.
    pub(super) fn drips(&self, now_us: u64) -> bool {
        let in_hand_us = self.until_us.saturating_sub(now_us);
        !self.is_held()
            && self.limits.bytes_per_s > 0
            && now_us >= self.began_us.saturating_add(micros(GRACE))
            && in_hand_us < self.limits.window_us() / 2
    }
}

/// The moment so long after another one.
pub fn after(since_us: u64, time: Duration) -> u64 {
    since_us.saturating_add(micros(time))
}

/// The moment when a limit is over; never, if there is none.
pub(crate) fn end_of(since_us: u64, limit: Option<Duration>) -> u64 {
    limit.map_or(u64::MAX, |limit| after(since_us, limit))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How slowly a client may send a body.
pub(super) fn body_pace(settings: &Settings) -> PaceLimits {
    PaceLimits {
        pause: settings.limits.body_timeout.as_duration(),
        bytes_per_s: settings.limits.min_body_rate,
    }
}

/// How slowly a client may take an answer.
pub(super) fn intake_pace(settings: &Settings) -> PaceLimits {
    PaceLimits {
        pause: settings.limits.write_timeout.as_duration(),
        bytes_per_s: settings.limits.min_response_rate,
    }
}

/// The limits that tests use.
#[cfg(test)]
pub(super) const LIMITS: PaceLimits = PaceLimits {
    pause: Some(Duration::from_secs(60)),
    bytes_per_s: 240,
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use stanchion_requests::rig::S;

    /// A body that comes in pieces: after so many seconds, so many bytes.
    fn came(pieces: &[(u64, usize)]) -> Pace {
        let mut pace = Pace::begin(LIMITS, 0);
        for (at_s, bytes) in pieces {
            pace.came(*bytes, at_s * S);
            pace.go_on(at_s * S);
        }
        pace
    }

    /// A body of which so many bytes come each second, for so many seconds.
    fn steady(bytes: usize, seconds: u64) -> Pace {
        let pieces: Vec<_> = (1..=seconds).map(|second| (second, bytes)).collect();
        came(&pieces)
    }

    #[test]
    fn a_body_may_be_slow_but_not_too_slow() {
        for (bytes, seconds, expected) in [
            (1, 5, None),
            (1, 6, Some(Slowness::Rate)),
            (120, 10, None),
            (120, 11, Some(Slowness::Rate)),
            (239, 1_000, None),
            (239, 1_300, Some(Slowness::Rate)),
            (240, 3_600, None),
        ] {
            let pace = steady(bytes, seconds);
            assert_eq!(pace.too_slow(seconds * S), expected, "{bytes} {seconds}");
        }
    }

    #[test]
    fn a_good_start_does_not_last_for_ever() {
        const GIB: usize = 1 << 30;
        let drip = |until_s: u64| {
            let drops = (1..).map(|drop| (1 + 59 * drop, 1));
            let pieces = [(1, GIB)].into_iter().chain(drops);
            let pieces: Vec<_> = pieces.take_while(|(at_s, _)| *at_s <= until_s).collect();
            came(&pieces).too_slow(until_s * S)
        };
        // An average since the start would allow this for 51 days.
        assert_eq!(drip(60), None);
        assert_eq!(drip(62), Some(Slowness::Rate));
        assert_eq!(drip(3_600), Some(Slowness::Rate));
    }

    #[test]
    fn an_honest_sender_may_stall() {
        // 2 kB/s, as over a bad radio link, with a stall of half a minute now and then.
        let mut pieces = Vec::new();
        let mut at_s = 0;
        for _ in 0..20 {
            for _ in 0..10 {
                at_s += 1;
                pieces.push((at_s, 2_000));
                assert_eq!(came(&pieces).too_slow(at_s * S), None);
            }
            at_s += 30;
            assert_eq!(came(&pieces).too_slow(at_s * S), None, "after {at_s} s");
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
        assert_eq!(pace.too_slow(70 * S - 1), None);
        assert_eq!(pace.too_slow(70 * S), Some(Slowness::Pause));
    }

    #[test]
    fn limits_can_be_switched_off() {
        let off = PaceLimits {
            pause: None,
            bytes_per_s: 0,
        };
        assert_eq!(Pace::begin(off, 0).too_slow(1_000_000 * S), None);
        let rate = PaceLimits {
            pause: None,
            ..LIMITS
        };
        let mut pace = Pace::begin(rate, 0);
        pace.came(1_000_000, 0);
        pace.go_on(0);
        assert_eq!(pace.too_slow(60 * S), None);
        assert_eq!(pace.too_slow(61 * S), Some(Slowness::Rate));
    }

    #[test]
    fn it_is_due_when_it_is_too_slow_and_not_before() {
        for (pause, bytes_per_s) in [(Some(60), 240), (Some(7), 240), (None, 240), (Some(60), 0)] {
            let limits = PaceLimits {
                pause: pause.map(Duration::from_secs),
                bytes_per_s,
            };
            let mut pace = Pace::begin(limits, S);
            pace.came(1_200, 2 * S);
            pace.go_on(3 * S);
            let due_us = pace.due_us();
            assert_eq!(pace.too_slow(due_us - 1), None, "{limits:?}");
            assert!(pace.too_slow(due_us).is_some(), "{limits:?}");
        }
    }

    #[test]
    fn who_drips_is_told_from_who_stalls() {
        // A client that has just begun has its grace, whatever it does.
        assert!(!Pace::begin(LIMITS, 0).drips(5 * S - 1));
        assert!(Pace::begin(LIMITS, 0).drips(5 * S));
        // At the least rate no client ever gets ahead.
        assert!(steady(240, 100).drips(100 * S));
        // At three times the least rate a client is ahead after a while, and a stall does not make it drip.
        assert!(!steady(720, 15).drips(15 * S));
        assert!(!steady(720, 60).drips(80 * S));
        assert!(steady(720, 60).drips(91 * S));
        let mut held = steady(240, 100);
        held.hold(100 * S);
        assert!(!held.drips(200 * S), "we do not wait for it");
    }

    proptest! {
        /// However long each piece took to be stored, the pace is as if it had taken no time.
        #[test]
        fn time_in_which_we_do_not_read_does_not_count(
            pieces in proptest::collection::vec((0..500_usize, 0..3_000_000_u64, 0..3_000_000_u64), 0..50),
            rest_us in 0..70_000_000_u64,
        ) {
            let (mut held, mut free) = (Pace::begin(LIMITS, 0), Pace::begin(LIMITS, 0));
            let (mut held_us, mut free_us) = (0, 0);
            for (bytes, wait_us, store_us) in pieces {
                held_us += wait_us;
                free_us += wait_us;
                held.came(bytes, held_us);
                free.came(bytes, free_us);
                prop_assert_eq!(held.too_slow(held_us + store_us), None);
                held_us += store_us;
                held.go_on(held_us);
                free.go_on(free_us);
            }
            let expected = free.too_slow(free_us + rest_us);
            prop_assert_eq!(held.too_slow(held_us + rest_us), expected);
        }

        /// A client that keeps up the rate in every stretch as long as the grace is never too slow, and a client that has
        /// brought less than half of it in twice the window always is.
        #[test]
        fn a_rate_over_a_window_decides(
            start in 0..10_000_000_usize,
            pieces in proptest::collection::vec((0..5_000_000_u64, 0..2_000_usize), 1..200),
        ) {
            let mut pace = Pace::begin(LIMITS, 0);
            pace.came(start, 0);
            pace.go_on(0);
            let mut now_us = 0;
            let mut all: Vec<(u64, usize)> = Vec::new();
            let (mut kept_up, mut too_slow) = (true, None);
            for (wait_us, bytes) in pieces {
                now_us += wait_us;
                // The loop may look at any time; the worst moment is just before a piece comes.
                too_slow = too_slow.or(pace.too_slow(now_us));
                kept_up &= LIMITS.worth_us(bytes as u64) >= wait_us;
                pace.came(bytes, now_us);
                pace.go_on(now_us);
                all.push((now_us, bytes));
            }
            if kept_up {
                prop_assert_eq!(too_slow, None);
            }
            let span_us = 2 * LIMITS.window_us();
            let recent = all.iter().filter(|(at_us, _)| *at_us + span_us > now_us);
            let recent: u64 = recent.map(|(_, bytes)| *bytes as u64).sum();
            if now_us > span_us && LIMITS.worth_us(recent) < span_us / 2 - micros(GRACE) {
                prop_assert_eq!(too_slow, Some(Slowness::Rate));
            }
        }
    }
}
