//! A request's deadline: the master reads it, and the app may move it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stanchion_exchange::{AcceptorSide, AnswerEnd, Exchange, SeatSide, Taken, Tenant};
use stanchion_sys::clock::monotonic_us;

use crate::{THREADS, taken};

const SECOND_US: u64 = 1_000_000;

/// A request in the hands of seat 0.
fn of_seat(exchange: &Exchange, timeout: Option<Duration>) -> (SeatSide<'_>, Taken<'_>) {
    let mut acceptor = AcceptorSide::take_over(exchange);
    let seat = SeatSide::new(exchange, Tenant { seat: 0, epoch: 1 }, 1, timeout);
    let taken = taken(&mut acceptor, &seat);
    (seat, taken)
}

fn deadline_us(exchange: &Exchange) -> u64 {
    exchange.seat(0).deadline_us.load(Ordering::Acquire)
}

#[test]
fn a_deadline_only_moves_later_and_ends_with_its_request() {
    let exchange = Exchange::create(THREADS).unwrap();
    let (seat, taken) = of_seat(&exchange, Some(Duration::from_secs(10)));
    let now_us = monotonic_us();
    let deadline_us = || deadline_us(&exchange);
    let first_us = deadline_us();
    taken.extend_deadline(Duration::from_secs(5));
    assert_eq!(deadline_us(), first_us, "that would be earlier");
    taken.extend_deadline(Duration::from_secs(60));
    assert!((now_us + 60 * SECOND_US..now_us + 90 * SECOND_US).contains(&deadline_us()));
    assert_eq!(exchange.overdue_us(0, now_us + 30 * SECOND_US), None);
    assert!(exchange.overdue_us(0, now_us + 90 * SECOND_US).is_some());
    taken.extend_deadline(Duration::MAX);
    assert_eq!(deadline_us(), u64::MAX);
    taken.finish(AnswerEnd::Complete);
    seat.rest();
    assert_eq!(deadline_us(), 0);
}

#[test]
fn where_there_is_no_timeout_there_is_no_deadline_to_move() {
    let exchange = Exchange::create(THREADS).unwrap();
    let (_seat, taken) = of_seat(&exchange, None);
    taken.extend_deadline(Duration::from_secs(1));
    assert_eq!(deadline_us(&exchange), 0);
}

#[test]
fn a_child_that_the_app_has_forked_moves_no_deadline() {
    let exchange = Exchange::create(THREADS).unwrap();
    let (_seat, taken) = of_seat(&exchange, Some(Duration::from_secs(10)));
    let first_us = deadline_us(&exchange);
    exchange.forsake();
    taken.extend_deadline(Duration::from_secs(60));
    assert_eq!(deadline_us(&exchange), first_us);
}
