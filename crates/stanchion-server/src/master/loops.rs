//! Whether event loops turn: each shows now and then that it does.

use stanchion_exchange::{BEAT_US, Exchange, SeatState};
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process;

use super::Loop;
use super::late_loop::LateLoop;
use super::resources::HouseResources;
use stanchion_generation::heartbeat;
use stanchion_master::{Event, LoopState, Present};
use stanchion_settings::Settings;

/// How often loops are looked at while one of them is late: as often as they show that they turn.
const CHECK_MS: u64 = BEAT_US / 1_000;

/// Whether the master looks at the loops of this house.
pub(super) fn are_watched(settings: &Settings) -> bool {
    settings.is_event_loop() && heartbeat::limits_us(settings).iter().any(Option::is_some)
}

/// How often they are looked at.
pub(super) fn check_ms(house: &HouseResources) -> u64 {
    if house.late_loops.is_empty() {
        heartbeat::rest_us(&house.common.settings) / 1_000
    } else {
        CHECK_MS
    }
}

impl Loop<'_> {
    pub(super) fn gather_loops(&mut self) {
        let now_us = monotonic_us();
        let watched = self.houses.values().map(|house| &house.common.settings);
        let rest_us = watched
            .filter(|settings| are_watched(settings))
            .map(heartbeat::rest_us)
            .min();
        let between_us = now_us.saturating_sub(self.looked_us);
        if rest_us.is_some_and(|rest_us| heartbeat::was_held_up(between_us, rest_us)) {
            self.watching_since_us = now_us;
        }
        self.looked_us = now_us;
        for (&generation, house) in &mut self.houses {
            if !are_watched(&house.common.settings) {
                continue;
            }
            let table = self.master.house(generation);
            let present = table.into_iter().flat_map(|one| one.workers.present());
            for Present { worker, pid, .. } in present {
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
        let [late_us, stuck_us] = heartbeat::limits_us(&self.common.settings);
        let stopped_until_us = before.map_or(0, |late| late.stopped_until_us);
        let silent_us = now_us.saturating_sub(beat_us.max(since_us).max(stopped_until_us));
        let is_over =
            |limit_us: Option<u64>| limit_us.is_some_and(|limit_us| silent_us >= limit_us);
        if !is_over(late_us) && !is_over(stuck_us) {
            return None;
        }
        // A debugger has stopped it on purpose, and a signal perhaps; but requests that it has, or that wait, do not wait for ever.
        let (is_left_alone, counts) = match process::state(pid) {
            Some('t') => (true, false),
            Some('T') => {
                let has_work = has_work(&self.common.exchange, worker);
                (!has_work || !is_over(stuck_us), has_work)
            }
            _ => (false, true),
        };
        let late = self.late_loops.entry(worker).or_insert(LateLoop {
            beat_us,
            stopped_until_us,
        });
        let state = if is_left_alone {
            if !counts {
                late.stopped_until_us = now_us;
            }
            LoopState::Stopped
        } else if is_over(stuck_us) {
            LoopState::Stuck
        } else {
            LoopState::Late
        };
        Some((state, silent_us))
    }
}

/// Whether an event loop has requests in hand, or some wait for one.
fn has_work(exchange: &Exchange, worker: u16) -> bool {
    let mut seats = exchange.geometry().seats_of(worker);
    exchange.oldest_ready().is_some()
        || seats.any(|seat| exchange.seat_state(seat) == SeatState::Busy)
}
