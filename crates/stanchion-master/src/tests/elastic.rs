//! A number of workers that the acceptor chooses.

use super::*;

/// Two to four workers.
const ELASTIC: GenerationPlan = GenerationPlan {
    elastic_max: Some(4),
    workers_max: 6,
    ..PLAN
};

fn want(generation_number: u32, workers: u16) -> MasterEvent {
    let why = "9 requests wait".to_owned();
    acceptor_said(generation_number, FromAcceptor::Want { workers, why })
}

/// Two workers serve, and four are wanted.
fn growing() -> Tree {
    let mut tree = Tree::serving_with(ELASTIC);
    tree.play([want(1, 4)]);
    tree
}

fn grown() -> Tree {
    let mut tree = growing();
    for index in [2, 3] {
        let pid = worker(1, index);
        tree.play([here(1, index, 1, pid), ready(1, index, 1)]);
    }
    tree
}

const GROWN: &str = "info: workers 2 → 4: 9 requests wait
     news: target 4, was 2
     acceptor 1: workers 4
     template 1: fork 2/1
     template 1: fork 3/1";

#[test]
fn the_acceptor_gets_the_workers_that_it_wants() {
    let mut tree = Tree::serving_with(ELASTIC);
    tree.expect(want(1, 4), GROWN);
    tree.expect(want(1, 4), "acceptor 1: workers 4");
    tree = grown();
    tree.expect(
        want(1, 3),
        "info: workers 4 → 3: 9 requests wait\nnews: target 3, was 4\nacceptor 1: workers 3\nTERM 103",
    );
}

#[test]
fn an_acceptor_hears_the_number_when_it_is_ready() {
    let mut tree = Tree::booting_with(ELASTIC);
    tree.expect(
        acceptor_ready(1),
        "acceptor 1: accept\nacceptor 1: workers 2",
    );
    let mut tree = grown();
    tree.play([reaped(acceptor(1), KILLED), acceptor_forked(1, Some(15))]);
    tree.expect_among(acceptor_ready(1), "acceptor 1: workers 4");
}

#[test]
fn an_acceptor_that_wants_what_it_may_not_hears_how_it_is() {
    for workers in [0, 1, 5, u16::MAX] {
        Tree::serving_with(ELASTIC).expect(want(1, workers), "acceptor 1: workers 2");
    }
    Tree::serving().expect(want(1, 3), "");
    let mut draining = Tree::serving_with(ELASTIC);
    draining.play([signal(SIGTERM)]);
    draining.expect(want(1, 4), "");
}

#[test]
fn a_reason_has_a_bound() {
    let why = "a".repeat(10_000);
    let mut tree = Tree::serving_with(ELASTIC);
    let actions = tree.step(acceptor_said(1, FromAcceptor::Want { workers: 3, why }));
    let line = actions.lines().next().map(str::len);
    assert_eq!(line, Some("info: workers 2 → 3: ".len() + 512));
}

#[test]
fn a_number_by_command_stays_until_it_is_freed() {
    let pinned = "info: ctl: 3 workers
         news: target 3, was 4
         reply 7: ok: ctl: 3 workers
         acceptor 1: workers 3, pinned
         TERM 103";
    let mut tree = grown();
    tree.expect(ask(Command::Scale(3)), pinned);
    tree.expect(want(1, 4), "acceptor 1: workers 3, pinned");
    tree.expect(want(1, 2), "acceptor 1: workers 3, pinned");
    tree.expect(
        ask(Command::ScaleAuto),
        "info: ctl: 2 to 4 workers, now 3\nreply 7: ok: ctl: 2 to 4 workers, now 3\nacceptor 1: workers 3",
    );
    tree.expect_among(want(1, 2), "news: target 2, was 3\nTERM 102");
}

#[test]
fn each_command_that_names_a_number_pins_it() {
    for (command, pinned, freed) in [
        (signal(SIGTTIN), 5, 4),
        (signal(SIGTTOU), 3, 3),
        (ask(Command::Scale(0)), 0, 2),
        // Beyond the range, where there are seats.
        (ask(Command::Scale(6)), 6, 4),
    ] {
        let mut tree = grown();
        tree.expect_among(command, &format!("acceptor 1: workers {pinned}, pinned"));
        tree.expect_among(
            ask(Command::ScaleAuto),
            &format!("acceptor 1: workers {freed}"),
        );
    }
}

#[test]
fn a_number_outside_of_the_range_comes_back_into_it_when_it_is_freed() {
    for (workers, freed) in [(0, 2), (1, 2), (6, 4)] {
        let mut tree = grown();
        tree.play([ask(Command::Scale(workers))]);
        let told = format!("news: target {freed}, was {workers}\nacceptor 1: workers {freed}");
        tree.expect_among(ask(Command::ScaleAuto), &told);
    }
}

