//! Lanes that may have only so many seats: a line, its seats, and requests handed out ahead of them, as the acceptor has them.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use stanchion_line::{Discipline, LaneId, LaneLimits, LaneSeats, Line, LineLimits, Reserve};

#[derive(Clone, Debug)]
enum Step {
    Join {
        lane: usize,
    },
    /// The request of this seat ends.
    End {
        seat: usize,
    },
    /// The worker of this seat dies, and its request goes back to the front of its lane.
    PutBack {
        seat: usize,
    },
    /// The client of the request that was handed out last, and that no seat has taken, leaves.
    Withdraw,
    Pass {
        time_us: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..4_usize).prop_map(|lane| Step::Join { lane }),
        4 => (0..8_usize).prop_map(|seat| Step::End { seat }),
        1 => (0..8_usize).prop_map(|seat| Step::PutBack { seat }),
        1 => Just(Step::Withdraw),
        1 => (1..9_u64).prop_map(|time_us| Step::Pass { time_us }),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Served {
    lane: LaneId,
    joined_us: u64,
    item: u32,
}

/// The seats and the ready ring, which no request overtakes in.
struct House {
    line: Line<(u64, u32)>,
    reserve: Reserve,
    seats: Vec<Option<Served>>,
    ring: VecDeque<Served>,
    /// How many requests the exchange holds at most.
    room: usize,
    now_us: u64,
    /// In the order in which they left the line.
    pulled: Vec<Served>,
}

impl House {
    fn new(lanes: &[LaneSeats], priorities: &[u32], seats: usize, ahead: usize) -> Self {
        let limits = LineLimits {
            waiting_max: 10_000,
            queue_timeout_us: 0,
            discipline: Discipline::Fifo,
        };
        let of = |&priority: &u32| LaneLimits {
            priority,
            waiting_max: None,
        };
        let reserve = Reserve::new(lanes.to_vec());
        // The acceptor hands out none ahead while a seat is kept for a lane.
        let ahead = if reserve.keeps_seats() { 0 } else { ahead };
        Self {
            line: Line::with_lanes(limits, &priorities.iter().map(of).collect::<Vec<_>>()),
            reserve,
            seats: vec![None; seats],
            ring: VecDeque::new(),
            room: seats * (1 + ahead),
            now_us: 0,
            pulled: Vec::new(),
        }
    }

    fn in_exchange(&self) -> impl Iterator<Item = &Served> {
        self.seats.iter().flatten().chain(&self.ring)
    }

    fn fill(&mut self) {
        while self.in_exchange().count() < self.room {
            let (reserve, room) = (&self.reserve, self.room);
            let may = |lane| reserve.may_enter(lane, room);
            let Some(pulled) = self.line.pull_if(self.now_us, may) else {
                break;
            };
            let ((joined_us, item), lane) = (pulled.item, pulled.place.lane());
            self.reserve.entered(lane);
            let served = Served {
                lane,
                joined_us,
                item,
            };
            self.pulled.push(served);
            self.ring.push_back(served);
        }
        for seat in self.seats.iter_mut().filter(|seat| seat.is_none()) {
            *seat = self.ring.pop_front();
        }
    }

    fn leave_seat(&mut self, seat: usize) -> Option<Served> {
        let seat = seat % self.seats.len();
        let served = self.seats[seat].take()?;
        self.reserve.left(served.lane);
        Some(served)
    }

