//! Workers that have had enough go one at a time, and only when the successor is there.

use super::*;

#[test]
fn a_worker_that_somebody_has_sent_term_stays_until_its_successor_is_ready() {
    let told = || worker_said(1, 0, 1, FromWorker::Terminated);
    let mut tree = Tree::serving();
    tree.expect(
        told(),
        "info: worker 0 (100) is to be replaced: it was sent TERM\ntemplate 1: fork 2/1 nr=0",
    );
    tree.expect(told(), "");
    tree.play([here(1, 2, 1, 102)]);
    tree.expect_among(ready(1, 2, 1), "TERM 100");
    tree.expect_among(reaped(100, LEFT), "news: gone 0=100 exited");
}

/// systemd and supervisord may send it to all processes at once.
#[test]
fn nobody_follows_a_worker_that_was_sent_term_while_its_generation_leaves() {
    for situation in [Tree::draining, Tree::handed_over, Tree::retiring] {
        let mut tree = situation();
        tree.expect(worker_said(1, 0, 1, FromWorker::Terminated), "");
        tree.expect(reaped(10, LEFT), "KILL 11\nTERM 100\nTERM 101");
    }
}

/// The kernel may have merged the two, and the worker takes that for a TERM of another process.
#[test]
fn a_worker_that_is_to_leave_and_was_sent_term_by_somebody_is_sent_ours_again_once() {
    for situation in [Tree::draining, Tree::handed_over, Tree::retiring] {
        let mut tree = situation();
        tree.play([reaped(10, LEFT)]);
        tree.expect(worker_said(1, 0, 1, FromWorker::Terminated), "TERM 100");
        tree.expect(worker_said(1, 0, 1, FromWorker::Terminated), "");
    }
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    tree.expect(worker_said(1, 1, 1, FromWorker::Terminated), "TERM 101");
}

const MANY: &str = "it has served 1000 requests (max_requests)";

fn recycled(index: u16, why: &str) -> String {
    let pid = worker(1, index);
    format!(
        "info: worker {index} ({pid}) is to be replaced: {why}\ntemplate 1: fork 2/1 nr={index}"
    )
}

#[test]
fn the_successor_comes_first_and_then_the_worker_leaves() {
    let mut tree = Tree::serving();
    tree.expect(due(1, 0, 1), &recycled(0, MANY));
    tree.expect(due(1, 0, 1), "");
    tree.expect(here(1, 2, 1, 102), "");
    tree.expect(
        ready(1, 2, 1),
        "acceptor 1: ready 2/1=102 nr=0
         info: worker ready worker=0 pid=102 generation=1
         TERM 100",
    );
    tree.expect(
        reaped(100, LEFT),
        "vacate 1:0\nacceptor 1: gone 0/1\nnews: gone 0=100 max_requests",
    );
    assert_eq!(tree.due_in_ms(), None);
}

#[test]
fn of_several_the_next_one_waits_until_the_one_before_is_gone() {
    let mut tree = Tree::serving();
    tree.play([due(1, 1, 1)]);
    tree.expect(due(1, 0, 1), "");
    tree.expect(memory(1, 0, 150), "");
    tree.play([here(1, 2, 1, 102)]);
    tree.expect_among(ready(1, 2, 1), "TERM 101");
    tree.expect(
        reaped(101, LEFT),
        &format!(
            "vacate 1:1
             acceptor 1: gone 1/1
             news: gone 1=101 max_requests
             info: worker 0 (100) is to be replaced: {MANY}
             template 1: fork 1/2 nr=0"
        ),
    );
}

#[test]
fn messages_are_served_as_requests_are() {
    let mut tree = Tree::serving();
    let (requests, messages) = (3, 997);
    tree.expect(
        worker_said(1, 0, 1, FromWorker::Due { requests, messages }),
        &recycled(
            0,
            "it has served 3 requests and 997 messages (max_requests)",
        ),
    );
}

#[test]
fn one_that_does_not_leave_in_time_is_killed() {
    let mut tree = Tree::serving();
    tree.play([due(1, 0, 1), here(1, 2, 1, 102), ready(1, 2, 1)]);
    tree.expect_tick_after(
        5_000,
        "warning: worker 0 (100) did not leave in time and is killed\nKILL 100",
    );
}

