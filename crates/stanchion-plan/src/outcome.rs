//! The counts of one run of a simulation.

use stanchion_line::{Measured, Spent};

use crate::spread::{Course, Spread};
use crate::staff::Attendance;

/// The requests of one run, by what became of them, and their times.
#[derive(Clone, Debug)]
pub(crate) struct RunOutcome {
    pub(crate) offered: u64,
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) timed_out: u64,
    pub(crate) shed: u64,
    pub(crate) left: u64,
    /// Of the requests that were served.
    pub(crate) wait: Spread,
    pub(crate) latency: Spread,
    pub(crate) spent: Spent,
    pub(crate) busy_max: usize,
    pub(crate) lanes: Vec<LaneOutcome>,
    /// The requests that wait, over time.
    pub(crate) line: Course,
    pub(crate) attendance: Attendance,
    /// When the last request was over.
    pub(crate) ended_us: u64,
}

/// The requests of one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneOutcome {
    pub(crate) offered: u64,
    /// Refused, timed out or shed.
    pub(crate) turned_away: u64,
    pub(crate) wait: Spread,
}

/// How a request ended without a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    Refused,
    TimedOut,
    Shed,
    Left,
}

impl RunOutcome {
    /// Of no request, in so many lanes, over about so long.
    pub(crate) fn new(lanes: usize, span_us: u64) -> Self {
        Self {
            offered: 0,
            served: 0,
            refused: 0,
            timed_out: 0,
            shed: 0,
            left: 0,
            wait: Spread::default(),
            latency: Spread::default(),
            spent: Spent::default(),
            busy_max: 0,
            lanes: vec![LaneOutcome::default(); lanes],
            line: Course::over(span_us),
            attendance: Attendance::default(),
            ended_us: 0,
        }
    }

    pub(crate) fn arrived(&mut self, lane: usize) {
        self.offered += 1;
        self.lanes[lane].offered += 1;
    }

    pub(crate) fn turned_away(&mut self, lane: usize, why: TurnedAway) {
        let count = match why {
            TurnedAway::Refused => &mut self.refused,
            TurnedAway::TimedOut => &mut self.timed_out,
            TurnedAway::Shed => &mut self.shed,
            TurnedAway::Left => &mut self.left,
        };
        *count += 1;
        self.lanes[lane].turned_away += u64::from(why != TurnedAway::Left);
    }

    /// Counts a request that left its seat. Its parts at the seat are never more than its time there.
    pub(crate) fn served(&mut self, lane: usize, wait_us: u64, service_us: u64, parts: Measured) {
        self.served += 1;
        self.wait.add(wait_us);
        self.latency.add(wait_us + service_us);
        self.lanes[lane].wait.add(wait_us);
        self.spent += Spent::of(wait_us, service_us, parts).unwrap_or_default();
    }

    /// The share of the requests that were refused, timed out or shed.
    pub(crate) fn turned_away_share(&self) -> f64 {
        let away = self.refused + self.timed_out + self.shed;
        away as f64 / self.offered.max(1) as f64
    }
}
