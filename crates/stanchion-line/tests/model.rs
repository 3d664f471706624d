//! The line against a naive model: a plain `Vec`, searched from the front.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use stanchion_line::{Line, LineLimits, Place, Refusal};

#[derive(Clone, Debug)]
enum Step {
    Join,
    Pull,
    /// Leaves the place given out this many joins ago, whether or not it still waits.
    Leave(usize),
    Expire,
    Drained,
    Pass {
        time_us: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Join),
        2 => Just(Step::Pull),
        2 => (0..40_usize).prop_map(Step::Leave),
        1 => Just(Step::Expire),
        1 => Just(Step::Drained),
        2 => (0..60_u64).prop_map(|time_us| Step::Pass { time_us }),
    ]
}

/// The entries that wait, oldest first: (place, item, joined at).
struct Model {
    limits: LineLimits,
    waiting: Vec<(Place, u32, u64)>,
}

impl Model {
    fn overdue(&self, joined_us: u64, now_us: u64) -> bool {
        self.limits.queue_timeout_us > 0 && now_us - joined_us >= self.limits.queue_timeout_us
    }

    fn take(&mut self, wanted: impl Fn(&Self, Place, u64) -> bool) -> Option<(u32, u64)> {
        let index = self
            .waiting
            .iter()
            .position(|&(place, _, joined_us)| wanted(self, place, joined_us))?;
        let (_, item, joined_us) = self.waiting.remove(index);
        Some((item, joined_us))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_model(
        steps in vec(step(), 0..200),
        waiting_max in 0..12_usize,
        queue_timeout_us in prop_oneof![Just(0), 1..200_u64],
    ) {
        let limits = LineLimits { waiting_max, queue_timeout_us };
        let mut line = Line::new(limits);
        let mut model = Model { limits, waiting: Vec::new() };
        let mut now_us = 0;
        let mut places: Vec<Place> = Vec::new();
        let mut came_out: Vec<u32> = Vec::new();
        let mut refused = 0;

        for (item, step) in (0_u32..).zip(steps) {
            match step {
                Step::Join => match line.join(now_us, item) {
                    Ok(place) => {
                        prop_assert!(model.waiting.len() < waiting_max);
                        places.push(place);
                        model.waiting.push((place, item, now_us));
                    }
                    Err((back, Refusal::Full { retry_after_s })) => {
                        prop_assert_eq!(back, item);
                        prop_assert_eq!(model.waiting.len(), waiting_max);
                        prop_assert!((1..=60).contains(&retry_after_s));
                        refused += 1;
                    }
                },
                Step::Pull => {
                    let expected = model.take(|model, _, joined_us| !model.overdue(joined_us, now_us));
                    let actual = line.pull(now_us).map(|p| (p.item, now_us - p.wait_us));
                    prop_assert_eq!(actual, expected);
                    came_out.extend(actual.map(|(item, _)| item));
                }
                Step::Leave(joins_ago) => {
                    let Some(&left) = places.iter().rev().nth(joins_ago) else { continue };
                    let expected = model.take(|_, place, _| place == left).map(|(item, _)| item);
                    let actual = line.leave(left);
                    prop_assert_eq!(actual, expected);
                    came_out.extend(actual);
                }
                Step::Expire => {
                    let expected = model.take(|model, _, joined_us| model.overdue(joined_us, now_us));
                    let actual = line.expire(now_us).map(|p| (p.item, now_us - p.wait_us));
                    prop_assert_eq!(actual, expected);
                    came_out.extend(actual.map(|(item, _)| item));
                }
                Step::Drained => line.drained(now_us),
                Step::Pass { time_us } => now_us += time_us,
            }

            let head = model.waiting.first();
            prop_assert_eq!(line.len(), model.waiting.len());
            prop_assert!(line.len() <= waiting_max);
            prop_assert_eq!(line.is_empty(), head.is_none());
            prop_assert_eq!(line.oldest_wait_us(now_us), head.map_or(0, |entry| now_us - entry.2));
            let expiry_us = head.filter(|_| queue_timeout_us > 0).map(|entry| entry.2 + queue_timeout_us);
            prop_assert_eq!(line.next_expiry_us(), expiry_us);
        }

        let rest: Vec<_> = line.drain(now_us).map(|p| p.item).collect();
        let expected: Vec<_> = model.waiting.iter().map(|entry| entry.1).collect();
        prop_assert_eq!(&rest, &expected);
        came_out.extend(rest);

        // Nothing lost, nothing twice.
        let distinct: HashSet<_> = came_out.iter().collect();
        prop_assert_eq!(distinct.len(), came_out.len());
        prop_assert_eq!(came_out.len(), places.len());
        prop_assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len());
        prop_assert!(refused == 0 || places.len() >= waiting_max);
        prop_assert!(line.is_empty());
    }
}
