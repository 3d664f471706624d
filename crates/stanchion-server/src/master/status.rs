//! The state of the server and of its workers, for clients of the control socket.

use stanchion_master::{Generation, Master, WorkerStage, is_stopped};
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::{memory, process};

use super::generations::Generations;
use super::watches::Watches;
use crate::control::{CtlStatus, CtlWorker, SeatTotals, WorkerSeats};
use stanchion_generation::named_counts::{EventCounts, RequestCounts};
use stanchion_settings::SignalStyle;

pub(super) fn of_server(
    master: &Master,
    generations: &Generations,
    watches: &Watches,
) -> CtlStatus {
    let generation = master.main_generation();
    let leaving = master
        .generations()
        .filter(|generation| generation.is_leaving());
    let listeners = generations.present_resources().into_iter();
    let listeners = listeners.flat_map(|generation| &generation.listeners);
    let signals = match generations.settings().process.signals {
        SignalStyle::Gunicorn => "gunicorn",
        SignalStyle::Unicorn => "unicorn",
    };
    let counts = generations.counts();
    let uptime_s = generations.present().figures.uptime_s(monotonic_us());
    CtlStatus {
        version: env!("CARGO_PKG_VERSION"),
        pid: process::pid(),
        uptime_s,
        phase: master.phase(),
        generation: master.main_generation_number().unwrap_or_default(),
        retiring: leaving.map(|generation| generation.number).collect(),
        listeners: listeners.map(|one| one.address().to_string()).collect(),
        workers_wanted: generation.map_or(0, |generation| generation.target),
        workers_ready: generation.map_or(0, |generation| generation.workers.ready() as u16),
        seats: generation.map_or_else(SeatTotals::default, |generation| {
            seats_of(generation, generations)
        }),
        acceptor_still_s: watches.acceptor.still_ms().map(|still_ms| still_ms / 1_000),
        stopped: watches.stopped.named().map(str::to_owned).collect(),
        signals: signals.to_owned(),
        requests: RequestCounts(counts),
        events: EventCounts(counts),
    }
}

fn seats_of(generation: &Generation, generations: &Generations) -> SeatTotals {
    let Some(resources) = generations.get(generation.number) else {
        return SeatTotals::default();
    };
    let (exchange, now_us) = (&resources.common.exchange, monotonic_us());
    let present = generation.workers.present();
    SeatTotals::of(present.map(|one| WorkerSeats::of(exchange, one.worker.index, now_us)))
}

/// The index of the worker that has answered the most requests, of those that serve.
pub(super) fn warmest(master: &Master, generations: &Generations) -> Option<u16> {
    let generation = master.main_generation()?;
    let exchange = &generations.get(generation.number)?.common.exchange;
    let now_us = monotonic_us();
    let workers = generation.workers.all();
    let serving = workers.filter(|worker| worker.stage == WorkerStage::Ready);
    serving
        .max_by_key(|worker| WorkerSeats::of(exchange, worker.index, now_us).served)
        .map(|worker| worker.index)
}

pub(super) fn of_workers(master: &Master, generations: &Generations) -> Vec<CtlWorker> {
    let now_us = monotonic_us();
    let mut workers = Vec::new();
    for generation in master.generations() {
        let Some(resources) = generations.get(generation.number) else {
            continue;
        };
        workers.extend(generation.workers.all().map(|worker| {
            CtlWorker {
                number: worker.number,
                pid: worker.pid,
                generation: generation.number,
                stage: worker.stage,
                stopped: worker
                    .pid
                    .is_some_and(|pid| is_stopped(process::state(pid))),
                memory_bytes: worker.pid.and_then(memory::proportional_bytes),
                seats: WorkerSeats::of(&resources.common.exchange, worker.index, now_us),
            }
        }));
    }
    workers
}
