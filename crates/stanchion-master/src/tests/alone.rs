//! One worker and no reason for a template to stay: the template becomes the worker.

use super::*;

const ALONE: GenerationPlan = GenerationPlan {
    workers: 1,
    beside_one: BesideOneWorker::TemplateAfterLoss,
    ..PLAN
};

const NEVER_PRELOADED: GenerationPlan = GenerationPlan {
    beside_one: BesideOneWorker::Nothing,
    ..ALONE
};

/// The worker, which was the template.
fn only() -> i32 {
    template(1)
}

fn serving_with(plan: GenerationPlan) -> Tree {
    let mut tree = Tree::loaded_with(plan);
    tree.play([ready(1, 0, 1)]);
    tree
}

fn serving() -> Tree {
    serving_with(ALONE)
}

#[test]
fn the_template_becomes_the_worker_and_none_stays_beside_it() {
    let mut tree = Tree::booting_with(ALONE);
    tree.play([acceptor_ready(1)]);
    tree.expect(template_ready(1), "template 1: become 0/1");
    tree.expect(
        ready(1, 0, 1),
        "acceptor 1: ready 0/1=11
         info: worker ready worker=0 pid=11 generation=1
         info: ready: 1 worker
         news: ready 1",
    );
    tree.expect(TICK, "");
    assert_eq!(tree.due_in_ms(), None);
    let all = "reopen\nacceptor 1: reopen\nUSR1 11";
    tree.expect_among(signal(SIGUSR1), all);
    assert!(!tree.step(signal(SIGUSR1)).contains("template"));
}

#[test]
fn the_first_worker_that_dies_costs_an_import_and_the_next_ones_a_fork() {
    let mut tree = serving();
    tree.expect_among(
        reaped(only(), KILLED),
        "info: a template stays beside the only worker from now on: if that worker dies too, its successor needs no import
         fork template 1",
    );
    tree.play([template_forked(1, Some(12))]);
    tree.expect(template_ready(1), "template 1: fork 0/2");
    tree.play([here(1, 0, 2, 101), ready(1, 0, 2)]);
    tree.expect(TICK, "");
    let next = tree.step(reaped(101, KILLED));
    assert!(next.contains("template 1: fork 0/3"), "{next}");
    assert!(!next.contains("a template stays"), "{next}");
}

#[test]
fn with_an_app_that_no_fork_brings_to_workers_each_death_costs_an_import() {
    let mut tree = serving_with(NEVER_PRELOADED);
    for (epoch, pid) in [(2, 12), (3, 13)] {
        tree.expect_among(reaped(pid - 1, KILLED), "fork template 1");
        tree.play([template_forked(1, Some(pid))]);
        tree.expect(template_ready(1), &format!("template 1: become 0/{epoch}"));
        tree.play([ready(1, 0, epoch)]);
    }
}

#[test]
fn an_import_that_failed_long_ago_delays_no_later_one() {
    let mut tree = serving();
    let terminated = |epoch| worker_said(1, 0, epoch, FromWorker::Terminated);
    tree.expect_among(terminated(1), "fork template 1");
    tree.play([template_forked(1, Some(12))]);
    let failed =
        "error: the template was killed by SIGKILL before it was ready; next try in 100 ms";
    tree.expect(reaped(12, KILLED), failed);
    tree.expect_tick_after(100, "fork template 1");
    tree.play([template_forked(1, Some(13)), template_ready(1)]);
    tree.play([ready(1, 1, 1), reaped(only(), LEFT)]);
    let terminated = worker_said(1, 1, 1, FromWorker::Terminated);
    tree.expect_among(terminated, "fork template 1");
    tree.play([template_forked(1, Some(14))]);
    tree.expect(reaped(14, KILLED), failed);
}

#[test]
fn a_worker_that_ends_for_want_of_memory_gets_no_template_beside_its_successor() {
    let mut tree = serving();
    tree.expect_among(reaped(only(), Exit::OutOfMemory(None)), "fork template 1");
    tree.play([template_forked(1, Some(12))]);
    tree.expect(template_ready(1), "template 1: become 0/2");
}

#[test]
fn a_template_that_ends_for_want_of_memory_is_started_again_after_a_while() {
    let mut tree = serving();
    tree.play([reaped(only(), KILLED), template_forked(1, Some(12))]);
    tree.play([template_ready(1), here(1, 0, 2, 101), ready(1, 0, 2)]);
    let said = tree.step(reaped(12, Exit::OutOfMemory(None)));
    assert!(
        said.contains("while it waited; next try in 100 ms"),
        "{said}"
    );
    tree.expect_tick_after(100, "fork template 1");
}

#[test]
fn a_worker_that_is_to_be_replaced_goes_on_until_its_successor_has_imported_the_app() {
    let mut tree = serving();
    let terminated = worker_said(1, 0, 1, FromWorker::Terminated);
    tree.expect(
        terminated,
        "info: worker 0 (11) is to be replaced: it was sent TERM
         fork template 1",
    );
    tree.play([template_forked(1, Some(12))]);
    tree.expect(template_ready(1), "template 1: become 1/1 nr=0");
    tree.expect_among(ready(1, 1, 1), "TERM 11");
    tree.play([reaped(only(), LEFT)]);
    assert_eq!(tree.due_in_ms(), None);
}

#[test]
fn a_template_comes_for_a_second_worker_and_goes_with_it() {
    let mut tree = serving();
    tree.expect_among(signal(SIGTTIN), "fork template 1");
    tree.play([template_forked(1, Some(12))]);
    tree.expect(template_ready(1), "template 1: fork 1/1");
    tree.play([here(1, 1, 1, 101), ready(1, 1, 1)]);
    tree.expect_among(signal(SIGTTOU), "KILL 12\nTERM 101");
    tree.expect(reaped(12, KILLED), "");
    tree.play([reaped(101, LEFT)]);
    tree.expect(TICK, "");
    assert_eq!(tree.due_in_ms(), None);
}

#[test]
fn a_template_waits_while_there_is_to_be_no_worker() {
    let mut tree = serving();
    tree.expect_among(ask(Command::Scale(0)), "fork template 1\nTERM 11");
    tree.play([template_forked(1, Some(12)), template_ready(1)]);
    tree.play([reaped(only(), LEFT)]);
    tree.expect_among(ask(Command::Scale(1)), "template 1: become 0/2");
}

#[test]
fn a_worker_that_dies_as_it_boots_is_tried_again_after_a_while() {
    let mut tree = serving_with(NEVER_PRELOADED);
    tree.play([reaped(only(), KILLED), template_forked(1, Some(12))]);
    tree.play([template_ready(1)]);
    tree.expect_among(reaped(12, KILLED), "fork template 1");
    tree.play([template_forked(1, Some(13))]);
    tree.expect(template_ready(1), "");
    tree.expect_tick_after(100, "template 1: become 0/3");
}

#[test]
fn a_reload_ends_with_one_worker_and_no_template_too() {
    let mut tree = serving();
    tree.play([ask(Command::Reload), built(2, ALONE)]);
    tree.fork(2);
    tree.load(2);
    tree.expect_among(ready(2, 0, 1), "news: promoted 2");
}
