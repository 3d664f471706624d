//! Whether event loops turn: each shows now and then that it does.

use stanchion_exchange::BEAT_US;
use stanchion_sys::clock::monotonic_us;

use crate::master::generations::Generations;
use stanchion_generation::heartbeat;
use stanchion_master::{Master, MasterEvent, Observation, PresentWorker};
use stanchion_settings::Settings;

/// How often loops are looked at while one of them is late: as often as they show that they turn.
const CHECK_MS: u64 = BEAT_US / 1_000;

/// Whether the master looks at the loops of this generation.
fn are_watched(settings: &Settings) -> bool {
    settings.is_event_loop() && heartbeat::limits_us(settings).iter().any(Option::is_some)
}

/// How often they are looked at, if there are any.
pub(super) fn check_ms(generations: &Generations) -> Option<u64> {
    let generations = generations.iter();
    let watched = generations.filter(|generation| are_watched(&generation.common.settings));
    let checks_ms = watched.map(|generation| {
        if generation.late_loops.are_none() {
            heartbeat::rest_us(&generation.common.settings) / 1_000
        } else {
            CHECK_MS
        }
    });
    checks_ms.min()
}

/// When the master looked at event loops.
#[derive(Debug, Default)]
pub(in crate::master) struct LoopWatch {
    looked_us: u64,
    /// Since when it has looked as often as it should.
    since_us: u64,
}

impl LoopWatch {
    pub(in crate::master) fn look(
        &mut self,
        master: &Master,
        generations: &mut Generations,
    ) -> Vec<MasterEvent> {
        let mut events = Vec::new();
        let now_us = monotonic_us();
        let watched = generations
            .iter()
            .map(|generation| &generation.common.settings);
        let rest_us = watched
            .filter(|settings| are_watched(settings))
            .map(heartbeat::rest_us)
            .min();
        let between_us = now_us.saturating_sub(self.looked_us);
        if rest_us.is_some_and(|rest_us| heartbeat::was_held_up(between_us, rest_us)) {
            self.since_us = now_us;
        }
        self.looked_us = now_us;
        for generation in generations.iter_mut() {
            if !are_watched(&generation.common.settings) {
                continue;
            }
            let generation_number = generation.number();
            for PresentWorker { worker, pid, .. } in master.present_workers(generation_number) {
                let times_us = (self.since_us, now_us);
                let seen =
                    generation
                        .late_loops
                        .look(&generation.common, worker.index, pid, times_us);
                events.extend(seen.map(|(state, silent_us)| {
                    let silent_ms = silent_us / 1_000;
                    let seen = Observation::Beat { state, silent_ms };
                    MasterEvent::seen(generation_number, worker.index, seen)
                }));
            }
        }
        events
    }
}
