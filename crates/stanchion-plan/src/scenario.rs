//! A scenario: the settings of a server that decide how long requests wait.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stanchion_line::{Discipline, ElasticLimits, LaneLimits, LaneSeats, Line, LineLimits, Reserve};

/// The most seats of a scenario: a timer has 16 bits for the number of a seat.
pub(crate) const SEATS_MAX: usize = 65_535;
/// The most lanes of a scenario, as the settings have it.
const LANES_MAX: usize = 64;
/// Requests come at most so many times as fast, or as slowly.
const RATE_FACTOR_MAX: f64 = 1_000.0;
/// No time of a scenario is longer: a year.
const TIME_US_MAX: u64 = 366 * 24 * 3_600_000_000;

/// A scenario. Its names are those of the settings, times in microseconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The operator's name for it.
    pub name: String,
    /// The number of workers, or the fewest and the most.
    pub workers: WorkerRange,
    /// The threads of a worker.
    pub threads: u32,
    /// Each worker runs one event loop instead of threads.
    pub event_loop: bool,
    /// Requests that an event loop runs at once.
    pub worker_concurrency: u32,
    /// Requests that may wait.
    pub max_waiting: u32,
    /// Requests of one client that may wait; 0 for any number.
    pub max_waiting_per_client: u32,
    /// The order of the line.
    pub queue_order: LineOrder,
    /// How long the oldest may wait before an adaptive line sheds; 0 for ever.
    pub queue_target_us: u64,
    /// How long a request may wait; 0 for ever.
    pub queue_timeout_us: u64,
    /// All lanes, the default lane first. An empty list is one lane.
    pub lanes: Vec<PlannedLane>,
    /// How long a worker stays that is not needed.
    pub workers_keep_us: u64,
    /// How long it takes to fork a worker.
    pub boot_us: u64,
    /// The cores that workers may use; `None`: as many as they want.
    pub cores: Option<f64>,
    /// The interpreter has one lock.
    pub gil: bool,
    /// The requests come so many times as fast.
    pub rate_factor: f64,
    /// Each request has its seat for as long as it was recorded to have it.
    pub as_recorded: bool,
}

/// A number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum WorkerRange {
    /// It stays.
    Fixed(u16),
    /// It follows the line, between these.
    Elastic([u16; 2]),
}

/// The order in which a lane is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineOrder {
    /// First in, first out.
    Fifo,
    /// See [`Discipline::Adaptive`].
    Adaptive,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlannedLane {
    /// Its name.
    pub name: String,
    /// The smaller goes first.
    pub priority: u32,
    /// Seats that the other lanes together cannot take.
    pub seats: usize,
    /// The seats that it takes at most.
    pub seats_max: Option<usize>,
    /// How many may wait in it, apart from the others.
    pub waiting: Option<usize>,
    /// Whether one client may have all of its room; `None`: as the server decides it.
    pub is_for_all: Option<bool>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            workers: WorkerRange::Fixed(1),
            threads: 1,
            event_loop: false,
            worker_concurrency: 1_000,
            max_waiting: 2_048,
            max_waiting_per_client: 0,
            queue_order: LineOrder::Fifo,
            queue_target_us: 1_000_000,
            queue_timeout_us: 60_000_000,
            lanes: Vec::new(),
            workers_keep_us: 60_000_000,
            boot_us: 3_000,
            cores: None,
            gil: true,
            rate_factor: 1.0,
            as_recorded: false,
        }
    }
}

impl Default for PlannedLane {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            priority: 10,
            seats: 0,
            seats_max: None,
            waiting: None,
            is_for_all: None,
        }
    }
}

