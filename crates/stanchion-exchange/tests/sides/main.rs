//! Both sides of an exchange in one process: who wakes, what event loops see, deadlines, and how much memory is taken.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod deadlines;
mod loops;
mod memory;
mod wakes;

use stanchion_exchange::{AcceptorSide, Exchange, Geometry, SeatSide, Submitted, Taken, Tenant};

/// Two workers with a thread each.
const THREADS: Geometry = Geometry {
    seats: 2,
    seats_per_worker: 1,
    ahead_per_seat: 1,
    spare_per_worker: 0,
    sessions_per_worker: 0,
    event_loops: false,
    inflow_bytes: 0,
    request_bytes: 16,
    response_bytes: 16,
};

/// Two workers, whose loops run two requests each.
const LOOPS: Geometry = Geometry {
    seats: 4,
    seats_per_worker: 2,
    ahead_per_seat: 0,
    spare_per_worker: 1,
    sessions_per_worker: 0,
    event_loops: true,
    inflow_bytes: 8,
    request_bytes: 8,
    response_bytes: 8,
};

fn seat(exchange: &Exchange, seat: u16) -> SeatSide<'_> {
    SeatSide::new(exchange, Tenant { seat, epoch: 1 }, 1, None)
}

fn submit(side: &mut AcceptorSide<'_>) -> Submitted {
    side.submit(None, 0, |_| Some(0)).unwrap()
}

fn taken<'x>(side: &mut AcceptorSide<'x>, seat: &SeatSide<'x>) -> Taken<'x> {
    submit(side);
    seat.take().unwrap()
}
