//! How long things took, counted in buckets.

use serde::Serialize;

/// Upper bounds within a decade, in tenths of it: steps of about a half, so that a quantile read from the
/// buckets is off by less than that, and the bounds are round numbers.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
/// From 100 µs ...
const FIRST_US: u64 = 100;
/// ... to 700 s, longer than any client waits here.
const DECADES: usize = 7;
const BUCKETS: usize = STEPS.len() * DECADES;

/// The inclusive upper bound of each bucket, in microseconds.
const BOUNDS_US: [u64; BUCKETS] = {
    let mut bounds = [0; BUCKETS];
    let mut decade_us = FIRST_US;
    let mut index = 0;
    while index < BUCKETS {
        bounds[index] = decade_us * STEPS[index % STEPS.len()] / 10;
        index += 1;
        if index.is_multiple_of(STEPS.len()) {
            decade_us *= 10;
        }
    }
    bounds
};

/// Durations since the start.
#[derive(Clone, Debug)]
pub struct Durations {
    buckets: [u64; BUCKETS],
    /// With those over the last bound.
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
            sum_us: 0,
            max_us: 0,
        }
    }
}

/// Durations as they are shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Histogram {
    /// How many durations were taken.
    pub count: u64,
    /// Their sum.
    pub sum_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Half of them were at most so long.
    pub p50_us: u64,
    /// Nine tenths were at most so long.
    pub p90_us: u64,
    /// All but a hundredth were at most so long.
    pub p99_us: u64,
    /// Each upper bound, and how many durations were at most so long.
    pub buckets: Vec<(u64, u64)>,
}

impl Durations {
    /// Counts one duration.
    pub(crate) fn add(&mut self, took_us: u64) {
        if let Some(bucket) = self
            .buckets
            .get_mut(BOUNDS_US.partition_point(|&bound_us| bound_us < took_us))
        {
            *bucket += 1;
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(took_us);
        self.max_us = self.max_us.max(took_us);
    }

    /// The durations that were added since `before`. Of the longest of them only its bucket is known.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut added = self.clone();
        for (bucket, old) in added.buckets.iter_mut().zip(before.buckets) {
            *bucket = bucket.saturating_sub(old);
        }
        added.count = added.count.saturating_sub(before.count);
        added.sum_us = added.sum_us.saturating_sub(before.sum_us);
        let within = added.buckets.iter().sum::<u64>() == added.count;
        if within {
            let last = added.buckets.iter().rposition(|&count| count > 0);
            added.max_us = last.map_or(0, |bucket| BOUNDS_US[bucket]);
        }
        added
    }

