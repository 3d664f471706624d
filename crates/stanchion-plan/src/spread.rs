//! How times are spread: a histogram in bounded memory, and a course over time in a bounded number of points.

use serde::Serialize;

/// Each power of two has so many buckets, so a bucket is at most 0.8 % wide; times below twice as many microseconds are exact.
const BUCKETS: u64 = 128;
/// A course over time has at most so many points: more than a page is wide.
const POINTS_MAX: u64 = 500;

/// A histogram of times, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// Up to the last bucket that has any.
    buckets: Vec<u32>,
    count: u64,
    sum_us: u64,
}

/// The figures of a spread, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpreadFigures {
    /// The mean.
    pub mean_us: f64,
    /// Half of the times are at most so long,
    pub p50_us: f64,
    /// nine tenths,
    pub p90_us: f64,
    /// and 99 of 100.
    pub p99_us: f64,
}

impl Spread {
    /// Adds a time.
    pub(crate) fn add(&mut self, us: u64) {
        let bucket = bucket_of(us);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    pub(crate) fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The smallest time that at least this share of the times do not exceed, but for the width of a bucket.
    fn quantile_us(&self, share: f64) -> f64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.buckets.iter().position(|&count| {
            below += u64::from(count);
            below >= rank
        });
        found.map_or(0.0, middle_us)
    }

    /// Its figures; `None` without a time.
    pub(crate) fn figures(&self) -> Option<SpreadFigures> {
        (self.count > 0).then(|| SpreadFigures {
            mean_us: self.sum_us as f64 / self.count as f64,
            p50_us: self.quantile_us(0.5),
            p90_us: self.quantile_us(0.9),
            p99_us: self.quantile_us(0.99),
        })
    }
}

impl SpreadFigures {
    /// The four of them.
    pub(crate) fn all(&self) -> [f64; 4] {
        [self.mean_us, self.p50_us, self.p90_us, self.p99_us]
    }

    pub(crate) fn from_all([mean_us, p50_us, p90_us, p99_us]: [f64; 4]) -> Self {
        Self {
            mean_us,
            p50_us,
            p90_us,
            p99_us,
        }
    }
}

fn bucket_of(us: u64) -> usize {
    let octave = us
        .checked_ilog2()
        .unwrap_or(0)
        .saturating_sub(BUCKETS.ilog2());
    (u64::from(octave) * BUCKETS + (us >> octave)) as usize
}

/// The middle of a bucket.
fn middle_us(bucket: usize) -> f64 {
    let octave = (bucket as u64 / BUCKETS).saturating_sub(1);
    let low = (bucket as u64 - octave * BUCKETS) as f64;
    let width = (1_u64 << octave) as f64;
    low * width + (width - 1.0) / 2.0
}

/// The highest values of a number, in equal parts of a time that begins at 0.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    part_us: u64,
    most: Vec<u64>,
    last: u64,
}

impl Course {
    /// A course of a number that is 0 at first, over so long a time. Later values count for the last part.
    pub(crate) fn over(span_us: u64) -> Self {
        Self {
            part_us: span_us.div_ceil(POINTS_MAX).max(1),
            most: vec![0],
            last: 0,
        }
    }

    /// The number has this value from now on.
    pub(crate) fn note(&mut self, now_us: u64, value: u64) {
        if value != self.last {
            let most = self.at(now_us);
            *most = value.max(*most);
            self.last = value;
        }
    }

    /// The time ends.
    pub(crate) fn end(&mut self, now_us: u64) {
        self.at(now_us);
    }

    /// The highest value in the part of this moment, with what it has been since the last change.
    fn at(&mut self, now_us: u64) -> &mut u64 {
        let part = (now_us / self.part_us).min(POINTS_MAX - 1) as usize;
        if part >= self.most.len() {
            self.most.resize(part + 1, self.last);
        }
        &mut self.most[part]
    }

    /// When each part begins, and the highest value in it.
    pub(crate) fn points(&self) -> Vec<(u64, u64)> {
        (0..)
            .step_by(self.part_us as usize)
            .zip(self.most.iter().copied())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_times(times_us in vec(0..10_000_000_u64, 1..300)) {
            let mut spread = Spread::default();
            for &us in &times_us {
                spread.add(us);
            }
            let mut sorted = times_us.clone();
            sorted.sort_unstable();
            let figures = spread.figures().unwrap();
            for (share, found) in [(0.5, figures.p50_us), (0.9, figures.p90_us), (0.99, figures.p99_us)] {
                let rank = (share * sorted.len() as f64).ceil() as usize;
                let exact = sorted[rank.max(1) - 1] as f64;
                prop_assert!((found - exact).abs() <= exact * 0.005, "{} is not {}", found, exact);
            }
        }

        #[test]
        fn each_time_has_a_bucket_near_it(us in any::<u64>()) {
            let middle = middle_us(bucket_of(us));
            prop_assert!((middle / us.max(1) as f64 - 1.0).abs() <= 0.005 || us < 2 * BUCKETS);
            prop_assert!(us >= 2 * BUCKETS || (middle - us as f64).abs() < 1e-9);
        }
    }

    #[test]
    fn a_spread_of_nothing_has_no_figures() {
        assert_eq!(Spread::default().figures(), None);
    }

    #[test]
    fn a_course_keeps_the_highest_value_of_each_part() {
        let mut course = Course::over(5_000); // in parts of 10 us
        for (now_us, value) in [(1, 3), (2, 1), (35, 4), (39, 0)] {
            course.note(now_us, value);
        }
        assert_eq!(course.points(), [(0, 3), (10, 1), (20, 1), (30, 4)]);
        course.end(45);
        assert_eq!(course.points().last(), Some(&(40, 0)));
        course.note(1_000_000, 9);
        course.note(1_000_001, 9);
        let points = course.points();
        assert_eq!((points.len(), points[499]), (500, (4_990, 9)));
        assert!(points[5..499].iter().all(|&(_, value)| value == 0));
    }
}
