//! Coming up, and failing to.

use super::*;

#[test]
fn acceptor_and_template_come_first_then_workers_and_it_is_said_once() {
    let mut tree = Tree::new();
    tree.expect(started(PLAN), "fork acceptor 1\nfork template 1");
    tree.expect(acceptor_forked(1, Some(10)), "");
    tree.expect(template_forked(1, Some(11)), "");
    // Clients may come and wait in the line.
    tree.expect(acceptor_ready(1), "acceptor 1: accept");
    tree.expect(
        template_ready(1),
        "template 1: fork 0/1\ntemplate 1: fork 1/1",
    );
    tree.expect(here(1, 0, 1, 100), "");
    tree.expect(
        ready(1, 0, 1),
        "acceptor 1: ready 0/1=100
         info: worker ready worker=0 pid=100 generation=1",
    );
    tree.expect(here(1, 1, 1, 101), "");
    tree.expect(
        ready(1, 1, 1),
        "acceptor 1: ready 1/1=101
         info: worker ready worker=1 pid=101 generation=1
         info: ready: 2 workers
         news: ready 2",
    );
    tree.play([reaped(101, LEFT), here(1, 1, 2, 102)]);
    tree.expect(
        ready(1, 1, 2),
        "acceptor 1: ready 1/2=102
         info: worker ready worker=1 pid=102 generation=1",
    );
}

#[test]
fn a_slow_acceptor_is_waited_for() {
    let mut tree = Tree::booting();
    tree.play([template_ready(1)]);
    tree.nearly_fill(1);
    tree.expect(
        ready(1, 1, 1),
        "acceptor 1: ready 1/1=101
         info: worker ready worker=1 pid=101 generation=1",
    );
    tree.expect(
        acceptor_ready(1),
        "acceptor 1: accept
         info: ready: 2 workers
         news: ready 2",
    );
}

#[test]
fn nothing_is_due_while_children_boot() {
    for situation in [Tree::booting, Tree::serving, Tree::building] {
        assert_eq!(situation().due_in_ms(), None);
    }
    // But for a template that is to fork.
    assert_eq!(Tree::loaded().due_in_ms(), Some(60_000));
}

#[test]
fn the_number_that_was_set_by_hand_outlives_the_master_as_far_as_there_are_seats() {
    for (scaled_to, forks) in [(0, 0), (1, 1), (3, 3), (9, 3)] {
        let mut tree = Tree::heir_with(PLAN, Some(scaled_to));
        let actions = tree.step(template_ready(1));
        assert_eq!(actions.lines().count(), forks, "{actions}");
    }
}

#[test]
fn an_app_that_the_template_cannot_load_ends_the_server() {
    for (exit, code) in [
        (BROKEN, 4),
        (Exit::Code(3), 3),
        (Exit::Code(1), 3),
        (KILLED, 3),
    ] {
        let mut tree = Tree::booting();
        tree.expect(
            reaped(11, exit),
            &format!(
                "error: the app could not be loaded: the template {exit}: the server leaves
                 acceptor 1: turn away
                 news: stopping
                 acceptor 1: quit"
            ),
        );
        tree.expect(reaped(10, LEFT), &format!("drop 1\nexit {code}"));
    }
}

#[test]
fn an_app_that_workers_cannot_have_from_the_template_is_left_to_them_once_and_for_all() {
    let mut tree = Tree::booting();
    // The process that has imported it is a worker, so that it is imported no more often than there are workers.
    tree.expect(
        not_for_workers(1),
        "template 1: become 0/1\nfork template 1 without the app",
    );
    tree.play([template_forked(1, Some(12)), acceptor_ready(1)]);
    tree.expect(not_for_workers(1), "");
    tree.expect(
        ready(1, 0, 1),
        "acceptor 1: ready 0/1=11
         info: worker ready worker=0 pid=11 generation=1",
    );
    tree.expect(template_ready(1), "template 1: fork 1/1");
    tree.play([here(1, 1, 1, 101), ready(1, 1, 1)]);
    tree.expect_among(
        reaped(11, KILLED),
        "vacate 1:0
         acceptor 1: gone 0/1
         news: gone 0=11 killed
         warning: worker 0 (11) was killed by SIGKILL
         template 1: fork 0/2",
    );
    tree.play([here(1, 0, 2, 102), ready(1, 0, 2)]);
    // If a template ends later, another one without the app follows it, also if it has the number of the first.
    let lost = "warning: the template was killed by SIGKILL; another one is started
         fork template 1 without the app";
    tree.expect(reaped(12, KILLED), lost);
    tree.play([template_forked(1, Some(11)), template_ready(1)]);
    tree.expect(reaped(11, KILLED), lost);
}

#[test]
fn a_reload_asks_again_whether_the_app_can_be_preloaded() {
    let mut tree = Tree::booting();
    tree.play([
        not_for_workers(1),
        template_forked(1, Some(12)),
        acceptor_ready(1),
        template_ready(1),
        ready(1, 0, 1),
        here(1, 1, 1, 101),
        ready(1, 1, 1),
        signal(SIGHUP),
    ]);
    tree.expect(built(2, PLAN), "fork acceptor 2\nfork template 2");
    tree.fork(2);
    tree.expect(
        not_for_workers(2),
        "template 2: become 0/1\nfork template 2 without the app",
    );
}

#[test]
fn a_process_that_has_the_app_for_itself_leaves_if_no_worker_is_wanted_of_it() {
    let mut tree = Tree::serving();
    tree.play([reaped(11, KILLED), template_forked(1, Some(12))]);
    tree.expect(not_for_workers(1), "KILL 12");
    // Whether it left by itself or was killed: nothing has failed, and nothing is waited for.
    tree.expect(reaped(12, KILLED), "fork template 1 without the app");
}

