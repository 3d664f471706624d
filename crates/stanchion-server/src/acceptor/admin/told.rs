//! What is told, kept for a moment: gathering it and writing it down takes the longer the more connections and
//! workers there are, and must not be done each time for whoever asks in a loop.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use stanchion_sys::clock::monotonic_us;

use super::exposition::Flavour;
use super::metrics::metrics;
use super::status::Status;
use crate::acceptor::Shared;

/// For how long the same is told, at least.
const INTERVAL: Duration = Duration::from_millis(100);
/// And for so many times as long as it took to make: that is at most this share of the acceptor's time.
const COST_SHARE: u64 = 50;

/// What was told last.
#[derive(Default)]
pub(super) struct Telling(RefCell<Option<Told>>);

/// One snapshot, and what was made of it so far.
struct Told {
    status: Status,
    json: Option<Bytes>,
    prometheus: Option<Bytes>,
    open_metrics: Option<Bytes>,
    /// When it was taken, and how long it took to make all that there is, in microseconds.
    at_us: u64,
    took_us: u64,
}

impl Telling {
    /// For programs.
    pub(super) fn status(&self, shared: &Shared) -> Result<Bytes, serde_json::Error> {
        self.told(shared, |told| {
            if let Some(json) = &told.json {
                return Ok(json.clone());
            }
            let json = Bytes::from(serde_json::to_vec(&told.status)?);
            Ok(told.json.insert(json).clone())
        })
    }

    /// For scrapers.
    pub(super) fn metrics(&self, shared: &Shared, flavour: Flavour) -> Bytes {
        self.told(shared, |told| {
            let text = match flavour {
                Flavour::Prometheus => &mut told.prometheus,
                Flavour::OpenMetrics => &mut told.open_metrics,
            };
            let write = || Bytes::from(metrics(&told.status, flavour));
            text.get_or_insert_with(write).clone()
        })
    }

    fn told<T>(&self, shared: &Shared, tell: impl FnOnce(&mut Told) -> T) -> T {
        let now_us = monotonic_us();
        let mut kept = self.0.borrow_mut();
        let told = match kept.take() {
            // Whether it leaves is news at once: balancers and operators wait for it.
            Some(told)
                if now_us < told.at_us + good_for_us(told.took_us)
                    && told.status.state == shared.state() =>
            {
                kept.insert(told)
            }
            _ => kept.insert(Told {
                status: shared.snapshot(),
                json: None,
                prometheus: None,
                open_metrics: None,
                at_us: now_us,
                took_us: 0,
            }),
        };
        let answer = tell(told);
        told.took_us += monotonic_us().saturating_sub(now_us);
        answer
    }
}

/// For how long the same is told, after that much work on it.
fn good_for_us(took_us: u64) -> u64 {
    let least = INTERVAL.as_micros() as u64;
    least.max(took_us.saturating_mul(COST_SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_more_is_told_for_longer() {
        for (took_us, expected) in [(0, 100_000), (2_000, 100_000), (20_000, 1_000_000)] {
            assert_eq!(good_for_us(took_us), expected, "{took_us}");
        }
    }
}
