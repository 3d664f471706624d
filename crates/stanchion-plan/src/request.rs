//! A caller's question to the planner, as JSON.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::{REQUESTS_MAX, TrafficModel};
use crate::seen::{SeenEnd, SeenRequest, SeenTraffic};

/// The runs of a scenario for the band, if the caller does not say how many.
const SEEDS: u32 = 9;
/// At most so many.
const SEEDS_MAX: u32 = 99;
/// At most so many scenarios at a time.
const SCENARIOS_MAX: usize = 1_000;

/// A question to the planner.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    source: GivenSource,
    /// Only requests that came from then on count,
    pub from_us: Option<u64>,
    /// and before then.
    pub until_us: Option<u64>,
    /// The settings that are changed, by scenario.
    #[serde(default)]
    pub(crate) scenarios: Vec<Map<String, Value>>,
    seeds: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenSource {
    recording: Option<String>,
    arrivals: Option<Vec<GivenArrival>>,
    model: Option<TrafficModel>,
    settings: Option<Map<String, Value>>,
    cpu_share: Option<f64>,
}

/// When it came, its time at a seat, its CPU, its lane, its client, its wait, and how it ended.
#[derive(Clone, Copy, Debug, Deserialize)]
struct GivenArrival(u64, Option<u64>, Option<u64>, u16, u32, Option<u64>, u8);

/// Where the traffic comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficSource {
    /// A recording: a file, or a directory of files; and the share of CPU in times at seats where it was not measured.
    Recording(String, Option<f64>),
    /// Requests that a log has, and the same.
    Seen(SeenTraffic, Option<f64>),
    /// A model.
    Model(TrafficModel),
}

impl PlanRequest {
    /// Reads it. The error says what is wrong.
    pub fn read(json: &str) -> Result<Self, String> {
        let request: Self = serde_json::from_str(json)
            .map_err(|error| format!("the question to the planner: {error}"))?;
        if !(1..=SEEDS_MAX).contains(&request.seeds()) {
            return Err(format!(
                "seeds: expected 1 to {SEEDS_MAX}, got {}",
                request.seeds()
            ));
        }
        if request.scenarios.len() > SCENARIOS_MAX {
            let count = request.scenarios.len();
            return Err(format!(
                "scenarios: expected at most {SCENARIOS_MAX}, got {count}"
            ));
        }
        Ok(request)
    }

    pub(crate) fn seeds(&self) -> u32 {
        self.seeds.unwrap_or(SEEDS)
    }

    /// The source, which leaves the request.
    pub fn take_source(&mut self) -> Result<TrafficSource, String> {
        let GivenSource {
            recording,
            arrivals,
            model,
            settings,
            cpu_share,
        } = &mut self.source;
        if cpu_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err("cpu_share: expected 0 to 1".to_owned());
        }
        match (recording.take(), arrivals.take(), model.take()) {
            (Some(path), None, None) => Ok(TrafficSource::Recording(path, *cpu_share)),
            (None, None, Some(model)) => {
                model.check()?;
                Ok(TrafficSource::Model(model))
            }
            (None, Some(arrivals), None) => {
                let traffic = SeenTraffic {
                    requests: arrivals
                        .into_iter()
                        .map(GivenArrival::seen)
                        .collect::<Result<_, _>>()?,
                    settings: settings.take().unwrap_or_default(),
                    ..SeenTraffic::default()
                };
                Ok(TrafficSource::Seen(traffic, *cpu_share))
            }
            _ => Err("source: expected one of recording, arrivals and model".to_owned()),
        }
    }
}

impl SeenTraffic {
    /// Says if there is more than a simulation takes, or a time that no clock shows.
    pub(crate) fn check(&self) -> Result<(), String> {
        let count = self.requests.len();
        if count > REQUESTS_MAX {
            return Err(format!(
                "the source has {count} requests: the planner takes {REQUESTS_MAX}, so give a window of time"
            ));
        }
        // A clock has microseconds since 1970 or since a boot. The calendars of programs end in the year 9999; this is 6536.
        if self.requests.iter().any(|one| one.at_us > 1 << 57) {
            return Err("at_us: expected microseconds, got more than 2^57".to_owned());
        }
        Ok(())
    }
}

