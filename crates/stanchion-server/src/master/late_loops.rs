//! Event loops that do not turn.

use std::collections::BTreeMap;

use stanchion_exchange::{Exchange, SeatState};
use stanchion_master::LoopState;
use stanchion_sys::process;

use stanchion_generation::common::Common;
use stanchion_generation::heartbeat;

/// The workers of a generation whose event loops do not turn, by index.
#[derive(Debug, Default)]
pub(super) struct LateLoops(BTreeMap<u16, LateLoop>);

/// An event loop that does not turn.
#[derive(Clone, Copy, Debug)]
struct LateLoop {
    /// Its last sign of life.
    beat_us: u64,
    /// Until then its process was stopped: from then on it counts.
    stopped_until_us: u64,
}

impl LateLoops {
    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The worker has ended.
    pub(super) fn forget(&mut self, worker: u16) {
        self.0.remove(&worker);
    }

    /// How the loop of a worker is, if there is anything to say, and for how long it has not turned.
    pub(super) fn look(
        &mut self,
        common: &Common,
        worker: u16,
        pid: i32,
        (since_us, now_us): (u64, u64),
    ) -> Option<(LoopState, u64)> {
        let inbox = common.exchange.inbox(worker)?;
        let beat_us = inbox.beat_us();
        let before = self.0.get(&worker).copied();
        if let Some(late) = before.filter(|late| late.beat_us != beat_us) {
            self.0.remove(&worker);
            let silent_us = beat_us.saturating_sub(late.beat_us);
            return (beat_us != 0).then_some((LoopState::Turns, silent_us));
        }
        if beat_us == 0 {
            // It has not begun, or has ended.
            return None;
        }
        let [late_us, stuck_us] = heartbeat::limits_us(&common.settings);
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
                let has_work = has_work(&common.exchange, worker);
                (!has_work || !is_over(stuck_us), has_work)
            }
            _ => (false, true),
        };
        let late = self.0.entry(worker).or_insert(LateLoop {
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
