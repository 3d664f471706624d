//! A drain serves the clients that are here, a quick stop does not, and nothing is left behind.

use super::*;
use SignalStyle::{Gunicorn, Unicorn};

const DRAIN: &str = "info: TERM: draining, then leaving\nacceptor 1: drain 5000\nnews: stopping";
const DISMISSED: &str = "KILL 11\nTERM 100\nTERM 101";

fn at_once(by: &str) -> String {
    format!("info: {by}: leaving at once\nacceptor 1: quit\n{DISMISSED}")
}

#[test]
fn a_drain_serves_all_then_workers_leave_then_the_server() {
    let mut tree = Tree::serving();
    tree.expect(signal(SIGTERM), DRAIN);
    tree.expect(reaped(10, LEFT), DISMISSED);
    tree.expect(reaped(101, LEFT), "vacate 1:1\nnews: gone 1=101");
    tree.expect(reaped(11, KILLED), "");
    let last = "vacate 1:0\nnews: gone 0=100\ndrop 1\nexit 0";
    tree.expect(reaped(100, LEFT), last);
    assert_eq!(tree.due_in_ms(), None);
}

#[test]
fn the_styles_differ_in_which_signal_drains() {
    let drains = |number, style| {
        let mut tree = Tree::serving();
        let actions = tree.step(signal_as(number, style));
        let drains = actions.contains("acceptor 1: drain 5000");
        assert_ne!(drains, actions.contains("acceptor 1: quit"), "{actions}");
        drains
    };
    assert!(drains(SIGTERM, Gunicorn) && drains(SIGQUIT, Unicorn));
    assert!(!drains(SIGQUIT, Gunicorn) && !drains(SIGTERM, Unicorn));
    assert!(!drains(SIGINT, Gunicorn) && !drains(SIGINT, Unicorn));
    // A signal that is no command.
    for style in [Gunicorn, Unicorn] {
        assert_eq!(command_of(stanchion_sys::signal::SIGCHLD, style), None);
    }
}

#[test]
fn the_quick_ones_are_quick_also_during_a_drain_and_a_second_term_is_not() {
    for (number, by) in [(SIGINT, "INT"), (SIGQUIT, "QUIT")] {
        let mut tree = Tree::draining();
        tree.expect(signal(SIGTERM), "info: TERM: draining already");
        tree.expect(signal(number), &at_once(by));
        tree.play([11, 10, 100].map(|pid| reaped(pid, LEFT)));
        tree.expect_among(reaped(101, LEFT), "drop 1\nexit 0");
    }
}

const LAME_DUCK: &str =
    "info: TERM: draining in 3 s (drain_delay): not ready any more, but accepting until then
     acceptor 1: lame duck
     news: stopping";

#[test]
fn with_a_delay_the_server_goes_on_and_drains_when_it_is_over() {
    let mut tree = Tree::serving_with(LATER);
    tree.expect(signal(SIGTERM), LAME_DUCK);
    tree.expect_tick_after(
        3_000,
        "info: drain_delay: draining, then leaving\nacceptor 1: drain 5000",
    );
    tree.expect(reaped(10, LEFT), DISMISSED);
}

#[test]
fn a_second_order_to_leave_ends_the_delay() {
    let again = "info: TERM: draining, then leaving\nacceptor 1: drain 5000";
    Tree::lame_duck().expect(signal(SIGTERM), again);
    for (number, by) in [(SIGINT, "INT"), (SIGQUIT, "QUIT")] {
        Tree::lame_duck().expect(signal(number), &at_once(by));
    }
}

#[test]
fn a_server_that_was_never_ready_leaves_without_a_delay() {
    for situation in [Tree::booting_with, Tree::loaded_with] {
        situation(LATER).expect(signal(SIGTERM), DRAIN);
    }
}

#[test]
fn during_the_delay_children_are_replaced_and_a_new_acceptor_is_a_lame_duck_too() {
    let mut tree = Tree::lame_duck();
    tree.expect_among(reaped(100, KILLED), "template 1: fork 0/2");
    tree.expect_among(reaped(10, KILLED), "fork acceptor 1");
    tree.play([acceptor_forked(1, Some(15))]);
    tree.expect_among(
        acceptor_ready(1),
        "acceptor 1: accept\nacceptor 1: lame duck",
    );
}