    fn step(&mut self, step: &Step, lanes: usize, item: u32) {
        match *step {
            Step::Join { lane } => {
                let joins = (self.now_us, item);
                let lane = LaneId::new(lane % lanes);
                self.line.join(self.now_us, lane, joins).unwrap();
            }
            Step::End { seat } => {
                if let Some(served) = self.leave_seat(seat) {
                    self.line.drained(self.now_us, served.lane);
                }
            }
            Step::PutBack { seat } => {
                if let Some(back) = self.leave_seat(seat) {
                    let item = (back.joined_us, back.item);
                    self.line
                        .put_back(self.now_us, back.lane, back.joined_us, item);
                }
            }
            Step::Withdraw => {
                if let Some(withdrawn) = self.ring.pop_back() {
                    self.reserve.left(withdrawn.lane);
                }
            }
            Step::Pass { time_us } => self.now_us += time_us,
        }
        self.fill();
    }
}

fn lane_seats() -> impl Strategy<Value = LaneSeats> {
    (0..3_usize, proptest::option::of(1..5_usize)).prop_map(|(kept, max)| LaneSeats {
        kept: kept.min(max.unwrap_or(kept)),
        max,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_lane_never_has_more_than_its_maximum_and_no_seat_idles_for_another(
        steps in vec(step(), 0..200),
        (lanes, priorities) in (1..5_usize).prop_flat_map(|count| {
            (vec(lane_seats(), count), vec(0..3_u32, count))
        }),
        keeps in any::<bool>(),
        seats in 1..8_usize,
        ahead in 0..4_usize,
    ) {
        let mut lanes = lanes;
        if !keeps {
            for lane in &mut lanes {
                lane.kept = 0;
            }
        }
        let mut house = House::new(&lanes, &priorities, seats, ahead);
        for (item, step) in (0..).zip(&steps) {
            house.step(step, lanes.len(), item);
            let held = |lane: usize| {
                house.in_exchange().filter(|served| served.lane.index() == lane).count()
            };
            let is_idle = house.seats.iter().any(Option::is_none);
            prop_assert!(!is_idle || house.ring.is_empty());
            // Seats that no other lane may have: as far as all of them can be kept at once.
            let kept_for_others = |lane: usize| -> usize {
                let others = (0..lanes.len()).filter(|&other| other != lane);
                others.map(|other| lanes[other].kept.saturating_sub(held(other))).sum()
            };
            let idle = house.seats.iter().filter(|seat| seat.is_none()).count();
            for (lane, of) in lanes.iter().enumerate() {
                let waiting = house.line.view(house.now_us, LaneId::new(lane)).waiting;
                let max = of.max.unwrap_or(usize::MAX);
                prop_assert!(held(lane) <= max, "lane {lane} has {} of {max}", held(lane));
                let may = held(lane) < max && idle > kept_for_others(lane);
                prop_assert!(waiting == 0 || !may, "lane {lane}: {waiting} wait, {idle} seats are idle");
            }
        }
    }

    /// No request goes back, so each lane's requests leave the line in the order in which they have joined it.
    #[test]
    fn each_lane_stays_in_order(
        arrivals in vec((0..4_usize, any::<bool>(), 0..8_usize), 0..200),
        lanes in vec(lane_seats(), 1..5),
        seats in 1..8_usize,
        ahead in 0..4_usize,
    ) {
        let mut house = House::new(&lanes, &vec![0; lanes.len()], seats, ahead);
        for (item, (lane, ends, seat)) in (0..).zip(arrivals) {
            house.step(&Step::Join { lane }, lanes.len(), item);
            if ends {
                house.step(&Step::End { seat }, lanes.len(), item);
            }
        }
        for lane in 0..lanes.len() {
            let theirs = house.pulled.iter().filter(|served| served.lane.index() == lane);
            let items: Vec<_> = theirs.map(|served| served.item).collect();
            prop_assert!(items.is_sorted(), "{items:?}");
        }
    }
}

#[test]
fn streams_leave_two_of_three_seats_to_the_others() {
    let (default, streams) = (0, 1);
    let at_most_one = LaneSeats {
        kept: 0,
        max: Some(1),
    };
    let mut house = House::new(&[LaneSeats::default(), at_most_one], &[10, 10], 3, 1);
    for item in 0..5 {
        house.step(&Step::Join { lane: streams }, 2, item);
        house.step(&Step::Pass { time_us: 1 }, 2, item);
    }
    assert_eq!(
        house.in_exchange().count(),
        1,
        "none is handed out ahead either"
    );
    for item in 5..15 {
        house.step(&Step::Join { lane: default }, 2, item);
    }
    let by_lane = |house: &House, lane| {
        let theirs = house.in_exchange().filter(|one| one.lane.index() == lane);
        theirs.count()
    };
    assert_eq!((by_lane(&house, default), by_lane(&house, streams)), (5, 1));
    // The stream ends, and the next one has its turn although default requests have waited too.
    let seat = house
        .seats
        .iter()
        .position(|seat| seat.unwrap().lane.index() == streams);
    house.step(
        &Step::End {
            seat: seat.unwrap(),
        },
        2,
        15,
    );
    assert_eq!((by_lane(&house, default), by_lane(&house, streams)), (5, 1));
    assert_eq!(
        house.ring.back().unwrap().item,
        1,
        "the oldest stream that waits"
    );
}

/// A refused client of a lane with a maximum hears of the pace of that lane's seats, not of the others'.
#[test]
fn the_estimate_of_a_lane_is_of_its_own_seats() {
    const SECOND_US: u64 = 1_000_000;
    let at_most_one = LaneSeats {
        kept: 0,
        max: Some(1),
    };
    let mut house = House::new(&[LaneSeats::default(), at_most_one], &[10, 10], 3, 0);
    let (default, streams) = (LaneId::DEFAULT, LaneId::new(1));
    let mut item = 0;
    // Both lanes always have 20 waiting. A default request takes 0.1 s at each of two seats, a stream 1 s at its one.
    for tick in 0..300_u64 {
        house.now_us = tick * SECOND_US / 10;
        for lane in [default, streams] {
            while house.line.view(house.now_us, lane).waiting < 20 {
                item += 1;
                house.step(&Step::Join { lane: lane.index() }, 2, item);
            }
        }
        for seat in 0..3 {
            let is_stream = house.seats[seat].unwrap().lane == streams;
            if !is_stream || tick % 10 == 0 {
                house.step(&Step::End { seat }, 2, item);
            }
        }
    }
    let of_default = house.line.retry_after_s(house.now_us, default);
    let of_streams = house.line.retry_after_s(house.now_us, streams);
    assert!((1..=2).contains(&of_default), "{of_default}");
    assert!((17..=23).contains(&of_streams), "{of_streams}");
}
