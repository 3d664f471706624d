//! How long requests waited and ran, and what follows: how many requests to hand out ahead of seats, and how many workers there
//! should be.

use std::rc::Rc;

use stanchion_generation::common::Common;
use stanchion_line::{Ahead, Curve, Demand};
use stanchion_settings::QueueOrder;
use stanchion_sys::channel::Channel;

use crate::causes::Causes;
use crate::durations::Durations;
use crate::staffing::Staffing;

/// The times of the requests that workers have answered.
pub struct ServiceTimes {
    /// How long requests waited from their arrival until a seat took them.
    pub waits: Durations,
    /// How long seats ran them from then on.
    pub services: Durations,
    /// Where their time went.
    pub(crate) causes: Causes,
    /// How many of them leave in a second, by busy seats.
    pub(crate) curve: Curve,
    /// How long seats ran them in all, each up to [`Demand::HELD_US`].
    held_us: u64,
    ahead: Ahead,
    /// How many workers there should be.
    pub staffing: Staffing,
}

impl ServiceTimes {
    /// Nothing was measured yet.
    pub(crate) fn new(common: &Common, master: &Rc<Channel>) -> Self {
        let settings = &common.settings;
        let has_threads = !settings.is_event_loop() && settings.seats_per_worker() > 1;
        Self {
            waits: Durations::default(),
            services: Durations::default(),
            causes: Causes::new(has_threads),
            curve: Curve::default(),
            held_us: 0,
            ahead: Ahead::new(ahead_max(common)),
            staffing: Staffing::new(common, master),
        }
    }

    /// Notes that a seat took a request that had waited for so long, ran it for so long, and wrote so many bytes to its ring.
    pub(crate) fn served(&mut self, wait_us: u64, service_us: u64, in_ring: usize) {
        self.ahead.served(service_us, in_ring as u64);
        self.waits.add(wait_us);
        self.services.add(service_us);
        self.held_us += service_us.min(Demand::HELD_US);
    }

    /// How long seats ran requests in all, each up to [`Demand::HELD_US`], in microseconds.
    pub(crate) fn held_us(&self) -> u64 {
        self.held_us
    }

    /// How many requests to hand out for each seat beyond the one that it serves.
    pub(crate) fn ahead_per_seat(&self) -> usize {
        self.ahead.per_seat()
    }
}

/// How many requests to hand out ahead of a seat at most.
fn ahead_max(common: &Common) -> usize {
    let ahead_max = common.exchange.geometry().ahead_per_seat;
    let line = &common.settings.line;
    if line.queue_order != QueueOrder::Fifo || !line.lane.is_empty() {
        ahead_max.min(Ahead::IN_ORDER_MAX)
    } else {
        ahead_max
    }
}