#[test]
fn during_the_delay_the_server_takes_no_other_command() {
    for (number, by) in [
        (SIGHUP, "HUP"),
        (SIGUSR2, "USR2"),
        (SIGTTIN, "TTIN"),
        (SIGWINCH, "WINCH"),
    ] {
        let refusal = format!("warning: {by}: not while the server leaves");
        Tree::lame_duck().expect(signal(number), &refusal);
    }
}

#[test]
fn no_successor_comes_once_the_delay_has_begun() {
    let mut tree = Tree::serving_with(LATER);
    tree.play([ask(Command::Reload), built(2, LATER)]);
    tree.fork(2);
    let given_up = "reply 7: error: reload given up: the server leaves\nnews: stopping";
    tree.expect_among(signal(SIGTERM), given_up);
    let mut tree = Tree::serving_with(LATER);
    tree.play([ask(Command::Upgrade), MasterEvent::HeirStarted(Some(HEIR))]);
    tree.expect_among(signal(SIGTERM), "end heir");
}

#[test]
fn a_drain_during_the_boot_serves_those_who_have_come() {
    for situation in [Tree::booting, Tree::loaded] {
        let mut tree = situation();
        tree.expect(signal(SIGTERM), DRAIN);
        tree.play([acceptor_ready(1), template_ready(1)]);
        tree.fill(1, 2);
        tree.expect(reaped(10, LEFT), DISMISSED);
    }
}

#[test]
fn past_the_quick_deadline_everybody_is_killed_once() {
    let mut tree = Tree::stopping();
    tree.expect_tick_after(
        1_500,
        "warning: the acceptor (10) did not leave in time and is killed
         KILL 10
         warning: worker 0 (100) did not leave in time and is killed
         KILL 100
         warning: worker 1 (101) did not leave in time and is killed
         KILL 101",
    );
    assert_eq!(tree.due_in_ms(), None);
    tree.now_ms += 60_000;
    tree.expect(TICK, "");
    tree.expect(reaped(10, KILLED), "");
}

const BOTH_SLOW: &str = "warning: worker 0 (100) did not leave in time and is killed
     KILL 100
     warning: worker 1 (101) did not leave in time and is killed
     KILL 101";

#[test]
fn after_a_drain_workers_have_the_rest_of_the_time_for_their_end() {
    let mut tree = Tree::draining();
    tree.now_ms += 1_000;
    tree.expect(reaped(10, LEFT), DISMISSED);
    tree.play([reaped(11, KILLED)]);
    tree.expect_tick_after(6_000, BOTH_SLOW);
}

#[test]
fn a_quick_stop_after_a_drain_does_not_wait_for_their_end() {
    let mut tree = Tree::draining();
    tree.play([reaped(10, LEFT), reaped(11, KILLED), signal(SIGINT)]);
    tree.expect_tick_after(1_500, BOTH_SLOW);
}

#[test]
fn an_acceptor_that_does_not_drain_in_time_is_told_to_quit_and_then_killed() {
    let mut tree = Tree::draining();
    let late = "error: generation 1 did not finish in time\nacceptor 1: quit";
    tree.expect_tick_after(7_000, &format!("{late}\n{DISMISSED}"));
    tree.play([11, 100, 101].map(|pid| reaped(pid, LEFT)));
    tree.expect_tick_after(
        1_500,
        "warning: the acceptor (10) did not leave in time and is killed\nKILL 10",
    );
    tree.expect(reaped(10, KILLED), "drop 1\nexit 0");
}

#[test]
fn an_acceptor_that_is_killed_while_draining_ends_the_drain_and_the_log_says_so() {
    let mut tree = Tree::draining();
    let lost = "error: the acceptor was killed by SIGKILL while leaving; its connections are lost";
    tree.expect(reaped(10, KILLED), &format!("{lost}\n{DISMISSED}"));
}

#[test]
fn there_is_nothing_to_drain_without_an_acceptor() {
    let mut tree = Tree::serving();
    tree.play([
        reaped(10, KILLED),
        acceptor_forked(1, Some(15)),
        reaped(15, KILLED),
    ]);
    tree.expect(
        signal(SIGTERM),
        &format!("info: TERM: draining, then leaving\nnews: stopping\n{DISMISSED}"),
    );
}

