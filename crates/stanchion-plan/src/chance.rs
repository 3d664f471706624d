//! Chance that is the same every time: random numbers from a seed.

use std::f64::consts::TAU;

/// A source of random numbers (splitmix64). The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1, and neither of them.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Draws one of them; `None` if there is none.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }

    /// The time to the next event of a Poisson process.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// A standard normal number (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let drawn: Vec<_> = (0..100_000).map(|_| draw()).collect();
        let count = drawn.len() as f64;
        let mean = drawn.iter().sum::<f64>() / count;
        let variance = drawn.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count;
        (mean, variance)
    }

    #[test]
    fn means_and_variances_are_those_of_the_laws() {
        let mut chance = Chance::of(7);
        // (what is drawn, its mean, its variance)
        let table = [
            (moments(|| chance.unit()), 0.5, 1.0 / 12.0),
            (moments(|| chance.exponential(3.0)), 3.0, 9.0),
            (moments(|| chance.normal() + 5.0), 5.0, 1.0),
            (moments(|| chance.below(6) as f64), 2.5, 35.0 / 12.0),
        ];
        for ((mean, variance), expected_mean, expected_variance) in table {
            assert!(
                (mean / expected_mean - 1.0).abs() < 0.02,
                "{mean} is not {expected_mean}"
            );
            assert!(
                (variance / expected_variance - 1.0).abs() < 0.05,
                "{variance}"
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same() {
        let draw = |seed| {
            let mut chance = Chance::of(seed);
            [chance.below(1 << 30), chance.below(1 << 30)]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(Chance::of(1).one_of::<u32>(&[]), None);
    }
}
