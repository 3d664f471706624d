//! How many workers: one more, one fewer, so many, none.

use super::*;
use SignalStyle::{Gunicorn, Unicorn};

const TTIN_3: &str = "info: TTIN: 3 workers\nnews: target 3, was 2";

#[test]
fn ttin_adds_workers_as_long_as_there_are_seats() {
    let mut tree = Tree::serving();
    let added = format!("{TTIN_3}\ntemplate 1: fork 2/1");
    tree.expect(signal(SIGTTIN), &added);
    tree.expect(
        signal(SIGTTIN),
        "warning: TTIN: there is room for 3 workers at most: raise `workers` for more",
    );
}

#[test]
fn ttou_takes_the_last_worker_away_and_leaves_one_or_none() {
    for style in [Gunicorn, Unicorn] {
        let mut tree = Tree::serving();
        let fewer = signal_as(SIGTTOU, style);
        tree.expect(
            fewer.clone(),
            "info: TTOU: 1 worker\nnews: target 1, was 2\nTERM 101",
        );
        if style == Gunicorn {
            let least = "warning: TTOU: the least number of workers is 1";
            tree.expect(fewer, least);
            continue;
        }
        tree.expect(
            fewer.clone(),
            "info: TTOU: 0 workers\nnews: target 0, was 1\nTERM 100",
        );
        tree.expect(fewer, "warning: TTOU: there are no workers");
        tree.expect(
            reaped(101, LEFT),
            "vacate 1:1\nacceptor 1: gone 1/1\nnews: gone 1=101",
        );
    }
}

#[test]
fn ttin_after_ttou_takes_the_next_free_seat() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    let again = "info: TTIN: 2 workers\nnews: target 2, was 1\ntemplate 1: fork 2/1 nr=1";
    tree.expect(signal(SIGTTIN), again);
    tree.expect(
        signal(SIGTTIN),
        "info: TTIN: 3 workers\nnews: target 3, was 2",
    );
    // All seats were taken.
    tree.expect_among(reaped(101, LEFT), "vacate 1:1\ntemplate 1: fork 1/2 nr=2");
}

#[test]
fn a_worker_that_is_no_longer_wanted_leaves_as_soon_as_it_is_there() {
    let mut tree = Tree::loaded();
    tree.play([signal(SIGTTOU)]);
    tree.expect(here(1, 1, 1, 101), "TERM 101");
    // A booting worker does not listen to signals yet; a ready one does.
    tree.expect(ready(1, 1, 1), "TERM 101");
    tree.expect(
        reaped(101, LEFT),
        "vacate 1:1\nacceptor 1: gone 1/1\nnews: gone 1=101",
    );
}

#[test]
fn the_server_is_ready_with_as_many_as_are_wanted_by_then() {
    let mut tree = Tree::loaded();
    tree.play([signal(SIGTTOU)]);
    tree.play([here(1, 0, 1, 100)]);
    tree.expect_among(ready(1, 0, 1), "info: ready: 1 worker\nnews: ready 1");
}

#[test]
fn it_is_scaled_to_so_many_and_who_asked_is_told() {
    let mut tree = Tree::serving();
    let outcome = "info: ctl: 3 workers
         news: target 3, was 2
         reply 7: ok: ctl: 3 workers
         template 1: fork 2/1";
    tree.expect(ask(Command::Scale(3)), outcome);
    let same = "info: ctl: 3 workers\nreply 7: ok: ctl: 3 workers";
    tree.expect(ask(Command::Scale(3)), same);
    tree.play([here(1, 2, 1, 102)]);
    tree.play([ready(1, 2, 1)]);
    tree.expect(
        ask(Command::Scale(1)),
        "info: ctl: 1 worker
         news: target 1, was 3
         reply 7: ok: ctl: 1 worker
         TERM 101
         TERM 102",
    );
}

#[test]
fn both_generations_of_a_reload_heed_the_number() {
    let mut tree = Tree::building();
    tree.play([signal(SIGTTIN)]);
    tree.expect(
        template_ready(2),
        "template 2: fork 0/1\ntemplate 2: fork 1/1\ntemplate 2: fork 2/1",
    );
}

#[test]
fn one_more_is_one_more_than_each_generation_has() {
    let bigger = GenerationPlan {
        workers: 4,
        workers_max: 6,
        ..PLAN
    };
    let numbers = |tree: &Tree| -> Vec<u16> {
        let generations = tree.master.generations();
        generations.map(|generation| generation.target).collect()
    };
    let mut tree = Tree::serving();
    tree.play([signal(SIGHUP), built(2, bigger)]);
    for (event, expected) in [
        (signal(SIGTTIN), [3, 5]),
        (signal(SIGTTOU), [2, 4]),
        (signal(SIGTTOU), [1, 3]),
        (ask(Command::Scale(2)), [2, 2]),
        (signal(SIGTTIN), [3, 3]),
        // There are seats for three in the first generation.
        (signal(SIGTTIN), [3, 3]),
    ] {
        tree.play([event]);
        assert_eq!(numbers(&tree), expected);
    }
}

