//! The few figures of `/line`: one flat JSON object of numbers, for autoscalers and balancers that can read a number at a path (KEDA's `metrics-api`).
//! There is always an answer, also while the server starts or leaves: an autoscaler that gets none stands still.

use serde::Serialize;

use super::status::{ServingState, Status};
use stanchion_generation::named_counts::IN_FLIGHT;

/// The object. Keys are stable.
#[derive(Debug, Serialize)]
pub(super) struct LineFigures {
    /// Seats that workers have.
    seats: usize,
    busy: usize,
    /// Requests that have not ended, whatever they wait for.
    in_flight: u64,
    /// Requests that no seat has taken.
    waiting: usize,
    seats_wanted: f64,
    seats_wanted_10s: f64,
    utilization: f64,
    arrivals_per_s: f64,
    wait_p95_ms: f64,
    oldest_wait_ms: f64,
    drain_per_s: f64,
    front_wait_ms: f64,
    ready: u8,
    draining: u8,
    generation: u32,
}

impl LineFigures {
    pub(super) fn of(status: &Status) -> Self {
        let demand = &status.demand;
        let in_flight = status.requests.get(IN_FLIGHT).copied();
        Self {
            seats: status.seat_counts.there(),
            busy: status.seat_counts.busy,
            in_flight: in_flight.unwrap_or_default(),
            waiting: demand.untaken,
            seats_wanted: demand.seats_wanted_peak12s,
            seats_wanted_10s: demand.seats_wanted_10s,
            utilization: demand.utilization,
            arrivals_per_s: demand.arrivals_per_s,
            wait_p95_ms: ms(demand.wait_p95_us),
            oldest_wait_ms: ms(demand.oldest_untaken_us),
            drain_per_s: status.line.drain_per_s,
            front_wait_ms: demand.front_us / 1e3,
            ready: u8::from(status.ready),
            draining: u8::from(status.state == ServingState::Draining),
            generation: status.generation,
        }
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_flat_and_all_its_values_are_numbers() {
        let figures = LineFigures::of(&Status::default());
        let value = serde_json::to_value(figures).expect("JSON");
        let object = value.as_object().expect("an object");
        assert!(
            object.values().all(serde_json::Value::is_number),
            "{object:?}"
        );
        for key in ["seats_wanted", "seats", "waiting", "wait_p95_ms"] {
            assert!(object.contains_key(key), "{key}");
        }
    }
}
