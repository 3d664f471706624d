//! Any child may die at any moment.

use super::*;

const READY_102: &str =
    "acceptor 1: ready 0/2=102\ninfo: worker ready worker=0 pid=102 generation=1";
const REPLACED: &str = "vacate 1:0
     acceptor 1: gone 0/1
     news: gone 0=100 exited
     template 1: fork 0/2";
const NEW_TEMPLATE: &str =
    "warning: the template was killed by SIGKILL; another one is started\nfork template 1";
const NEW_ACCEPTOR: &str = "error: the acceptor was killed by SIGKILL; \
     its connections are lost, another one is started\nfork acceptor 1";

#[test]
fn a_killed_worker_is_replaced_at_once_under_a_new_epoch() {
    let mut tree = Tree::serving();
    for (epoch, pid) in (1..4).zip(100..) {
        tree.expect(
            reaped(pid, KILLED),
            &format!(
                "vacate 1:0
                 acceptor 1: gone 0/{epoch}
                 news: gone 0={pid} killed
                 warning: worker 0 ({pid}) was killed by SIGKILL
                 template 1: fork 0/{}",
                epoch + 1
            ),
        );
        let next = epoch + 1;
        tree.play([here(1, 0, next, pid + 1), ready(1, 0, next)]);
    }
}

#[test]
fn a_worker_that_leaves_by_itself_is_replaced_without_a_word() {
    Tree::serving().expect(reaped(100, LEFT), REPLACED);
}

#[test]
fn a_worker_that_wrote_where_it_should_not_is_killed_once() {
    let mut tree = Tree::serving();
    tree.expect(
        replace(1, 1, 1),
        "error: worker 1 (101) is replaced: it wrote where it should not
         KILL 101
         template 1: fork 2/1 nr=1",
    );
    tree.expect(replace(1, 1, 1), "");
    tree.expect(
        reaped(101, KILLED),
        "vacate 1:1
         acceptor 1: gone 1/1
         news: gone 1=101 corrupt
         warning: worker 1 (101) was killed by SIGKILL",
    );
    tree.expect(replace(1, 1, 1), "");
}

#[test]
fn a_worker_that_ends_before_it_says_anything_is_forked_again() {
    let mut tree = Tree::loaded();
    tree.expect(reaped(100, KILLED), "");
    tree.expect(silent(1, 0, 1), "");
    tree.expect_tick_after(
        1_000,
        "error: worker 0 ended before it said anything; next try in 100 ms\nvacate 1:0",
    );
    tree.expect_tick_after(100, "template 1: fork 0/2");
    // Its reports come too late now.
    tree.expect(ready(1, 0, 1), "");
    tree.expect(silent(1, 0, 1), "");
    tree.expect(here(1, 0, 1, 100), "KILL 100");
}

/// Nothing is tried twice beside a generation that serves: the client that waits for the reload must hear of it.
#[test]
fn a_reload_fails_if_a_worker_ends_before_it_says_anything() {
    let mut tree = Tree::building();
    tree.load(2);
    tree.play([silent(2, 0, 1)]);
    tree.now_ms += 1_000;
    tree.expect_among(
        TICK,
        "error: worker 0 ended before it said anything; next try in 100 ms
         vacate 2:0
         error: reload failed: a worker did not boot; generation 1 goes on serving
         reply 7: error: reload failed: a worker did not boot; generation 1 goes on serving",
    );
}

#[test]
fn one_that_is_there_while_its_channel_is_not_has_a_second_to_end() {
    let mut tree = Tree::loaded();
    tree.play([here(1, 0, 1, 100), silent(1, 0, 1)]);
    tree.expect_among(
        reaped(100, BROKEN),
        "error: worker 0 (100) exited with code 4 while booting: no worker was ever ready",
    );
}

#[test]
fn a_worker_that_closes_what_it_was_given_is_replaced_and_finishes_first() {
    let mut tree = Tree::serving();
    tree.expect(silent(1, 0, 1), "");
    tree.expect_tick_after(
        1_000,
        "info: worker 0 (100) is to be replaced: it has closed the descriptors that it was given
         template 1: fork 2/1 nr=0",
    );
    tree.play([here(1, 2, 1, 102)]);
    tree.expect_among(ready(1, 2, 1), "TERM 100");
    tree.expect(
        reaped(100, LEFT),
        "vacate 1:0\nacceptor 1: gone 0/1\nnews: gone 0=100 descriptors",
    );
}

#[test]
fn a_booting_worker_that_closes_what_it_was_given_is_killed() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED), here(1, 0, 2, 102), silent(1, 0, 2)]);
    tree.expect_tick_after(
        1_000,
        "error: worker 0 (102) is killed: it has closed the descriptors that it was given
         KILL 102",
    );
    tree.expect_among(reaped(102, KILLED), "news: gone 0=102 boot");
}

#[test]
fn a_template_that_does_not_fork_is_replaced() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED)]);
    tree.expect_tick_after(
        60_000,
        "error: the template does not fork what it is asked for: it is killed, and another one started
         KILL 11",
    );
    tree.expect(
        reaped(11, KILLED),
        "error: the template was killed by SIGKILL while forking; next try in 100 ms",
    );
    tree.expect(silent(1, 0, 2), "");
    tree.expect_tick_after(100, "fork template 1");
    tree.play([template_forked(1, Some(16))]);
    tree.expect(template_ready(1), "template 1: fork 0/3");
}

