//! The line against a naive model: plain vectors, searched from the front.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use stanchion_line::{
    Discipline, Expiry, Full, LaneId, LaneLimits, Line, LineLimits, Place, Pulled,
};

/// The line's own constant: how often a lane may be passed over.
const PASSED_OVER_MAX: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Join {
        lane: usize,
    },
    /// Pulls from these lanes, one bit each.
    Pull {
        lanes: u8,
    },
    /// Puts back the entry that was pulled this many pulls ago, if it is still out.
    PutBack(usize),
    /// The entry that joined this many joins ago leaves, whether or not it still waits.
    Leave(usize),
    Expire,
    Drained {
        lane: usize,
    },
    Pass {
        time_us: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_usize).prop_map(|lane| Step::Join { lane }),
        3 => prop_oneof![3 => Just(0xff), 1 => any::<u8>()].prop_map(|lanes| Step::Pull { lanes }),
        1 => (0..5_usize).prop_map(Step::PutBack),
        2 => (0..40_usize).prop_map(Step::Leave),
        1 => Just(Step::Expire),
        1 => (0..4_usize).prop_map(|lane| Step::Drained { lane }),
        2 => (0..60_u64).prop_map(|time_us| Step::Pass { time_us }),
    ]
}

fn lane_limits() -> impl Strategy<Value = Vec<LaneLimits>> {
    let one = (0..3_u32, proptest::option::of(0..5_usize)).prop_map(|(priority, waiting_max)| {
        LaneLimits {
            priority,
            waiting_max,
        }
    });
    vec(one, 1..5)
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Waiting {
    place: Place,
    item: u32,
    joined_us: u64,
}

fn described(pulled: Pulled<u32>, now_us: u64) -> Waiting {
    Waiting {
        place: pulled.place,
        item: pulled.item,
        joined_us: now_us - pulled.wait_us,
    }
}

/// Each lane: entries that came back, oldest first, and then entries that joined.
#[derive(Debug)]
struct Lane {
    limits: LaneLimits,
    returned: Vec<Waiting>,
    joined: Vec<Waiting>,
    passed_over: usize,
}

struct Model {
    limits: LineLimits,
    lanes: Vec<Lane>,
}

impl Lane {
    fn len(&self) -> usize {
        self.returned.len() + self.joined.len()
    }

    fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.returned.iter().chain(&self.joined)
    }

    fn oldest_us(&self) -> Option<u64> {
        self.all().map(|one| one.joined_us).min()
    }

    fn take(&mut self, place: Place) -> Waiting {
        let taken = *self.all().find(|one| one.place == place).unwrap();
        self.returned.retain(|one| one.place != place);
        self.joined.retain(|one| one.place != place);
        taken
    }
}

impl Model {
    fn is_overdue(&self, joined_us: u64, now_us: u64) -> bool {
        self.limits.queue_timeout_us > 0 && now_us - joined_us >= self.limits.queue_timeout_us
    }

    fn len(&self) -> usize {
        self.lanes.iter().map(Lane::len).sum()
    }

    fn oldest_us(&self) -> Option<u64> {
        self.lanes.iter().filter_map(Lane::oldest_us).min()
    }

    fn has_room(&self, lane: usize) -> bool {
        if let Some(own_max) = self.lanes[lane].limits.waiting_max {
            return self.lanes[lane].len() < own_max;
        }
        let sharing = self
            .lanes
            .iter()
            .filter(|lane| lane.limits.waiting_max.is_none());
        sharing.map(Lane::len).sum::<usize>() < self.limits.waiting_max
    }

    fn head(&self, lane: usize, now_us: u64) -> Option<Waiting> {
        let mut all = self.lanes[lane].all();
        all.find(|one| !self.is_overdue(one.joined_us, now_us))
            .copied()
    }

