//! The last five minutes, a sample a second: an operator who opens the page in an outage sees how it came.
//!
//! The acceptor takes a sample when it is awake anyway, and only if there is an admin listener at which a client may ask for
//! it.
//!
//! The acceptor writes each sample down as JSON once, however many pages ask for it.

use std::collections::VecDeque;

use serde::Serialize;
use stanchion_http::Head;
use tracing::error;

use super::Facts;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::durations::Durations;
use stanchion_generation::common::Common;
use stanchion_generation::tally::{Counts, Outcome};

/// Samples that are kept: about 90 KiB of them.
const SAMPLES_MAX: usize = 300;
/// The least time from one sample to the next.
const INTERVAL_US: u64 = 1_000_000;
/// A look may come this much too early: else a loop that wakes once a second would take a sample only every other time.
const EARLY_US: u64 = 100_000;

/// The state of the server at one moment. The counts are from the start of the master: rates are the differences of two
/// samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Sample {
    at_us: u64,
    arrived: u64,
    /// The app answered, or the server for it: probes, redirects, static files.
    answered: u64,
    refused: u64,
    /// The answer broke off, or was lost with its acceptor.
    broken: u64,
    /// The client left.
    gone: u64,
    waiting: usize,
    oldest_wait_us: u64,
    busy: usize,
    seats: usize,
    /// How long the request that has run for longest has run.
    longest_us: u64,
    /// Time in the line of the requests that seats have given back since the sample before; `None` if there were none.
    wait_p50_us: Option<u64>,
    wait_p99_us: Option<u64>,
    /// Time at a seat of the same requests, and of those that still run.
    service_p50_us: Option<u64>,
    service_p99_us: Option<u64>,
}

/// The sources of a sample.
pub(crate) struct Moment<'m> {
    pub now_us: u64,
    pub common: &'m Common,
    pub dispatch: &'m Dispatch,
}

/// The samples, the oldest first.
#[derive(Default)]
pub(super) struct History {
    samples: VecDeque<JsonSample>,
    waits: Durations,
    services: Durations,
}

/// A sample as JSON: the acceptor writes it once, however many requests ask for it.
#[derive(Debug, PartialEq, Eq)]
struct JsonSample {
    at_us: u64,
    json: String,
}

impl History {
    /// Takes a sample, if it is time.
    pub(super) fn look(&mut self, moment: &Moment<'_>) {
        if !self.is_due(moment.now_us) {
            return;
        }
        let (dispatch, now_us) = (moment.dispatch, moment.now_us);
        let running = dispatch
            .view()
            .workers()
            .running(dispatch.times.staffing.wanted(), now_us);
        let counts = running.counts;
        let waits = dispatch.times.waits.since(&self.waits);
        let services = dispatch
            .times
            .services
            .since(&self.services)
            .with(&running.ages);
        let sample = Sample {
            at_us: now_us,
            waiting: dispatch.waiting(),
            oldest_wait_us: dispatch.oldest_wait_us(now_us),
            busy: counts.busy,
            seats: counts.busy + counts.idle + counts.empty,
            longest_us: running.ages.max_us(),
            wait_p50_us: waits.estimate_us(50),
            wait_p99_us: waits.estimate_us(99),
            service_p50_us: services.estimate_us(50),
            service_p99_us: services.estimate_us(99),
            ..Sample::counted(&moment.common.total.read())
        };
        self.waits.clone_from(&dispatch.times.waits);
        self.services.clone_from(&dispatch.times.services);
        self.keep(&sample);
    }

    fn is_due(&self, now_us: u64) -> bool {
        self.samples
            .back()
            .is_none_or(|last| now_us.saturating_sub(last.at_us) >= INTERVAL_US - EARLY_US)
    }

    fn keep(&mut self, sample: &Sample) {
        let at_us = sample.at_us;
        let json = match serde_json::to_string(sample) {
            Ok(json) => json,
            Err(error) => {
                error!("a sample of the history cannot be written as JSON: our fault: {error}");
                return;
            }
        };
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(JsonSample { at_us, json });
    }

    /// Gives the samples that are younger than `since_us` of the query: the `at_us` of the last sample that the client has.
    pub(super) fn told(&self, head: &Head, facts: &Facts<'_>) -> String {
        let since_us = since_us(head.query());
        let younger = self.samples.iter().filter(|one| one.at_us > since_us);
        let samples: Vec<_> = younger.map(|one| one.json.as_str()).collect();
        format!(
            r#"{{"pid":{},"now_us":{},"samples":[{}]}}"#,
            facts.master_pid,
            facts.now_us,
            samples.join(",")
        )
    }
}

impl Sample {
    /// The counts, in five sums.
    fn counted(counts: &Counts) -> Self {
        let mut sample = Self {
            arrived: counts.arrived(),
            ..Self::default()
        };
        for &outcome in Outcome::ALL {
            let sum = match outcome {
                Outcome::Answered | Outcome::Probed | Outcome::Redirected | Outcome::Static => {
                    &mut sample.answered
                }
                Outcome::BrokenOff | Outcome::CutAtShutdown | Outcome::Lost => &mut sample.broken,
                Outcome::AbandonedReading
                | Outcome::AbandonedWaiting
                | Outcome::AbandonedHandedOut
                | Outcome::AbandonedRunning
                | Outcome::AbandonedAnswering => &mut sample.gone,
                _ => &mut sample.refused,
            };
            *sum += counts.ended(outcome);
        }
        sample
    }
}

/// The `since_us` of a query; 0 without one, which asks for all samples.
fn since_us(query: &[u8]) -> u64 {
    let query = std::str::from_utf8(query).unwrap_or_default();
    let asked = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("since_us="));
    asked.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_us: u64) -> Sample {
        Sample {
            at_us,
            ..Sample::default()
        }
    }

    #[test]
    fn it_is_bounded_and_the_oldest_goes_first() {
        let mut history = History::default();
        assert!(history.is_due(0));
        for second in 1..=400 {
            history.keep(&at(second * INTERVAL_US));
        }
        assert_eq!(history.samples.len(), SAMPLES_MAX);
        let at_us = |one: Option<&JsonSample>| one.map(|one| one.at_us / INTERVAL_US);
        assert_eq!(at_us(history.samples.front()), Some(101));
        assert_eq!(at_us(history.samples.back()), Some(400));
    }

    #[test]
    fn a_sample_is_taken_once_a_second_though_the_loop_looks_more_often() {
        let mut history = History::default();
        history.keep(&at(5_000_000));
        for (now_us, is_due) in [
            (5_000_000, false),
            (5_750_000, false),
            (5_950_000, true),
            (6_000_000, true),
            // A clock does not go back; no sample is better than a wrong one.
            (4_000_000, false),
        ] {
            assert_eq!(history.is_due(now_us), is_due, "{now_us}");
        }
    }

    #[test]
    fn it_is_asked_for_from_some_moment_on() {
        for (query, expected) in [
            ("", 0),
            ("since_us=17", 17),
            ("x=1&since_us=17&y", 17),
            ("since_us=", 0),
            ("since_us=-1", 0),
            ("since_us=1e3", 0),
            ("not_since_us=17", 0),
        ] {
            assert_eq!(since_us(query.as_bytes()), expected, "{query}");
        }
        assert_eq!(since_us(b"\xff"), 0);
    }
}
