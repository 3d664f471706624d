//! The figures of several runs of a scenario.

use stanchion_line::Spent;

use crate::answer::{
    LaneResult, ResultCounts, ResultWorkers, ScenarioResult, SpentParts, SpreadBand, Utilization,
};
use crate::band::{Scale, band_of, median};
use crate::outcome::RunOutcome;
use crate::scenario::Scenario;
use crate::spread::SpreadFigures;

impl ScenarioResult {
    /// Of several runs with different seeds, at least one, of requests whose CPU times are known or not. In a replay the first run has the recorded requests themselves, so its figures are the
    /// estimate, and the others give the band. Runs of a model are all alike.
    pub(crate) fn of(
        scenario: Scenario,
        runs: &[RunOutcome],
        is_replay: bool,
        knows_cpu: bool,
    ) -> Self {
        let (counted, others) = if is_replay {
            runs.split_at(1)
        } else {
            (runs, runs)
        };
        let mean = |value: fn(&RunOutcome) -> f64| mean(counted, value);
        let counts = ResultCounts {
            requests: mean(|run| run.offered as f64),
            served: mean(|run| run.served as f64),
            refused: mean(|run| run.refused as f64),
            timed_out: mean(|run| run.timed_out as f64),
            shed: mean(|run| run.shed as f64),
            left: mean(|run| run.left as f64),
        };
        let away = (counts.refused + counts.timed_out + counts.shed) / counts.requests.max(1.0);
        let refused = others.iter().map(RunOutcome::turned_away_share);
        let refused: Vec<_> = refused.collect();
        let (waits, latencies) = (figures(counted, waits), figures(counted, latencies));
        let (wait, latency) = (estimate(&waits), estimate(&latencies));
        Self {
            name: scenario.name.clone(),
            counts,
            wait_band: wait.and_then(|wait| band(&figures(others, self::waits), wait)),
            latency_band: latency.and_then(|one| band(&figures(others, self::latencies), one)),
            refused_band: band_of(&refused, away, Scale::Share),
            wait,
            latency,
            utilization: Utilization::of(&scenario, counted, knows_cpu),
            spent_us: SpentParts::mean_of(counted),
            busy_max: counted.iter().map(|run| run.busy_max).max().unwrap_or(0),
            workers: ResultWorkers {
                worker_seconds: mean(|run| run.attendance.worker_us as f64 / 1e6),
                forks: mean(|run| run.attendance.forks as f64),
                points: runs[0].attendance.points.clone(),
            },
            line: runs[0].line.points(),
            lanes: lanes_of(&scenario, counted),
            knobs: scenario,
        }
    }
}

fn mean(runs: &[RunOutcome], value: impl Fn(&RunOutcome) -> f64) -> f64 {
    runs.iter().map(value).sum::<f64>() / runs.len() as f64
}

fn waits(run: &RunOutcome) -> Option<SpreadFigures> {
    run.wait.figures()
}

fn latencies(run: &RunOutcome) -> Option<SpreadFigures> {
    run.latency.figures()
}

/// The figures of each run that has any.
fn figures(runs: &[RunOutcome], of: fn(&RunOutcome) -> Option<SpreadFigures>) -> Vec<[f64; 4]> {
    runs.iter().filter_map(of).map(|one| one.all()).collect()
}

fn estimate(all: &[[f64; 4]]) -> Option<SpreadFigures> {
    let middle = |index: usize| median(all.iter().map(|one| one[index]).collect());
    (!all.is_empty()).then(|| SpreadFigures::from_all([0, 1, 2, 3].map(middle)))
}

fn band(all: &[[f64; 4]], estimate: SpreadFigures) -> Option<SpreadBand> {
    let ends = |index: usize| {
        let all: Vec<_> = all.iter().map(|one| one[index]).collect();
        band_of(&all, estimate.all()[index], Scale::Ratio)
    };
    Some(SpreadBand {
        mean_us: ends(0)?,
        p50_us: ends(1)?,
        p90_us: ends(2)?,
        p99_us: ends(3)?,
    })
}

fn lanes_of(scenario: &Scenario, runs: &[RunOutcome]) -> Vec<LaneResult> {
    let lanes = scenario.all_lanes().into_iter().enumerate();
    let lanes = lanes.map(|(index, lane)| {
        let of = runs.iter().map(|run| &run.lanes[index]);
        let each = |total: u64| total as f64 / runs.len() as f64;
        LaneResult {
            name: lane.name,
            requests: each(of.clone().map(|one| one.offered).sum()),
            refused: each(of.clone().map(|one| one.turned_away).sum()),
            wait: of.clone().find_map(|one| one.wait.figures()),
        }
    });
    lanes.collect()
}

impl SpentParts {
    fn mean_of(runs: &[RunOutcome]) -> Self {
        let mut all = Spent::default();
        for run in runs {
            all += run.spent;
        }
        let Self {
            line,
            core,
            gil,
            cpu,
            elsewhere,
        } = all.into();
        let [line, core, gil, cpu, elsewhere] =
            [line, core, gil, cpu, elsewhere].map(|us| us / runs.len() as f64);
        Self {
            line,
            core,
            gil,
            cpu,
            elsewhere,
        }
    }
}

impl Utilization {
    fn of(scenario: &Scenario, runs: &[RunOutcome], knows_cpu: bool) -> Self {
        let sum = |value: fn(&RunOutcome) -> u64| runs.iter().map(value).sum::<u64>() as f64;
        let share = |used: f64, of: f64| if of > 0.0 { used / of } else { 0.0 };
        let (cpu_us, ready_us) = (
            sum(|run| run.spent.cpu_us),
            sum(|run| run.attendance.ready_us),
        );
        let has_locks = scenario.seats_each() > 1 && (scenario.gil || scenario.event_loop);
        let cores = scenario.cores.filter(|_| knows_cpu);
        Self {
            seats: share(
                sum(|run| run.spent.service_us()),
                ready_us * scenario.seats_each() as f64,
            ),
            cores: cores.map(|cores| share(cpu_us, sum(|run| run.ended_us) * cores)),
            gil: (has_locks && knows_cpu).then(|| share(cpu_us, ready_us)),
        }
    }
}
