//! Where the time of requests goes, by lane, and what would help (`stanchion_line::Verdict`).

use std::collections::BTreeMap;

use serde::Serialize;
use stanchion_exchange::RunTimes;
use stanchion_line::{
    Curve, CurvePoint, LaneId, LaneSpent, LoopShares, Measured, Sizing, Spent, Verdict,
};
use stanchion_sys::charge;
use stanchion_sys::scheduling::CoreTimes;
use tracing::info;

/// How often the recent time begins again.
const NOTE_US: u64 = 10_000_000;

/// The time of the requests that have left their seats.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    /// By the lane's number; a lane without requests may have no entry.
    lanes: Vec<LaneSpent>,
    /// The sums at the last two notes.
    notes: [Note; 2],
    /// The parts that the measured requests lack.
    hidden: Hidden,
    /// A worker runs several requests, each in a thread.
    has_threads: bool,
}

/// The sums at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    at_us: u64,
    /// The time of requests, of all lanes.
    spent: Spent,
    /// The time of event loops.
    loops: CoreTimes,
}

/// The parts of a request's time that its seat cannot measure.
#[derive(Clone, Copy, Debug, Default)]
struct Hidden {
    core: bool,
    gil: bool,
}

/// The causes, as `/status` shows them.
#[derive(Debug, Default, Serialize)]
pub struct CausesStatus {
    /// One word for what is full or would help.
    pub verdict: &'static str,
    /// The same in words, with the figures.
    pub words: String,
    /// The seconds before now to which these and `recent_us` apply.
    pub over_s: f64,
    /// The time of the requests of these seconds, by cause.
    pub recent_us: BTreeMap<&'static str, u64>,
    /// The causes that are not measured, so that they count as elsewhere.
    pub not_measured: Vec<&'static str>,
    /// Each lane since the start.
    pub lanes: Vec<LaneCauses>,
    /// How many requests leave their seats in a second, by how many seats are busy: as far as that was seen, the fewest first.
    pub curve: Vec<CurveStatus>,
    /// More busy seats than this have given no more throughput; `None` if none have.
    pub plateau: Option<u64>,
}

/// A point of the curve, a mean over requests, as `/status` shows it.
#[derive(Debug, Serialize)]
pub struct CurveStatus {
    /// Busy seats.
    pub busy: f64,
    /// Requests a second.
    pub per_s: f64,
    /// The mean is of so many requests.
    pub requests: u64,
}

/// The time of the requests of one lane, as `/status` shows it.
#[derive(Debug, Serialize)]
pub struct LaneCauses {
    /// The lane's name.
    pub name: String,
    /// Microseconds by cause.
    pub spent_us: BTreeMap<&'static str, u64>,
}

/// The facts about the server from which the verdict is found, besides the time of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// The share of the seats that is busy.
    pub utilization: f64,
    /// The time that event loops had cores so far, and waited for one; `None` if workers run threads.
    pub loops: Option<CoreTimes>,
    /// How many workers there are.
    pub workers: usize,
    /// How many threads each worker has for requests.
    pub threads: usize,
    /// How many cores the server may use.
    pub cores: usize,
}

impl Causes {
    /// Nothing was measured yet. Whether a worker runs several requests, each in a thread.
    pub(crate) fn new(has_threads: bool) -> Self {
        Self {
            has_threads,
            ..Self::default()
        }
    }

    /// Notes that a seat is done with a request of this lane, which waited and was at the seat for so long.
    pub(crate) fn served(
        &mut self,
        lane: LaneId,
        (wait_us, service_us): (u64, u64),
        times: RunTimes,
    ) {
        let measured = measured(times);
        if self.lanes.len() <= lane.index() {
            // The sums are of all clients, so no single one pays for them.
            let _charged = charge::to_nobody();
            self.lanes.resize(lane.index() + 1, LaneSpent::default());
        }
        self.lanes[lane.index()].add(wait_us, service_us, measured);
        if measured.cpu_us.is_some() {
            self.hidden.see(measured, self.has_threads);
        }
    }

    /// Begins another recent time, now and then.
    pub(crate) fn note(&mut self, now_us: u64, loops: CoreTimes) {
        if self.notes[1].at_us == 0 {
            // The requests of the first moment count as recent.
            self.notes = [Note {
                at_us: now_us,
                spent: Spent::default(),
                loops,
            }; 2];
        } else if now_us.saturating_sub(self.notes[1].at_us) >= NOTE_US {
            self.notes.rotate_left(1);
            self.notes[1] = Note {
                at_us: now_us,
                spent: self.all(),
                loops,
            };
        }
    }

