//! The planner: what another number of workers, another order or another limit would have done to the same requests.
//!
//! It simulates a server from event to event, with the policy that the server itself runs: the line, its lanes and its orders, the limits of
//! clients, reserved seats, what is handed out ahead and the elastic number of workers are those of stanchion-line.
//!
//! ```text
//! arrivals ─▶ line ─▶ ring ─▶ a seat: on a core ─▶ elsewhere ─▶ on a core ─▶ elsewhere ─▶ on a core ─▶ over
//!            (Line)  (Ahead)   lock, cores         (pool)        with the lock of its worker
//! ```
//!
//! Requests come from a recording or a log ([`SeenTraffic`]) or from a model ([`TrafficModel`]). Of each the simulation knows when it came, its lane and
//! client, its CPU time, and the rest of its time at a seat.
//!
//! **Stations.** A worker has one lock, which its threads take in turns: one that wants it longer than 5 ms gives it up if another waits. An event
//! loop is such a worker whose requests do not interrupt each other. A request with the lock shares the cores with those of the other workers in equal
//! parts. Elsewhere, requests do not slow each other down, unless the traffic shows that they do: then they share a pool of
//! the size that the traffic shows.
//!
//! **Calibration.** Seats begin late by times that the traffic has, since 0.3 ms of wrong occupancy move a median by a fifth. Of the measured waiting for
//! cores and for the lock, the part that a simulation of the measured settings explains is simulated in each scenario, and the rest stays as it
//! was: other programs on the machine caused it.
//!
//! **Bands.** A replay is run with the recorded requests, and then with stretches that are put together of blocks of the recording; a model is run
//! with several seeds.
//!
//! **What is approximated.** CPU time comes in three equal pieces: more pieces change the wait for the lock little, since each is as much shorter as there
//! are more. The kernel shares cores without a quantum, and the acceptor needs none. Memory, pages and caches cost nothing, answers are short
//! (`Ahead` knows no lengths), workers are neither replaced nor killed, a fork takes as long as the scenario says and no CPU, and requests that retry, ports of single
//! workers and sessions of `WebSocket`s are not there. Users do not react: each request comes when it came. A lane
//! at its maximum gets its next seat from the acceptor, and here as soon as others do: its waits come out some percent too short under overload.
//!
//! This crate is policy only. It may not do I/O, read a clock, have threads or use unsafe code.
//!
//! ```
//! use stanchion_plan::{PlanRequest, PlanSource, plan};
//!
//! let question = r#"{
//!     "source": {"model": {"rate_per_s": 80, "service": [[0.5, 20000], [0.99, 900000]], "seconds": 60}},
//!     "scenarios": [{"workers": 4}, {"workers": 12}],
//!     "seeds": 3
//! }"#;
//! let mut request = PlanRequest::read(question)?;
//! let source = PlanSource::of(request.take_source()?, |path| Err(format!("{path} is not read here")))?;
//! let answer = plan(&request, source, &mut |_| true).map_err(|none| format!("{none:?}"))?;
//! let p99_us = |index: usize| answer.results[index].wait.map_or(0.0, |wait| wait.p99_us);
//! assert!(p99_us(1) < p99_us(0));
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod answer;
mod band;
mod blocks;
mod chance;
mod idle;
mod lateness;
mod lock;
mod measured;
mod model;
mod offered;
mod outcome;
mod planner;
mod recorded;
mod request;
mod scenario;
mod seat;
mod seen;
mod server;
mod spread;
mod staff;
mod station;
mod summary;
mod unknown;

pub use answer::{
    BusySeats, LaneResult, MeasuredCounts, MeasuredTraffic, PlanAnswer, ResultCounts,
    ResultWorkers, ScenarioResult, SpentParts, SpreadBand, Utilization,
};
pub use model::TrafficModel;
pub use planner::{NoAnswer, PlanSource, plan};
pub use request::{PlanRequest, TrafficSource};
pub use scenario::{LineOrder, PlannedLane, Scenario, WorkerRange};
pub use seen::{SeenEnd, SeenRequest, SeenTraffic};
pub use spread::SpreadFigures;
