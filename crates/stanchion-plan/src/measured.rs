//! The figures of traffic that was seen.

use stanchion_line::Spent;

use crate::answer::{BusySeats, LaneResult, MeasuredCounts, MeasuredTraffic};
use crate::offered::Delays;
use crate::scenario::Scenario;
use crate::seen::{Evidence, SeenEnd, SeenRequest, SeenTraffic};
use crate::spread::{Course, Spread};

/// The figures of all traffic. `evidence` and `delays` are what it says.
pub(crate) fn measured(
    traffic: &SeenTraffic,
    settings: &Scenario,
    evidence: &Evidence,
    delays: &Delays,
) -> MeasuredTraffic {
    let lanes = settings.all_lanes();
    let mut all = SeenTally::default();
    let mut of_lanes = vec![SeenTally::default(); lanes.len()];
    for one in &traffic.requests {
        all.add(one);
        let lane = usize::from(one.lane);
        of_lanes[if lane < lanes.len() { lane } else { 0 }].add(one);
    }
    let is_measured = traffic.requests.iter().any(|one| one.cpu_us.is_some());
    let knows_seats = all.wait.figures().is_some();
    let spent = Spent {
        line_us: all.wait.sum_us(),
        ..evidence.spent
    };
    let lanes = lanes.into_iter().zip(&of_lanes);
    MeasuredTraffic {
        counts: MeasuredCounts {
            lost: traffic.lost,
            ..all.counts
        },
        from_us: traffic.first_us(),
        until_us: traffic.first_us() + traffic.span_us(),
        wait: all.wait.figures(),
        service: all.service.figures(),
        spent_us: is_measured.then(|| spent.into()),
        busy: BusySeats {
            seats_max: knows_seats.then_some(evidence.busy_max),
        },
        throughput: evidence.throughput.clone(),
        hand_over_us: middle(&delays.idle_us),
        turnaround_us: middle(&delays.busy_us),
        settings: traffic.settings.clone(),
        line: line_of(traffic),
        lanes: lanes
            .map(|(lane, tally)| tally.of_lane(lane.name))
            .collect(),
    }
}

/// Requests by what became of them, and their times.
#[derive(Clone, Debug, Default)]
struct SeenTally {
    counts: MeasuredCounts,
    wait: Spread,
    service: Spread,
}

impl SeenTally {
    fn add(&mut self, one: &SeenRequest) {
        let counts = &mut self.counts;
        counts.requests += 1;
        *match one.end {
            SeenEnd::Served | SeenEnd::LeftSeated => &mut counts.served,
            SeenEnd::Refused => &mut counts.refused,
            SeenEnd::TimedOut => &mut counts.timed_out,
            SeenEnd::LeftWaiting => &mut counts.left,
            SeenEnd::Failed => &mut counts.killed,
            SeenEnd::Other => &mut counts.other,
        } += 1;
        let Some(service_us) = one.service_us() else {
            return;
        };
        self.service.add(service_us);
        if let Some(wait_us) = one.wait_us {
            self.wait.add(wait_us.into());
        }
    }

    fn of_lane(&self, name: String) -> LaneResult {
        LaneResult {
            name,
            requests: self.counts.requests as f64,
            refused: (self.counts.refused + self.counts.timed_out) as f64,
            wait: self.wait.figures(),
        }
    }
}

fn middle(all: &[u32]) -> Option<u32> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// How many requests waited, over time.
fn line_of(traffic: &SeenTraffic) -> Vec<(u64, u64)> {
    let mut changes = Vec::new();
    for one in &traffic.requests {
        if let Some(wait_us) = one.wait_us.filter(|&wait_us| wait_us > 0) {
            let at_us = one.at_us - traffic.first_us();
            changes.extend([(at_us, true), (at_us + u64::from(wait_us), false)]);
        }
    }
    changes.sort_unstable();
    let (mut course, mut waiting) = (Course::over(traffic.span_us()), 0_u64);
    for (at_us, comes) in changes {
        waiting = if comes {
            waiting + 1
        } else {
            waiting.saturating_sub(1)
        };
        course.note(at_us, waiting);
    }
    course.end(traffic.span_us());
    course.points()
}