#[test]
fn one_that_dies_before_it_is_a_worker_is_a_worker_that_did_not_boot() {
    let mut tree = Tree::booting_with(GenerationPlan { workers: 1, ..PLAN });
    tree.play([acceptor_ready(1), not_for_workers(1)]);
    tree.expect(
        reaped(11, KILLED),
        "vacate 1:0
         acceptor 1: gone 0/1
         news: gone 0=11 boot
         error: worker 0 (11) was killed by SIGKILL while booting, failure 1 in a row; next try in 100 ms",
    );
    tree.play([template_forked(1, Some(12)), template_ready(1)]);
    tree.expect_tick_after(100, "template 1: fork 0/2");
}

#[test]
fn a_server_that_is_to_leave_tells_the_process_that_is_to_be_a_worker() {
    let mut tree = Tree::booting();
    tree.play([not_for_workers(1), template_forked(1, Some(12))]);
    tree.expect_among(signal(SIGINT), "KILL 12\nTERM 11");
}

#[test]
fn an_app_that_no_worker_can_load_ends_the_server() {
    for code in [3, 4] {
        let mut tree = Tree::loaded();
        tree.play([here(1, 0, 1, 100), here(1, 1, 1, 101)]);
        tree.expect(
            reaped(100, Exit::Code(code)),
            &format!(
                "vacate 1:0
                 acceptor 1: gone 0/1
                 news: gone 0=100 boot
                 error: worker 0 (100) exited with code {code} while booting: no worker was ever ready
                 error: a worker did not boot: the server leaves
                 acceptor 1: turn away
                 news: stopping
                 acceptor 1: quit
                 KILL 11
                 TERM 101"
            ),
        );
        tree.play([reaped(10, LEFT), reaped(11, KILLED)]);
        // The first reason counts.
        tree.expect_among(reaped(101, BROKEN), &format!("drop 1\nexit {code}"));
    }
}

#[test]
fn an_acceptor_that_was_never_ready_ends_the_server() {
    let mut tree = Tree::booting();
    tree.play([template_ready(1)]);
    tree.fill(1, 2);
    tree.expect(
        reaped(10, Exit::Code(1)),
        "error: the acceptor exited with code 1 before it was ready: the server leaves
         news: stopping
         KILL 11
         TERM 100
         TERM 101",
    );
    tree.play([11, 100].map(|pid| reaped(pid, LEFT)));
    tree.expect_among(reaped(101, LEFT), "exit 1");
}

#[test]
fn workers_that_die_while_booting_are_forked_ever_more_slowly() {
    let mut tree = Tree::loaded_with(GenerationPlan { workers: 1, ..PLAN });
    for (epoch, (failures, wait_ms)) in (1..).zip([(1, 100), (2, 200), (3, 400)]) {
        tree.play([here(1, 0, epoch, 100)]);
        tree.expect(
            reaped(100, KILLED),
            &format!(
                "vacate 1:0
                 acceptor 1: gone 0/{epoch}
                 news: gone 0=100 boot
                 error: worker 0 (100) was killed by SIGKILL while booting, \
                 failure {failures} in a row; next try in {wait_ms} ms"
            ),
        );
        tree.expect_tick_after(wait_ms, &format!("template 1: fork 0/{}", epoch + 1));
    }
    tree.play([here(1, 0, 4, 100)]);
    tree.play([ready(1, 0, 4), reaped(100, LEFT), here(1, 0, 5, 100)]);
    // A worker that was ready starts the count again.
    tree.expect_among(
        reaped(100, BROKEN),
        "error: worker 0 (100) exited with code 4 while booting, \
         failure 1 in a row; next try in 100 ms",
    );
}

#[test]
fn workers_that_die_together_are_one_failure() {
    let mut tree = Tree::loaded();
    tree.play([here(1, 0, 1, 100), here(1, 1, 1, 101)]);
    tree.play([100, 101].map(|pid| reaped(pid, KILLED)));
    tree.expect_tick_after(100, "template 1: fork 0/2\ntemplate 1: fork 1/2");
}

#[test]
fn what_the_kernel_refuses_to_fork_is_tried_again() {
    let mut tree = Tree::new();
    tree.play([started(PLAN)]);
    tree.expect(acceptor_forked(1, None), "");
    tree.expect(template_forked(1, None), "");
    tree.expect_tick_after(100, "fork acceptor 1\nfork template 1");
    tree.play([acceptor_forked(1, Some(10)), template_forked(1, None)]);
    tree.expect_tick_after(200, "fork template 1");
    tree.play([template_forked(1, Some(11)), template_ready(1)]);
    tree.expect(
        not_forked(1, 0, 1),
        "error: worker 0 could not be forked; next try in 100 ms",
    );
    tree.expect_tick_after(100, "template 1: fork 0/2");
}

/// The master before it goes on unless all is well here: until then the heir accepts no client, and tries nothing twice.
#[test]
fn an_heir_has_the_door_when_it_is_ready_and_gives_up_at_the_first_trouble() {
    let born = || {
        let mut tree = Tree::heir_with(PLAN, None);
        // The listeners are the old master's too.
        tree.expect(acceptor_ready(1), "acceptor 1: shared true");
        tree.play([template_ready(1), here(1, 0, 1, 100)]);
        tree
    };
    let mut tree = born();
    tree.play([ready(1, 0, 1), here(1, 1, 1, 101)]);
    tree.expect_among(ready(1, 1, 1), "acceptor 1: accept");
    tree.expect(MasterEvent::PredecessorGone, "acceptor 1: shared false");
    tree.expect(MasterEvent::PredecessorGone, "");

    let mut tree = born();
    tree.expect_among(
        reaped(100, KILLED),
        "error: a worker did not boot: the server leaves",
    );
}
