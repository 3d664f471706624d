//! Traffic from a model: Poisson arrivals, and service times by quantiles.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::chance::Chance;
use crate::offered::Offered;

/// A draw from the middle does not lie further outside than 1 in 30,000 do: beyond the quantiles given, the tail is a guess.
const NORMAL_MAX: f64 = 4.0;
/// A model makes at most so many requests, a gigabyte's fifth.
pub(crate) const REQUESTS_MAX: usize = 5_000_000;
/// An hour. No service time is longer.
const SERVICE_US_MAX: u64 = 3_600_000_000;

/// A model of traffic.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficModel {
    /// Requests in a second.
    pub rate_per_s: f64,
    /// Quantiles of the service time: the share of requests, and the microseconds that these take at most. One: all take so long.
    pub service: Vec<(f64, u64)>,
    /// The part of a service time that is CPU.
    pub cpu_share: Option<f64>,
    /// For how long requests come.
    pub seconds: f64,
    /// The settings of the server.
    #[serde(default)]
    pub settings: Map<String, Value>,
}

impl TrafficModel {
    /// Says what makes no sense.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        let rises = |pair: &[(f64, u64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        let is_quantile = |&(share, us): &(f64, u64)| {
            share > 0.0 && share < 1.0 && (1..=SERVICE_US_MAX).contains(&us)
        };
        let wrong = if !is_positive(self.rate_per_s) || !is_positive(self.seconds) {
            "rate_per_s and seconds: expected more than 0".to_owned()
        } else if self.rate_per_s * self.seconds > REQUESTS_MAX as f64 {
            format!("rate_per_s and seconds: expected at most {REQUESTS_MAX} requests in all")
        } else if self.service.is_empty() || !self.service.iter().all(is_quantile) {
            "service: expected quantiles between 0 and 1, of 1 us to an hour".to_owned()
        } else if !self.service.windows(2).all(rises) {
            "service: expected quantiles that rise, with times that do not fall".to_owned()
        } else if self
            .cpu_share
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            "cpu_share: expected 0 to 1".to_owned()
        } else {
            return Ok(());
        };
        Err(format!("the model has the wrong {wrong}"))
    }

    /// Its requests, as one seed makes them.
    pub(crate) fn requests(&self, seed: u64) -> Vec<Offered> {
        let service = ServiceLaw::through(&self.service);
        let mut chance = Chance::of(seed);
        let (gap_us, span_us) = (1e6 / self.rate_per_s, self.seconds * 1e6);
        let mut now_us = chance.exponential(gap_us);
        let mut requests = Vec::with_capacity((self.rate_per_s * self.seconds) as usize + 1);
        while now_us < span_us && requests.len() < REQUESTS_MAX {
            let service_us = service.us(chance.normal());
            let cpu_us = service_us * self.cpu_share.unwrap_or(0.0);
            requests.push(Offered {
                at_us: now_us as u64,
                cpu_us: cpu_us.round() as u32,
                elsewhere_us: (service_us - cpu_us).round() as u32,
                ..Offered::default()
            });
            now_us += chance.exponential(gap_us);
        }
        requests
    }
}

/// How service times are spread: the logarithm of a time is linear in the normal number that belongs to its quantile. So two quantiles make
/// the lognormal law through both, and of more each pair makes a piece of such a law.
#[derive(Clone, Debug)]
struct ServiceLaw {
    /// At each quantile: the normal number, and the logarithm of the time.
    knots: Vec<(f64, f64)>,
}

impl ServiceLaw {
    fn through(quantiles: &[(f64, u64)]) -> Self {
        let knot = |&(share, us): &(f64, u64)| (normal_of(share), (us as f64).ln());
        Self {
            knots: quantiles.iter().map(knot).collect(),
        }
    }

