//! No seat sleeps on while work waits, even if the process that should have done the work has died.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use stanchion_exchange::{AcceptorSide, Exchange, Unwanted};

use crate::{THREADS, seat, submit};

/// A seat that no process wakes looks again by itself after a second, so a wake within less came from a process.
const AT_ONCE: Duration = Duration::from_millis(700);
/// A sleeper that gets no wake is late each time; a busy core makes it late only sometimes.
const TRIES: u32 = 10;

/// Whether the sleeper woke at once: `sleep_and_wake` returns the moment from which it counts as late.
fn assert_at_once(sleep_and_wake: impl Fn() -> Instant) {
    let is_at_once = |_| sleep_and_wake().elapsed() < AT_ONCE;
    assert!((0..TRIES).any(is_at_once), "late {TRIES} times");
}

fn exchange() -> Exchange {
    Exchange::create(THREADS).unwrap()
}

/// Whether the thread sleeps according to proc(5): its state is `S`.
fn is_asleep(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.starts_with(" S")
}

/// Waits for a request at a seat, and is asleep on the bell when this returns.
fn sleeper<'s, 'x: 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    exchange: &'x Exchange,
    number: u16,
) -> ScopedJoinHandle<'s, Option<(u32, u32)>> {
    let (looks, looking): (Sender<PathBuf>, _) = channel();
    let handle = scope.spawn(move || {
        let proc = PathBuf::from("/proc").join(std::fs::read_link("/proc/thread-self").unwrap());
        let taken = seat(exchange, number).wait(|| {
            // The receiver is gone after the first time.
            let _listener_gone = looks.send(proc.clone());
            false
        });
        taken.map(|taken| taken.ticket())
    });
    let thread = looking.recv().unwrap();
    while !is_asleep(&thread) {
        std::thread::yield_now();
    }
    handle
}

fn submitted(acceptor: &mut AcceptorSide<'_>) -> (u32, u32) {
    let submitted = submit(acceptor);
    (submitted.slot, submitted.turn)
}

/// A request is ready, and seat 1 was woken for it and does not take it: after `lost` seat 0 takes it at once.
fn assert_passed_on(lost: impl Fn(&Exchange, &mut AcceptorSide<'_>)) {
    assert_at_once(|| {
        let exchange = exchange();
        let mut acceptor = AcceptorSide::take_over(&exchange);
        scope(|scope| {
            let sleeper = sleeper(scope, &exchange, 0);
            let begun = Instant::now();
            // The acceptor does not announce it.
            let submitted = submitted(&mut acceptor);
            lost(&exchange, &mut acceptor);
            assert_eq!(sleeper.join().unwrap(), Some(submitted));
            begun
        })
    });
}

#[test]
fn a_seat_that_leaves_passes_its_wake_on() {
    assert_passed_on(|exchange, _| assert!(seat(exchange, 1).wait(|| true).is_none()));
}

#[test]
fn a_sleeper_takes_what_a_dead_one_was_woken_for() {
    assert_passed_on(|_, acceptor| {
        assert!(acceptor.held_by(|tenant| tenant.seat == 1).is_empty());
    });
}

/// The bell wakes the longest sleepers first, and all of these may be the wrong ones.
#[test]
fn any_sleeper_wakes_for_a_request_of_its_own() {
    assert_at_once(|| {
        let exchange = exchange();
        let mut acceptor = AcceptorSide::take_over(&exchange);
        scope(|scope| {
            let other = sleeper(scope, &exchange, 0);
            let addressed = sleeper(scope, &exchange, 1);
            let begun = Instant::now();
            let own = acceptor.submit(Some(1), 0, |_| Some(0)).unwrap();
            acceptor.announce();
            assert_eq!(addressed.join().unwrap(), Some((own.slot, own.turn)));
            // The other seat was woken for nothing, and still wakes for a request that any seat may take.
            let submitted = submitted(&mut acceptor);
            acceptor.announce();
            assert_eq!(other.join().unwrap(), Some(submitted));
            begun
        })
    });
}

#[test]
fn a_new_acceptor_wakes_the_seats_that_the_old_one_was_about_to_wake() {
    assert_at_once(|| {
        let exchange = exchange();
        scope(|scope| {
            let sleeper = sleeper(scope, &exchange, 0);
            let begun = Instant::now();
            // The old acceptor was killed in the middle of a ring: the bit is cleared, and no seat was woken.
            exchange.ready_bell().word().fetch_and(!1, Ordering::AcqRel);
            let mut acceptor = AcceptorSide::take_over(&exchange);
            let submitted = submitted(&mut acceptor);
            acceptor.announce();
            assert_eq!(sleeper.join().unwrap(), Some(submitted));
            begun
        })
    });
}

/// The writer sleeps in a full ring while its client goes away, or its acceptor is replaced.
#[test]
fn a_writer_does_not_wait_for_a_client_that_has_gone() {
    for replaced in [false, true] {
        assert_at_once(|| {
            let exchange = exchange();
            let mut acceptor = AcceptorSide::take_over(&exchange);
            let slot = submit(&mut acceptor).slot;
            scope(|scope| {
                let (started, starts) = channel();
                let exchange = &exchange;
                let writer = scope.spawn(move || {
                    let mut taken = seat(exchange, 0).take().unwrap();
                    let thread = std::fs::read_link("/proc/thread-self").unwrap();
                    started.send(PathBuf::from("/proc").join(thread)).unwrap();
                    taken.write(&[0; 17])
                });
                let thread = starts.recv().unwrap();
                while !is_asleep(&thread) {
                    std::thread::yield_now();
                }
                let begun = Instant::now();
                if replaced {
                    drop(AcceptorSide::take_over(exchange));
                } else {
                    acceptor.give_up(slot, Unwanted::ClientGone);
                }
                assert!(writer.join().unwrap().is_err());
                begun
            })
        });
    }
}