impl GivenArrival {
    fn seen(self) -> Result<SeenRequest, String> {
        let Self(at_us, service_us, cpu_us, lane, client, wait_us, end) = self;
        let us = |us: Option<u64>| us.map(|us| u32::try_from(us).unwrap_or(u32::MAX));
        Ok(SeenRequest {
            at_us,
            wait_us: us(wait_us),
            service_us: us(service_us),
            cpu_us: us(cpu_us),
            lane,
            client,
            end: match end {
                0 => SeenEnd::Served,
                1 | 7 => SeenEnd::Refused,
                2 | 8 => SeenEnd::TimedOut,
                3 => SeenEnd::LeftWaiting,
                4 => SeenEnd::LeftSeated,
                5 => SeenEnd::Failed,
                6 => SeenEnd::Other,
                _ => return Err(format!("outcome: expected 0 to 8, got {end}")),
            },
            ..SeenRequest::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(json: &str) -> Result<TrafficSource, String> {
        PlanRequest::read(json)?.take_source()
    }

    #[test]
    fn a_source_is_one_of_three() {
        let recording = source(r#"{"source": {"recording": "a", "cpu_share": 0.5}}"#);
        assert_eq!(
            recording,
            Ok(TrafficSource::Recording("a".to_owned(), Some(0.5)))
        );
        let model = source(
            r#"{"source": {"model": {"rate_per_s": 1, "service": [[0.5, 10]], "seconds": 9}}}"#,
        );
        assert!(matches!(model, Ok(TrafficSource::Model(_))), "{model:?}");
        let arrivals =
            r#"{"source": {"arrivals": [[5, 30, null, 1, 9, 7, 4]], "settings": {"workers": 2}}}"#;
        let Ok(TrafficSource::Seen(traffic, None)) = source(arrivals) else {
            panic!("{arrivals}");
        };
        let expected = SeenRequest {
            at_us: 5,
            wait_us: Some(7),
            service_us: Some(30),
            client: 9,
            lane: 1,
            end: SeenEnd::LeftSeated,
            ..SeenRequest::default()
        };
        assert_eq!(
            (traffic.requests, traffic.settings.len()),
            (vec![expected], 1)
        );
    }

    #[test]
    fn a_wrong_question_says_what_is_wrong() {
        let table = [
            ("{", "question"),
            ("{}", "source"),
            (r#"{"source": {}}"#, "one of"),
            (
                r#"{"source": {"recording": "a", "arrivals": []}}"#,
                "one of",
            ),
            (r#"{"source": {"recordin": "a"}}"#, "recordin"),
            (r#"{"source": {"arrivals": [[1, 2]]}}"#, "GivenArrival"),
            (
                r#"{"source": {"arrivals": [[1, 2, 3, 0, 0, null, 9]]}}"#,
                "outcome",
            ),
            (
                r#"{"source": {"arrivals": [[-1, 2, 3, 0, 0, null, 0]]}}"#,
                "-1",
            ),
            (
                r#"{"source": {"arrivals": [], "cpu_share": 2}}"#,
                "cpu_share",
            ),
            (r#"{"source": {"recording": "a"}, "seeds": 0}"#, "seeds"),
            (r#"{"source": {"recording": "a"}, "seeds": 100}"#, "seeds"),
            (
                r#"{"source": {"model": {"rate_per_s": 0, "service": [], "seconds": 1}}}"#,
                "rate_per_s",
            ),
        ];
        for (json, word) in table {
            let wrong = source(json).unwrap_err();
            assert!(wrong.contains(word), "{json}: {wrong}");
        }
    }
}
