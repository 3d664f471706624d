//! Requests that seats run now, and for how long: the histograms have only requests that have ended.

use std::sync::atomic::Ordering;

use super::Dispatch;
use super::durations::Durations;
use super::status::{SeatCounts, SeatDoes};

/// All seats, at one moment.
#[derive(Debug, Default)]
pub struct Running {
    pub counts: SeatCounts,
    /// For how long each busy seat has run its request.
    pub ages: Durations,
    /// For how long no seat has taken a request, because all of them were busy; 0 if a seat is idle.
    pub stuck_us: u64,
}

impl Dispatch {
    /// Looks at every seat that a worker has, or that one of the first `workers` should have.
    pub fn running(&self, workers: usize, now_us: u64) -> Running {
        let mut running = Running::default();
        let mut youngest_us = None;
        running.counts.empty = self.empty_seats(workers);
        for seat in self.seats() {
            match self.does(seat) {
                SeatDoes::Idle => running.counts.idle += 1,
                // Its worker left the seat in this moment.
                SeatDoes::Empty => {}
                SeatDoes::Busy => {
                    let seat = self.exchange.seat(seat);
                    let age_us = now_us.saturating_sub(seat.started_us.load(Ordering::Relaxed));
                    running.counts.busy += 1;
                    running.ages.add(age_us);
                    youngest_us = Some(youngest_us.unwrap_or(age_us).min(age_us));
                }
            }
        }
        if running.counts.idle == 0 {
            running.stuck_us = youngest_us.unwrap_or(0);
        }
        running
    }
}