#[test]
fn a_successor_that_does_not_come_is_tried_again_and_until_then_it_stays() {
    let mut tree = Tree::serving();
    tree.play([due(1, 0, 1), here(1, 2, 1, 102)]);
    let actions = tree.step(reaped(102, BROKEN));
    assert!(!actions.contains("TERM"), "{actions}");
    tree.expect_tick_after(100, "template 1: fork 2/2 nr=0");
    tree.play([here(1, 2, 2, 103)]);
    tree.expect_among(ready(1, 2, 2), "TERM 100");
}

#[test]
fn one_that_dies_before_its_successor_comes_is_gone_all_the_same() {
    let mut tree = Tree::serving();
    tree.play([due(1, 0, 1)]);
    let actions = tree.step(reaped(100, KILLED));
    assert!(!actions.contains("fork"), "it is on the way: {actions}");
    tree.play([here(1, 2, 1, 102)]);
    tree.expect(
        ready(1, 2, 1),
        "acceptor 1: ready 2/1=102 nr=0\ninfo: worker ready worker=0 pid=102 generation=1",
    );
}

#[test]
fn without_a_free_seat_it_leaves_first() {
    let full = GenerationPlan { workers: 3, ..PLAN };
    let mut tree = Tree::serving_with(full);
    tree.expect(
        due(1, 0, 1),
        &format!("info: worker 0 (100) is to be replaced: {MANY}\nTERM 100"),
    );
    tree.expect(due(1, 1, 1), "");
    tree.expect_among(reaped(100, LEFT), "template 1: fork 0/2");
    let actions = tree.step(here(1, 0, 2, 103));
    assert!(!actions.contains("TERM"), "one at a time: {actions}");
    tree.expect_among(ready(1, 0, 2), "TERM 101");
}

#[test]
fn when_fewer_are_wanted_no_successor_is_waited_for() {
    let mut tree = Tree::serving();
    tree.play([due(1, 0, 1), ask(Command::Scale(1))]);
    // It was asked for already.
    tree.expect_among(here(1, 2, 1, 102), "TERM 102");
    tree.expect_among(reaped(102, LEFT), "TERM 100");
}

#[test]
fn what_a_worker_of_another_epoch_said_or_one_that_leaves_means_nothing() {
    let mut tree = Tree::serving();
    tree.expect(due(1, 0, 2), "");
    tree.play([signal(SIGTTOU)]);
    tree.expect(due(1, 1, 1), "");
    tree.expect_among(reaped(101, LEFT), "vacate 1:1");
    assert_eq!(tree.due_in_ms(), None);
}

#[test]
fn memory_has_two_limits_and_each_of_them_may_be_none() {
    let mut tree = Tree::serving();
    tree.expect(memory(1, 0, 100), "");
    let much = recycled(0, "it takes 101 MiB (max_memory)");
    tree.expect(memory(1, 0, 101), &much);
    tree.expect(memory(1, 0, 200), "");
    tree.expect_among(
        memory(1, 0, 201),
        "error: worker 0 (100) is killed: it takes 201 MiB (max_memory_hard)\nTERM 100",
    );
    let mut tree = Tree::serving_with(GenerationPlan {
        memory_max: 0,
        memory_hard_max: 0,
        ..PLAN
    });
    tree.expect(memory(1, 0, 1 << 20), "");
}

#[test]
fn a_worker_is_not_replaced_for_what_it_takes_before_its_first_request() {
    let unused = |worker, megabytes| takes(1, worker, megabytes, true);
    let mut tree = Tree::serving();
    tree.expect(
        unused(0, 150),
        "warning: worker 0 (100) takes 150 MiB before its first request, more than max_memory (100 MiB): the master replaces no \
         worker for that, as its successor would take as much. Set a larger limit",
    );
    // Said once, also of the next one.
    tree.expect(unused(1, 150), "");
    tree.expect(memory(1, 0, 190), "");
    tree.expect_among(
        memory(1, 0, 201),
        "error: worker 0 (100) is killed: it takes 201 MiB (max_memory_hard)",
    );
    let mut tree = Tree::serving();
    tree.expect_among(unused(0, 250), "");
    tree.expect(memory(1, 0, 251), "");
}

