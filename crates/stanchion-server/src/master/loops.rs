//! Whether event loops turn: each shows now and then that it does.

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process;

use super::Loop;
use super::event::{Event, LoopState};
use super::resources::HouseResources;
use crate::settings::Settings;

/// How often loops are looked at while one of them is late: as often as they show that they turn.
const CHECK_MS: u64 = 250;
/// At most so seldom while none is: a master that has nothing else to do sleeps so long.
const CHECK_MS_MAX: u64 = 1_000;
/// Of the shortest limit, so many parts may be over until it is seen that it is over.
const PARTS: u64 = 5;
/// If the master itself was late by so much, everybody was: the machine stood, or a hook held it up.
const HELD_UP_US: u64 = 1_000_000;

/// An event loop that does not turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateLoop {
    /// Its last sign of life.
    beat_us: u64,
    /// Until then its process was stopped: from then on it counts.
    stopped_until_us: u64,
}

/// Whether the master looks at the loops of this house.
pub(super) fn are_watched(settings: &Settings) -> bool {
    settings.is_event_loop() && limits_us(settings).iter().any(Option::is_some)
}

/// How often they are looked at.
pub(super) fn check_ms(house: &HouseResources) -> u64 {
    let shortest_us = limits_us(&house.common.settings)
        .into_iter()
        .flatten()
        .min();
    match shortest_us {
        Some(limit_us) if house.late_loops.is_empty() => {
            (limit_us / 1_000 / PARTS).clamp(CHECK_MS, CHECK_MS_MAX)
        }
        _ => CHECK_MS,
    }
}

/// After how long without a turn a loop is named, and after how long its worker is replaced.
fn limits_us(settings: &Settings) -> [Option<u64>; 2] {
    [settings.loop_timeout, settings.timeout].map(|limit| {
        let limit = limit.as_duration()?;
        Some(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX))
    })
}

impl Loop<'_> {
    pub(super) fn gather_loops(&mut self) {
        let now_us = monotonic_us();
        if now_us.saturating_sub(self.looked_us) > CHECK_MS_MAX * 1_000 + HELD_UP_US {
            self.watching_since_us = now_us;
        }
        self.looked_us = now_us;
        for (&generation, house) in &mut self.houses {
            if !are_watched(&house.common.settings) {
                continue;
            }
            let table = self
                .master
                .houses()
                .find(|one| one.generation == generation);
            for (worker, pid) in table.into_iter().flat_map(|one| one.workers.present()) {
                let seen = house.look_at_loop(worker.index, pid, (self.watching_since_us, now_us));
                self.events
                    .extend(seen.map(|(state, silent_us)| Event::Beat {
                        generation,
                        worker: worker.index,
                        state,
                        silent_ms: silent_us / 1_000,
                    }));
            }
        }
    }
}

impl HouseResources {
    /// How the loop of a worker is, if there is anything to say, and for how long it has not turned.
    fn look_at_loop(
        &mut self,
        worker: u16,
        pid: i32,
        (since_us, now_us): (u64, u64),
    ) -> Option<(LoopState, u64)> {
        let inbox = self.common.exchange.inbox(worker)?;
        let beat_us = inbox.beat_us();
        let before = self.late_loops.get(&worker).copied();
        if let Some(late) = before.filter(|late| late.beat_us != beat_us) {
            self.late_loops.remove(&worker);
            let silent_us = beat_us.saturating_sub(late.beat_us);
            return (beat_us != 0).then_some((LoopState::Turns, silent_us));
        }
        if beat_us == 0 {
            // It has not begun, or has ended.
            return None;
        }
        let [late_us, stuck_us] = limits_us(&self.common.settings);
        let stopped_until_us = before.map_or(0, |late| late.stopped_until_us);
        let silent_us = now_us.saturating_sub(beat_us.max(since_us).max(stopped_until_us));
        let is_over =
            |limit_us: Option<u64>| limit_us.is_some_and(|limit_us| silent_us >= limit_us);
        if !is_over(late_us) && !is_over(stuck_us) {
            return None;
        }
        let is_stopped = process::is_stopped(pid);
        let late = self.late_loops.entry(worker).or_insert(LateLoop {
            beat_us,
            stopped_until_us,
        });
        let state = if is_stopped {
            late.stopped_until_us = now_us;
            LoopState::Stopped
        } else if is_over(stuck_us) {
            LoopState::Stuck
        } else {
            LoopState::Late
        };
        Some((state, silent_us))
    }
}
