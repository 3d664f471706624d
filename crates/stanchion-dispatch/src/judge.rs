//! Judges what would help, by the time of requests and by the seats and cores that there are.

use crate::causes::{Capacity, CausesStatus};
use crate::demand::DemandMeter;
use crate::service_times::ServiceTimes;
use crate::view::LineView;

/// Where the time of requests goes, and what would help on so many cores.
pub fn causes(
    view: &LineView<'_>,
    (times, demand): (&ServiceTimes, &DemandMeter),
    cores: usize,
    now_us: u64,
) -> CausesStatus {
    let has_loops = view.seats_per_loop().is_some();
    let seats_each = view.workers().seats_each();
    let capacity = Capacity {
        utilization: demand.of(view, now_us).utilization,
        loops: has_loops.then_some(demand.loops),
        workers: view.workers().len(),
        threads: if has_loops { 1 } else { seats_each },
        cores,
    };
    let facts = (&capacity, &times.curve);
    times.causes.status(view.lane_names(), facts, now_us)
}
