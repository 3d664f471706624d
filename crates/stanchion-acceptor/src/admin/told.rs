//! Keeps each answer for a moment. To gather the status and to write it takes the longer the more connections and workers
//! there are, and a client that asks in a loop must not have the acceptor do it each time.

use std::time::Duration;

use bytes::Bytes;
use stanchion_sys::clock::monotonic_us;

use super::Facts;
use super::exposition::Flavour;
use super::line::LineFigures;
use super::metrics::metrics;
use super::status::Status;

/// How long the acceptor gives the same answer, at least.
const INTERVAL: Duration = Duration::from_millis(100);
/// The acceptor also gives the same answer for this many times as long as it took to make. So answers take at most one part
/// in this many of the acceptor's time.
const COST_SHARE: u64 = 50;

/// The last snapshot.
#[derive(Default)]
pub(super) struct Telling(Option<RenderedStatus>);

/// A snapshot, and the texts made of it so far.
struct RenderedStatus {
    status: Status,
    json: Option<Bytes>,
    line: Option<Bytes>,
    prometheus: Option<Bytes>,
    open_metrics: Option<Bytes>,
    /// When the snapshot was taken, and how long the acceptor has worked on it and its texts, in microseconds.
    at_us: u64,
    took_us: u64,
}

impl Telling {
    /// The status as JSON, for programs.
    pub(super) fn status(&mut self, facts: &Facts<'_>) -> Result<Bytes, serde_json::Error> {
        self.told(facts, |told| {
            if let Some(json) = &told.json {
                return Ok(json.clone());
            }
            let json = Bytes::from(serde_json::to_vec(&told.status)?);
            Ok(told.json.insert(json).clone())
        })
    }

    /// A few figures as flat JSON, for autoscalers and balancers.
    pub(super) fn line(&mut self, facts: &Facts<'_>) -> Result<Bytes, serde_json::Error> {
        self.told(facts, |told| {
            if let Some(line) = &told.line {
                return Ok(line.clone());
            }
            let figures = LineFigures::of(&told.status);
            let line = Bytes::from(serde_json::to_vec(&figures)?);
            Ok(told.line.insert(line).clone())
        })
    }

    /// The metrics as text, for scrapers.
    pub(super) fn metrics(&mut self, facts: &Facts<'_>, flavour: Flavour) -> Bytes {
        self.told(facts, |told| {
            let text = match flavour {
                Flavour::Prometheus => &mut told.prometheus,
                Flavour::OpenMetrics => &mut told.open_metrics,
            };
            let write = || Bytes::from(metrics(&told.status, flavour));
            text.get_or_insert_with(write).clone()
        })
    }

    fn told<T>(&mut self, facts: &Facts<'_>, tell: impl FnOnce(&mut RenderedStatus) -> T) -> T {
        // The clock is read afresh to measure the cost: `now_us` is from the start of the turn.
        let began_us = monotonic_us();
        let told = match self.0.take() {
            // A change of state shows at once: balancers and operators wait for it.
            Some(told)
                if facts.now_us < told.at_us.saturating_add(good_for_us(told.took_us))
                    && told.status.state == facts.state =>
            {
                self.0.insert(told)
            }
            _ => self.0.insert(RenderedStatus {
                status: (facts.snapshot)(),
                json: None,
                line: None,
                prometheus: None,
                open_metrics: None,
                at_us: facts.now_us,
                took_us: 0,
            }),
        };
        let answer = tell(told);
        told.took_us += monotonic_us().saturating_sub(began_us);
        answer
    }
}

/// How long the acceptor gives the same answer, after that much work on it.
fn good_for_us(took_us: u64) -> u64 {
    let least = INTERVAL.as_micros() as u64;
    least.max(took_us.saturating_mul(COST_SHARE))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::admin::status::ServingState;
    use stanchion_requests::probe::Readiness;

    #[test]
    fn what_costs_more_is_told_for_longer() {
        for (took_us, expected) in [(0, 100_000), (2_000, 100_000), (20_000, 1_000_000)] {
            assert_eq!(good_for_us(took_us), expected, "{took_us}");
        }
    }

    #[test]
    fn it_is_gathered_anew_when_it_is_old_or_the_state_is_another() {
        let gathered = Cell::new(0);
        let mut telling = Telling::default();
        let mut told = |now_us, state| {
            let snapshot = || {
                gathered.set(gathered.get() + 1);
                Status {
                    state,
                    generation: gathered.get(),
                    ..Status::default()
                }
            };
            let facts = Facts {
                now_us,
                master_pid: 1,
                state,
                ready: &Readiness::live,
                snapshot: &snapshot,
            };
            let json = telling.status(&facts).expect("JSON");
            let status: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
            // The same snapshot serves both.
            let metrics = telling.metrics(&facts, Flavour::Prometheus);
            let generation = format!("\nstanchion_generation {}\n", status["generation"]);
            assert!(
                std::str::from_utf8(&metrics)
                    .expect("text")
                    .contains(&generation)
            );
            gathered.get()
        };
        assert_eq!(told(1_000, ServingState::Serving), 1);
        assert_eq!(told(50_000, ServingState::Serving), 1);
        assert_eq!(told(50_001, ServingState::Retiring), 2);
        // After an hour the snapshot is too old, whatever it cost.
        assert_eq!(told(3_600_000_000, ServingState::Retiring), 3);
    }
}
