//! Seats that are kept for some lanes.
//!
//! All seats take from one ready ring, in which nothing can be overtaken. So while seats are reserved for a lane, the
//! exchange holds no more requests than there are seats. Then counting is enough to keep a seat free, and workers know
//! nothing of lanes.

use crate::line::LaneId;

/// How many seats each lane holds, and how many are kept for it.
///
/// All the other lanes together cannot take the seats kept for a lane. The lane may take more than those, if they are
/// free.
#[derive(Debug)]
pub struct Reserve {
    /// By lane: how many seats are kept for it; empty if no lane has any.
    kept: Vec<usize>,
    /// By lane: how many requests have a seat, or wait for one to take them.
    held: Vec<usize>,
}

impl Reserve {
    /// Keeps this many seats for each lane.
    pub fn new(kept: Vec<usize>) -> Self {
        if kept.iter().all(|&seats| seats == 0) {
            return Self {
                kept: Vec::new(),
                held: Vec::new(),
            };
        }
        Self {
            held: vec![0; kept.len()],
            kept,
        }
    }

    /// Whether no seat is kept for any lane; then nothing is counted either.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Counts a request of `lane` that goes to a seat.
    pub fn entered(&mut self, lane: LaneId) {
        if !self.is_empty() {
            self.held[lane.index()] += 1;
        }
    }

    /// Counts a request of `lane` that is done with its seat.
    pub fn left(&mut self, lane: LaneId) {
        if !self.is_empty() {
            self.held[lane.index()] -= 1;
        }
    }

    /// Whether one more request of `lane` may go to one of `seats` seats.
    pub fn may_enter(&self, lane: LaneId, seats: usize) -> bool {
        self.is_empty() || may_enter(lane.index(), &self.held, &self.kept, seats)
    }
}

/// Whether there is a seat for one more request of `lane`, if each lane holds `held` of `seats` seats and has `kept` of
/// them kept for it.
///
/// One seat is never kept, whatever the operator asked for, so that every lane can get one. If there are too few seats
/// (workers are dead or not there yet), the first lanes have theirs.
fn may_enter(lane: usize, held: &[usize], kept: &[usize], seats: usize) -> bool {
    let mut to_keep = seats.saturating_sub(1);
    let mut taken = 1; // the request that asks
    for (other, (&held, &kept)) in held.iter().zip(kept).enumerate() {
        let kept = kept.min(to_keep);
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
            let lanes = 0..held.len();
            let actual: Vec<_> = lanes
                .map(|lane| may_enter(lane, held, kept, seats))
                .collect();
            assert_eq!(actual, expected, "{held:?} of {seats}, kept {kept:?}");
        }
    }

    #[test]
    fn what_is_counted() {
        let (first, second) = (LaneId::new(0), LaneId::new(1));
        let mut reserve = Reserve::new(vec![0, 1]);
        assert!(!reserve.is_empty());
        reserve.entered(first);
        assert!(!reserve.may_enter(first, 2));
        assert!(reserve.may_enter(second, 2));
        reserve.entered(second);
        assert!(!reserve.may_enter(second, 2));
        reserve.left(first);
        assert!(reserve.may_enter(first, 2));

        let mut none = Reserve::new(vec![0, 0]);
        assert!(none.is_empty());
        none.entered(second);
        none.left(second);
        assert!(none.may_enter(second, 0), "nothing is counted");
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
            let mut held = vec![0; lanes];
            for (takes, lane) in steps {
                let lane = lane % lanes;
                if takes && may_enter(lane, &held, &kept, seats) {
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
                        prop_assert!(may_enter(lane, &held, &kept, seats));
                    }
                    if total == 0 {
                        prop_assert!(may_enter(lane, &held, &kept, seats));
                    }
                }
                // No seat stays empty that is not kept for a lane.
                let spare = (0..lanes).map(|lane| held[lane].max(kept[lane])).sum::<usize>() < seats;
                if spare {
                    prop_assert!((0..lanes).all(|lane| may_enter(lane, &held, &kept, seats)));
                }
            }
        }
    }
}
