//! How late seats begin, as traffic shows it.

use std::collections::VecDeque;

use stanchion_line::LaneId;

use crate::offered::Delays;
use crate::scenario::Scenario;
use crate::seen::SeenTraffic;

/// A seat that begins later than this had another worker meanwhile, or was kept for another lane.
const LATE_US_MAX: u32 = 50_000;
/// So many delays are kept as samples.
const SAMPLES_MAX: usize = 4_096;

/// How late seats begin on a server with these settings: an idle seat after the arrival, a busy one after its last request. A lane has to be allowed
/// to take the seat then.
pub(crate) fn delays(traffic: &SeenTraffic, settings: &Scenario) -> Delays {
    let maxima: Vec<_> = settings
        .all_lanes()
        .iter()
        .map(|lane| lane.seats_max)
        .collect();
    let lanes = maxima.len();
    let seats = usize::from(settings.workers.bounds().0) * settings.seats_each();
    let mut reserve = settings.reserve();
    let (mut idle_us, mut busy_us) = (Vec::new(), Vec::new());
    let (mut in_house, mut found_idle) = (0, vec![false; traffic.requests.len()]);
    let mut ends = SeatEnds::default();
    for (now_us, what, index) in seat_events(traffic) {
        let one = &traffic.requests[index];
        let lane = usize::from(one.lane);
        let lane = if lane < lanes { lane } else { 0 };
        match what {
            SeatEvent::End => {
                in_house -= 1;
                reserve.left(LaneId::new(lane));
                let may = |lane: &usize| reserve.may_enter(LaneId::new(*lane), seats);
                ends.add(now_us, (0..lanes).filter(may));
            }
            SeatEvent::Arrival => {
                found_idle[index] = in_house < seats && reserve.may_enter(LaneId::new(lane), seats);
                if found_idle[index] {
                    idle_us.extend(one.wait_us);
                }
                in_house += 1;
            }
            SeatEvent::Begin => {
                reserve.entered(LaneId::new(lane));
                // A request of a lane with a maximum may wait behind others of those that were handed out, which the simulation has itself.
                if !found_idle[index] && maxima[lane].is_none() {
                    let end_us = ends.take(lane, one.at_us);
                    busy_us.extend(end_us.and_then(|us| u32::try_from(now_us - us).ok()));
                }
            }
        }
    }
    Delays {
        idle_us: sampled(idle_us),
        busy_us: sampled(busy_us),
    }
}

/// The requests that had a seat, and of which the wait is known: each arrives, begins, and ends later, by their indices.
fn seat_events(traffic: &SeenTraffic) -> Vec<(u64, SeatEvent, usize)> {
    let mut events = Vec::new();
    for (index, one) in traffic.requests.iter().enumerate() {
        if let (Some((began_us, ended_us)), Some(_)) = (one.seated_us(), one.wait_us) {
            events.push((one.at_us, SeatEvent::Arrival, index));
            events.push((began_us, SeatEvent::Begin, index));
            events.push((ended_us.max(began_us + 1), SeatEvent::End, index));
        }
    }
    events.sort_unstable();
    events
}

/// An event of a request at a seat, in the order in which those of one moment count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SeatEvent {
    End,
    Arrival,
    Begin,
}

/// So many ends are remembered: 80,000 requests a second have no more in that time.
const ENDS_MAX: usize = 4_096;

/// When seats were done of late, and the lanes that might have had them then.
#[derive(Debug, Default)]
struct SeatEnds(VecDeque<(u64, u64)>);

impl SeatEnds {
    fn add(&mut self, now_us: u64, lanes: impl Iterator<Item = usize>) {
        let is_old = |end_us: u64| end_us + u64::from(LATE_US_MAX) < now_us;
        while self.0.len() >= ENDS_MAX || self.0.front().is_some_and(|&(end_us, _)| is_old(end_us))
        {
            self.0.pop_front();
        }
        let lanes = lanes.fold(0, |all, lane| all | (1 << lane));
        self.0.push_back((now_us, lanes));
    }

    /// Takes an end at which a request of this lane waited that came at `since_us`: the last one. Another request may have begun for it, and this one for that
    /// of the other, which makes no difference to the sum of their delays.
    fn take(&mut self, lane: usize, since_us: u64) -> Option<u64> {
        let is_its = |&(end_us, lanes): &(u64, u64)| since_us < end_us && lanes & (1 << lane) != 0;
        let index = self.0.iter().rposition(is_its)?;
        self.0.remove(index).map(|(end_us, _)| end_us)
    }
}

/// A bounded number of them, in equal steps.
fn sampled(mut all: Vec<u32>) -> Vec<u32> {
    all.retain(|&late_us| late_us <= LATE_US_MAX);
    let step = all.len().div_ceil(SAMPLES_MAX).max(1);
    all.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests;
