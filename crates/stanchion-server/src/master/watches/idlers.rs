//! Workers in threads that take no request though one waits for a seat: a signal or a debugger has stopped them, they are stuck
//! outside of Python, or they get no CPU time. Event loops show by themselves that they turn ([`super::loops`]).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use stanchion_exchange::{Exchange, SeatState};
use stanchion_sys::process;

use crate::master::generations::Generations;
use stanchion_generation::heartbeat;
use stanchion_master::{Idleness, Master, MasterEvent, Observation, PresentWorker, ProcessLook};

/// A seat that sleeps takes a request within a fraction of a millisecond. The master names a worker that takes none for so long.
const NAMED_MS: u64 = 5_000;

/// The master has seen these, by generation and index.
#[derive(Debug, Default)]
pub(in crate::master) struct Idlers {
    idle: BTreeMap<(u32, u16), Idler>,
}

/// A worker with an idle seat, while a request waited at each look.
#[derive(Clone, Copy, Debug)]
struct Idler {
    work: WorkDone,
    since_ms: u64,
    is_named: bool,
}

/// A worker has taken and answered so much until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WorkDone {
    epoch: u16,
    served: u64,
    started_us: u64,
}

impl WorkDone {
    /// `None` if all seats of the worker are busy.
    fn of(exchange: &Exchange, worker: u16, epoch: u16) -> Option<Self> {
        let mut work = Self {
            epoch,
            served: 0,
            started_us: 0,
        };
        let mut all_busy = true;
        for seat in exchange.geometry().seats_of(worker) {
            let figures = exchange.seat(seat);
            // A worker may be ready and stop before its threads sit down.
            all_busy &= exchange.seat_state(seat) == SeatState::Busy;
            work.served = work.served.wrapping_add(figures.served.load(Relaxed));
            work.started_us = work.started_us.max(figures.started_us.load(Relaxed));
        }
        (!all_busy).then_some(work)
    }
}

impl Idlers {
    /// The master was held up, so it starts all counts again.
    fn pause(&mut self, now_ms: u64) {
        for idler in self.idle.values_mut() {
            idler.since_ms = now_ms;
        }
    }

    /// A worker that is idle though a request waits has done this `work`; `None`: it is not. Gives for how long it has taken
    /// nothing, if that is too long, or that a worker that was named takes requests again.
    fn seen(
        &mut self,
        worker: (u32, u16),
        work: Option<WorkDone>,
        now_ms: u64,
    ) -> Option<IdleChange> {
        let before = self.idle.get(&worker).copied();
        let Some(work) = work else {
            let idler = self.idle.remove(&worker)?;
            return idler.is_named.then_some(IdleChange::Goes);
        };
        match before {
            Some(idler) if idler.work == work => {
                let idle_ms = now_ms - idler.since_ms;
                (idle_ms >= NAMED_MS).then_some(IdleChange::Idles(idle_ms))
            }
            _ => {
                let idler = Idler {
                    work,
                    since_ms: now_ms,
                    is_named: false,
                };
                let before = self.idle.insert(worker, idler)?;
                before.is_named.then_some(IdleChange::Goes)
            }
        }
    }

    /// Looks for workers that take nothing though a request waits.
    pub(in crate::master) fn look(
        &mut self,
        look: ProcessLook,
        now_ms: u64,
        master: &Master,
        generations: &Generations,
    ) -> Vec<MasterEvent> {
        let mut events = Vec::new();
        if look.is_late() {
            self.pause(now_ms);
        }
        let mut present = Vec::new();
        for generation in generations.iter() {
            let (generation_number, common) = (generation.number(), &generation.common);
            if common.settings.is_event_loop() {
                continue;
            }
            let [_, timeout_us] = heartbeat::limits_us(&common.settings);
            let waits = common.exchange.oldest_ready().is_some();
            for PresentWorker { worker, pid, .. } in master.present_workers(generation_number) {
                let name = (generation_number, worker.index);
                present.push(name);
                let work = || WorkDone::of(&common.exchange, worker.index, worker.epoch);
                let work = waits.then(work).flatten();
                let Some(seen) = self.seen(name, work, now_ms) else {
                    continue;
                };
                let idleness = match seen {
                    IdleChange::Goes => Idleness::Over,
                    IdleChange::Idles(idle_ms) => {
                        let state = process::state(pid);
                        let is_late =
                            timeout_us.is_some_and(|limit_us| idle_ms * 1_000 >= limit_us);
                        if let Some(idler) = self.idle.get_mut(&name) {
                            idler.is_named = true;
                        }
                        Idleness::Lasts {
                            idle_ms,
                            state,
                            // A debugger has stopped it on purpose.
                            is_too_long: is_late && state != Some('t'),
                        }
                    }
                };
                let seen = Observation::Idles(idleness);
                events.push(MasterEvent::seen(generation_number, worker.index, seen));
            }
        }
        self.idle.retain(|name, _| present.contains(name));
        events
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleChange {
    Idles(u64),
    Goes,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: (u32, u16) = (1, 0);
    const LOOK_MS: u64 = 1_000;

    fn work(served: u64) -> WorkDone {
        WorkDone {
            epoch: 3,
            served,
            started_us: served * 10,
        }
    }

    /// The outcomes of looks a second apart.
    fn looks(works: impl IntoIterator<Item = Option<WorkDone>>) -> Vec<Option<IdleChange>> {
        let mut idlers = Idlers::default();
        let times_ms = (1..).map(|look| look * LOOK_MS);
        let look = |(work, now_ms): (Option<WorkDone>, u64)| {
            let seen = idlers.seen(NAME, work, now_ms);
            if let Some(IdleChange::Idles(_)) = seen {
                idlers.idle.get_mut(&NAME).unwrap().is_named = true;
            }
            seen
        };
        works.into_iter().zip(times_ms).map(look).collect()
    }

    #[test]
    fn a_worker_that_takes_nothing_while_requests_wait_is_named_and_heard_of_when_it_does() {
        let seen = looks([7, 7, 7, 7, 7, 7, 7, 8].map(|served| Some(work(served))));
        let idles = |seconds: u64| Some(IdleChange::Idles(seconds * 1_000));
        let goes = Some(IdleChange::Goes);
        let expected = [None, None, None, None, None, idles(5), idles(6), goes];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_worker_that_takes_something_or_for_which_nothing_waits_does_not_idle() {
        let takes = looks((0..20).map(|served| Some(work(served))));
        let now_and_then = looks((0..20).map(|look| (look % 5 > 0).then(|| work(7))));
        assert!(takes.iter().chain(&now_and_then).all(Option::is_none));
    }

    #[test]
    fn time_in_which_the_master_stood_too_does_not_count() {
        let mut idlers = Idlers::default();
        for now_ms in [1_000, 2_000, 3_000] {
            assert_eq!(idlers.seen(NAME, Some(work(7)), now_ms), None);
        }
        idlers.pause(60_000);
        assert_eq!(idlers.seen(NAME, Some(work(7)), 60_000), None);
        assert_eq!(idlers.seen(NAME, Some(work(7)), 61_000), None);
    }
}
