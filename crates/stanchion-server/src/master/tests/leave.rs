//! TERM serves whoever is here, INT and QUIT are quick, and nothing is left behind.

use stanchion_sys::signal::{SIGQUIT, SIGTTOU};

use super::*;

#[test]
fn term_drains_then_workers_leave_then_the_server() {
    let mut tree = Tree::serving();
    tree.expect(
        Event::Signal(SIGTERM),
        &["info: TERM: draining, then leaving", "acceptor: drain 5000"],
    );
    tree.expect(
        Event::Reaped(ACCEPTOR, LEFT),
        &["KILL 11", "TERM 100", "TERM 101"],
    );
    tree.expect(Event::Reaped(WORKERS[1], LEFT), &["vacate 1"]);
    tree.expect(Event::Reaped(TEMPLATE, KILLED), &[]);
    tree.expect(Event::Reaped(WORKERS[0], LEFT), &["vacate 0", "exit 0"]);
}

#[test]
fn int_and_quit_are_quick_also_during_a_drain() {
    for signal in [SIGINT, SIGQUIT, SIGTERM] {
        for situation in [Tree::serving, Tree::draining] {
            let mut tree = situation();
            if signal == SIGTERM {
                tree = Tree::draining();
            }
            tree.expect(
                Event::Signal(signal),
                &[
                    "info: leaving at once",
                    "acceptor: quit",
                    "KILL 11",
                    "TERM 100",
                    "TERM 101",
                ],
            );
            tree.play([TEMPLATE, ACCEPTOR, WORKERS[0]].map(|pid| Event::Reaped(pid, LEFT)));
            tree.expect(Event::Reaped(WORKERS[1], LEFT), &["vacate 1", "exit 0"]);
        }
    }
}

#[test]
fn past_the_quick_deadline_everybody_is_killed_once() {
    let mut tree = Tree::stopping();
    tree.expect_tick_after(
        1_500,
        &[
            "warning: the acceptor (10) did not leave in time and is killed",
            "KILL 10",
            "warning: worker 0 (100) did not leave in time and is killed",
            "KILL 100",
            "warning: worker 1 (101) did not leave in time and is killed",
            "KILL 101",
        ],
    );
    assert_eq!(tree.master.next_tick_ms(), None);
    tree.now_ms += 60_000;
    tree.expect(Event::Tick, &[]);
    tree.expect(Event::Reaped(ACCEPTOR, KILLED), &[]);
}