#[test]
fn a_generation_with_fewer_seats_limits_the_number() {
    let mut tree = Tree::serving();
    let plan = GenerationPlan {
        workers_max: 2,
        ..PLAN
    };
    tree.play([signal(SIGHUP), built(2, plan)]);
    tree.expect(
        signal(SIGTTIN),
        "warning: TTIN: there is room for 2 workers at most: raise `workers` for more",
    );
}

const PAUSED: &str = "info: WINCH: 0 workers\nnews: target 0, was 2\nTERM 100\nTERM 101";

#[test]
fn a_pause_sends_all_workers_away_and_more_brings_them_back() {
    let mut tree = Tree::serving();
    tree.expect(signal(SIGWINCH), PAUSED);
    tree.play([100, 101].map(|pid| reaped(pid, LEFT)));
    tree.expect(
        signal(SIGTTIN),
        "info: TTIN: 1 worker\nnews: target 1, was 0\ntemplate 1: fork 0/2",
    );
}

/// Requests that wait in a generation cannot go over to the new one.
#[test]
fn a_generation_that_retires_after_a_pause_has_a_worker_again() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGWINCH)]);
    tree.play([100, 101].map(|pid| reaped(pid, LEFT)));
    tree.play([signal(SIGHUP), built(2, PLAN)]);
    tree.fork(2);
    tree.load(2);
    tree.nearly_fill(2);
    tree.expect_among(ready(2, 1, 1), "template 1: fork 0/2");
    let mut tree = Tree::serving();
    tree.play([ask(Command::Scale(0))]);
    tree.play([100, 101].map(|pid| reaped(pid, LEFT)));
    tree.expect_among(signal(SIGTERM), "template 1: fork 0/2");
}

/// Workers that a reload brings after these commands.
#[track_caller]
fn assert_reloaded_with(
    workers: usize,
    plan: GenerationPlan,
    commands: impl IntoIterator<Item = MasterEvent>,
) {
    let mut tree = Tree::serving();
    tree.play(commands);
    let generation_number = tree.master.reloads.last_number + 1;
    tree.play([signal(SIGHUP), built(generation_number, plan)]);
    tree.fork(generation_number);
    let actions = tree.step(template_ready(generation_number));
    let forks = actions.lines().filter(|line| line.contains(": fork "));
    assert_eq!(forks.count(), workers, "{actions}");
}

#[test]
fn a_reload_keeps_the_number_set_by_hand_unless_the_setting_has_changed() {
    let one = GenerationPlan { workers: 1, ..PLAN };
    assert_reloaded_with(3, PLAN, [signal(SIGTTIN)]);
    assert_reloaded_with(1, PLAN, [signal(SIGTTOU)]);
    assert_reloaded_with(1, one, [signal(SIGTTIN)]);
    let few_seats = GenerationPlan {
        workers_max: 2,
        ..PLAN
    };
    assert_reloaded_with(2, few_seats, [signal(SIGTTIN)]);
}

#[test]
fn a_reload_ends_a_pause_also_if_it_was_told_twice_or_the_first_reload_failed() {
    let winch = || signal(SIGWINCH);
    assert_reloaded_with(2, PLAN, [winch()]);
    assert_reloaded_with(2, PLAN, [winch(), winch()]);
    assert_reloaded_with(2, PLAN, [winch(), signal(SIGHUP), not_built(2)]);
    let broken = [
        winch(),
        signal(SIGHUP),
        built(2, PLAN),
        template_forked(2, None),
    ];
    assert_reloaded_with(2, PLAN, broken);
    assert_reloaded_with(3, PLAN, [signal(SIGTTIN), winch()]);
    // That is another number that was set by hand.
    assert_reloaded_with(1, PLAN, [winch(), signal(SIGTTIN)]);
}

#[test]
fn a_worker_that_breaks_in_a_generation_that_began_without_any_is_not_the_end() {
    let mut tree = Tree::serving();
    tree.play([ask(Command::Scale(0)), signal(SIGHUP), built(2, PLAN)]);
    tree.fork(2);
    tree.load(2);
    tree.play([signal(SIGTTIN), here(2, 0, 1, 200)]);
    tree.expect_among(
        reaped(200, BROKEN),
        "error: worker 0 (200) exited with code 4 while booting, \
         failure 1 in a row; next try in 100 ms",
    );
    tree.expect_tick_after(100, "template 2: fork 0/2");
}
