//! The band around a figure, from several runs.

/// How a figure varies: by a factor, or by a part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Ratio,
    Share,
}

/// Waits below this do not matter, so a band in factors does not look at how much below they are.
const FLOOR_US: f64 = 100.0;
/// A band takes so many runs at least.
const RUNS_MIN: usize = 3;
/// Nine of ten normal numbers are within so many deviations.
const NORMAL_90: f64 = 1.645;

/// The band in which a further run lies with a probability of 90 %, if the figure, or its logarithm, is normally distributed. The estimate is in it.
pub(crate) fn band_of(all: &[f64], estimate: f64, scale: Scale) -> Option<[f64; 2]> {
    if all.len() < RUNS_MIN {
        return None;
    }
    let to = |value: f64| match scale {
        Scale::Ratio => (value + FLOOR_US).ln(),
        Scale::Share => value,
    };
    let from = |value: f64| match scale {
        Scale::Ratio => (value.exp() - FLOOR_US).max(0.0),
        Scale::Share => value.clamp(0.0, 1.0),
    };
    let count = all.len() as f64;
    let mean = all.iter().map(|&one| to(one)).sum::<f64>() / count;
    let variance = all.iter().map(|&one| (to(one) - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // A further run varies, and so does the mean of these.
    let half = student_90(count - 1.0) * (variance * (1.0 + 1.0 / count)).sqrt();
    Some([
        from(mean - half).min(estimate),
        from(mean + half).max(estimate),
    ])
}

/// The 95 % quantile of Student's t, by its expansion (Abramowitz and Stegun 26.7.5).
fn student_90(freedom: f64) -> f64 {
    let x = NORMAL_90;
    let first = (x.powi(3) + x) / 4.0;
    let second = (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0;
    x + first / freedom + second / freedom.powi(2)
}

/// The middle one, or between the two in the middle. There is at least one.
pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    let (low, high) = ((all.len() - 1) / 2, all.len() / 2);
    f64::midpoint(all[low], all[high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    #[test]
    fn student_is_that_of_the_tables() {
        for (freedom, expected) in [
            (2.0, 2.920),
            (4.0, 2.132),
            (8.0, 1.860),
            (18.0, 1.734),
            (98.0, 1.661),
        ] {
            let found = student_90(freedom);
            assert!((found / expected - 1.0).abs() < 0.06, "{freedom}: {found}");
        }
    }

    #[test]
    fn nine_of_ten_further_runs_are_in_the_band() {
        let mut chance = Chance::of(1);
        let mut inside = 0;
        for _ in 0..2_000 {
            let mut run = || (10.0 + chance.normal()).exp();
            let runs: Vec<_> = (0..9).map(|_| run()).collect();
            let further = run();
            let [low, high] = band_of(&runs, median(runs.clone()), Scale::Ratio).unwrap();
            inside += u32::from((low..=high).contains(&further));
        }
        assert!((1_740..1_860).contains(&inside), "{inside} of 2000");
    }

    #[test]
    fn a_band_has_the_estimate_in_it_and_stays_within_its_scale() {
        assert_eq!(band_of(&[0.5; 2], 0.5, Scale::Share), None);
        assert_eq!(
            band_of(&[0.0, 0.2, 0.0], 0.9, Scale::Share).map(|[low, high]| (low, high)),
            Some((0.0, 0.9))
        );
        let [low, high] = band_of(&[0.0; 3], 7.0, Scale::Ratio).unwrap();
        assert!(low.abs() < 1e-9 && (high - 7.0).abs() < 1e-9);
    }
}
