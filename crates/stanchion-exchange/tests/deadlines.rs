//! A request's deadline: the master reads it, and the app may move it.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::sync::atomic::Ordering;
use std::time::Duration;

use stanchion_exchange::{AcceptorSide, Ending, Exchange, Geometry, SeatSide, Tenant};
use stanchion_sys::clock::monotonic_us;

const SECOND_US: u64 = 1_000_000;

fn exchange() -> Exchange {
    let geometry = Geometry {
        seats: 1,
        seats_per_worker: 1,
        ahead_per_seat: 1,
        spare_per_worker: 0,
        sessions_per_worker: 0,
        event_loops: false,
        inflow_bytes: 0,
        request_bytes: 16,
        response_bytes: 16,
    };
    Exchange::create(geometry).unwrap()
}

#[test]
fn a_deadline_only_moves_later_and_ends_with_its_request() {
    let exchange = exchange();
    let mut acceptor = AcceptorSide::take_over(&exchange);
    let tenant = Tenant { seat: 0, epoch: 1 };
    let seat = SeatSide::new(&exchange, tenant, 1, Some(Duration::from_secs(10)));
    acceptor.submit(None, 0, |_| Some(0)).unwrap();
    let taken = seat.take().unwrap();
    let now_us = monotonic_us();
    let deadline_us = || exchange.seat(0).deadline_us.load(Ordering::Acquire);
    let first_us = deadline_us();
    taken.extend_deadline(Duration::from_secs(5));
    assert_eq!(deadline_us(), first_us, "that would be earlier");
    taken.extend_deadline(Duration::from_secs(60));
    assert!((now_us + 60 * SECOND_US..now_us + 90 * SECOND_US).contains(&deadline_us()));
    assert_eq!(exchange.overdue_us(0, now_us + 30 * SECOND_US), None);
    assert!(exchange.overdue_us(0, now_us + 90 * SECOND_US).is_some());
    taken.extend_deadline(Duration::MAX);
    assert_eq!(deadline_us(), u64::MAX);
    taken.finish(Ending::Complete);
    seat.rest();
    assert_eq!(deadline_us(), 0);
}

#[test]
fn where_there_is_no_timeout_there_is_no_deadline_to_move() {
    let exchange = exchange();
    let mut acceptor = AcceptorSide::take_over(&exchange);
    let seat = SeatSide::new(&exchange, Tenant { seat: 0, epoch: 1 }, 1, None);
    acceptor.submit(None, 0, |_| Some(0)).unwrap();
    let taken = seat.take().unwrap();
    taken.extend_deadline(Duration::from_secs(1));
    assert_eq!(exchange.seat(0).deadline_us.load(Ordering::Acquire), 0);
}

#[test]
fn a_child_that_the_app_has_forked_moves_no_deadline() {
    let exchange = exchange();
    let mut acceptor = AcceptorSide::take_over(&exchange);
    let tenant = Tenant { seat: 0, epoch: 1 };
    let seat = SeatSide::new(&exchange, tenant, 1, Some(Duration::from_secs(10)));
    acceptor.submit(None, 0, |_| Some(0)).unwrap();
    let taken = seat.take().unwrap();
    let deadline_us = || exchange.seat(0).deadline_us.load(Ordering::Acquire);
    let first_us = deadline_us();
    exchange.forsake();
    taken.extend_deadline(Duration::from_secs(60));
    assert_eq!(deadline_us(), first_us);
}
