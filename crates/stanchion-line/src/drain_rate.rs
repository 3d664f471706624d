//! How fast the line moves: how many requests leave the seats per unit of time *while a request waits*.

/// How much of the past counts: an event this long ago (in counted time) weighs 1/e of a new one.
/// Long enough to average over a few slow requests, short enough to notice an app that stalls.
const MEMORY_US: f64 = 10_000_000.0;

/// An exponentially weighted mean over time, kept as its two sums: departures, and the time in which they happened.
///
/// It counts only time in which the line is not empty. Then every seat is busy, so departures show how much the seats
/// can do; in a quiet hour they would show only how little was asked of them. And because it sums time instead of
/// dividing by the gap between two departures, a burst of departures in the same microsecond counts as much as an even
/// stream, and a stall weighs on the estimate as it happens, without waiting for the departure that ends it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainRate {
    departures: f64,
    busy_us: f64,
    /// The moment up to which busy time is in the sums; `None` while no request waits.
    counted_to_us: Option<u64>,
}

impl DrainRate {
    /// A request waits from now on.
    pub(crate) fn begin(&mut self, now_us: u64) {
        self.counted_to_us = Some(now_us);
    }

    /// No request waits any more. Time since the last count is left out: it holds no departure.
    pub(crate) fn rest(&mut self) {
        self.counted_to_us = None;
    }

    /// Counts a request that left its seat, unless no request waits: then it shows nothing about the seats' pace.
    pub(crate) fn departure(&mut self, now_us: u64) {
        self.count_to(now_us);
        if self.counted_to_us.is_some() {
            self.departures += 1.0;
        }
    }

    /// How many requests leave the seats per second while a request waits; 0 if none has left in recent time.
    pub(crate) fn per_second(mut self, now_us: u64) -> f64 {
        self.count_to(now_us);
        if self.busy_us > 0.0 {
            self.departures / self.busy_us * 1e6
        } else {
            0.0
        }
    }

    /// The time, in microseconds, in which as many as `waiting` requests leave the seats.
    ///
    /// With less than one departure in memory, the estimate assumes that the next departure happens right now. That is
    /// the most hopeful reading of the past, and the estimate grows with every moment in which the departure does not
    /// happen.
    pub(crate) fn time_for_us(mut self, waiting: usize, now_us: u64) -> f64 {
        self.count_to(now_us);
        to_f64(waiting as u64) * self.busy_us / self.departures.max(1.0)
    }

    fn count_to(&mut self, now_us: u64) {
        let Some(counted_to_us) = &mut self.counted_to_us else {
            return;
        };
        let elapsed_us = to_f64(now_us.saturating_sub(*counted_to_us));
        *counted_to_us = now_us.max(*counted_to_us);
        let kept = (-elapsed_us / MEMORY_US).exp();
        self.departures *= kept;
        // The integral of the weight over the elapsed time, so that both sums fade alike.
        self.busy_us = self.busy_us * kept + MEMORY_US * (1.0 - kept);
    }
}

/// An estimate does not need the digits past 2^53 (of microseconds: 285 years).
#[expect(clippy::cast_precision_loss)]
pub(crate) fn to_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// Departures every `gap_us`, `at_once` of them each time, for `total_us`.
    fn steady(
        rate: &mut DrainRate,
        from_us: u64,
        gap_us: u64,
        at_once: usize,
        total_us: u64,
    ) -> u64 {
        let mut now_us = from_us;
        while now_us < from_us + total_us {
            now_us += gap_us;
            for _ in 0..at_once {
                rate.departure(now_us);
            }
        }
        now_us
    }

    fn assert_near(actual_us: f64, expected_us: f64) {
        assert!(
            (actual_us / expected_us - 1.0).abs() < 0.05,
            "{actual_us} is not near {expected_us}"
        );
    }

    #[test]
    fn same_pace_in_bursts_or_even() {
        for (gap_us, at_once) in [(10_000, 1), (100_000, 10), (1_000_000, 100)] {
            let mut rate = DrainRate::default();
            rate.begin(0);
            let now_us = steady(&mut rate, 0, gap_us, at_once, 60 * SECOND_US);
            assert_near(rate.time_for_us(500, now_us), 5_000_000.0);
        }
    }

    #[test]
    fn pace_per_second() {
        let mut rate = DrainRate::default();
        assert!(rate.per_second(7).abs() < 1e-9);
        rate.begin(0);
        let now_us = steady(&mut rate, 0, 10_000, 1, 60 * SECOND_US);
        assert_near(rate.per_second(now_us), 100.0);
    }

    #[test]
    fn idle_gap_changes_nothing() {
        let mut rate = DrainRate::default();
        rate.begin(0);
        let now_us = steady(&mut rate, 0, 10_000, 1, 60 * SECOND_US);
        let before_us = rate.time_for_us(500, now_us);

        rate.rest();
        let later_us = now_us + 3_600 * SECOND_US;
        rate.departure(later_us); // no request waited, so this does not measure the seats
        rate.begin(later_us);
        assert_near(rate.time_for_us(500, later_us), before_us);
    }

    #[test]
    fn stall_shows_before_it_ends() {
        let mut rate = DrainRate::default();
        rate.begin(0);
        let now_us = steady(&mut rate, 0, 10_000, 1, 60 * SECOND_US);
        let before_us = rate.time_for_us(500, now_us);
        let after_us = rate.time_for_us(500, now_us + 20 * SECOND_US);
        // Two memories without a departure: e^2 = 7.4 times as slow.
        assert_near(after_us, before_us * 2.0_f64.exp());
    }

    #[test]
    fn new_pace_replaces_the_old() {
        let mut rate = DrainRate::default();
        rate.begin(0);
        let now_us = steady(&mut rate, 0, 10_000, 1, 60 * SECOND_US);
        let now_us = steady(&mut rate, now_us, 100_000, 1, 60 * SECOND_US);
        assert_near(rate.time_for_us(500, now_us), 50_000_000.0);
    }

    #[test]
    fn without_a_departure_hope_fades() {
        let mut rate = DrainRate::default();
        rate.begin(0);
        assert!(rate.time_for_us(100, 0) < 1.0);
        assert_near(rate.time_for_us(100, 10_000), 1_000_000.0);
        assert!(rate.time_for_us(100, 5 * SECOND_US) > 300_000_000.0);
    }

    #[test]
    fn clock_that_steps_back_is_harmless() {
        let mut rate = DrainRate::default();
        rate.begin(SECOND_US);
        rate.departure(SECOND_US + 10);
        rate.departure(SECOND_US);
        let once_us = rate.time_for_us(1, SECOND_US + 10);
        assert!(once_us.is_finite() && once_us >= 0.0);
    }
}