#[test]
fn an_acceptor_that_was_being_forked_drains_too() {
    for pid in [Some(15), None] {
        let mut tree = Tree::serving();
        tree.play([reaped(10, KILLED)]);
        tree.expect(signal(SIGTERM), DRAIN);
        if pid.is_some() {
            tree.expect(acceptor_forked(1, pid), "");
            tree.expect(reaped(15, LEFT), DISMISSED);
        } else {
            tree.expect(acceptor_forked(1, pid), DISMISSED);
        }
    }
}

#[test]
fn what_is_forked_as_the_server_stops_is_stopped_too() {
    let mut tree = Tree::serving();
    tree.play([10, 11].map(|pid| reaped(pid, KILLED)));
    tree.expect(
        signal(SIGINT),
        "info: INT: leaving at once\nnews: stopping\nTERM 100\nTERM 101",
    );
    tree.play([100, 101].map(|pid| reaped(pid, LEFT)));
    tree.expect(acceptor_forked(1, Some(15)), "acceptor 1: quit");
    tree.expect(template_forked(1, Some(16)), "KILL 16");
    tree.expect(reaped(16, KILLED), "");
    tree.expect(reaped(15, LEFT), "drop 1\nexit 0");
}

#[test]
fn a_worker_that_is_forked_as_the_server_stops_is_stopped_too() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED), signal(SIGINT)]);
    tree.expect(here(1, 0, 2, 102), "TERM 102");
    // It did not listen to signals yet, and now it does.
    tree.expect(ready(1, 0, 2), "TERM 102");
    tree.play([10, 11, 101].map(|pid| reaped(pid, LEFT)));
    tree.expect_among(reaped(102, LEFT), "vacate 1:0\ndrop 1\nexit 0");
}

#[test]
fn what_the_template_did_not_fork_is_not_waited_for() {
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED), signal(SIGINT)]);
    tree.play([10, 101].map(|pid| reaped(pid, LEFT)));
    tree.expect(reaped(11, KILLED), "");
    tree.expect(silent(1, 0, 2), "drop 1\nexit 0");
}

#[test]
fn while_draining_the_dead_are_replaced() {
    let mut tree = Tree::draining();
    tree.expect_among(reaped(11, KILLED), "fork template 1");
    tree.play([template_forked(1, Some(16)), template_ready(1)]);
    tree.expect_among(reaped(100, LEFT), "template 1: fork 0/2");
}

#[test]
fn while_draining_workers_that_die_booting_are_not_forked_as_fast_as_can_be() {
    let mut tree = Tree::draining();
    tree.play([reaped(100, LEFT), here(1, 0, 2, 102)]);
    tree.expect_among(
        reaped(102, BROKEN),
        "error: worker 0 (102) exited with code 4 while booting, \
         failure 1 in a row; next try in 100 ms",
    );
    tree.expect_tick_after(100, "template 1: fork 0/3");
}

const SLOW: &str = "warning: worker 1 (101) did not leave in time and is killed\nKILL 101";

#[test]
fn a_worker_that_leaves_too_slowly_is_killed_once() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    tree.expect_tick_after(5_000, SLOW);
    tree.now_ms += 60_000;
    tree.expect(TICK, "");
    tree.expect(overdue(1, 1, false), "");
    tree.expect(
        reaped(101, KILLED),
        "vacate 1:1
         acceptor 1: gone 1/1
         news: gone 1=101
         warning: worker 1 (101) was killed by SIGKILL",
    );
}

#[test]
fn a_leaving_worker_is_not_given_longer_when_the_server_stops() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGTTOU)]);
    tree.now_ms += 4_000;
    tree.play([signal(SIGINT)]);
    tree.expect_tick_after(1_000, SLOW);
}

#[test]
fn all_generations_leave() {
    let mut tree = Tree::retiring();
    tree.play([signal(SIGTERM)]);
    assert!(
        !tree.bury(2).contains("exit"),
        "the first one is still here"
    );
    assert!(tree.bury(1).contains("drop 1\nexit 0"));
}

#[test]
fn a_reload_under_way_is_given_up_and_its_generation_leaves_at_once() {
    let mut tree = Tree::building();
    tree.expect(
        signal(SIGTERM),
        "info: TERM: draining, then leaving
         news: not reloaded 1
         reply 7: error: reload given up: the server leaves
         acceptor 1: drain 5000
         news: stopping
         acceptor 2: quit
         KILL 21",
    );
    tree.expect(reaped(21, KILLED), "");
    tree.expect(reaped(20, LEFT), "drop 2");
    assert!(tree.bury(1).ends_with("drop 1\nexit 0"));
}