#[test]
fn an_acceptor_that_does_not_drain_in_time_is_told_to_quit_and_then_killed() {
    let mut tree = Tree::draining();
    tree.expect_tick_after(
        7_000,
        &[
            "error: the acceptor did not drain in time",
            "acceptor: quit",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    );
    tree.play([TEMPLATE, WORKERS[0], WORKERS[1]].map(|pid| Event::Reaped(pid, LEFT)));
    tree.expect_tick_after(
        1_500,
        &[
            "warning: the acceptor (10) did not leave in time and is killed",
            "KILL 10",
        ],
    );
    tree.expect(Event::Reaped(ACCEPTOR, KILLED), &["exit 0"]);
}

#[test]
fn an_acceptor_that_is_killed_while_draining_ends_the_drain_and_the_log_says_so() {
    let mut tree = Tree::draining();
    let lost = "error: the acceptor was killed by SIGKILL while leaving; its connections are lost";
    tree.expect(
        Event::Reaped(ACCEPTOR, KILLED),
        &[lost, "KILL 11", "TERM 100", "TERM 101"],
    );
}

#[test]
fn there_is_nothing_to_drain_without_an_acceptor() {
    let mut tree = Tree::serving();
    tree.play([
        Event::Reaped(ACCEPTOR, KILLED),
        Event::AcceptorForked(Some(20)),
        Event::Reaped(20, KILLED),
    ]);
    let quick = [
        "info: TERM: draining, then leaving",
        "KILL 11",
        "TERM 100",
        "TERM 101",
    ];
    tree.expect(Event::Signal(SIGTERM), &quick);
}

#[test]
fn an_acceptor_that_was_being_forked_drains_too() {
    let mut tree = Tree::serving();
    tree.play([Event::Reaped(ACCEPTOR, KILLED)]);
    tree.expect(
        Event::Signal(SIGTERM),
        &["info: TERM: draining, then leaving", "acceptor: drain 5000"],
    );
    let mut refused = Tree::serving();
    refused.play([Event::Reaped(ACCEPTOR, KILLED), Event::Signal(SIGTERM)]);
    tree.expect(Event::AcceptorForked(Some(20)), &[]);
    tree.expect(
        Event::Reaped(20, LEFT),
        &["KILL 11", "TERM 100", "TERM 101"],
    );
    refused.expect(
        Event::AcceptorForked(None),
        &["KILL 11", "TERM 100", "TERM 101"],
    );
}

#[test]
fn what_is_forked_as_the_server_stops_is_stopped_too() {
    let mut tree = Tree::serving();
    tree.play([ACCEPTOR, TEMPLATE].map(|pid| Event::Reaped(pid, KILLED)));
    tree.expect(
        Event::Signal(SIGINT),
        &["info: leaving at once", "TERM 100", "TERM 101"],
    );
    tree.play(WORKERS.map(|pid| Event::Reaped(pid, LEFT)));
    tree.expect(Event::AcceptorForked(Some(20)), &["acceptor: quit"]);
    tree.expect(
        Event::TemplateForked {
            generation: 1,
            pid: Some(21),
        },
        &["KILL 21"],
    );
    tree.expect(Event::Reaped(21, KILLED), &[]);
    tree.expect(Event::Reaped(20, LEFT), &["exit 0"]);
}

#[test]
fn a_worker_that_is_forked_as_the_server_stops_is_stopped_too() {
    let mut tree = Tree::serving();
    tree.play([Event::Reaped(WORKERS[0], KILLED), Event::Signal(SIGINT)]);
    tree.expect(forked(0, 2, 102), &["TERM 102"]);
    // It did not listen yet, and now it does.
    tree.expect(ready(0, 2, 102), &["TERM 102"]);
    tree.play([ACCEPTOR, TEMPLATE, WORKERS[1]].map(|pid| Event::Reaped(pid, LEFT)));
    tree.expect(Event::Reaped(102, LEFT), &["vacate 0", "exit 0"]);
}

#[test]
fn what_the_template_did_not_fork_is_not_waited_for() {
    let mut tree = Tree::serving();
    tree.play([Event::Reaped(WORKERS[0], KILLED), Event::Signal(SIGINT)]);
    tree.play([ACCEPTOR, WORKERS[1]].map(|pid| Event::Reaped(pid, LEFT)));
    tree.expect(Event::Reaped(TEMPLATE, KILLED), &["exit 0"]);
}

#[test]
fn while_draining_the_dead_are_replaced() {
    let mut tree = Tree::draining();
    tree.expect(
        Event::Reaped(TEMPLATE, KILLED),
        &[
            "warning: the template was killed by SIGKILL; another one is started",
            "fork template 1",
        ],
    );
    tree.play([
        Event::TemplateForked {
            generation: 1,
            pid: Some(21),
        },
        template_ready(1),
    ]);
    let replaced = [
        "vacate 0",
        "acceptor: gone 0/1 Left(0)",
        "template 1: fork 0/2",
    ];
    tree.expect(Event::Reaped(WORKERS[0], LEFT), &replaced);
}

#[test]
fn while_draining_workers_that_die_booting_are_not_forked_as_fast_as_can_be() {
    let mut tree = Tree::draining();
    tree.play([Event::Reaped(WORKERS[0], LEFT), forked(0, 2, 102)]);
    tree.expect(
        Event::Reaped(102, Exit::Code(4)),
        &[
            "vacate 0",
            "acceptor: gone 0/2 Left(4)",
            "error: worker 0 (102) exited with code 4 while booting, \
             failure 1 in a row; next try in 100 ms",
        ],
    );
    tree.expect_tick_after(100, &["template 1: fork 0/3"]);
}

#[test]
fn a_worker_that_leaves_too_slowly_is_killed_once() {
    let mut tree = Tree::serving();
    tree.play([Event::Signal(SIGTTOU)]);
    tree.expect_tick_after(
        5_000,
        &[
            "warning: worker 1 (101) did not leave in time and is killed",
            "KILL 101",
        ],
    );
    tree.now_ms += 60_000;
    tree.expect(Event::Tick, &[]);
    tree.expect(
        Event::Overdue {
            worker: 1,
            ran_ms: 70_000,
        },
        &[],
    );
    tree.expect(
        Event::Reaped(WORKERS[1], KILLED),
        &[
            "vacate 1",
            "acceptor: gone 1/1 Killed(9)",
            "warning: worker 1 (101) was killed by SIGKILL",
        ],
    );
}

#[test]
fn a_leaving_worker_is_not_given_longer_when_the_server_stops() {
    let mut tree = Tree::serving();
    tree.play([Event::Signal(SIGTTOU)]);
    tree.now_ms += 4_000;
    tree.play([Event::Signal(SIGINT)]);
    tree.expect_tick_after(
        1_000,
        &[
            "warning: worker 1 (101) did not leave in time and is killed",
            "KILL 101",
        ],
    );
}