#[test]
fn one_that_grows_later_without_a_request_is_replaced() {
    let mut tree = Tree::serving();
    tree.now_ms += 5_000;
    tree.expect(
        takes(1, 0, 150, true),
        &recycled(0, "it takes 150 MiB (max_memory)"),
    );
}

// Lifetimes.

const MORTAL: GenerationPlan = GenerationPlan {
    workers: 1,
    lifetime_ms: 60_000,
    ..PLAN
};

#[test]
fn a_life_ends_and_the_tick_for_it_is_asked_for() {
    let mut tree = Tree::serving_with(MORTAL);
    tree.expect_tick_after(
        60_000,
        "info: worker 0 (100) is to be replaced: it has lived for 60 s (max_lifetime)
         template 1: fork 1/1 nr=0",
    );
    assert_eq!(
        tree.due_in_ms(),
        Some(60_000),
        "its successor is waited for"
    );
    tree.play([here(1, 1, 1, 101)]);
    tree.expect_among(ready(1, 1, 1), "TERM 100");
    tree.play([reaped(100, LEFT)]);
    assert_eq!(tree.due_in_ms(), Some(60_000), "the life of its successor");
}

#[test]
fn workers_whose_lives_end_together_are_recycled_one_by_one() {
    let mut tree = Tree::serving_with(GenerationPlan {
        workers: 2,
        ..MORTAL
    });
    let first = recycled(0, "it has lived for 60 s (max_lifetime)");
    tree.expect_tick_after(60_000, &first);
    tree.now_ms += 10_000;
    tree.play([here(1, 2, 1, 102)]);
    tree.expect_among(ready(1, 2, 1), "TERM 100");
    // As it was seen then.
    tree.expect_among(
        reaped(100, LEFT),
        "info: worker 1 (101) is to be replaced: it has lived for 60 s (max_lifetime)",
    );
}

#[test]
fn the_jitter_is_drawn_from_the_pid_and_bounded() {
    let ends: Vec<u64> = (100..130)
        .map(|pid| {
            let mut tree = Tree::loaded_with(GenerationPlan {
                lifetime_jitter_ms: 10_000,
                ..MORTAL
            });
            tree.play([here(1, 0, 1, pid)]);
            tree.play([ready(1, 0, 1)]);
            tree.due_in_ms().expect("a life")
        })
        .collect();
    assert!(
        ends.iter().all(|end| (60_000..=70_000).contains(end)),
        "{ends:?}"
    );
    let (least, most) = (ends.iter().min(), ends.iter().max());
    assert!(least < Some(&62_000) && most > Some(&68_000), "{ends:?}");
}

#[test]
fn a_generation_on_its_way_out_does_not_wait_for_lives() {
    let mut tree = Tree::serving_with(MORTAL);
    tree.now_ms += 59_000;
    tree.play([signal(SIGINT)]);
    tree.now_ms += 1_000;
    tree.expect(TICK, "");
}

#[test]
fn a_successor_has_the_number_of_the_one_it_replaces_wherever_it_sits() {
    let mut tree = Tree::serving();
    // Both are replaced, one after the other, and then the first once more.
    tree.expect_among(due(1, 1, 1), "template 1: fork 2/1 nr=1");
    tree.play([here(1, 2, 1, 102)]);
    tree.play([ready(1, 2, 1), due(1, 0, 1)]);
    tree.expect_among(reaped(101, LEFT), "template 1: fork 1/2 nr=0");
    tree.play([here(1, 1, 2, 103)]);
    tree.play([ready(1, 1, 2), reaped(100, LEFT)]);
    tree.expect_among(due(1, 2, 1), "template 1: fork 0/2 nr=1");
    tree.play([here(1, 0, 2, 104)]);
    tree.play([ready(1, 0, 2)]);
    tree.expect_among(reaped(102, LEFT), "news: gone 1=102 max_requests");
    // A worker that dies by itself leaves its number too, and the last of the surplus workers goes.
    tree.expect_among(
        reaped(103, KILLED),
        "news: gone 0=103 killed\ntemplate 1: fork 1/3 nr=0",
    );
    tree.play([here(1, 1, 3, 105)]);
    tree.play([ready(1, 1, 3)]);
    tree.expect_among(signal(SIGTTOU), "TERM 104");
}
