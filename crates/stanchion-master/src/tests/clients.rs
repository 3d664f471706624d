//! A client that asks over the control socket gets the outcome, once; and commands that change nothing.

use super::*;

#[test]
fn the_stacks_of_all_workers_are_written_one_after_the_other_and_shown() {
    let mut tree = Tree::retiring();
    tree.expect(ask(Command::Dump), "dump 1:100");
    tree.expect(dumped(1, 0, 1), "show 1:0=100 to 7\ndump 1:101");
    // A worker that hangs does not hold up the others.
    tree.expect_tick_after(1_000, "show 1:1=101 to 7\ndump 2:200");
    // Neither does a worker that ends.
    tree.expect_among(reaped(200, LEFT), "show 2:0=200 to 7\ndump 2:201");
    tree.expect(dumped(2, 1, 1), "show 2:1=201 to 7\nreply 7: ok");
    assert_eq!(tree.due_in_ms(), Some(6_000), "nobody was killed for it");
}

#[test]
fn several_who_ask_are_told_each_and_nobody_is_told_nothing() {
    let mut tree = Tree::serving();
    tree.play([ask(Command::Dump), ask_as(8, Command::Dump)]);
    tree.expect(dumped(1, 0, 1), "show 1:0=100 to 7\ndump 1:101");
    tree.expect(
        dumped(1, 1, 1),
        "show 1:1=101 to 7\nreply 7: ok\ndump 1:100",
    );
    tree.expect(dumped(1, 0, 1), "show 1:0=100 to 8\ndump 1:101");
    tree.expect(dumped(1, 1, 1), "show 1:1=101 to 8\nreply 8: ok");
    Tree::loaded().expect(ask(Command::Dump), "reply 7: ok");
}

#[test]
fn condemned_workers_come_first() {
    let mut tree = Tree::serving();
    tree.play([ask(Command::Dump)]);
    tree.play([memory(1, 1, 201)]);
    tree.expect(dumped(1, 0, 1), "show 1:0=100 to 7\ndump 1:101");
    tree.expect(dumped(1, 1, 1), "show 1:1=101\nKILL 101\ndump 1:101");
    tree.expect_among(
        reaped(101, KILLED),
        "show 1:1=101 to 7\nreply 7: ok\nvacate 1:1",
    );
}

#[test]
fn whoever_waits_when_the_last_one_goes_is_told() {
    let mut tree = Tree::loaded();
    tree.play([ask(Command::Reload)]);
    tree.expect_among(
        signal(SIGTERM),
        "reply 7: error: reload given up: the server leaves",
    );

    let mut tree = Tree::upgrading();
    tree.play([signal(SIGTERM)]);
    // The new master may take its time.
    let last = tree.bury(1);
    let told = "drop 1\nreply 7: error: the server has left\nexit 0";
    assert!(last.ends_with(told), "{last}");
}

#[test]
fn a_client_of_a_reload_and_one_of_an_upgrade_are_told_by_a_quick_stop() {
    let mut tree = Tree::upgrading();
    tree.play([ask_as(8, Command::Reload)]);
    tree.expect_among(
        ask_as(9, Command::Quit),
        "reply 8: error: the server leaves
         reply 7: error: the server leaves
         reply 9: ok: leaving at once",
    );
}

#[test]
fn the_logs_are_opened_anew_by_all_who_listen() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, LEFT), signal(SIGTTIN)]);
    tree.play([here(1, 0, 2, 102), here(1, 2, 1, 103), signal(SIGTTOU)]);
    // Workers that boot might die of it, also one that is to leave.
    let all = "reopen\nacceptor 1: reopen\ntemplate 1: reopen\nUSR1 101";
    tree.expect(
        signal(SIGUSR1),
        &format!("info: USR1: reopening the logs\n{all}"),
    );
    tree.expect(
        ask(Command::Reopen),
        &format!("info: ctl: reopening the logs\n{all}\nreply 7: ok: the logs are reopened"),
    );
}

#[test]
fn a_worker_that_boots_meanwhile_opens_the_logs_anew_once_it_is_ready() {
    let mut tree = Tree::loaded();
    tree.play([here(1, 0, 1, 100), ready(1, 0, 1), here(1, 1, 1, 101)]);
    assert!(!tree.step(signal(SIGUSR1)).contains("USR1 101"));
    tree.expect_among(
        ready(1, 1, 1),
        "info: worker ready worker=1 pid=101 generation=1\nUSR1 101",
    );
    assert_eq!(tree.step(ready(1, 1, 1)), "");
}
