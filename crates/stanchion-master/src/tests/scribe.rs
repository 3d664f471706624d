//! The scribe of a generation: before the template, and after all its other processes.

use super::*;
use stanchion_generation::messages::FromScribe;

const WITH_SCRIBE: GenerationPlan = GenerationPlan {
    has_scribe: true,
    ..PLAN
};

/// Its acceptor is ready; nothing is known of the scribe.
fn booting() -> Tree {
    let mut tree = Tree::new();
    tree.expect(started(WITH_SCRIBE), "fork acceptor 1\nfork scribe 1");
    tree.play([acceptor_forked(1, Some(10)), scribe_forked(1, Some(SCRIBE))]);
    tree.expect(acceptor_ready(1), "acceptor 1: accept");
    tree
}

/// All of it serves.
fn serving() -> Tree {
    let mut tree = booting();
    tree.play([
        scribe_ready(1),
        template_forked(1, Some(11)),
        template_ready(1),
    ]);
    tree.fill(1, 2);
    tree
}

/// As serving, and the processes of another generation boot, which a client asked for.
fn building() -> Tree {
    let mut tree = serving();
    tree.play([
        ask(Command::Reload),
        built(2, WITH_SCRIBE),
        acceptor_forked(2, Some(20)),
        scribe_forked(2, Some(SCRIBE + 1)),
        acceptor_ready(2),
    ]);
    tree
}

const SCRIBE: i32 = 90;
const ANOTHER: &str = "warning: another scribe is ready: the error log itself has the reason, and the lines of the master from before";
const UNUSABLE: Exit = Exit::Code(2);

fn scribe_forked(generation_number: u32, pid: Option<i32>) -> MasterEvent {
    forked(generation_number, ChildKind::Scribe, pid)
}

fn scribe_said(generation_number: u32, said: FromScribe) -> MasterEvent {
    MasterEvent::OfGeneration(generation_number, GenerationEvent::ScribeSaid(said))
}

fn scribe_ready(generation_number: u32) -> MasterEvent {
    scribe_said(generation_number, FromScribe::Ready)
}

fn cannot_set_up(generation_number: u32) -> MasterEvent {
    let reason = "logging: no such handler".to_owned();
    scribe_said(generation_number, FromScribe::CannotSetUp { reason })
}

#[test]
fn the_template_waits_until_the_settings_of_logging_are_known_to_be_good() {
    let mut tree = booting();
    tree.expect(TICK, "");
    tree.expect(scribe_ready(1), "fork template 1");
    assert_eq!(tree.due_in_ms(), None);
    tree.play([template_forked(1, Some(11)), template_ready(1)]);
    tree.nearly_fill(1);
    tree.expect_among(ready(1, 1, 1), "info: ready: 2 workers");
}

#[test]
fn settings_that_are_no_good_end_the_start_and_are_named() {
    let mut tree = booting();
    tree.play([cannot_set_up(1)]);
    tree.expect(
        reaped(SCRIBE, UNUSABLE),
        "error: logging: no such handler: the server leaves
         acceptor 1: turn away
         news: stopping
         acceptor 1: quit",
    );
    tree.expect(reaped(10, LEFT), "drop 1\nexit 2");
}

#[test]
fn one_that_dies_before_it_was_ready_ends_the_start() {
    let mut tree = booting();
    tree.expect_among(
        reaped(SCRIBE, KILLED),
        "error: the scribe was killed by SIGKILL before it was ready: the server leaves",
    );
    tree.expect(reaped(10, LEFT), "drop 1\nexit 1");
}

#[test]
fn a_reload_to_settings_that_are_no_good_keeps_the_old_generation() {
    let mut tree = building();
    tree.play([cannot_set_up(2)]);
    tree.expect_among(
        reaped(SCRIBE + 1, UNUSABLE),
        "error: reload failed: logging: no such handler; generation 1 goes on serving
         reply 7: error: reload failed: logging: no such handler; generation 1 goes on serving
         acceptor 2: quit",
    );
    tree.expect(reaped(20, LEFT), "drop 2");
}

