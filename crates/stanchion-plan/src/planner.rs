//! From a question to the answer: what the traffic says, and then each scenario with each seed.

use serde_json::{Map, Value};

use crate::answer::{PlanAnswer, ScenarioResult};
use crate::blocks::resampled;
use crate::chance::Chance;
use crate::lateness::delays;
use crate::measured::measured;
use crate::model::TrafficModel;
use crate::offered::{Delays, Offered, Outside};
use crate::outcome::RunOutcome;
use crate::request::{PlanRequest, TrafficSource};
use crate::scenario::Scenario;
use crate::seen::{Evidence, SeenTraffic};
use crate::server::{END_US_MAX, Halt, OfferedLoad, ServerModel};
use crate::unknown::UnknownFacts;

/// The share of waiting that others cause is found from so many requests,
const CALIBRATED_MAX: usize = 200_000;
/// in so many rounds at most, each of which halves what is not known,
const ROUNDS: usize = 8;
/// until the waiting is that which was measured, but for this part.
const CLOSE: f64 = 0.01;
const BAND_OF_REPLAY: &str = "Another stretch of traffic like this one, as long as this one, has its figure in the band in 9 of 10 cases.";
const BAND_OF_MODEL: &str =
    "Another run of the same length has its figure in the band in 9 of 10 cases.";

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The question makes no sense, in a sentence for the operator.
    Wrong(String),
    /// The caller does not want it any more.
    Stopped,
}

/// Answers a question. `source` is its [`PlanRequest::take_source`], and a recording is read by now. `progress` learns the share that is done, often, and
/// says whether to go on.
pub fn plan(
    request: &PlanRequest,
    source: PlanSource,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<PlanAnswer, NoAnswer> {
    match source {
        PlanSource::Seen(traffic, cpu_share) => {
            let traffic = traffic.within(request.from_us, request.until_us);
            traffic.check().map_err(NoAnswer::Wrong)?;
            of_traffic(request, &traffic, cpu_share, progress)
        }
        PlanSource::Model(model) => of_model(request, &model, progress),
    }
}

/// Traffic, once it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanSource {
    /// Requests that a server has seen, and the share of CPU in their time at seats if it is not known.
    Seen(SeenTraffic, Option<f64>),
    /// A model.
    Model(TrafficModel),
}

impl PlanSource {
    /// The source of a question; `read` reads a recording.
    pub fn of(
        source: TrafficSource,
        read: impl FnOnce(&str) -> Result<SeenTraffic, String>,
    ) -> Result<Self, String> {
        Ok(match source {
            TrafficSource::Recording(path, cpu_share) => Self::Seen(read(&path)?, cpu_share),
            TrafficSource::Seen(traffic, cpu_share) => Self::Seen(traffic, cpu_share),
            TrafficSource::Model(model) => Self::Model(model),
        })
    }
}

fn scenarios(
    request: &PlanRequest,
    settings: &Map<String, Value>,
) -> Result<Vec<Scenario>, NoAnswer> {
    let all = request
        .scenarios
        .iter()
        .map(|changes| Scenario::of(settings, changes));
    all.collect::<Result<_, _>>().map_err(NoAnswer::Wrong)
}

