//! Seats that are kept for some lanes, and lanes that may have only so many.
//!
//! All seats take from one ready ring, in which nothing can be overtaken. So while seats are reserved for a lane, the
//! exchange holds no more requests than there are seats. Then counting is enough to keep a seat free, and workers know
//! nothing of lanes. A lane's maximum needs no such care: a request that waits in the ring counts as one with a seat.

use crate::line::LaneId;

/// The seats of one lane, which the operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSeats {
    /// How many seats all the other lanes together cannot take. The lane may take more than those, if they are free.
    pub kept: usize,
    /// How many seats the lane can take at most. `None`: as many as are free.
    pub max: Option<usize>,
}

/// How many seats each lane holds, how many are kept for it, and how many it may hold.
#[derive(Debug)]
pub struct Reserve {
    /// Empty if no lane has seats kept for it or a maximum.
    lanes: Vec<LaneSeats>,
    /// By lane: how many requests have a seat, or wait for one to take them.
    held: Vec<usize>,
}

impl Reserve {
    /// Gives each lane these seats.
    pub fn new(mut lanes: Vec<LaneSeats>) -> Self {
        if lanes.iter().all(|lane| *lane == LaneSeats::default()) {
            lanes.clear();
        }
        Self {
            held: vec![0; lanes.len()],
            lanes,
        }
    }

    /// Whether a seat is kept for any lane.
    pub fn keeps_seats(&self) -> bool {
        self.lanes.iter().any(|lane| lane.kept > 0)
    }

    /// Counts a request of `lane` that goes to a seat.
    pub fn entered(&mut self, lane: LaneId) {
        if let Some(held) = self.held.get_mut(lane.index()) {
            *held += 1;
        }
    }

    /// Counts a request of `lane` that is done with its seat.
    pub fn left(&mut self, lane: LaneId) {
        if let Some(held) = self.held.get_mut(lane.index()) {
            *held -= 1;
        }
    }

    /// Whether one more request of `lane` may go to one of `seats` seats.
    pub fn may_enter(&self, lane: LaneId, seats: usize) -> bool {
        let lane = lane.index();
        self.lanes.is_empty()
            || (!is_at_max(lane, &self.held, &self.lanes)
                && is_left(lane, &self.held, &self.lanes, seats))
    }

    /// Whether `lane` holds as many seats as it may.
    pub fn is_at_max(&self, lane: LaneId) -> bool {
        !self.lanes.is_empty() && is_at_max(lane.index(), &self.held, &self.lanes)
    }
}

fn is_at_max(lane: usize, held: &[usize], lanes: &[LaneSeats]) -> bool {
    lanes[lane].max.is_some_and(|max| held[lane] >= max)
}

