//! TTIN and TTOU change the number of workers.

use stanchion_sys::signal::{SIGTTIN, SIGTTOU};

use super::*;

#[test]
fn ttin_adds_workers_as_long_as_there_are_seats() {
    let mut tree = Tree::serving();
    tree.expect(
        Event::Signal(SIGTTIN),
        &["info: TTIN: 3 workers", "template 1: fork 2/1"],
    );
    tree.expect(
        Event::Signal(SIGTTIN),
        &["warning: TTIN: there are seats for 3 workers at most"],
    );
}

#[test]
fn ttou_takes_the_last_worker_away_and_leaves_one() {
    let mut tree = Tree::serving();
    tree.expect(
        Event::Signal(SIGTTOU),
        &["info: TTOU: 1 workers", "TERM 101"],
    );
    tree.expect(
        Event::Signal(SIGTTOU),
        &["warning: TTOU: one worker is the least"],
    );
    tree.expect(
        Event::Reaped(WORKERS[1], LEFT),
        &["vacate 1", "acceptor: gone 1/1 Left(0)"],
    );
}

#[test]
fn ttin_after_ttou_waits_for_the_seat() {
    let mut tree = Tree::serving();
    tree.play([Event::Signal(SIGTTOU)]);
    tree.expect(Event::Signal(SIGTTIN), &["info: TTIN: 2 workers"]);
    let replaced = [
        "vacate 1",
        "acceptor: gone 1/1 Left(0)",
        "template 1: fork 1/2",
    ];
    tree.expect(Event::Reaped(WORKERS[1], LEFT), &replaced);
}

#[test]
fn a_worker_that_is_no_longer_wanted_leaves_as_soon_as_it_is_there() {
    let mut tree = Tree::loaded();
    tree.expect(Event::Signal(SIGTTOU), &["info: TTOU: 1 workers"]);
    tree.expect(forked(1, 1, 101), &["TERM 101"]);
    // A booting worker does not listen to signals yet; a ready one does.
    tree.expect(ready(1, 1, 101), &["TERM 101"]);
    tree.expect(
        Event::Reaped(101, LEFT),
        &["vacate 1", "acceptor: gone 1/1 Left(0)"],
    );
}

#[test]
fn the_server_is_ready_with_as_many_as_are_wanted_by_then() {
    let mut tree = Tree::loaded();
    tree.play([Event::Signal(SIGTTOU)]);
    tree.expect(
        ready(0, 1, 100),
        &[
            "acceptor: ready 0/1=100",
            "info: worker ready worker=0 pid=100 generation=1",
            "info: ready: 1 workers",
        ],
    );
}