    fn pull(&mut self, allowed: u8, now_us: u64) -> Option<Waiting> {
        let heads: Vec<(usize, Waiting)> = (0..self.lanes.len())
            .filter(|lane| allowed & (1 << lane) != 0)
            .filter_map(|lane| Some((lane, self.head(lane, now_us)?)))
            .collect();
        let owed = heads
            .iter()
            .map(|&(lane, _)| self.lanes[lane].passed_over)
            .max()?;
        let by_right = |&&(lane, _): &&(usize, Waiting)| self.lanes[lane].passed_over == owed;
        let by_priority = |&&(lane, _): &&(usize, Waiting)| {
            (
                self.lanes[lane].limits.priority,
                self.lanes[lane].oldest_us(),
                lane,
            )
        };
        let &(chosen, head) = if owed >= PASSED_OVER_MAX {
            heads.iter().filter(by_right).min_by_key(by_priority)?
        } else {
            heads.iter().min_by_key(by_priority)?
        };
        // With one lane there is none to pass over.
        for &(lane, _) in &heads {
            self.lanes[lane].passed_over += 1;
        }
        for (lane, one) in self.lanes.iter_mut().enumerate() {
            if lane == chosen || one.len() == 0 {
                one.passed_over = 0;
            }
        }
        Some(self.lanes[chosen].take(head.place))
    }

    fn expire(&mut self, now_us: u64) -> Option<Waiting> {
        for lane in 0..self.lanes.len() {
            let fronts = [
                self.lanes[lane].returned.first(),
                self.lanes[lane].joined.first(),
            ];
            let late = fronts
                .into_iter()
                .flatten()
                .find(|one| self.is_overdue(one.joined_us, now_us));
            if let Some(&late) = late {
                return Some(self.lanes[lane].take(late.place));
            }
        }
        None
    }

