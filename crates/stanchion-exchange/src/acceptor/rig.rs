//! Helpers for the tests of the acceptor's side and of the seat's.

use super::AcceptorSide;
use crate::layout::Geometry;
use crate::seat::SeatSide;
use crate::shared::Exchange;
use crate::taken::Taken;
use crate::word::Tenant;

/// One seat, and room for one request.
pub(crate) const GEOMETRY: Geometry = Geometry {
    seats: 1,
    seats_per_worker: 1,
    ahead_per_seat: 0,
    spare_per_worker: 0,
    sessions_per_worker: 0,
    event_loops: false,
    inflow_bytes: 0,
    request_bytes: 8,
    response_bytes: 8,
};

/// Submits the only request and takes it: its slot, and the request in the hands of seat 0.
pub(crate) fn taken<'x>(exchange: &'x Exchange, side: &mut AcceptorSide<'x>) -> (u32, Taken<'x>) {
    let submitted = side.submit(None, 0, |_| Some(0)).expect("a free slot");
    let tenant = Tenant { seat: 0, epoch: 1 };
    let seat = SeatSide::new(exchange, tenant, 1, None);
    (submitted.slot, seat.take().expect("it is ready"))
}
