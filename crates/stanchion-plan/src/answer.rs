//! The planner's answer, as JSON.

use serde::Serialize;
use serde_json::{Map, Value};
use stanchion_line::Spent;

use crate::scenario::Scenario;
use crate::spread::SpreadFigures;

/// The answer to a question.
#[derive(Clone, Debug, Serialize)]
pub struct PlanAnswer {
    /// The traffic that was seen; nothing of a model.
    pub measured: Option<MeasuredTraffic>,
    /// One for each scenario.
    pub results: Vec<ScenarioResult>,
    /// Sentences on facts that the figures do not know.
    pub unknown: Vec<String>,
    /// A sentence on the meaning of a band.
    pub band: &'static str,
}

/// The traffic that was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MeasuredTraffic {
    /// All requests, by what became of them.
    #[serde(flatten)]
    pub counts: MeasuredCounts,
    /// When the first came, and the last.
    pub from_us: u64,
    /// The last.
    pub until_us: u64,
    /// Of the requests that had a seat.
    pub wait: Option<SpreadFigures>,
    /// The same.
    pub service: Option<SpreadFigures>,
    /// Where their time went, if that was measured.
    pub spent_us: Option<SpentParts>,
    /// Busy seats.
    pub busy: BusySeats,
    /// Requests in a second by busy seats.
    pub throughput: Vec<(f64, f64)>,
    /// How late an idle seat begins, in the median.
    pub hand_over_us: Option<u32>,
    /// How late a busy seat begins the next one, in the median.
    pub turnaround_us: Option<u32>,
    /// The settings as far as they are known.
    pub settings: Map<String, Value>,
    /// Requests that wait, over time.
    pub line: Vec<(u64, u64)>,
    /// By lane.
    pub lanes: Vec<LaneResult>,
}

/// Requests by what became of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MeasuredCounts {
    /// All of them.
    pub requests: u64,
    /// Their answers were whole, or their clients left while a seat had them.
    pub served: u64,
    /// Refused at once.
    pub refused: u64,
    /// Refused later.
    pub timed_out: u64,
    /// Their clients left the line.
    pub left: u64,
    /// Their seats brought no whole answer.
    pub killed: u64,
    /// Refused for another reason: they take no part in a simulation.
    pub other: u64,
    /// Not known.
    pub lost: u64,
}

/// Busy seats.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BusySeats {
    /// The most at any moment; `None` is unknown.
    pub seats_max: Option<usize>,
}

/// Where the time of requests went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpentParts {
    /// In the line.
    pub line: f64,
    /// Waiting for a core.
    pub core: f64,
    /// Waiting for the lock.
    pub gil: f64,
    /// On a core.
    pub cpu: f64,
    /// Elsewhere.
    pub elsewhere: f64,
}

/// The requests of a lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneResult {
    /// Its name.
    pub name: String,
    /// How many came.
    pub requests: f64,
    /// How many of them were refused, timed out or shed.
    pub refused: f64,
    /// How long those waited that had a seat.
    pub wait: Option<SpreadFigures>,
}

/// The figures of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioResult {
    /// Its name.
    pub name: String,
    /// All of its settings.
    pub knobs: Scenario,
    /// The requests, by what became of them.
    #[serde(flatten)]
    pub counts: ResultCounts,
    /// Of the requests that were served.
    pub wait: Option<SpreadFigures>,
    /// The band of each figure.
    pub wait_band: Option<SpreadBand>,
    /// Of the same requests, from their arrival to their answer.
    pub latency: Option<SpreadFigures>,
    /// The band of each figure.
    pub latency_band: Option<SpreadBand>,
    /// The band of the share that was refused, timed out or shed.
    pub refused_band: Option<[f64; 2]>,
    /// How much of it was used.
    pub utilization: Utilization,
    /// Where the time of those served went.
    pub spent_us: SpentParts,
    /// The most busy seats at any moment.
    pub busy_max: usize,
    /// The workers.
    #[serde(flatten)]
    pub workers: ResultWorkers,
    /// Requests that wait, over time.
    pub line: Vec<(u64, u64)>,
    /// By lane.
    pub lanes: Vec<LaneResult>,
}

/// Requests by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ResultCounts {
    /// All of them.
    pub requests: f64,
    /// Served.
    pub served: f64,
    /// Refused at once.
    pub refused: f64,
    /// Waited for too long.
    pub timed_out: f64,
    /// Shed by an adaptive line.
    pub shed: f64,
    /// Their clients left.
    pub left: f64,
}

/// The workers of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ResultWorkers {
    /// The time of all of them.
    pub worker_seconds: f64,
    /// How many were forked after the beginning.
    pub forks: f64,
    /// How many there were, over time.
    #[serde(rename = "workers")]
    pub points: Vec<(u64, u64)>,
}

/// Shares of what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Utilization {
    /// Of the seats.
    pub seats: f64,
    /// Of the cores, if there is a bound and CPU times are known.
    pub cores: Option<f64>,
    /// Of the locks, if threads share any and CPU times are known.
    pub gil: Option<f64>,
}

/// The low and the high end of each figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpreadBand {
    /// Of the mean.
    pub mean_us: [f64; 2],
    /// Of the quantiles.
    pub p50_us: [f64; 2],
    /// Of the quantiles.
    pub p90_us: [f64; 2],
    /// Of the quantiles.
    pub p99_us: [f64; 2],
}

impl PlanAnswer {
    /// Its JSON.
    pub fn to_json(&self) -> Result<String, String> {
        serde_json::to_string(self)
            .map_err(|error| format!("the answer of the planner is no JSON: {error}"))
    }
}

impl From<Spent> for SpentParts {
    fn from(spent: Spent) -> Self {
        Self {
            line: spent.line_us as f64,
            core: spent.core_us as f64,
            gil: spent.gil_us as f64,
            cpu: spent.cpu_us as f64,
            elsewhere: spent.elsewhere_us as f64,
        }
    }
}
