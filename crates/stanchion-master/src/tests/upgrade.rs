//! USR2: another master beside this one, which gets the door when it serves.

use super::*;

const STARTING: &str = "acceptor 1: shared true
info: upgrade: starting a new master\nstart heir";
const HEIR_SERVES: &str = "news: heir 50\nacceptor 1: retire 5000";
const UPGRADED: &str = "info: upgraded: the new master 50 serves
     reply 7: ok: upgraded: the new master 50 serves";

fn failed(why: &str) -> String {
    let outcome = format!("upgrade failed: {why}; this master goes on serving");
    format!("acceptor 1: shared false\nerror: {outcome}\ndrop heir\nreply 7: error: {outcome}")
}

#[test]
fn the_new_master_is_started_serves_and_this_one_leaves_when_all_of_it_is_gone() {
    let mut tree = Tree::serving();
    tree.expect(ask(Command::Upgrade), STARTING);
    tree.expect(MasterEvent::HeirStarted(Some(HEIR)), "");
    // The door stays open: it is the other's now.
    tree.expect(MasterEvent::HeirReady, HEIR_SERVES);
    tree.expect(MasterEvent::HeirReady, "");
    tree.expect(retired(1), UPGRADED);
    tree.expect_among(reaped(101, KILLED), "template 1: fork 1/2");
    tree.expect(here(1, 1, 2, 101), "");
    assert!(tree.bury(1).ends_with("drop 1\nexit 0"));
}

#[test]
fn an_upgrade_that_fails_leaves_this_master_serving_and_may_be_tried_again() {
    let asked: Situation = || {
        let mut tree = Tree::serving();
        tree.play([ask(Command::Upgrade)]);
        tree
    };
    let failures: [(Situation, MasterEvent, &str); 4] = [
        (
            asked,
            MasterEvent::HeirStarted(None),
            "it could not be started",
        ),
        (
            Tree::upgrading,
            MasterEvent::HeirEnded(HEIR),
            "the new master has ended",
        ),
        (
            Tree::upgrading,
            reaped(HEIR, BROKEN),
            "the new master exited with code 4",
        ),
        (
            Tree::upgrading,
            reaped(HEIR, KILLED),
            "the new master was killed by SIGKILL",
        ),
    ];
    for (situation, event, why) in failures {
        let mut tree = situation();
        tree.expect(event, &failed(why));
        tree.expect_among(reaped(100, LEFT), "template 1: fork 0/2");
        tree.expect(signal(SIGUSR2), STARTING);
    }
}

#[test]
fn one_at_a_time() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGUSR2)]);
    tree.expect(signal(SIGUSR2), "warning: upgrade: there is one under way");
    tree.play([MasterEvent::HeirStarted(Some(HEIR))]);
    let refusal = "upgrade: there is one under way (the new master is 50)";
    tree.expect(
        ask(Command::Upgrade),
        &format!("warning: {refusal}\nreply 7: error: {refusal}"),
    );
    let mut tree = Tree::building();
    tree.expect(
        signal(SIGUSR2),
        "warning: upgrade: not while a generation is being made ready",
    );
}

/// Deploy scripts do that: they send the old master away themselves.
#[test]
fn a_drain_after_the_new_one_serves_is_no_quick_stop_but_a_quit_is() {
    let mut tree = Tree::handed_over();
    for _ in 0..2 {
        tree.expect(signal(SIGTERM), "info: TERM: draining already");
    }
    tree.expect(
        signal(SIGQUIT),
        "info: QUIT: leaving at once\nacceptor 1: quit\nKILL 11\nTERM 100\nTERM 101",
    );
    assert!(tree.bury(1).ends_with("drop 1\nexit 0"));
}

#[test]
fn a_new_master_that_ends_later_is_named_and_forgotten() {
    let mut tree = Tree::handed_over();
    tree.expect(
        reaped(HEIR, KILLED),
        "warning: the new master (50) was killed by SIGKILL",
    );
    tree.expect(signal(SIGTERM), "info: TERM: draining already");
    // The kernel reuses pids.
    tree.play([reaped(100, KILLED), here(1, 0, 2, HEIR)]);
    tree.expect_among(reaped(HEIR, KILLED), "vacate 1:0");
    tree.bury(1);
}

#[test]
fn a_server_that_leaves_takes_the_new_master_with_it_as_long_as_that_does_not_serve() {
    for number in [SIGTERM, SIGINT] {
        let mut tree = Tree::upgrading();
        tree.expect_among(signal(number), "end heir");
        tree.expect_among(reaped(HEIR, LEFT), "drop heir");

        let mut tree = Tree::serving();
        tree.play([signal(SIGUSR2), signal(number)]);
        tree.expect(MasterEvent::HeirStarted(Some(HEIR)), "end heir");
    }
}

