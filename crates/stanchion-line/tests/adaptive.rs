//! Invariants of the adaptive order, checked with random steps.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use proptest::collection::vec;
use proptest::prelude::*;
use stanchion_line::{Discipline, Expiry, LaneId, Line, LineLimits, Place};

const LANE: LaneId = LaneId::DEFAULT;

#[derive(Clone, Debug)]
enum Step {
    Join,
    Pull,
    /// The entry at this index among the waiting ones leaves.
    Leave(usize),
    Expire,
    Pass {
        time_us: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Join),
        2 => Just(Step::Pull),
        1 => (0..40_usize).prop_map(Step::Leave),
        2 => Just(Step::Expire),
        3 => (0..60_u64).prop_map(|time_us| Step::Pass { time_us }),
    ]
}

fn line(discipline: Discipline) -> Line<usize> {
    Line::new(LineLimits {
        waiting_max: 1_000,
        queue_timeout_us: 0,
        discipline,
    })
}

/// A model of the adaptive order. It checks whether the lane is over its target when an entry is to come out; an empty
/// lane is not.
struct Model {
    target_us: u64,
    /// The waiting entries, in the order in which they joined.
    waiting: Vec<(Place, usize, u64)>,
    /// Since when the lane has been over its target, and how many entries it has shed since.
    standing: Option<(u64, u64)>,
}

impl Model {
    fn judge(&mut self, now_us: u64) -> bool {
        let stands_us = self.waiting.first().map(|first| first.2 + self.target_us);
        let stands_us = stands_us.filter(|&stands_us| stands_us <= now_us);
        self.standing = stands_us.map(|stands_us| self.standing.unwrap_or((stands_us, 0)));
        self.standing.is_some()
    }

    /// RFC 8289: the lane sheds the first entry a target after it went over the target, and each next one target/√n
    /// later.
    fn shed(&mut self, now_us: u64) -> Option<(Place, usize, u64)> {
        self.judge(now_us);
        let (since_us, shed) = self.standing.as_mut()?;
        let pause_us = |n: u64| (self.target_us.pow(2) / n).isqrt();
        let due_us = *since_us + self.target_us + (1..=*shed).map(pause_us).sum::<u64>();
        if due_us > now_us {
            return None;
        }
        *shed += 1;
        let oldest = self.waiting.remove(0);
        self.judge(now_us);
        Some(oldest)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn newest_first_and_the_oldest_shed_while_it_stands(
        steps in vec(step(), 0..200),
        target_us in 1..200_u64,
    ) {
        let mut line = line(Discipline::Adaptive { target_us });
        let mut model = Model { target_us, waiting: Vec::new(), standing: None };
        let mut now_us = 0;
        for (item, step) in steps.into_iter().enumerate() {
            match step {
                Step::Join => {
                    let place = line.join(now_us, LANE, item).unwrap();
                    model.waiting.push((place, item, now_us));
                }
                Step::Pull => {
                    let expected = if model.judge(now_us) {
                        model.waiting.pop()
                    } else {
                        (!model.waiting.is_empty()).then(|| model.waiting.remove(0))
                    };
                    let pulled = line.pull(now_us).map(|p| (p.place, p.item, now_us - p.wait_us));
                    prop_assert_eq!(pulled, expected);
                }
                Step::Leave(index) => {
                    if index < model.waiting.len() {
                        let (place, item, _) = model.waiting.remove(index);
                        prop_assert_eq!(line.leave(place), Some(item));
                    }
                }
                Step::Expire => {
                    let expired = line.expire(now_us);
                    if let Some((expiry, p)) = expired {
                        prop_assert_eq!(expiry, Expiry::Shed);
                        prop_assert!(p.wait_us >= target_us);
                    }
                    let shed = expired.map(|(_, p)| (p.place, p.item, now_us - p.wait_us));
                    prop_assert_eq!(shed, model.shed(now_us));
                }
                Step::Pass { time_us } => now_us += time_us,
            }
            if model.waiting.is_empty() {
                model.standing = None;
            }
            prop_assert_eq!(line.len(), model.waiting.len());
        }
        let rest: Vec<_> = line.drain(now_us).map(|p| p.item).collect();
        let expected: Vec<_> = model.waiting.iter().map(|one| one.1).collect();
        prop_assert_eq!(rest, expected);
    }

    /// The two orders are the same as long as every entry comes out before the target.
    #[test]
    fn the_same_as_fifo_while_nobody_waits_for_long(steps in vec(step(), 0..200)) {
        const TARGET_US: u64 = 100;
        let mut fifo = line(Discipline::Fifo);
        let mut adaptive = line(Discipline::Adaptive { target_us: TARGET_US });
        let mut places: Vec<Place> = Vec::new();
        let mut now_us = 0;
        for (item, step) in steps.into_iter().enumerate() {
            match step {
                Step::Join => {
                    let place = fifo.join(now_us, LANE, item).unwrap();
                    prop_assert_eq!(adaptive.join(now_us, LANE, item).unwrap(), place);
                    places.push(place);
                }
                Step::Pull => prop_assert_eq!(adaptive.pull(now_us), fifo.pull(now_us)),
                Step::Leave(joins_ago) => {
                    if let Some(&place) = places.iter().rev().nth(joins_ago) {
                        prop_assert_eq!(adaptive.leave(place), fifo.leave(place));
                    }
                }
                Step::Expire => prop_assert_eq!(adaptive.expire(now_us), None),
                Step::Pass { time_us } => {
                    let until_us = now_us + time_us;
                    // A seat becomes free for each entry that would otherwise wait too long.
                    while !fifo.is_empty() {
                        let in_time_us = now_us + TARGET_US - 1 - fifo.oldest_wait_us(now_us);
                        if in_time_us > until_us {
                            break;
                        }
                        now_us = in_time_us;
                        prop_assert_eq!(adaptive.pull(now_us), fifo.pull(now_us));
                    }
                    now_us = until_us;
                }
            }
        }
        prop_assert!(adaptive.drain(now_us).eq(fifo.drain(now_us)));
    }
}