    fn leave(&mut self, place: Place) -> Option<Waiting> {
        let lane = &mut self.lanes[place.lane().index()];
        let waits = lane.all().any(|one| one.place == place);
        waits.then(|| lane.take(place))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_model(
        steps in vec(step(), 0..200),
        waiting_max in 0..12_usize,
        queue_timeout_us in prop_oneof![Just(0), 1..200_u64],
        lanes in lane_limits(),
    ) {
        let limits = LineLimits { waiting_max, queue_timeout_us, discipline: Discipline::Fifo };
        let mut line = Line::with_lanes(limits, &lanes);
        let empty = |&limits: &LaneLimits| {
            Lane { limits, returned: Vec::new(), joined: Vec::new(), passed_over: 0 }
        };
        let mut model = Model { limits, lanes: lanes.iter().map(empty).collect() };
        let mut now_us = 0;
        let mut places: Vec<Place> = Vec::new();
        let mut pulled: Vec<(usize, u32, u64)> = Vec::new();
        let mut came_out: Vec<u32> = Vec::new();
        let (mut joined, mut refused) = (0, 0);

        for (item, step) in (0_u32..).zip(steps) {
            match step {
                Step::Join { lane } => {
                    let lane = lane % lanes.len();
                    let has_room = model.has_room(lane);
                    prop_assert_eq!(line.has_room(LaneId::new(lane), 0), has_room);
                    match line.join(now_us, LaneId::new(lane), item) {
                        Ok(place) => {
                            prop_assert!(has_room);
                            prop_assert_eq!(place.lane().index(), lane);
                            places.push(place);
                            joined += 1;
                            model.lanes[lane].joined.push(Waiting { place, item, joined_us: now_us });
                        }
                        Err((back, Full { retry_after_s })) => {
                            prop_assert_eq!(back, item);
                            prop_assert!(!has_room);
                            prop_assert!((1..=60).contains(&retry_after_s));
                            refused += 1;
                        }
                    }
                }
                Step::Pull { lanes } => {
                    let expected = model.pull(lanes, now_us);
                    let actual = line.pull_if(now_us, |lane| lanes & (1 << lane.index()) != 0);
                    let described = actual.map(|p| described(p, now_us));
                    prop_assert_eq!(described, expected);
                    pulled.extend(described.map(|one| {
                        (one.place.lane().index(), one.item, one.joined_us)
                    }));
                    came_out.extend(described.map(|one| one.item));
                }
                Step::PutBack(pulls_ago) => {
                    if pulls_ago >= pulled.len() { continue }
                    let (lane, item, joined_us) = pulled.remove(pulled.len() - 1 - pulls_ago);
                    came_out.retain(|&out| out != item);
                    let place = line.put_back(now_us, LaneId::new(lane), joined_us, item);
                    places.push(place);
                    let returned = &mut model.lanes[lane].returned;
                    returned.push(Waiting { place, item, joined_us });
                    returned.sort_by_key(|one| one.joined_us);
                }
                Step::Leave(joins_ago) => {
                    let Some(&left) = places.iter().rev().nth(joins_ago) else { continue };
                    let expected = model.leave(left).map(|one| one.item);
                    let actual = line.leave(left);
                    prop_assert_eq!(actual, expected);
                    came_out.extend(actual);
                }
                Step::Expire => {
                    let expected = model.expire(now_us).map(|one| (Expiry::TimedOut, one));
                    let actual = line.expire(now_us).map(|(expiry, p)| (expiry, described(p, now_us)));
                    prop_assert_eq!(actual, expected);
                    came_out.extend(actual.map(|(_, one)| one.item));
                }
                Step::Drained { lane } => line.drained(now_us, LaneId::new(lane % lanes.len())),
                Step::Pass { time_us } => now_us += time_us,
            }

            prop_assert_eq!(line.len(), model.len());
            prop_assert_eq!(line.is_empty(), model.len() == 0);
            let oldest_us = model.oldest_us();
            prop_assert_eq!(line.oldest_wait_us(now_us), oldest_us.map_or(0, |us| now_us - us));
            for (lane, one) in model.lanes.iter().enumerate() {
                prop_assert_eq!(line.view(now_us, LaneId::new(lane)).waiting, one.len());
            }
        }

        let rest: Vec<_> = line.drain(now_us).map(|p| p.item).collect();
        let expected: Vec<_> = model.lanes.iter().flat_map(Lane::all).map(|one| one.item).collect();
        prop_assert_eq!(&rest, &expected);
        came_out.extend(rest);

        // No item is lost, and none comes out twice.
        let distinct: HashSet<_> = came_out.iter().collect();
        prop_assert_eq!(distinct.len(), came_out.len());
        prop_assert_eq!(came_out.len(), joined);
        prop_assert_eq!(places.iter().collect::<HashSet<_>>().len(), places.len());
        prop_assert!(refused == 0 || waiting_max == 0 || joined > 0 || lanes.iter().any(|lane| lane.waiting_max == Some(0)));
        prop_assert!(line.is_empty());
    }

    /// As long as an entry waits in a lane, the lane gets one of so many turns, whatever the other lanes do.
    #[test]
    fn no_lane_starves(
        priorities in vec(0..4_u32, 1..20),
        arrivals in vec(0..20_usize, 0..400),
    ) {
        let limits = LineLimits { waiting_max: 10_000, queue_timeout_us: 0, discipline: Discipline::Fifo };
        let lanes: Vec<_> = priorities
            .iter()
            .map(|&priority| LaneLimits { priority, waiting_max: None })
            .collect();
        let mut line = Line::with_lanes(limits, &lanes);
        let mut turns_since = vec![0; lanes.len()];
        // Two arrivals a turn, so that the lanes stay full and any lane could be passed over.
        for (now_us, pair) in (0..).zip(arrivals.chunks(2)) {
            for lane in pair {
                line.join(now_us, LaneId::new(lane % lanes.len()), ()).unwrap();
            }
            let served = line.pull(now_us).unwrap().place.lane();
            for (lane, turns) in turns_since.iter_mut().enumerate() {
                if lane == served.index() || line.view(now_us, LaneId::new(lane)).waiting == 0 {
                    *turns = 0;
                } else {
                    *turns += 1;
                    prop_assert!(*turns < PASSED_OVER_MAX + lanes.len(), "lane {lane}: {turns} turns");
                }
            }
        }
    }
}