#[test]
fn one_that_is_lost_is_replaced_less_and_less_often_and_nothing_else_changes() {
    let mut tree = serving();
    let lost = |wait_ms| {
        format!(
            "error: the scribe was killed by SIGKILL; another one is started in {wait_ms} ms, log lines wait for it"
        )
    };
    for (pid, wait_ms) in [(SCRIBE, 100), (91, 200), (92, 400)] {
        tree.expect(reaped(pid, KILLED), &lost(wait_ms));
        tree.expect_tick_after(wait_ms, "fork scribe 1");
        assert!(!tree.master.has_ready_scribe(1));
        tree.play([scribe_forked(1, Some(pid + 1))]);
        assert!(!tree.master.has_ready_scribe(1));
        tree.expect(scribe_ready(1), ANOTHER);
        assert!(tree.master.has_ready_scribe(1));
    }
    // Its end has nothing to do with the ends before it.
    tree.now_ms += 60_000;
    tree.expect(reaped(93, KILLED), &lost(100));
}

#[test]
fn one_whose_successor_finds_the_settings_no_good_is_tried_again() {
    let mut tree = serving();
    tree.play([reaped(SCRIBE, KILLED)]);
    tree.expect_tick_after(100, "fork scribe 1");
    tree.play([scribe_forked(1, Some(91)), cannot_set_up(1)]);
    tree.expect(
        reaped(91, UNUSABLE),
        "error: the scribe exited with code 2 before it was ready: logging: no such handler; another one is started \
         in 200 ms, log lines wait for it",
    );
    tree.expect_tick_after(200, "fork scribe 1");
    tree.expect(scribe_forked(1, None), "");
    tree.expect_tick_after(400, "fork scribe 1");
}

#[test]
fn one_that_takes_long_to_set_logging_up_is_told_of_once() {
    let slow = |pid, waits| {
        format!(
            "warning: the scribe ({pid}) has been setting logging up for 10 s, and {waits}: see what the handlers of \
             `logconfig` and the like wait for, or kill it"
        )
    };
    let mut tree = booting();
    tree.expect_tick_after(10_000, &slow(SCRIBE, "the start waits for it"));
    assert_eq!(tree.due_in_ms(), None);
    tree.expect(scribe_ready(1), "fork template 1");
    tree.play([reaped(SCRIBE, KILLED)]);
    tree.expect_tick_after(100, "fork scribe 1");
    tree.play([scribe_forked(1, Some(91))]);
    tree.expect_tick_after(10_000, &slow(91, "log lines wait for it"));
}

#[test]
fn while_it_leaves_the_master_logs_without_it() {
    let mut tree = serving();
    assert!(tree.master.has_ready_scribe(1));
    tree.play([signal(SIGINT), reaped(10, LEFT), reaped(11, KILLED)]);
    tree.play([reaped(100, LEFT), reaped(101, LEFT)]);
    assert!(!tree.master.has_ready_scribe(1));
}

#[test]
fn it_leaves_last() {
    let mut tree = serving();
    tree.play([signal(SIGTERM)]);
    tree.expect(reaped(10, LEFT), "KILL 11\nTERM 100\nTERM 101");
    tree.play([reaped(11, KILLED), reaped(100, LEFT)]);
    tree.expect_among(reaped(101, LEFT), "scribe 1: finish");
    tree.expect(reaped(SCRIBE, LEFT), "drop 1\nexit 0");
}

#[test]
fn one_that_does_not_come_to_an_end_is_killed() {
    let mut tree = serving();
    tree.play([signal(SIGINT), reaped(10, LEFT), reaped(11, KILLED)]);
    tree.play([reaped(100, LEFT), reaped(101, LEFT)]);
    tree.expect_tick_after(
        2_000,
        "warning: the scribe (90) did not write what was left in time and is killed
         KILL 90",
    );
    tree.expect(reaped(SCRIBE, KILLED), "drop 1\nexit 0");
}

#[test]
fn one_that_has_died_is_not_started_for_the_end() {
    let mut tree = serving();
    tree.play([signal(SIGINT)]);
    tree.expect(reaped(SCRIBE, KILLED), "");
    tree.play([reaped(10, LEFT), reaped(11, KILLED), reaped(100, LEFT)]);
    tree.expect_among(reaped(101, LEFT), "drop 1\nexit 0");
}

#[test]
fn it_opens_its_files_anew_if_it_is_there() {
    let mut tree = serving();
    tree.expect_among(
        signal(SIGUSR1),
        "template 1: reopen\nscribe 1: reopen\nUSR1 100",
    );
    tree.play([reaped(SCRIBE, KILLED)]);
    let actions = tree.step(signal(SIGUSR1));
    assert!(!actions.contains("scribe"), "{actions}");
}

#[test]
fn a_generation_that_is_not_to_have_one_has_none() {
    let mut tree = Tree::serving();
    let actions = tree.step(signal(SIGUSR1)) + &tree.step(signal(SIGTERM));
    assert!(!actions.contains("scribe"), "{actions}");
}
