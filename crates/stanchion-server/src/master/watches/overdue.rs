//! Requests past their timeout.

use std::sync::atomic::Ordering;

use stanchion_master::{MasterEvent, Observation, Pause};
use stanchion_sys::clock::{kernel_us, monotonic_us};

use crate::master::generations::Generations;
use stanchion_settings::Settings;

/// How often the master looks at the scoreboard for requests past their timeout. Their deadlines
/// are exact; this is how late it may notice.
pub(super) const CHECK_MS: u64 = 100;

/// Whether the master sees to the deadlines of requests. The acceptor sees to those of event loops by itself: their workers go on.
pub(super) fn has_deadlines(settings: &Settings) -> bool {
    settings.workers.timeout.as_duration().is_some() && !settings.is_event_loop()
}

/// The looks for such requests.
#[derive(Debug, Default)]
pub(in crate::master) struct OverdueWatch {
    pause: Pause,
}

impl OverdueWatch {
    pub(in crate::master) fn look(&mut self, generations: &Generations) -> Vec<MasterEvent> {
        let mut events = Vec::new();
        let now_us = monotonic_us();
        self.pause.look(kernel_us(), now_us);
        for generation in generations.iter() {
            if !has_deadlines(&generation.common.settings) {
                continue;
            }
            let exchange = &generation.common.exchange;
            for seat in 0..exchange.geometry().seats as u16 {
                let started_us = exchange.seat(seat).started_us.load(Ordering::Relaxed);
                let now_us = self.pause.without(started_us, now_us);
                if let Some(ran_us) = exchange.overdue_us(seat, now_us) {
                    let worker = exchange.geometry().worker_of(seat);
                    let seen = Observation::Overdue {
                        seat,
                        ran_ms: ran_us / 1_000,
                        others: generation.is_busy(worker, Some(seat)),
                    };
                    events.push(MasterEvent::seen(generation.number(), worker, seen));
                }
            }
        }
        events
    }
}