    /// The time of the requests of the last ten to twenty seconds.
    pub(crate) fn recent(&self) -> Spent {
        self.all().since(&self.notes[0].spent)
    }

    fn all(&self) -> Spent {
        let mut all = Spent::default();
        for lane in &self.lanes {
            all += lane.bounded;
        }
        all
    }

    /// The causes for people to look at. `names` are those of the lanes, in their order.
    pub(crate) fn status<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        (capacity, curve): (&Capacity, &Curve),
        now_us: u64,
    ) -> CausesStatus {
        let (before, recent) = (&self.notes[0], self.recent());
        let over_us = match before.at_us {
            0 => 0,
            at_us => now_us.saturating_sub(at_us),
        };
        // The acceptor looks at loops once a second, which is often enough for a share of ten.
        let of_each = |us: u64| us as f64 / over_us.max(1) as f64 / capacity.workers.max(1) as f64;
        let loops = capacity.loops.map(|now| LoopShares {
            busy: of_each(now.had_us.saturating_sub(before.loops.had_us)),
            waiting: of_each(now.waited_us.saturating_sub(before.loops.waited_us)),
        });
        let plateau = curve.plateau(now_us);
        let plateau_busy = plateau.as_ref().map(|plateau| plateau.busy);
        let verdict = Verdict::of(&Sizing {
            spent: recent,
            over_us,
            utilization: capacity.utilization,
            loops,
            workers: capacity.workers,
            threads: capacity.threads,
            cores: capacity.cores,
            knows_gil: !self.hidden.gil,
            plateau,
        });
        let lanes = names.enumerate().map(|(index, name)| {
            let lane = self.lanes.get(index).copied().unwrap_or_default();
            let mut spent_us = BTreeMap::from(lane.spent.named());
            spent_us.insert("unmeasured", lane.unmeasured_us);
            LaneCauses {
                name: name.to_owned(),
                spent_us,
            }
        });
        CausesStatus {
            verdict: verdict.name(),
            words: verdict.to_string(),
            over_s: over_us as f64 / 1e6,
            recent_us: recent.named().into(),
            not_measured: self.hidden.names(capacity).collect(),
            lanes: lanes.collect(),
            curve: curve.points(now_us).map(CurveStatus::from).collect(),
            plateau: plateau_busy,
        }
    }
}

impl From<CurvePoint> for CurveStatus {
    fn from(point: CurvePoint) -> Self {
        let CurvePoint {
            busy,
            per_s,
            requests,
        } = point;
        Self {
            busy,
            per_s,
            requests,
        }
    }
}

impl Hidden {
    /// The log says once of each part that it is hidden.
    fn see(&mut self, measured: Measured, has_threads: bool) {
        if measured.core_us.is_none() && !self.core {
            self.core = true;
            info!(
                "the kernel does not show how long threads wait for a core (/proc/thread-self/schedstat), so that time counts as elsewhere"
            );
        }
        // A thread that is alone in its worker waits for no other.
        if measured.gil_us.is_none() && has_threads && !self.gil {
            self.gil = true;
            info!(
                "the kernel does not show in which call threads sleep (/proc/thread-self/syscall), so time in which they wait for the GIL counts as elsewhere"
            );
        }
    }

    /// The names of the causes that are hidden.
    fn names(self, capacity: &Capacity) -> impl Iterator<Item = &'static str> {
        let names = [
            ("cpu", capacity.loops.is_some()),
            ("core", capacity.loops.is_some() || self.core),
            ("gil", capacity.loops.is_some() || self.gil),
        ];
        names
            .into_iter()
            .filter_map(|(name, hides)| hides.then_some(name))
    }
}