/// Whether there is a seat for one more request of `lane`, if each lane holds `held` of `seats` seats.
///
/// One seat is never kept, whatever the operator asked for, so that every lane can get one. If there are too few seats
/// (workers are dead or not there yet), the first lanes have theirs.
fn is_left(lane: usize, held: &[usize], lanes: &[LaneSeats], seats: usize) -> bool {
    let mut to_keep = seats.saturating_sub(1);
    let mut taken = 1; // the request that asks
    for (other, (&held, of)) in held.iter().zip(lanes).enumerate() {
        let kept = of.kept.min(to_keep);
        to_keep -= kept;
        taken += if other == lane { held } else { held.max(kept) };
    }
    taken <= seats
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn keeping(kept: usize) -> LaneSeats {
        LaneSeats { kept, max: None }
    }

    fn at_most(max: usize) -> LaneSeats {
        LaneSeats {
            kept: 0,
            max: Some(max),
        }
    }

    #[test]
    fn who_may_have_the_next_seat() {
        // (held, kept, seats, whether each lane may have one more)
        type Row<'a> = (&'a [usize], &'a [usize], usize, &'a [bool]);
        let table: &[Row] = &[
            // Lane 1 has a kept seat, one of four.
            (&[0, 0], &[0, 1], 4, &[true, true]),
            (&[2, 0], &[0, 1], 4, &[true, true]),
            (&[3, 0], &[0, 1], 4, &[false, true]),
            (&[3, 1], &[0, 1], 4, &[false, false]),
            (&[2, 1], &[0, 1], 4, &[true, true]),
            // Lane 1 may have more than the seats kept for it.
            (&[0, 3], &[0, 1], 4, &[true, true]),
            (&[0, 4], &[0, 1], 4, &[false, false]),
            // Two lanes have kept seats, and leave each other's alone.
            (&[0, 0, 0], &[0, 2, 1], 4, &[true, true, true]),
            (&[1, 0, 0], &[0, 2, 1], 4, &[false, true, true]),
            (&[1, 0, 1], &[0, 2, 1], 4, &[false, true, false]),
            (&[1, 2, 0], &[0, 2, 1], 4, &[false, false, true]),
            // Fewer seats are at work: one is for any lane, the first lanes have the others.
            (&[0, 0, 0], &[0, 2, 1], 2, &[true, true, true]),
            (&[1, 0, 0], &[0, 2, 1], 2, &[false, true, false]),
            (&[0, 0, 0], &[0, 2, 1], 1, &[true, true, true]),
            (&[1, 0, 0], &[0, 2, 1], 1, &[false, false, false]),
            (&[0, 0, 0], &[0, 2, 1], 0, &[false, false, false]),
            // Workers died while all seats were taken.
            (&[3, 1, 0], &[0, 2, 1], 2, &[false, false, false]),
        ];
        for &(held, kept, seats, expected) in table {
            let lanes: Vec<_> = kept.iter().map(|&kept| keeping(kept)).collect();
            let actual: Vec<_> = (0..lanes.len())
                .map(|lane| is_left(lane, held, &lanes, seats))
                .collect();
            assert_eq!(actual, expected, "{held:?} of {seats}, kept {kept:?}");
        }
    }

    #[test]
    fn what_is_counted() {
        let (first, second) = (LaneId::new(0), LaneId::new(1));
        let mut reserve = Reserve::new(vec![keeping(0), keeping(1)]);
        assert!(reserve.keeps_seats());
        reserve.entered(first);
        assert!(!reserve.may_enter(first, 2));
        assert!(reserve.may_enter(second, 2));
        reserve.entered(second);
        assert!(!reserve.may_enter(second, 2));
        reserve.left(first);
        assert!(reserve.may_enter(first, 2));

        let mut none = Reserve::new(vec![LaneSeats::default(); 2]);
        assert!(!none.keeps_seats());
        none.entered(second);
        assert!(!none.is_at_max(second));
        none.left(second);
        assert!(none.may_enter(second, 0), "nothing is counted");
    }

    #[test]
    fn a_lane_has_no_more_seats_than_its_maximum() {
        // (the seats of each lane, the lanes that hold one each, seats, whether each lane may have one more)
        type Row<'a> = (&'a [LaneSeats], &'a [usize], usize, &'a [bool]);
        let default = LaneSeats::default();
        let both = LaneSeats {
            kept: 1,
            max: Some(2),
        };
        let table: &[Row] = &[
            (&[default, at_most(1)], &[], 3, &[true, true]),
            (&[default, at_most(1)], &[1], 3, &[true, false]),
            (&[default, at_most(1)], &[0, 0], 3, &[true, true]),
            (&[default, at_most(1)], &[0, 0, 0], 3, &[false, false]),
            // The seats are gone with their workers, and a request is still there.
            (&[default, at_most(2)], &[1], 1, &[false, false]),
            // A maximum beyond the seats limits nothing.
            (&[default, at_most(9)], &[1, 1], 3, &[true, true]),
            // The default lane has a maximum, too.
            (&[at_most(1), default], &[0], 3, &[false, true]),
            // Another lane's kept seat stays free, however far the maximum is.
            (&[keeping(1), at_most(3)], &[1, 1], 3, &[true, false]),
            (&[keeping(1), at_most(2)], &[1, 1], 4, &[true, false]),
            // One seat of the two that the lane may have is kept for it.
            (&[default, both], &[0, 0], 3, &[false, true]),
            (&[default, both], &[1, 1], 3, &[true, false]),
        ];
        for &(lanes, holders, seats, expected) in table {
            let mut reserve = Reserve::new(lanes.to_vec());
            for &lane in holders {
                reserve.entered(LaneId::new(lane));
            }
            let ids = || (0..lanes.len()).map(LaneId::new);
            let actual: Vec<_> = ids().map(|lane| reserve.may_enter(lane, seats)).collect();
            assert_eq!(actual, expected, "{holders:?} of {seats}, {lanes:?}");
            for lane in ids() {
                let count = holders.iter().filter(|&&one| one == lane.index()).count();
                let max = lanes[lane.index()].max;
                assert_eq!(reserve.is_at_max(lane), max.is_some_and(|max| count >= max));
                reserve.entered(lane);
                reserve.left(lane);
                assert_eq!(reserve.may_enter(lane, seats), expected[lane.index()]);
            }
        }
    }

    #[test]
    fn a_maximum_alone_keeps_no_seat() {
        assert!(!Reserve::new(vec![LaneSeats::default(), at_most(1)]).keeps_seats());
        assert!(Reserve::new(vec![at_most(1), keeping(1)]).keeps_seats());
    }

    proptest! {
        /// Seats are taken and left at random, as the rule allows.
        #[test]
        fn others_never_hold_what_is_kept(
            kept in vec(0..4_usize, 1..5),
            seats in 1..8_usize,
            steps in vec((any::<bool>(), 0..5_usize), 0..100),
        ) {
            let lanes = kept.len();
            let rules: Vec<_> = kept.iter().map(|&kept| keeping(kept)).collect();
            let may_enter = |lane, held: &[usize]| is_left(lane, held, &rules, seats);
            let mut held = vec![0; lanes];
            for (takes, lane) in steps {
                let lane = lane % lanes;
                if takes && may_enter(lane, &held) {
                    held[lane] += 1;
                } else if !takes && held[lane] > 0 {
                    held[lane] -= 1;
                }
                let total: usize = held.iter().sum();
                prop_assert!(total <= seats);
                let asked: usize = kept.iter().sum();
                for lane in 0..lanes {
                    if asked < seats {
                        prop_assert!(total - held[lane] <= seats - kept[lane]);
                    }
                    // A lane with fewer requests than its kept seats gets one as soon as its own seats are left to it;
                    // while no seat is taken, any lane gets one.
                    if asked < seats && held[lane] < kept[lane] {
                        prop_assert!(may_enter(lane, &held));
                    }
                    if total == 0 {
                        prop_assert!(may_enter(lane, &held));
                    }
                }
                // No seat stays empty that is not kept for a lane.
                let spare = (0..lanes).map(|lane| held[lane].max(kept[lane])).sum::<usize>() < seats;
                if spare {
                    prop_assert!((0..lanes).all(|lane| may_enter(lane, &held)));
                }
            }
        }
    }
}
