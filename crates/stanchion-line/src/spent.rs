//! Where the time of requests goes: waiting in the line, waiting for a core, waiting for the interpreter's lock (GIL), own CPU, and
//! elsewhere, which is a database, a network or a sleep.
//!
//! A request's seat measures three of these, and not for every request. The parts of a request are never more than its
//! time, whatever a worker says: each is limited to the rest that the parts before it leave. If a part was not measured, its time is in the rest,
//! elsewhere.

use std::ops::AddAssign;

use crate::demand::Demand;
use crate::drain_rate::to_f64;

/// The time of requests from their arrival until their answer was complete, by what they spent it on, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Waiting for a seat.
    pub line_us: u64,
    /// At a seat, waiting for a core.
    pub core_us: u64,
    /// At a seat, waiting for the interpreter's lock.
    pub gil_us: u64,
    /// On a core.
    pub cpu_us: u64,
    /// The rest of the time at a seat.
    pub elsewhere_us: u64,
}

/// The parts that a seat has measured of a request, in microseconds; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// On a core.
    pub cpu_us: Option<u64>,
    /// Waiting for a core.
    pub core_us: Option<u64>,
    /// Waiting for the interpreter's lock.
    pub gil_us: Option<u64>,
}

impl Measured {
    /// The same, of a request that was at its seat for so long: each part is limited to what those before it leave.
    #[must_use]
    pub fn within(self, service_us: u64) -> Self {
        let mut left_us = service_us;
        let mut take = |us: u64| {
            let us = us.min(left_us);
            left_us -= us;
            us
        };
        Self {
            cpu_us: self.cpu_us.map(&mut take),
            core_us: self.core_us.map(&mut take),
            gil_us: self.gil_us.map(&mut take),
        }
    }
}

impl Spent {
    /// The parts of a request that waited in the line and was at a seat for so long; `None` if its seat measured nothing.
    pub fn of(wait_us: u64, service_us: u64, measured: Measured) -> Option<Self> {
        let Measured {
            cpu_us,
            core_us,
            gil_us,
        } = measured.within(service_us);
        let known = [
            cpu_us?,
            core_us.unwrap_or_default(),
            gil_us.unwrap_or_default(),
        ];
        let [cpu_us, core_us, gil_us] = known;
        Some(Self {
            line_us: wait_us,
            core_us,
            gil_us,
            cpu_us,
            elsewhere_us: service_us - known.iter().sum::<u64>(),
        })
    }

    /// The time at seats.
    pub fn service_us(&self) -> u64 {
        let parts = [self.core_us, self.gil_us, self.cpu_us, self.elsewhere_us];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// The share of its time for which a request that waits for no core and no lock has a core; `None` if none was measured.
    pub fn cpu_share(&self) -> Option<f64> {
        let at_work_us = self.cpu_us.saturating_add(self.elsewhere_us);
        (at_work_us > 0).then(|| to_f64(self.cpu_us) / to_f64(at_work_us))
    }

    /// The whole time.
    pub fn all_us(&self) -> u64 {
        self.line_us.saturating_add(self.service_us())
    }

    /// Each part with its name.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("line", self.line_us),
            ("core", self.core_us),
            ("gil", self.gil_us),
            ("cpu", self.cpu_us),
            ("elsewhere", self.elsewhere_us),
        ]
    }

    /// A request that waited and was at a seat for so long, and spent its time there as these did.
    fn like(&self, wait_us: u64, service_us: u64) -> Self {
        let whole_us = self.service_us().max(1);
        let part = |us: u64| {
            let part = u128::from(us) * u128::from(service_us) / u128::from(whole_us);
            Some(u64::try_from(part).unwrap_or(u64::MAX))
        };
        let measured = Measured {
            cpu_us: part(self.cpu_us),
            core_us: part(self.core_us),
            gil_us: part(self.gil_us),
        };
        Self::of(wait_us, service_us, measured).unwrap_or_default()
    }

    /// The time that was added since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            line_us: self.line_us.saturating_sub(before.line_us),
            core_us: self.core_us.saturating_sub(before.core_us),
            gil_us: self.gil_us.saturating_sub(before.gil_us),
            cpu_us: self.cpu_us.saturating_sub(before.cpu_us),
            elsewhere_us: self.elsewhere_us.saturating_sub(before.elsewhere_us),
        }
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.line_us = self.line_us.saturating_add(more.line_us);
        self.core_us = self.core_us.saturating_add(more.core_us);
        self.gil_us = self.gil_us.saturating_add(more.gil_us);
        self.cpu_us = self.cpu_us.saturating_add(more.cpu_us);
        self.elsewhere_us = self.elsewhere_us.saturating_add(more.elsewhere_us);
    }
}

/// The sums of the requests of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSpent {
    /// The requests of which parts are known, or assumed.
    pub spent: Spent,
    /// The same, but each request has at most [`Demand::HELD_US`] in the line and at its seat: a stream that ends has run for longer than
    /// the time that a verdict is about.
    pub bounded: Spent,
    /// How long the others were at seats: no request of their lane was measured before them.
    pub unmeasured_us: u64,
    /// The last request that was measured.
    last: Option<Spent>,
}