fn of_model(
    request: &PlanRequest,
    model: &TrafficModel,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<PlanAnswer, NoAnswer> {
    let scenarios = scenarios(request, &model.settings)?;
    let mut work = PlanRuns::new(scenarios.len() * request.seeds() as usize, progress);
    let delays = Delays::default();
    let mut results = Vec::with_capacity(scenarios.len());
    for scenario in scenarios {
        let mut runs = Vec::new();
        for seed in 0..u64::from(request.seeds()) {
            // All scenarios get the same requests: they differ by their settings only.
            let requests = model.requests(seed + 1);
            let load = OfferedLoad {
                requests: &requests,
                delays: &delays,
                outside: Outside::ALL,
                pool: None,
            };
            runs.push(work.run(&scenario, load, seed)?);
        }
        results.push(ScenarioResult::of(
            scenario,
            &runs,
            false,
            model.cpu_share.is_some(),
        ));
    }
    let unknown = UnknownFacts {
        knows_cpu: model.cpu_share.is_some(),
        ..UnknownFacts::default()
    };
    Ok(PlanAnswer {
        measured: None,
        unknown: unknown.sentences(&results),
        results,
        band: BAND_OF_MODEL,
    })
}

fn of_traffic(
    request: &PlanRequest,
    traffic: &SeenTraffic,
    cpu_share: Option<f64>,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<PlanAnswer, NoAnswer> {
    let settings = Scenario::of(&traffic.settings, &Map::new()).map_err(NoAnswer::Wrong)?;
    let mut scenarios = scenarios(request, &traffic.settings)?;
    let evidence = traffic.evidence(cpu_share);
    let knows_settings = traffic.settings.contains_key("workers");
    let delays = if knows_settings {
        delays(traffic, &settings)
    } else {
        Delays::default()
    };
    let measured = measured(traffic, &settings, &evidence, &delays);
    let has_requests = !evidence.requests.is_empty();
    if !has_requests {
        scenarios.clear();
    }
    let runs = scenarios.len() * request.seeds() as usize + ROUNDS;
    let mut replays = Replays {
        evidence: &evidence,
        delays: &delays,
        outside: Outside {
            crowd: 0,
            ..Outside::ALL
        },
        span_us: traffic.span_us(),
        runs: PlanRuns::new(runs, progress),
    };
    if knows_settings && has_requests {
        replays.calibrate(settings)?;
    }
    let results = scenarios
        .into_iter()
        .map(|one| replays.result(one, request.seeds()));
    let results: Vec<_> = results.collect::<Result<_, _>>()?;
    let unknown = UnknownFacts {
        knows_cpu: evidence.knows_cpu,
        busy_seen: Some(evidence.busy_max),
        lost: traffic.lost,
        drawn: (evidence.drawn, evidence.requests.len()),
        turned_away: measured.counts.refused + measured.counts.timed_out,
        wants_requests: !has_requests && !traffic.requests.is_empty(),
    };
    let mut sentences = unknown.sentences(&results);
    sentences.extend_from_slice(&traffic.notes);
    Ok(PlanAnswer {
        unknown: sentences,
        measured: Some(measured),
        results,
        band: BAND_OF_REPLAY,
    })
}

/// The replays of traffic.
struct Replays<'a> {
    evidence: &'a Evidence,
    delays: &'a Delays,
    outside: Outside,
    span_us: u64,
    runs: PlanRuns<'a>,
}

impl Replays<'_> {
    /// Finds how much of the measured waiting for cores and for the lock stays, so that it and the simulated waiting together are that which was measured,
    /// when the settings are those that were measured.
    fn calibrate(&mut self, settings: Scenario) -> Result<(), NoAnswer> {
        let settings = Scenario {
            as_recorded: false,
            ..settings
        };
        let all = &self.evidence.requests;
        let requests = &all[..all.len().min(CALIBRATED_MAX)];
        let sum = |part: fn(&Offered) -> u32| {
            let parts = requests.iter().map(|one| f64::from(part(one)));
            parts.sum::<f64>()
        };
        let mut core = SoughtShare::of(sum(|one| one.core_us));
        let mut gil = SoughtShare::of(sum(|one| one.gil_us));
        for _ in 0..ROUNDS {
            if core.is_found && gil.is_found {
                break;
            }
            self.outside.core = Outside::part(core.share);
            self.outside.gil = Outside::part(gil.share);
            let spent = self.run(&settings, requests, 0)?.spent;
            core.learn(spent.core_us);
            gil.learn(spent.gil_us);
        }
        self.outside.core = Outside::part(core.share);
        self.outside.gil = Outside::part(gil.share);
        Ok(())
    }

    fn result(&mut self, scenario: Scenario, seeds: u32) -> Result<ScenarioResult, NoAnswer> {
        let all = &self.evidence.requests;
        let knows_cpu = self.evidence.knows_cpu;
        let mut outcomes = vec![self.run(&scenario, all, 0)?];
        for seed in 1..u64::from(seeds) {
            let others = resampled(all, self.span_us, &mut Chance::of(seed));
            outcomes.push(self.run(&scenario, &others, seed)?);
        }
        Ok(ScenarioResult::of(scenario, &outcomes, true, knows_cpu))
    }

    fn run(
        &mut self,
        scenario: &Scenario,
        requests: &[Offered],
        seed: u64,
    ) -> Result<RunOutcome, NoAnswer> {
        let load = OfferedLoad {
            requests,
            delays: self.delays,
            outside: self.outside,
            pool: self.evidence.pool,
        };
        self.runs.run(scenario, load, seed)
    }
}

/// The share of the measured waiting that stays, as it is found by bisection: with more of it, more waiting comes out.
#[derive(Debug)]
struct SoughtShare {
    measured_us: f64,
    low: f64,
    high: f64,
    share: f64,
    is_found: bool,
}

impl SoughtShare {
    fn of(measured_us: f64) -> Self {
        Self {
            measured_us,
            low: 0.0,
            high: 1.0,
            share: 1.0,
            is_found: measured_us <= 0.0,
        }
    }

    /// So much waiting comes out with the present share.
    fn learn(&mut self, us: u64) {
        let off = us as f64 / self.measured_us - 1.0;
        if self.is_found || off.abs() <= CLOSE {
            self.is_found = true;
            return;
        }
        if off > 0.0 {
            self.high = self.share;
        } else {
            self.low = self.share;
        }
        self.share = f64::midpoint(self.low, self.high);
    }
}

/// The runs of a question, and how many of them are done.
struct PlanRuns<'p> {
    runs: usize,
    done: usize,
    progress: &'p mut dyn FnMut(f64) -> bool,
}

impl<'p> PlanRuns<'p> {
    fn new(runs: usize, progress: &'p mut dyn FnMut(f64) -> bool) -> Self {
        Self {
            runs,
            done: 0,
            progress,
        }
    }

    fn run(
        &mut self,
        scenario: &Scenario,
        load: OfferedLoad<'_>,
        seed: u64,
    ) -> Result<RunOutcome, NoAnswer> {
        let span_us = load.requests.last().map_or(0, |last| last.at_us);
        if span_us as f64 / scenario.rate_factor > END_US_MAX as f64 / 4.0 {
            let wrong = "the requests come over more than a year: give a window of time".to_owned();
            return Err(NoAnswer::Wrong(wrong));
        }
        let (done, runs, all) = (
            self.done as f64,
            self.runs as f64,
            load.requests.len() as f64,
        );
        let progress = &mut *self.progress;
        if !progress((done / runs).min(1.0)) {
            return Err(NoAnswer::Stopped);
        }
        let mut go_on = |arrived: usize| progress(((done + arrived as f64 / all) / runs).min(1.0));
        self.done += 1;
        let outcome = ServerModel::new(scenario, load, seed).run(&mut go_on);
        outcome.map_err(|halt| match halt {
            Halt::Stopped => NoAnswer::Stopped,
            Halt::Endless => NoAnswer::Wrong(format!(
                "the scenario '{}' takes years to serve these requests: it has too few workers",
                scenario.name
            )),
        })
    }
}

#[cfg(test)]
mod tests;