    /// Adds other durations to these.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        for (bucket, other) in self.buckets.iter_mut().zip(others.buckets) {
            *bucket += other;
        }
        self.count += others.count;
        self.sum_us = self.sum_us.saturating_add(others.sum_us);
        self.max_us = self.max_us.max(others.max_us);
        self
    }

    /// How many durations were taken.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The longest duration, or an upper bound for it.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// Estimates a percentile: the place in its bucket of the duration with that rank, if the durations of a bucket
    /// were spread evenly. Prometheus' `histogram_quantile()` and `stanchion top` compute it in the same way. `None` if
    /// there are no durations.
    pub fn estimate_us(&self, percent: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = self.count as f64 * percent as f64 / 100.0;
        let (mut below, mut lower_us) = (0_u64, 0_u64);
        for (&bound_us, &count) in BOUNDS_US.iter().zip(&self.buckets) {
            if count > 0 && (below + count) as f64 >= rank {
                let inside = (rank - below as f64) / count as f64;
                let estimate_us = lower_us + ((bound_us - lower_us) as f64 * inside) as u64;
                return Some(estimate_us.min(self.max_us));
            }
            below += count;
            lower_us = bound_us;
        }
        // The buckets say no more about the durations over the last bound.
        Some(lower_us)
    }

    /// Shows the durations to people and to their tools.
    pub fn histogram(&self) -> Histogram {
        let mut cumulative = 0;
        let buckets: Vec<_> = BOUNDS_US
            .iter()
            .zip(self.buckets)
            .map(|(&bound_us, count)| {
                cumulative += count;
                (bound_us, cumulative)
            })
            .collect();
        let quantile = |percent| self.quantile_us(percent, &buckets);
        Histogram {
            count: self.count,
            sum_us: self.sum_us,
            max_us: self.max_us,
            p50_us: quantile(50),
            p90_us: quantile(90),
            p99_us: quantile(99),
            buckets,
        }
    }

    /// An upper bound for so many percent of the durations, read from the buckets; 0 if there are none.
    fn quantile_us(&self, percent: u64, buckets: &[(u64, u64)]) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let bound = buckets.iter().find(|&&(_, at_most)| at_most >= rank);
        bound.map_or(self.max_us, |&(bound_us, _)| bound_us.min(self.max_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(took_us: impl IntoIterator<Item = u64>) -> Histogram {
        let mut durations = Durations::default();
        for took_us in took_us {
            durations.add(took_us);
        }
        durations.histogram()
    }

    #[test]
    fn bounds_are_round_and_grow() {
        assert_eq!(BOUNDS_US[..8], [100, 150, 200, 300, 500, 700, 1_000, 1_500]);
        assert_eq!(BOUNDS_US[BUCKETS - 1], 700_000_000);
        assert!(BOUNDS_US.is_sorted());
    }

    #[test]
    fn each_is_in_the_first_bucket_that_is_not_below_it() {
        for (took_us, bound_us) in [(0, 100), (100, 100), (101, 150), (700_000_000, 700_000_000)] {
            let histogram = of([took_us]);
            let first = histogram.buckets.iter().find(|(_, count)| *count == 1);
            assert_eq!(first.unwrap().0, bound_us, "{took_us}");
            assert_eq!(histogram.buckets.last().unwrap().1, 1);
        }
        let beyond = of([700_000_001]);
        assert_eq!((beyond.count, beyond.buckets.last().unwrap().1), (1, 0));
        assert_eq!(beyond.p50_us, 700_000_001);
    }

    #[test]
    fn quantiles_are_bounds_that_hold() {
        let histogram = of((1..=100).map(|ms| ms * 1_000));
        assert_eq!((histogram.count, histogram.sum_us), (100, 5_050_000));
        assert_eq!((histogram.p50_us, histogram.p90_us), (50_000, 100_000));
        assert_eq!((histogram.p99_us, histogram.max_us), (100_000, 100_000));
        assert_eq!(of([]).p99_us, 0);
        assert_eq!(of([120]).p99_us, 120, "not more than the longest");
    }

    #[test]
    fn what_was_added_since_is_spread_within_its_buckets() {
        let mut durations = Durations::default();
        durations.add(90);
        let before = durations.clone();
        assert_eq!(durations.since(&before).estimate_us(50), None);
        for _ in 0..4 {
            durations.add(1_200);
        }
        let lately = durations.since(&before);
        // All are between 1,000 and 1,500.
        assert_eq!(lately.estimate_us(50), Some(1_250));
        assert_eq!(lately.estimate_us(100), Some(1_500));
        let mut running = Durations::default();
        running.add(15_000_000);
        let both = lately.with(&running);
        assert_eq!(
            (both.estimate_us(50), both.max_us()),
            (Some(1_312), 15_000_000)
        );
        assert_eq!(both.estimate_us(100), Some(15_000_000));
        running.add(15_400_000);
        assert_eq!(
            running.estimate_us(99),
            Some(15_400_000),
            "not more than the longest"
        );
        running.add(900_000_000);
        assert_eq!(running.estimate_us(100), Some(700_000_000));
    }

    #[test]
    fn absurd_times_do_not_overflow() {
        assert_eq!(of([u64::MAX, u64::MAX]).sum_us, u64::MAX);
    }
}
