//! Workers whose request has run past its timeout, or that take too much memory: they write their
//! stacks down and are ended, by ABRT first if it was the request.

use super::*;
use crate::event::LoopState;

const DUMP_MS: u64 = 1_000;
const GRACE_MS: u64 = 1_000;
const ABORT_MS: u64 = 1_000;

fn sentence(index: u16) -> String {
    let pid = worker(1, index);
    format!(
        "acceptor 1: overdue seat {index}/1 30042
         error: worker {index} ({pid}) is killed: a request has run for 30.0 s, past its deadline (timeout)
         TERM {pid}"
    )
}

/// Worker 0 is condemned and was asked for its stacks.
fn condemned(others: bool) -> Tree {
    let mut tree = Tree::serving();
    tree.expect(
        overdue(1, 0, others),
        &format!("{}\ntemplate 1: fork 2/1 nr=0\ndump 1:100", sentence(0)),
    );
    tree
}

/// The acceptor gets this at each look: it may be another seat that is overdue by now.
const TOLD: &str = "acceptor 1: overdue seat 0/1 30042";

#[test]
fn its_client_is_told_its_stacks_are_shown_and_it_is_ended_at_once_if_it_does_nothing_else() {
    let mut tree = condemned(false);
    tree.expect(overdue(1, 0, false), TOLD);
    tree.expect(dumped(1, 0, 2), "");
    tree.expect(dumped(1, 0, 1), "show 1:0=100\nABRT 100");
    tree.expect(dumped(1, 0, 1), "");
    tree.expect(overdue(1, 0, false), TOLD);
    // Its successor has come already.
    tree.expect(
        reaped(100, Exit::Code(1)),
        "vacate 1:0
         acceptor 1: gone 0/1
         news: gone 0=100 timeout
         warning: worker 0 (100) exited with code 1: a request has run for 30.0 s, past its deadline (timeout)",
    );
    tree.expect(overdue(1, 0, false), "");
}

#[test]
fn one_that_does_not_heed_abrt_is_killed() {
    let mut tree = condemned(false);
    tree.play([dumped(1, 0, 1)]);
    // The worker has its time for the hook, whatever the master finds meanwhile.
    tree.play([overdue(1, 0, false), overdue(1, 0, true)]);
    tree.expect_tick_after(ABORT_MS, "KILL 100");
    tree.expect_among(
        reaped(100, KILLED),
        "warning: worker 0 (100) was killed by SIGKILL: a request has run for 30.0 s, past its deadline (timeout)",
    );
}

#[test]
fn one_that_takes_too_much_memory_is_not_asked_to_take_more() {
    let mut tree = Tree::serving();
    tree.play([memory(1, 0, 201)]);
    tree.expect(dumped(1, 0, 1), "show 1:0=100\nKILL 100");
}

#[test]
fn the_successor_in_its_seat_is_another_worker() {
    let mut tree = condemned(false);
    tree.play([dumped(1, 0, 1), reaped(100, KILLED), signal(SIGTTIN)]);
    tree.play([here(1, 0, 2, 103)]);
    tree.play([ready(1, 0, 2)]);
    tree.expect_among(
        overdue(1, 0, false),
        "acceptor 1: overdue seat 0/2 30042\nTERM 103\ndump 1:103",
    );
}

#[test]
fn its_other_requests_have_a_grace_to_end() {
    let mut tree = condemned(true);
    tree.now_ms += 100;
    tree.expect(dumped(1, 0, 1), "show 1:0=100");
    tree.expect(overdue(1, 0, true), TOLD);
    // Without a log line, as the log has said that it is killed.
    tree.expect_tick_after(GRACE_MS, "ABRT 100");

    let mut tree = condemned(true);
    tree.play([dumped(1, 0, 1)]);
    tree.now_ms += GRACE_MS / 2;
    tree.expect(overdue(1, 0, false), &format!("{TOLD}\nABRT 100"));

    let mut tree = condemned(true);
    tree.play([overdue(1, 0, false)]);
    tree.expect(dumped(1, 0, 1), "show 1:0=100\nABRT 100");
}

/// The log line when worker 0 has not turned its loop for 5 s.
const LATE: &str = "warning: the event loop of worker 0 (100) has not turned for 5.0 s (loop_timeout): something in the \
                    app blocks it; the others get its share\ndump 1:100";

#[test]
fn an_event_loop_that_is_late_is_named_once_with_its_stack_and_heard_of_when_it_turns_again() {
    let mut tree = Tree::serving();
    tree.expect(beat(0, LoopState::Late, 5_000), LATE);
    tree.expect(beat(0, LoopState::Late, 5_250), "");
    tree.expect(dumped(1, 0, 1), "show 1:0=100");
    tree.expect(
        beat(0, LoopState::Turns, 7_300),
        "info: the event loop of worker 0 (100) turns again, after 7.3 s",
    );
    tree.expect(beat(0, LoopState::Turns, 7_300), "");
    tree.expect(beat(0, LoopState::Late, 5_000), LATE);
}