#[test]
fn a_fixed_number_cannot_be_freed() {
    Tree::serving().expect(
        ask(Command::ScaleAuto),
        "warning: ctl: `workers` is no range, so the number of workers does not change by itself
         reply 7: error: ctl: `workers` is no range, so the number of workers does not change by itself",
    );
}

#[test]
fn a_pause_ends_only_by_command() {
    let mut tree = grown();
    tree.expect_among(signal(SIGWINCH), "acceptor 1: workers 0, pinned");
    tree.expect(want(1, 4), "acceptor 1: workers 0, pinned");
    // A reload ends it, and the number is elastic as before.
    tree.play([
        signal(SIGHUP),
        built(2, ELASTIC),
        acceptor_forked(2, Some(20)),
    ]);
    tree.expect_among(acceptor_ready(2), "acceptor 2: workers 4");
}

/// The number with which the acceptor of the next generation begins.
#[track_caller]
fn assert_reloaded(mut tree: Tree, plan: GenerationPlan, told: &str) {
    tree.play([signal(SIGHUP), built(2, plan), acceptor_forked(2, Some(20))]);
    tree.expect_among(acceptor_ready(2), told);
}

#[test]
fn a_reload_keeps_the_number_unless_the_range_has_changed() {
    assert_reloaded(grown(), ELASTIC, "acceptor 2: workers 4");
    let mut pinned = grown();
    pinned.play([ask(Command::Scale(3))]);
    assert_reloaded(pinned, ELASTIC, "acceptor 2: workers 3, pinned");
    let other = GenerationPlan {
        elastic_max: Some(3),
        ..ELASTIC
    };
    assert_reloaded(grown(), other, "acceptor 2: workers 2");
    assert_reloaded(Tree::serving(), ELASTIC, "acceptor 2: workers 2");
}

#[test]
fn an_upgrade_keeps_the_number() {
    for (scaled_to, is_pinned, told) in [
        (None, false, "acceptor 1: workers 2"),
        (Some(4), false, "acceptor 1: workers 4"),
        (Some(9), false, "acceptor 1: workers 4"),
        (Some(1), false, "acceptor 1: workers 2"),
        (Some(1), true, "acceptor 1: workers 1, pinned"),
        (Some(9), true, "acceptor 1: workers 6, pinned"),
        (Some(0), false, "acceptor 1: workers 0, pinned"),
    ] {
        let mut tree = Tree::new();
        tree.play([MasterEvent::Started {
            plan: ELASTIC,
            is_heir: true,
            scaled_to,
            is_pinned,
            range_before: None,
        }]);
        tree.fork(1);
        tree.expect_among(acceptor_ready(1), told);
    }
}

#[test]
fn an_upgrade_keeps_the_number_unless_the_setting_has_changed() {
    let fixed = GenerationPlan {
        elastic_max: None,
        ..ELASTIC
    };
    for (range_before, plan, target) in [
        (Some((2, 4)), ELASTIC, 3),
        (Some((2, 4)), fixed, 2),
        (Some((2, 2)), fixed, 3),
        (Some((1, 1)), fixed, 2),
        (Some((2, 2)), ELASTIC, 2),
        // The master before was of a version that does not say it.
        (None, fixed, 3),
    ] {
        let mut tree = Tree::new();
        tree.play([MasterEvent::Started {
            plan,
            is_heir: true,
            scaled_to: Some(3),
            is_pinned: true,
            range_before,
        }]);
        assert_eq!(tree.master.target(), Some(target), "{range_before:?}");
        let is_pinned = plan == ELASTIC && target == 3;
        assert_eq!(tree.master.is_pinned(), is_pinned, "{range_before:?}");
    }
}

#[test]
fn a_template_that_dies_while_workers_are_added_is_followed_by_one_that_adds_them() {
    let mut tree = growing();
    tree.expect(
        reaped(template(1), KILLED),
        "error: the template was killed by SIGKILL while forking; next try in 100 ms",
    );
    assert_eq!(tree.master.target(), Some(4));
}

#[test]
fn a_worker_that_cannot_be_added_is_tried_again_later() {
    let mut tree = growing();
    tree.play([here(1, 2, 1, 102), ready(1, 2, 1)]);
    tree.expect(
        not_forked(1, 3, 1),
        "error: worker 3 could not be forked; next try in 100 ms",
    );
    tree.expect_tick_after(100, "template 1: fork 3/2");
}