impl Scenario {
    /// The settings of the source, changed by those of the scenario. A value that is null is not given. The error names the wrong one.
    pub(crate) fn of(
        settings: &Map<String, Value>,
        changes: &Map<String, Value>,
    ) -> Result<Self, String> {
        let given = settings
            .iter()
            .chain(changes)
            .filter(|(_, value)| !value.is_null());
        let all: Map<_, _> = given
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let scenario = Self::deserialize(Value::Object(all))
            .map_err(|error| format!("a scenario: {error}"))?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        let (fewest, most) = self.workers.bounds();
        let seats = usize::from(most) * self.seats_each();
        let is_range = |number: f64, least: f64, most: f64| {
            number.is_finite() && number >= least && number <= most
        };
        let times_us = [
            self.queue_target_us,
            self.queue_timeout_us,
            self.workers_keep_us,
            self.boot_us,
        ];
        let wrong = if fewest == 0 || most < fewest {
            "workers: expected 1 or more, or the fewest and the most".to_owned()
        } else if self.seats_each() == 0 {
            "threads and worker_concurrency: expected 1 or more".to_owned()
        } else if seats > SEATS_MAX {
            format!("workers: expected at most {SEATS_MAX} seats in all, got {seats}")
        } else if self.max_waiting == 0 {
            "max_waiting: expected 1 or more, as each request passes through the line".to_owned()
        } else if self.lanes.len() > LANES_MAX {
            format!(
                "lanes: expected at most {LANES_MAX}, got {}",
                self.lanes.len()
            )
        } else if self.lanes.iter().any(|lane| lane.seats_max == Some(0)) {
            "seats_max: expected 1 or more".to_owned()
        } else if self
            .cores
            .is_some_and(|cores| !is_range(cores, 0.01, SEATS_MAX as f64))
        {
            "cores: expected a number from 0.01 to 65535".to_owned()
        } else if !is_range(self.rate_factor, RATE_FACTOR_MAX.recip(), RATE_FACTOR_MAX) {
            "rate_factor: expected a number from 0.001 to 1000".to_owned()
        } else if times_us.into_iter().any(|us| us > TIME_US_MAX) {
            "times: expected at most a year".to_owned()
        } else {
            return Ok(());
        };
        Err(format!("a scenario has the wrong {wrong}"))
    }

    /// How many requests a worker runs at once.
    pub(crate) fn seats_each(&self) -> usize {
        let each = if self.event_loop {
            self.worker_concurrency
        } else {
            self.threads
        };
        each as usize
    }

    /// The lanes, at least one.
    pub(crate) fn all_lanes(&self) -> Vec<PlannedLane> {
        let mut lanes = self.lanes.clone();
        if lanes.is_empty() {
            lanes.push(PlannedLane::default());
        }
        // As `Settings::lanes` does it: a lane with seats of its own has room of its own, and so have all if the default lane is bounded.
        let is_default_bounded = lanes[0].seats_max.is_some();
        for lane in &mut lanes[1..] {
            if lane.seats > 0 || lane.seats_max.is_some() || is_default_bounded {
                lane.waiting.get_or_insert(self.max_waiting as usize);
            }
        }
        lanes
    }

    /// By lane: whether one client may have all of its room.
    pub(crate) fn are_for_all(&self) -> Vec<bool> {
        let lanes = self.all_lanes();
        let given = self.lanes.iter().map(|lane| lane.waiting.is_some());
        let given = given.chain(std::iter::repeat(false));
        let is_for_all = |(lane, is_given): (&PlannedLane, bool)| {
            lane.is_for_all.unwrap_or(lane.seats > 0 || is_given)
        };
        lanes.iter().zip(given).map(is_for_all).collect()
    }

    /// The line.
    pub(crate) fn line<T>(&self) -> Line<T> {
        let limits = LineLimits {
            waiting_max: self.max_waiting as usize,
            queue_timeout_us: self.queue_timeout_us,
            discipline: match self.queue_order {
                LineOrder::Fifo => Discipline::Fifo,
                LineOrder::Adaptive => Discipline::Adaptive {
                    target_us: self.queue_target_us,
                },
            },
        };
        let lanes = self.all_lanes();
        let lanes = lanes.iter().map(|lane| LaneLimits {
            priority: lane.priority,
            waiting_max: lane.waiting,
        });
        Line::with_lanes(limits, &lanes.collect::<Vec<_>>())
    }

    /// The seats of the lanes.
    pub(crate) fn reserve(&self) -> Reserve {
        let lanes = self.all_lanes();
        let lanes = lanes.iter().map(|lane| LaneSeats {
            kept: lane.seats,
            max: lane.seats_max,
        });
        Reserve::new(lanes.collect())
    }