#[test]
fn generations_that_retire_already_are_not_told_twice() {
    let mut tree = Tree::retiring();
    tree.play([signal(SIGUSR2), MasterEvent::HeirStarted(Some(HEIR))]);
    tree.expect(
        MasterEvent::HeirReady,
        "news: heir 50
         acceptor 2: retire 5000",
    );
    tree.expect(retired(2), "info: upgraded: the new master 50 serves");
}

#[test]
fn an_upgrade_is_told_once_nobody_else_is_let_in_here_or_two_seconds_have_passed() {
    let mut tree = Tree::handing_over();
    tree.expect_among(
        reaped(10, KILLED),
        &format!("KILL 11\nTERM 100\nTERM 101\n{UPGRADED}"),
    );
    let mut tree = Tree::handing_over();
    tree.expect_tick_after(
        2_000,
        &format!(
            "warning: the acceptor (10) of generation 1 has not reported within 2 s that it accepts no more clients: it may be \
             stopped, and generation 1 may still answer new ones\n{UPGRADED}"
        ),
    );
    // Clients that wait get the outcome before all end.
    let mut tree = Tree::handing_over();
    tree.expect_among(signal(SIGINT), &format!("{UPGRADED}\nacceptor 1: quit"));
}

#[test]
fn a_new_master_that_serves_while_a_generation_takes_over_is_the_end_of_that_reload() {
    let mut tree = Tree::taking_over();
    tree.play([signal(SIGUSR2), MasterEvent::HeirStarted(Some(HEIR))]);
    tree.expect(
        MasterEvent::HeirReady,
        "news: heir 50
         info: reloaded: generation 2 serves
         news: reloaded 2
         reply 7: ok: reloaded: generation 2 serves
         acceptor 2: retire 5000",
    );
    tree.expect(retired(2), "");
    tree.expect(retired(1), "info: upgraded: the new master 50 serves");
}

#[test]
fn every_acceptor_of_a_master_with_an_heir_hears_that_the_listeners_are_shared() {
    // An acceptor that is forked meanwhile, in place of a lost one, hears it too.
    let mut tree = Tree::upgrading();
    tree.play([reaped(10, KILLED)]);
    tree.play([acceptor_forked(1, Some(12))]);
    tree.expect(
        acceptor_ready(1),
        "acceptor 1: shared true\nacceptor 1: accept",
    );
    tree.expect_among(reaped(HEIR, KILLED), "acceptor 1: shared false");
}

/// It has read the configuration, and its door is that of the generation that it was made from.
#[test]
fn a_reload_waits_for_a_new_master_that_boots() {
    let mut tree = Tree::upgrading();
    let waits = "info: reload: begins if the new master does not come up";
    tree.expect(signal(SIGHUP), waits);
    tree.expect_among(MasterEvent::HeirEnded(HEIR), "drop heir\nbuild 2");
    let mut tree = Tree::upgrading();
    tree.play([ask_as(8, Command::Reload)]);
    tree.expect_among(
        MasterEvent::HeirReady,
        "reply 8: error: reload given up: the server leaves",
    );
}

/// A service manager takes this process for the service: when it ends, the manager kills all processes that are left.
#[test]
fn an_heir_that_drains_waits_for_the_master_before_it_and_no_longer_than_it_would_drain() {
    let heir = || {
        let mut tree = Tree::heir_with(PLAN, None);
        tree.load(1);
        tree.fill(1, PLAN.workers);
        tree.play([signal(SIGTERM)]);
        assert!(tree.bury(1).ends_with("drop 1"));
        tree
    };
    heir().expect(MasterEvent::PredecessorGone, "exit 0");
    heir().expect_tick_after(7_000, "exit 0");
    // An heir that is to leave at once does.
    heir().expect_among(signal(SIGINT), "exit 0");
}

#[test]
fn the_reason_that_the_new_master_has_left_is_told_once() {
    let mut tree = Tree::upgrading();
    tree.expect(MasterEvent::HeirLeaves("it is broken".to_owned()), "");
    tree.expect(
        MasterEvent::HeirEnded(HEIR),
        &failed("the new master has ended: it is broken"),
    );
    tree.expect(ask(Command::Upgrade), STARTING);
    tree.expect(MasterEvent::HeirStarted(Some(HEIR)), "");
    tree.expect(
        MasterEvent::HeirEnded(HEIR),
        &failed("the new master has ended"),
    );
}