/// The times that a seat has measured, for the line.
pub(crate) fn measured(times: RunTimes) -> Measured {
    let RunTimes {
        cpu_us,
        core_us,
        gil_us,
    } = times;
    Measured {
        cpu_us: cpu_us.map(u64::from),
        core_us: core_us.map(u64::from),
        gil_us: gil_us.map(u64::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Capacity = Capacity {
        utilization: 1.0,
        loops: None,
        workers: 1,
        threads: 4,
        cores: 4,
    };

    fn times(cpu_us: u32, core_us: Option<u32>, gil_us: Option<u32>) -> RunTimes {
        RunTimes {
            cpu_us: Some(cpu_us),
            core_us,
            gil_us,
        }
    }

    #[test]
    fn each_lane_has_its_own_time_and_the_verdict_is_about_the_last_seconds() {
        let mut causes = Causes::new(true);
        let fast = LaneId::new(1);
        causes.note(NOTE_US, CoreTimes::default());
        causes.served(
            LaneId::DEFAULT,
            (5, 100_000),
            times(1_000, Some(0), Some(0)),
        );
        let names = || ["default", "fast"].into_iter();
        assert_eq!(
            causes
                .status(names(), (&CAPACITY, &Curve::default()), NOTE_US + 1)
                .verdict,
            "unknown"
        );
        let status = causes.status(names(), (&CAPACITY, &Curve::default()), 2 * NOTE_US);
        assert_eq!(status.verdict, "more_threads", "{status:?}");
        assert_eq!(status.lanes[0].spent_us["elsewhere"], 99_000);
        assert_eq!(status.lanes[1].spent_us["elsewhere"], 0);
        // Twenty seconds later these are not recent.
        causes.note(2 * NOTE_US, CoreTimes::default());
        causes.note(3 * NOTE_US, CoreTimes::default());
        causes.served(fast, (7, 100_000), times(20_000, Some(0), Some(75_000)));
        let status = causes.status(names(), (&CAPACITY, &Curve::default()), 3 * NOTE_US);
        assert_eq!(status.verdict, "gil_full", "{status:?}");
        assert_eq!(status.recent_us["line"], 7);
        assert_eq!(status.lanes[0].spent_us["line"], 5);
        assert_eq!(status.lanes[1].spent_us["gil"], 75_000);
        assert!(status.not_measured.is_empty());
    }

    #[test]
    fn what_is_not_measured_is_named() {
        let mut causes = Causes::new(true);
        let names = || ["default"].into_iter();
        let status = causes.status(names(), (&CAPACITY, &Curve::default()), 1);
        assert!(status.not_measured.is_empty(), "no request says so yet");
        causes.served(LaneId::DEFAULT, (0, 10), times(5, None, None));
        let status = causes.status(names(), (&CAPACITY, &Curve::default()), 1);
        assert_eq!(status.not_measured, ["core", "gil"]);
        let mut alone = Causes::new(false);
        alone.served(LaneId::DEFAULT, (0, 10), times(5, Some(0), None));
        assert!(
            alone
                .status(names(), (&CAPACITY, &Curve::default()), 1)
                .not_measured
                .is_empty()
        );
        let loops = Capacity {
            loops: Some(CoreTimes::default()),
            ..CAPACITY
        };
        let status = Causes::default().status(names(), (&loops, &Curve::default()), 1);
        assert_eq!(status.not_measured, ["cpu", "core", "gil"]);
    }

    #[test]
    fn event_loops_are_judged_by_the_core_that_they_had_of_late() {
        let mut causes = Causes::new(true);
        let times = |had_us, waited_us| CoreTimes { had_us, waited_us };
        // A busy time before counts no more.
        causes.note(NOTE_US, times(NOTE_US, 0));
        causes.note(2 * NOTE_US, times(2 * NOTE_US, 0));
        for (had_us, waited_us, expected) in [
            (3 * NOTE_US, 0, "loops_full"),
            (2 * NOTE_US + NOTE_US / 5, 0, "loops_free"),
            (2 * NOTE_US + NOTE_US / 2, NOTE_US / 2, "cores_full"),
        ] {
            let capacity = Capacity {
                loops: Some(times(had_us, waited_us)),
                ..CAPACITY
            };
            let mut causes = causes.clone();
            causes.note(3 * NOTE_US, times(2 * NOTE_US, 0));
            let facts = (&capacity, &Curve::default());
            let status = causes.status(["default"].into_iter(), facts, 3 * NOTE_US);
            assert_eq!(status.verdict, expected, "{capacity:?}");
        }
    }

    #[test]
    fn a_full_pool_behind_the_app_is_seen_by_its_curve() {
        let names = || ["default"].into_iter();
        let mut causes = Causes::new(true);
        causes.note(NOTE_US, CoreTimes::default());
        causes.served(
            LaneId::DEFAULT,
            (5, 100_000),
            times(1_000, Some(0), Some(0)),
        );
        for (pool, verdict, plateau) in
            [(8, "throughput_full", Some(8)), (99, "more_threads", None)]
        {
            let mut curve = Curve::default();
            for busy in [8, 32] {
                let service_us = 50_000 * busy.max(pool) as u64 / pool as u64;
                (0..200).for_each(|_| curve.served(NOTE_US, busy, service_us, 99));
            }
            let capacity = Capacity {
                workers: 8,
                ..CAPACITY
            };
            let status = causes.status(names(), (&capacity, &curve), 2 * NOTE_US);
            assert_eq!(
                (status.verdict, status.plateau),
                (verdict, plateau),
                "{status:?}"
            );
            let busy: Vec<_> = status.curve.iter().map(|point| point.busy).collect();
            assert_eq!(busy, [8.0, 32.0]);
        }
    }
}