/// The kernel reuses pids, and the master reaps every orphan of the app.
#[test]
fn a_worker_with_the_pid_of_an_orphan_that_was_reaped_long_ago_lives() {
    let mut tree = Tree::serving();
    tree.play([reaped(102, LEFT)]);
    tree.now_ms += 60_000;
    tree.play([reaped(100, LEFT)]);
    tree.expect(here(1, 0, 2, 102), "");
}

#[test]
fn a_killed_template_is_replaced_and_nobody_else_notices() {
    let mut tree = Tree::serving();
    tree.expect(reaped(11, KILLED), NEW_TEMPLATE);
    // Without a template, the dead are not replaced yet.
    tree.play([reaped(100, LEFT)]);
    tree.expect(template_forked(1, Some(16)), "");
    tree.expect(template_ready(1), "template 1: fork 0/2");
}

#[test]
fn a_template_that_dies_again_and_again_while_loading_is_started_ever_more_slowly() {
    let mut tree = Tree::serving();
    tree.play([reaped(11, KILLED)]);
    for (pid, wait_ms) in [(16, 100), (17, 200), (18, 400)] {
        tree.play([template_forked(1, Some(pid))]);
        tree.expect(
            reaped(pid, BROKEN),
            &format!(
                "error: the template exited with code 4 before it was ready; \
                 next try in {wait_ms} ms"
            ),
        );
        tree.expect_tick_after(wait_ms, "fork template 1");
    }
}

/// Else it would load the app, die of the first fork, and load the app, as fast as it can.
#[test]
fn a_template_that_dies_again_and_again_while_forking_is_started_ever_more_slowly() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED)]);
    let mut pid = 11;
    for (epoch, wait_ms) in [(3, 100), (4, 200), (5, 400)] {
        let lost = format!(
            "error: the template was killed by SIGKILL while forking; next try in {wait_ms} ms"
        );
        tree.expect(reaped(pid, KILLED), &lost);
        tree.expect(silent(1, 0, epoch - 1), "");
        tree.expect_tick_after(wait_ms, "fork template 1");
        pid += 20;
        tree.play([template_forked(1, Some(pid))]);
        tree.expect(template_ready(1), &format!("template 1: fork 0/{epoch}"));
    }
    // A template that has forked starts the count again.
    tree.play([here(1, 0, 5, 105), ready(1, 0, 5), reaped(105, LEFT)]);
    tree.expect(
        reaped(pid, KILLED),
        "error: the template was killed by SIGKILL while forking; next try in 100 ms",
    );
}

#[test]
fn a_worker_that_its_template_has_forked_before_it_died_serves() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED), reaped(11, KILLED)]);
    tree.expect(here(1, 0, 2, 102), "fork template 1");
    tree.expect(ready(1, 0, 2), READY_102);
    tree.play([template_forked(1, Some(16))]);
    tree.expect(template_ready(1), "");
}

#[test]
fn a_worker_of_a_dead_template_that_says_nothing_is_not_waited_for() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED), reaped(11, KILLED)]);
    tree.expect_tick_after(100, "fork template 1");
    tree.play([template_forked(1, Some(16))]);
    tree.expect(template_ready(1), "");
    tree.expect_tick_after(
        900,
        "error: worker 0 ended before it said anything; next try in 100 ms\nvacate 1:0",
    );
    tree.expect_tick_after(100, "template 1: fork 0/3");
}

#[test]
fn a_killed_acceptor_is_replaced_and_told_who_has_gone_and_who_serves() {
    let mut tree = Tree::serving();
    // The dying acceptor may not have heard of this one.
    tree.play([reaped(100, KILLED), here(1, 0, 2, 102)]);
    let heard = "acceptor 1: gone 0/1\nacceptor 1: ready 1/1=101";
    tree.expect(reaped(10, KILLED), &format!("{NEW_ACCEPTOR}\n{heard}"));
    tree.expect(acceptor_forked(1, Some(15)), "");
    tree.expect(ready(1, 0, 2), READY_102);
    tree.expect(acceptor_ready(1), "acceptor 1: accept");
}

#[test]
fn a_leaving_worker_is_introduced_to_a_new_acceptor_too() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    let heard = "acceptor 1: ready 0/1=100\nacceptor 1: ready 1/1=101";
    tree.expect(reaped(10, KILLED), &format!("{NEW_ACCEPTOR}\n{heard}"));
}

#[test]
fn while_there_is_no_acceptor_nobody_is_told_and_its_successor_hears_it_all() {
    let mut tree = Tree::serving();
    tree.play([reaped(10, KILLED), acceptor_forked(1, Some(15))]);
    tree.expect(
        reaped(15, Exit::Code(1)),
        "error: the acceptor exited with code 1 before it was ready; next try in 100 ms",
    );
    tree.expect(
        reaped(100, LEFT),
        "vacate 1:0\nnews: gone 0=100 exited\ntemplate 1: fork 0/2",
    );
    tree.play([here(1, 0, 2, 102)]);
    tree.expect(
        ready(1, 0, 2),
        "info: worker ready worker=0 pid=102 generation=1",
    );
    tree.expect_tick_after(
        100,
        "fork acceptor 1
         acceptor 1: gone 0/1
         acceptor 1: ready 0/2=102
         acceptor 1: ready 1/1=101",
    );
    tree.expect(acceptor_forked(1, None), "");
    assert_eq!(tree.due_in_ms(), Some(200));
}