    /// Whether requests may be served in another order than the one in which they came.
    pub(crate) fn has_order(&self) -> bool {
        self.queue_order != LineOrder::Fifo || !self.lanes.is_empty()
    }

    /// Whether requests may be turned away after they have waited.
    pub(crate) fn has_expiry(&self) -> bool {
        let may_shed = self.queue_order == LineOrder::Adaptive && self.queue_target_us > 0;
        self.queue_timeout_us > 0 || may_shed
    }

    /// The limits of the number of workers, if it follows the line.
    pub(crate) fn elastic_limits(&self) -> Option<ElasticLimits> {
        let (workers_min, workers_max) = self.workers.bounds();
        let cores = self.cores.map_or(f64::from(workers_max), f64::ceil);
        (workers_min < workers_max).then(|| ElasticLimits {
            workers_min,
            workers_max,
            seats_each: self.seats_each(),
            keep_us: self.workers_keep_us,
            slow_boots_max: (cores as u16).max(1),
            auto_cores: None,
        })
    }
}

impl WorkerRange {
    /// The fewest and the most.
    pub(crate) fn bounds(self) -> (u16, u16) {
        match self {
            Self::Fixed(workers) => (workers, workers),
            Self::Elastic([fewest, most]) => (fewest, most),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scenario(settings: &Value, changes: &Value) -> Result<Scenario, String> {
        Scenario::of(settings.as_object().unwrap(), changes.as_object().unwrap())
    }

    #[test]
    fn a_scenario_changes_the_settings_of_the_source() {
        let settings =
            json!({"workers": [4, 8], "threads": 2, "cores": 2, "queue_order": "adaptive"});
        let found = scenario(&settings, &json!({"threads": 4, "cores": null})).unwrap();
        let expected = Scenario {
            workers: WorkerRange::Elastic([4, 8]),
            threads: 4,
            cores: Some(2.0),
            queue_order: LineOrder::Adaptive,
            ..Scenario::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_wrong_scenario_says_what_is_wrong() {
        let table = [
            (json!({"workers": 0}), "workers"),
            (json!({"workers": [4, 2]}), "workers"),
            (json!({"workers": 60_000, "threads": 2}), "120000"),
            (json!({"threads": 0}), "threads"),
            (json!({"max_waiting": 0}), "max_waiting"),
            (json!({"cores": 0}), "cores"),
            (json!({"rate_factor": 0}), "rate_factor"),
            (json!({"rate_factor": -1e308}), "rate_factor"),
            (json!({"boot_us": u64::MAX}), "times"),
            (json!({"lanes": [{"seats_max": 0}]}), "seats_max"),
            (json!({"lanes": vec![json!({}); 65]}), "lanes"),
            (json!({"queue_order": "lifo"}), "lifo"),
            (json!({"wrokers": 3}), "wrokers"),
        ];
        for (changes, word) in table {
            let wrong = scenario(&json!({}), &changes).unwrap_err();
            assert!(wrong.contains(word), "{changes}: {wrong}");
        }
    }

    #[test]
    fn lanes_have_the_room_that_the_server_gives_them() {
        // (the default lane's maximum, the other lane, its room, whether a client may have all of it)
        let lane = |seats, seats_max, waiting| PlannedLane {
            seats,
            seats_max,
            waiting,
            ..PlannedLane::default()
        };
        let table = [
            (None, lane(0, None, None), None, false),
            (None, lane(1, None, None), Some(2_048), true),
            (None, lane(0, Some(1), None), Some(2_048), false),
            (None, lane(0, None, Some(7)), Some(7), true),
            (Some(3), lane(0, None, None), Some(2_048), false),
        ];
        for (default_max, other, waiting, is_for_all) in table {
            let scenario = Scenario {
                lanes: vec![lane(0, default_max, None), other],
                ..Scenario::default()
            };
            assert_eq!(scenario.all_lanes()[1].waiting, waiting, "{scenario:?}");
            assert_eq!(scenario.are_for_all()[1], is_for_all, "{scenario:?}");
        }
    }
}