    /// The time that belongs to a normal number. The first and the last piece go on beyond the quantiles.
    fn us(&self, normal: f64) -> f64 {
        let normal = normal.clamp(-NORMAL_MAX, NORMAL_MAX);
        let pieces = self.knots.windows(2);
        let last = pieces.len().saturating_sub(1);
        let mut pieces = pieces.enumerate();
        let piece = pieces.find(|(index, piece)| *index == last || normal < piece[1].0);
        let ln_us = match (piece, self.knots.first()) {
            (Some((_, &[(from, from_ln), (to, to_ln)])), _) => {
                from_ln + (normal - from) / (to - from) * (to_ln - from_ln)
            }
            (_, Some(&(_, only))) => only,
            (_, None) => 0.0,
        };
        ln_us.exp().min(SERVICE_US_MAX as f64)
    }
}

/// The number that a standard normal number exceeds with the probability 1 − `share` (Abramowitz and Stegun, Handbook of Mathematical Functions,
/// 26.2.23, good to 0.00045).
fn normal_of(share: f64) -> f64 {
    let tail = share.min(1.0 - share);
    let t = (-2.0 * tail.ln()).sqrt();
    let over = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let under = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    (t - over / under) * if share < 0.5 { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(service: &[(f64, u64)]) -> TrafficModel {
        TrafficModel {
            rate_per_s: 1_000.0,
            service: service.to_vec(),
            cpu_share: Some(0.25),
            seconds: 100.0,
            settings: Map::new(),
        }
    }

    #[test]
    fn normal_numbers_are_those_of_the_tables() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.9, 1.2816),
            (0.95, 1.6449),
            (0.99, 2.3263),
            (0.1, -1.2816),
            (0.001, -3.0902),
        ] {
            assert!(
                (normal_of(share) - expected).abs() < 0.001,
                "{share}: {}",
                normal_of(share)
            );
        }
    }

    #[test]
    fn requests_have_the_rate_and_the_quantiles_of_the_model() {
        let tables: [&[(f64, u64)]; 3] = [
            &[(0.5, 20_000)],
            &[(0.5, 20_000), (0.99, 900_000)],
            &[(0.1, 1_000), (0.5, 2_000), (0.9, 200_000), (0.99, 210_000)],
        ];
        for quantiles in tables {
            let requests = model(quantiles).requests(5);
            assert!(
                (98_500..101_500).contains(&requests.len()),
                "{}",
                requests.len()
            );
            let mut services_us: Vec<_> = requests.iter().map(Offered::service_us).collect();
            services_us.sort_unstable();
            for &(share, us) in quantiles {
                let found = services_us[(share * services_us.len() as f64) as usize] as f64;
                assert!(
                    (found / us as f64 - 1.0).abs() < 0.06,
                    "{share} of {quantiles:?}: {found}"
                );
            }
            let cpu_us: u64 = requests.iter().map(|one| u64::from(one.cpu_us)).sum();
            let share = cpu_us as f64 / services_us.iter().sum::<u64>() as f64;
            assert!((share - 0.25).abs() < 0.01, "{share}");
        }
    }

    #[test]
    fn a_wrong_model_says_what_is_wrong() {
        let good = model(&[(0.5, 10), (0.9, 10)]);
        good.check().unwrap();
        let with = |change: fn(&mut TrafficModel)| {
            let mut model = good.clone();
            change(&mut model);
            model
        };
        let table = [
            (with(|it| it.rate_per_s = 0.0), "rate_per_s"),
            (with(|it| it.rate_per_s = f64::INFINITY), "rate_per_s"),
            (with(|it| it.seconds = f64::NAN), "seconds"),
            (with(|it| it.seconds = 1e9), "5000000"),
            (with(|it| it.service.clear()), "service"),
            (with(|it| it.service[0].0 = 0.0), "service"),
            (with(|it| it.service[0].1 = 0), "service"),
            (with(|it| it.service[1].0 = 0.5), "rise"),
            (with(|it| it.service[1].1 = 9), "rise"),
            (with(|it| it.cpu_share = Some(1.1)), "cpu_share"),
        ];
        for (model, word) in table {
            let wrong = model.check().unwrap_err();
            assert!(wrong.contains(word), "{wrong}");
        }
    }
}