#[test]
fn a_worker_whose_event_loop_is_stuck_is_ended_and_its_clients_are_told() {
    let mut tree = Tree::serving();
    tree.play([beat(0, LoopState::Late, 5_000), dumped(1, 0, 1)]);
    tree.expect(
        beat(0, LoopState::Stuck, 30_000),
        "acceptor 1: loop stuck 0/1
         error: worker 0 (100) is killed: its event loop has not turned for 30.0 s (timeout)
         TERM 100
         template 1: fork 2/1 nr=0
         dump 1:100",
    );
    tree.expect(beat(0, LoopState::Stuck, 30_250), "");
    tree.expect(dumped(1, 0, 1), "show 1:0=100\nABRT 100");
    tree.expect_among(reaped(100, Exit::Code(1)), "news: gone 0=100 timeout");
}

#[test]
fn a_worker_that_is_stopped_is_named_and_not_ended() {
    let mut tree = Tree::serving();
    tree.expect(
        beat(0, LoopState::Stopped, 5_000),
        "warning: worker 0 (100) is stopped, by a signal or a debugger; the others get its share",
    );
    tree.expect(beat(0, LoopState::Stopped, 30_000), "");
    tree.expect(
        beat(0, LoopState::Turns, 40_000),
        "info: the event loop of worker 0 (100) turns again, after 40.0 s",
    );
}

#[test]
fn a_worker_that_leaves_need_not_turn_its_loop() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    tree.expect(beat(1, LoopState::Stuck, 30_000), "");
}

fn beat(worker: u16, state: LoopState, silent_ms: u64) -> MasterEvent {
    MasterEvent::seen(1, worker, Observation::Beat { state, silent_ms })
}

#[test]
fn stacks_that_never_come_are_given_up() {
    let mut tree = condemned(false);
    tree.expect_tick_after(DUMP_MS, "show 1:0=100\nABRT 100");
    let mut tree = condemned(true);
    tree.expect_tick_after(DUMP_MS, "show 1:0=100");
    tree.expect_tick_after(GRACE_MS, "ABRT 100");
}

#[test]
fn one_that_ends_while_it_writes_is_shown_as_far_as_it_got() {
    let mut tree = condemned(false);
    tree.expect(
        reaped(100, LEFT),
        "show 1:0=100\nvacate 1:0\nacceptor 1: gone 0/1\nnews: gone 0=100 timeout",
    );
    // Its place is free for the next one.
    tree.expect_among(overdue(1, 1, false), "dump 1:101");
}

#[test]
fn several_write_one_after_the_other_and_all_die_in_time() {
    let mut tree = condemned(false);
    tree.play([here(1, 2, 1, 102), ready(1, 2, 1)]);
    tree.expect(overdue(1, 1, false), &sentence(1));
    // It sits elsewhere than the one that it is to follow, whose number it has.
    let successors = sentence(2).replace("worker 2", "worker 0");
    tree.expect(overdue(1, 2, false), &successors);
    tree.expect(dumped(1, 0, 1), "show 1:0=100\nABRT 100\ndump 1:101");
    tree.play([
        reaped(100, Exit::Code(1)),
        here(1, 0, 2, 103),
        ready(1, 0, 2),
    ]);
    tree.expect_tick_after(DUMP_MS, "show 1:1=101\ndump 1:102\nABRT 101");
    tree.play([
        reaped(101, Exit::Code(1)),
        here(1, 1, 2, 104),
        ready(1, 1, 2),
    ]);
    tree.expect_tick_after(DUMP_MS, "ABRT 102\nshow 1:0=102");
}

#[test]
fn one_that_never_gets_to_write_dies_all_the_same() {
    let mut tree = condemned(true);
    tree.play([overdue(1, 1, true)]);
    tree.expect_tick_after(DUMP_MS, "show 1:0=100\ndump 1:101");
    tree.expect_tick_after(GRACE_MS, "ABRT 100\nABRT 101\nshow 1:1=101");
}

#[test]
fn a_worker_that_boots_or_was_killed_already_is_not_condemned() {
    let mut tree = Tree::loaded();
    tree.expect(overdue(1, 0, false), "");
    tree.play([here(1, 0, 1, 100)]);
    tree.expect(overdue(1, 0, false), "");
    tree.expect(memory(1, 0, 500), "");
    let mut tree = Tree::serving();
    tree.play([replace(1, 0, 1)]);
    tree.expect(overdue(1, 0, false), "");
    tree.expect(memory(1, 0, 500), "");
}

#[test]
fn a_worker_that_leaves_is_condemned_but_given_no_longer() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    tree.now_ms += 4_500;
    let told = "acceptor 1: overdue seat 1/1 30042
         error: worker 1 (101) is killed: a request has run for 30.0 s, past its deadline (timeout)
         dump 1:101";
    tree.expect(overdue(1, 1, false), told);
    tree.expect_tick_after(500, "ABRT 101");
}

#[test]
fn a_condemned_worker_of_a_retiring_generation_is_told_to_its_own_acceptor() {
    let mut tree = Tree::retiring();
    tree.expect_among(
        overdue(1, 0, false),
        "acceptor 1: overdue seat 0/1 30042\ndump 1:100",
    );
    tree.expect_among(dumped(2, 0, 1), "");
    tree.expect(dumped(1, 0, 1), "show 1:0=100\nABRT 100");
}