impl LaneSpent {
    /// Adds a request that is over. If its seat did not measure it, it counts as the last one of its lane that was measured: seats
    /// measure all requests but the short ones of a fast sequence, which are alike.
    pub fn add(&mut self, wait_us: u64, service_us: u64, measured: Measured) {
        let spent = Spent::of(wait_us, service_us, measured);
        self.last = spent.or(self.last);
        let bound = |us: u64| us.min(Demand::HELD_US);
        let (all, bounded) = match (spent, self.last) {
            (Some(spent), _) => (spent, spent.like(bound(wait_us), bound(service_us))),
            (None, Some(last)) => (
                last.like(wait_us, service_us),
                last.like(bound(wait_us), bound(service_us)),
            ),
            (None, None) => {
                self.unmeasured_us = self.unmeasured_us.saturating_add(service_us);
                let waited = |line_us: u64| Spent {
                    line_us,
                    ..Spent::default()
                };
                (waited(wait_us), waited(bound(wait_us)))
            }
        };
        self.spent += all;
        self.bounded += bounded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(cpu_us: u64, core_us: u64, gil_us: u64) -> Measured {
        Measured {
            cpu_us: Some(cpu_us),
            core_us: Some(core_us),
            gil_us: Some(gil_us),
        }
    }

    fn parts(spent: Spent) -> [u64; 5] {
        spent.named().map(|(_, us)| us)
    }

    #[test]
    fn parts_are_limited_to_the_time_whatever_a_worker_says() {
        for (told, expected) in [
            (measured(20, 10, 5), [7, 10, 5, 20, 65]),
            (measured(0, 0, 0), [7, 0, 0, 0, 100]),
            (measured(60, 60, 60), [7, 40, 0, 60, 0]),
            (measured(u64::MAX, 1, 1), [7, 0, 0, 100, 0]),
            (measured(10, 20, u64::MAX), [7, 20, 70, 10, 0]),
        ] {
            let spent = Spent::of(7, 100, told).expect("it was measured");
            assert_eq!(parts(spent), expected, "{told:?}");
            assert_eq!((spent.all_us(), spent.service_us()), (107, 100));
        }
    }

    #[test]
    fn a_stream_that_ends_is_no_more_than_the_time_that_a_verdict_is_about() {
        let mut lane = LaneSpent::default();
        let hour_us = 3_600_000_000;
        lane.add(hour_us, hour_us, measured(hour_us / 4, 0, 0));
        assert_eq!(
            parts(lane.spent),
            [hour_us, 0, 0, hour_us / 4, 3 * hour_us / 4]
        );
        let held_us = Demand::HELD_US;
        assert_eq!(
            parts(lane.bounded),
            [held_us, 0, 0, held_us / 4, 3 * held_us / 4]
        );
        lane.add(7, 100, measured(20, 10, 5));
        assert_eq!(lane.bounded.since(&LaneSpent::default().bounded).gil_us, 5);
    }

    #[test]
    fn a_part_that_is_unknown_is_elsewhere() {
        let told = Measured {
            core_us: None,
            gil_us: None,
            ..measured(20, 0, 0)
        };
        let spent = Spent::of(7, 100, told).expect("it was measured");
        assert_eq!(parts(spent), [7, 0, 0, 20, 80]);
        assert_eq!(Spent::of(7, 100, Measured::default()), None);
    }

    #[test]
    fn a_request_that_was_not_measured_counts_as_the_last_one_that_was() {
        let mut lane = LaneSpent::default();
        lane.add(3, 50, Measured::default());
        assert_eq!(
            (parts(lane.spent), lane.unmeasured_us),
            ([3, 0, 0, 0, 0], 50)
        );
        lane.add(10, 200, measured(100, 20, 60));
        lane.add(10, 100, Measured::default());
        assert_eq!(
            (parts(lane.spent), lane.unmeasured_us),
            ([23, 30, 90, 150, 30], 50)
        );
        lane.add(0, 100, measured(0, 0, 0));
        lane.add(0, 10, Measured::default());
        assert_eq!(parts(lane.spent), [23, 30, 90, 150, 140]);
    }

    #[test]
    fn parts_always_add_up_to_the_whole() {
        let mut lane = LaneSpent::default();
        let mut whole_us = 0;
        let mut seed = 1_u64;
        let mut random = |most: u64| {
            // Numerical Recipes' generator; its upper bits are good enough.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        for _ in 0..10_000 {
            let (wait_us, service_us) = (random(5_000), random(90_000));
            let told = match random(3) {
                0 => Measured::default(),
                _ => measured(random(99_000), random(9_000), random(9_000)),
            };
            lane.add(wait_us, service_us, told);
            whole_us += wait_us + service_us;
        }
        assert_eq!(lane.spent.all_us() + lane.unmeasured_us, whole_us);
    }

    #[test]
    fn absurd_times_do_not_overflow() {
        let mut lane = LaneSpent::default();
        for _ in 0..3 {
            lane.add(u64::MAX, u64::MAX, measured(u64::MAX / 2, u64::MAX, 1));
            lane.add(u64::MAX, u64::MAX, Measured::default());
        }
        assert_eq!(lane.spent.all_us(), u64::MAX);
        assert_eq!(lane.spent.since(&lane.spent), Spent::default());
    }
}
