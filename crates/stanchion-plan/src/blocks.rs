//! Other stretches of traffic like a recorded one, for the band around a figure.
//!
//! A stretch is put together of blocks of the recording: each block is replaced by one drawn from near its place, with all of its
//! requests, their gaps and their times (the local block bootstrap, Paparoditis and Politis 2002). So bursts and slow
//! phases stay whole, the course of the day stays, and what is chance varies as it varied. Service times alone would
//! not do: a later measurement has other arrivals too, and before a line these vary the wait as much.

use crate::chance::Chance;
use crate::offered::Offered;

/// A recording has at most so many blocks,
const BLOCKS_MAX: usize = 200;
/// and each block so many requests at least, as a mean.
const REQUESTS_EACH: usize = 20;
/// A stretch has at most so many times the requests of the recording, however often a block with nearly all of them is drawn.
const GROWTH_MAX: usize = 4;
/// A block is drawn from so many around its place, to either side, for each 200.
const NEAR: usize = 10;

/// A stretch like this one, whose requests are in order and come within `span_us`.
pub(crate) fn resampled(requests: &[Offered], span_us: u64, chance: &mut Chance) -> Vec<Offered> {
    let blocks = match span_us {
        0 => 1,
        _ => (requests.len() / REQUESTS_EACH).clamp(1, BLOCKS_MAX),
    };
    let begins_us = |block: usize| (u128::from(span_us) * block as u128 / blocks as u128) as u64;
    let first_of = |block: usize| {
        if block == blocks {
            requests.len()
        } else {
            requests.partition_point(|request| request.at_us < begins_us(block))
        }
    };
    let near = (NEAR * blocks / BLOCKS_MAX).max(1);
    let mut made = Vec::with_capacity(requests.len() + requests.len() / 8);
    for block in 0..blocks {
        let (low, high) = (block.saturating_sub(near), (block + near).min(blocks - 1));
        let drawn = low + chance.below(high - low + 1);
        let (from_us, to_us) = (begins_us(drawn), begins_us(block));
        let moved = requests[first_of(drawn)..first_of(drawn + 1)]
            .iter()
            .map(|request| Offered {
                at_us: request.at_us - from_us + to_us,
                ..*request
            });
        made.extend(moved);
        if made.len() > GROWTH_MAX * requests.len() {
            break;
        }
    }
    // Blocks may differ by a microsecond in length.
    made.sort_by_key(|request| request.at_us);
    made
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000;

    /// Requests at these times; the client is the number of the request.
    fn at(times_us: impl IntoIterator<Item = u64>) -> Vec<Offered> {
        let requests = (0..).zip(times_us).map(|(client, at_us)| Offered {
            at_us,
            client,
            ..Offered::default()
        });
        requests.collect()
    }

    fn mean_and_deviation(counts: &[f64]) -> (f64, f64) {
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let squares = counts.iter().map(|count| (count - mean).powi(2));
        (mean, (squares.sum::<f64>() / counts.len() as f64).sqrt())
    }

    #[test]
    fn other_stretches_have_as_many_requests_give_or_take_what_chance_does() {
        let mut chance = Chance::of(3);
        let mut now_us = 0.0;
        let poisson = std::iter::from_fn(|| {
            now_us += chance.exponential(10_000.0);
            Some(now_us as u64)
        });
        let requests = at(poisson.take_while(|&at_us| at_us < 100 * S));
        let mut chance = Chance::of(4);
        let counts: Vec<_> = (0..200)
            .map(|_| resampled(&requests, 100 * S, &mut chance).len() as f64)
            .collect();
        let (mean, deviation) = mean_and_deviation(&counts);
        // A Poisson count of 10,000 deviates by 100.
        assert!((mean / requests.len() as f64 - 1.0).abs() < 0.01, "{mean}");
        assert!((70.0..130.0).contains(&deviation), "{deviation}");
    }

    #[test]
    fn requests_that_all_come_at_once_stay_as_they_are() {
        let requests = at([0; 100]);
        assert_eq!(resampled(&requests, 0, &mut Chance::of(1)), requests);
        assert_eq!(resampled(&[], 0, &mut Chance::of(1)), []);
    }

    #[test]
    fn the_course_of_the_day_stays() {
        // Ten times the rate in the middle third.
        let quiet = (0..3_000).map(|number| number * 33_333);
        let busy = (0..13_500).map(|number| 100 * S / 3 + number * 2_469);
        let mut times_us: Vec<_> = quiet.chain(busy).collect();
        times_us.sort_unstable();
        let made = resampled(&at(times_us), 100 * S, &mut Chance::of(1));
        let within = |from: u64, to: u64| {
            made.iter()
                .filter(|one| (from * S..to * S).contains(&one.at_us))
                .count()
        };
        assert!(within(0, 27) < 900 && within(73, 100) < 900 && within(40, 60) > 7_000);
    }

    proptest! {
        #[test]
        fn requests_stay_whole_near_their_place_and_in_order(
            mut times_us in vec(0..1_000_u64, 1..400),
            seed in any::<u64>(),
        ) {
            times_us.sort_unstable();
            let requests = at(times_us);
            let made = resampled(&requests, 1_000, &mut Chance::of(seed));
            prop_assert!(made.is_sorted_by_key(|one| one.at_us));
            let blocks = (requests.len() / REQUESTS_EACH).clamp(1, BLOCKS_MAX) as u64;
            for one in made {
                let moved_us = one.at_us.abs_diff(requests[one.client as usize].at_us);
                prop_assert!(moved_us <= 2 * 1_000 / blocks + 1 || blocks == 1 && moved_us == 0);
                prop_assert!(one.at_us <= 1_000);
            }
        }
    }
}
