//! The state of a seat, as the acceptor's `/status` and the master's control socket show it.

use std::sync::atomic::Ordering;

use serde::Serialize;
use stanchion_exchange::{Exchange, SeatState};

/// At most so many busy seats of an event loop are listed, the longest first.
pub const BUSY_SEATS_MAX: usize = 200;

/// The state of a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SeatDoes {
    /// No worker has it, or its worker is booting.
    Empty,
    /// It waits for a request.
    Idle,
    /// It answers a request.
    Busy,
}

impl SeatDoes {
    /// The state of this seat.
    pub fn of(exchange: &Exchange, seat: u16) -> Self {
        match exchange.seat_state(seat) {
            SeatState::Empty => Self::Empty,
            SeatState::Idle => Self::Idle,
            SeatState::Busy => Self::Busy,
        }
    }
}

/// A seat's state and its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SeatSnapshot {
    /// Its state.
    pub state: SeatDoes,
    /// Requests answered by this worker.
    pub served: u64,
    /// Time it spent on these.
    pub busy_us: u64,
    /// How long its present request has run.
    pub running_us: Option<u64>,
}

impl SeatSnapshot {
    /// Reads them. The worker shares that memory and may write anything there.
    pub fn of(exchange: &Exchange, seat: u16, now_us: u64) -> Self {
        let state = SeatDoes::of(exchange, seat);
        let seat = exchange.seat(seat);
        let started_us = seat.started_us.load(Ordering::Relaxed);
        Self {
            state,
            served: seat.served.load(Ordering::Relaxed),
            busy_us: seat.busy_us.load(Ordering::Relaxed),
            running_us: (state == SeatDoes::Busy).then(|| now_us.saturating_sub(started_us)),
        }
    }
}
