//! HUP and `--reload`: another generation beside the one that serves, which gets the door when all of it
//! is ready.

use super::*;

const BEGINS: &str = "info: reload: making generation 2 ready\nnews: reloading\nbuild 2";
const FOLLOWS: &str = "info: reload: making generation 3 ready\nnews: reloading\nbuild 3";
const LATER: &str = "info: reload: generation 2 is still being made ready, another one follows it";
const PROMOTED: &str = "acceptor 2: accept
     acceptor 1: retire 5000
     news: promoted 2";
const RELOADED: &str = "info: reloaded: generation 2 serves\nnews: reloaded 2";

fn failed(why: &str) -> String {
    format!("error: reload failed: {why}; generation 1 goes on serving\nnews: not reloaded 1")
}

/// The second generation is ready but for its second worker.
fn nearly_ready() -> Tree {
    let mut tree = Tree::building();
    tree.load(2);
    tree.nearly_fill(2);
    tree
}

#[test]
fn the_new_generation_serves_when_all_of_it_is_ready_and_the_old_one_retires() {
    for reload in [signal(SIGHUP), changed(1)] {
        let mut tree = Tree::serving();
        tree.expect(reload, BEGINS);
        tree.expect(built(2, PLAN), "fork acceptor 2\nfork template 2");
        tree.fork(2);
        // The door is not its yet.
        tree.expect(acceptor_ready(2), "");
        tree.expect(
            template_ready(2),
            "template 2: fork 0/1\ntemplate 2: fork 1/1",
        );
        tree.nearly_fill(2);
        let ready_201 =
            "acceptor 2: ready 1/1=201\ninfo: worker ready worker=1 pid=201 generation=2";
        tree.expect(ready(2, 1, 1), &format!("{ready_201}\n{PROMOTED}"));
        tree.expect(TICK, "");
        tree.expect(retired(1), RELOADED);
        // Its acceptor has served all who were there.
        tree.expect(reaped(10, LEFT), "KILL 11\nTERM 100\nTERM 101");
        tree.play([100, 101].map(|pid| reaped(pid, LEFT)));
        tree.expect(reaped(11, KILLED), "drop 1");
        tree.expect(TICK, "");
        assert_eq!(tree.due_in_ms(), None);
    }
}

/// The generation is ready when the last of them is ready, and not before.
#[test]
fn acceptor_template_and_workers_may_be_ready_in_any_order() {
    let events = [
        acceptor_ready(2),
        template_ready(2),
        ready(2, 0, 1),
        ready(2, 1, 1),
    ];
    let orders: [[usize; 4]; 4] = [[0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 0, 3], [1, 3, 2, 0]];
    for order in orders {
        let mut tree = Tree::building();
        for (nth, event) in order.into_iter().enumerate() {
            let ours = [(0, 200), (1, 201)].get(event.wrapping_sub(2));
            tree.play(ours.map(|&(worker, pid)| here(2, worker, 1, pid)));
            let actions = tree.step(events[event].clone());
            let serves = actions.contains("acceptor 2: accept");
            assert_eq!(serves, nth == 3, "{order:?}, {nth}: {actions}");
        }
    }
}

#[test]
fn a_generation_without_workers_is_ready_when_its_template_is() {
    let mut tree = Tree::serving();
    tree.play([ask(Command::Scale(0)), signal(SIGHUP), built(2, PLAN)]);
    tree.fork(2);
    tree.expect(acceptor_ready(2), "");
    // Requests that wait in the old generation are still served.
    let for_the_last = "acceptor 1: retire 5000\ntemplate 1: fork 2/1 nr=0";
    let promoted = PROMOTED.replace("acceptor 1: retire 5000", for_the_last);
    tree.expect(template_ready(2), &promoted);
}

#[test]
fn an_acceptor_that_dies_when_the_generation_serves_gives_the_door_to_its_successor() {
    let mut tree = Tree::retiring();
    tree.play([reaped(20, KILLED), acceptor_forked(2, Some(25))]);
    tree.expect(acceptor_ready(2), "acceptor 2: accept");
}

#[test]
fn a_configuration_that_is_wrong_leaves_the_old_generation_serving() {
    let mut tree = Tree::serving();
    tree.play([signal(SIGHUP)]);
    tree.expect(not_built(2), &failed("bind: the address is taken"));
    tree.expect(signal(SIGHUP), FOLLOWS);
}

/// The event that fails, the reason of the failure that follows, and the actions about the rest of the generation.
type Failure = (Situation, MasterEvent, &'static str, &'static str);

#[test]
fn whatever_fails_in_the_new_generation_ends_the_reload_and_nothing_is_tried_twice() {
    let forking: Situation = || {
        let mut tree = Tree::serving();
        tree.play([ask(Command::Reload), built(2, PLAN)]);
        tree
    };
    let loaded: Situation = || {
        let mut tree = Tree::building();
        tree.load(2);
        tree
    };
    let not_booted = "a worker did not boot";
    let failures: [Failure; 9] = [
        (
            forking,
            acceptor_forked(2, None),
            "the acceptor could not be forked",
            "",
        ),
        (
            forking,
            template_forked(2, None),
            "the template could not be forked",
            "",
        ),
        (
            Tree::building,
            reaped(20, BROKEN),
            "the acceptor exited with code 4 before it was ready",
            "KILL 21",
        ),
        (
            Tree::building,
            reaped(21, BROKEN),
            "the app could not be loaded: the template exited with code 4",
            "acceptor 2: quit",
        ),
        (
            loaded,
            not_forked(2, 1, 1),
            not_booted,
            "acceptor 2: quit\nKILL 21",
        ),
        (
            nearly_ready,
            reaped(201, BROKEN),
            not_booted,
            "acceptor 2: quit\nKILL 21\nTERM 200",
        ),
        (
            nearly_ready,
            reaped(201, KILLED),
            not_booted,
            "acceptor 2: quit\nKILL 21\nTERM 200",
        ),
        (
            nearly_ready,
            reaped(21, KILLED),
            "the template was lost",
            "acceptor 2: quit\nTERM 200\nTERM 201",
        ),
        (
            nearly_ready,
            reaped(20, KILLED),
            "the acceptor was lost",
            "KILL 21\nTERM 200\nTERM 201",
        ),
    ];
    for (situation, event, why, dismissed) in failures {
        let mut tree = situation();
        let outcome = format!("reload failed: {why}; generation 1 goes on serving");
        tree.expect_among(
            event,
            &format!(
                "error: {outcome}\nnews: not reloaded 1\nreply 7: error: {outcome}\n{dismissed}"
            ),
        );
        // The old one has not noticed, and the mended code is another generation.
        tree.expect_among(reaped(100, LEFT), "vacate 1:0\ntemplate 1: fork 0/2");
        tree.expect(changed(1), FOLLOWS);
    }
}

#[test]
fn whoever_asked_is_told_why_the_app_cannot_be_loaded() {
    let reason = || "it imports 'nonsuch'".to_owned();
    let mut tree = Tree::building();
    let said = FromTemplate::CannotLoad { reason: reason() };
    tree.play([template_said(2, said)]);
    let outcome = "reload failed: the app could not be loaded: it imports 'nonsuch'; generation 1 goes on serving";
    tree.expect_among(
        reaped(21, BROKEN),
        &format!("error: {outcome}\nreply 7: error: {outcome}"),
    );
    let mut tree = nearly_ready();
    let said = FromWorker::CannotLoad { reason: reason() };
    tree.play([worker_said(2, 1, 1, said)]);
    let outcome = "reload failed: a worker could not load the app: it imports 'nonsuch'; generation 1 goes on serving";
    tree.expect_among(
        reaped(201, BROKEN),
        &format!("error: {outcome}\nreply 7: error: {outcome}"),
    );
}

#[test]
fn who_has_loaded_the_app_does_not_say_why_it_cannot_be_loaded() {
    let cannot_load = || "it imports 'nonsuch'".to_owned();
    let worker_lies = |index, epoch| {
        let reason = cannot_load();
        worker_said(2, index, epoch, FromWorker::CannotLoad { reason })
    };
    let reason = cannot_load();
    let template_lies = template_said(2, FromTemplate::CannotLoad { reason });
    // A worker that serves, a worker that is not there any more, and the template of workers that are.
    for lie in [worker_lies(0, 1), worker_lies(1, 9), template_lies] {
        let mut tree = nearly_ready();
        tree.expect(lie, "");
        let outcome = "reload failed: a worker did not boot; generation 1 goes on serving";
        tree.expect_among(
            reaped(201, BROKEN),
            &format!("error: {outcome}\nreply 7: error: {outcome}"),
        );
    }
}

#[test]
fn a_worker_that_served_and_died_in_the_new_generation_is_replaced_as_ever() {
    let mut tree = nearly_ready();
    tree.expect_among(reaped(200, KILLED), "vacate 2:0\ntemplate 2: fork 0/2");
    tree.play([here(2, 1, 1, 201)]);
    let actions = tree.step(ready(2, 1, 1));
    assert!(!actions.contains("reloaded"), "{actions}");
    tree.play([here(2, 0, 2, 202)]);
    tree.expect_among(ready(2, 0, 2), PROMOTED);
}

#[test]
fn a_generation_that_failed_is_gone_when_all_of_it_is() {
    let mut tree = nearly_ready();
    tree.play([reaped(21, BROKEN), reaped(20, LEFT), reaped(200, LEFT)]);
    // A worker that hangs is killed.
    tree.expect_tick_after(
        1_500,
        "warning: worker 1 (201) did not leave in time and is killed\nKILL 201",
    );
    tree.expect_among(reaped(201, KILLED), "drop 2");
    assert_eq!(tree.due_in_ms(), None);
}

#[test]
fn what_was_asked_of_a_generation_that_was_given_up_meanwhile_is_undone() {
    for number in [SIGTERM, SIGINT] {
        for (event, actions) in [(built(2, PLAN), "drop 2"), (not_built(2), "")] {
            let mut tree = Tree::serving();
            tree.play([signal(SIGHUP), signal(number)]);
            tree.expect(event, actions);
        }
    }
}

#[test]
fn without_an_acceptor_the_old_generation_has_nobody_to_serve() {
    let mut tree = nearly_ready();
    tree.play([
        reaped(10, KILLED),
        acceptor_forked(1, Some(15)),
        reaped(15, KILLED),
    ]);
    tree.play([here(2, 1, 1, 201)]);
    // The old acceptor is gone, so it gets no order, and no report of it is awaited.
    tree.expect(
        ready(2, 1, 1),
        &format!(
            "acceptor 2: ready 1/1=201
             info: worker ready worker=1 pid=201 generation=2
             acceptor 2: accept
             news: promoted 2
             {RELOADED}
             reply 7: ok: reloaded: generation 2 serves"
        ),
    );
    tree.expect(TICK, "KILL 11\nTERM 100\nTERM 101");
}

/// It would open the door beside the other's.
#[test]
fn an_acceptor_of_the_old_generation_that_boots_meanwhile_is_not_let_accept() {
    let mut tree = nearly_ready();
    tree.play([reaped(10, KILLED), acceptor_forked(1, Some(15))]);
    tree.play([here(2, 1, 1, 201)]);
    // It accepts no client before it gets the order.
    tree.expect_among(ready(2, 1, 1), &format!("{PROMOTED}\n{RELOADED}"));
    tree.expect(acceptor_ready(1), "");
}

// Until the old generation accepts no more clients.

const REPLIED: &str = "reply 7: ok: reloaded: generation 2 serves";

#[test]
fn a_reload_is_told_once_the_old_acceptor_lets_nobody_else_in() {
    let mut tree = Tree::taking_over();
    tree.expect(TICK, "");
    // The report of another generation, which got no order, changes nothing.
    tree.expect(retired(2), "");
    tree.expect(retired(1), &format!("{RELOADED}\n{REPLIED}"));
    tree.expect(retired(1), "");
}

#[test]
fn an_old_acceptor_that_is_gone_lets_nobody_in() {
    for exit in [LEFT, KILLED] {
        let mut tree = Tree::taking_over();
        tree.expect_among(
            reaped(10, exit),
            &format!("KILL 11\nTERM 100\nTERM 101\n{RELOADED}\n{REPLIED}"),
        );
        // Told before the last of its generation is forgotten, also if that is the acceptor.
        let mut tree = Tree::taking_over();
        tree.now_ms += 1;
        tree.play([reaped(11, KILLED), template_forked(1, None)]);
        tree.play([100, 101].map(|pid| reaped(pid, KILLED)));
        tree.expect_among(reaped(10, exit), &format!("{RELOADED}\n{REPLIED}\ndrop 1"));
    }
}

#[test]
fn an_old_acceptor_that_says_nothing_is_waited_for_no_longer_than_two_seconds() {
    let mut tree = Tree::taking_over();
    tree.expect_tick_after(
        2_000,
        &format!(
            "warning: the acceptor (10) of generation 1 has not reported within 2 s that it accepts no more clients: it may be \
             stopped, and generation 1 may still answer new ones\n{RELOADED}\n{REPLIED}"
        ),
    );
    tree.expect(retired(1), "");
    assert_eq!(tree.due_in_ms(), Some(5_000), "until it should have left");
}

#[test]
fn a_reload_that_is_asked_for_while_the_new_generation_takes_over_follows_it() {
    let taking_over = "info: reload: generation 2 is still taking over, another one follows it";
    for reload in [signal(SIGHUP), changed(2)] {
        let mut tree = Tree::taking_over();
        tree.expect(reload.clone(), taking_over);
        tree.expect(reload, taking_over);
        tree.expect(retired(1), &format!("{RELOADED}\n{REPLIED}\n{FOLLOWS}"));
    }
    let mut tree = Tree::taking_over();
    tree.expect(ask_as(8, Command::Reload), taking_over);
    let actions = tree.step(retired(1));
    assert!(!actions.contains("reply 8"), "not theirs: {actions}");
    tree.expect_among(
        not_built(3),
        "reply 8: error: reload failed: bind: the address is taken; generation 2 goes on serving",
    );
}

// The old generation.

#[test]
fn a_retiring_generation_replaces_its_dead() {
    let mut tree = Tree::retiring();
    tree.expect_among(reaped(100, KILLED), "vacate 1:0\ntemplate 1: fork 0/2");
    tree.expect(here(1, 0, 2, 102), "");
    tree.expect_among(ready(1, 0, 2), "acceptor 1: ready 0/2=102");
    tree.expect_among(reaped(11, KILLED), "fork template 1");
    // Its troubles are no longer those of a reload.
    tree.play([template_forked(1, None)]);
    tree.expect_tick_after(100, "fork template 1");
    // But it has no client left that another acceptor could serve.
    tree.expect_among(reaped(10, KILLED), "TERM 102\nTERM 101");
}

#[test]
fn a_retiring_generation_that_does_not_finish_in_time_is_dismissed_and_then_killed() {
    let mut tree = Tree::retiring();
    tree.expect_tick_after(
        7_000,
        "error: generation 1 did not finish in time
         acceptor 1: quit
         KILL 11
         TERM 100
         TERM 101",
    );
    tree.play([reaped(11, KILLED), reaped(101, LEFT)]);
    tree.expect_tick_after(
        1_500,
        "warning: the acceptor (10) did not leave in time and is killed
         KILL 10
         warning: worker 0 (100) did not leave in time and is killed
         KILL 100",
    );
    tree.play([reaped(10, KILLED)]);
    tree.expect_among(reaped(100, KILLED), "drop 1");
}

/// Both look at the same files.
#[test]
fn a_change_that_a_retiring_generation_reports_is_not_another_reload() {
    let mut tree = Tree::retiring();
    tree.expect(changed(1), "");
    tree.expect(changed(2), FOLLOWS);
}

// One after the other.

/// The reload under way may load something older than what is meant.
#[test]
fn a_reload_during_a_reload_follows_it() {
    for reload in [signal(SIGHUP), changed(1), changed(2)] {
        let mut tree = nearly_ready();
        tree.expect(reload.clone(), LATER);
        tree.expect(reload.clone(), LATER);
        tree.play([here(2, 1, 1, 201)]);
        tree.expect_among(ready(2, 1, 1), PROMOTED);
        tree.expect(retired(1), &format!("{RELOADED}\n{REPLIED}\n{FOLLOWS}"));
        tree.play([built(3, PLAN)]);
        tree.fork(3);
        tree.load(3);
        tree.nearly_fill(3);
        tree.expect_among(
            ready(3, 1, 1),
            "acceptor 3: accept
             acceptor 2: retire 5000
             news: promoted 3",
        );
        tree.expect(
            retired(2),
            "info: reloaded: generation 3 serves\nnews: reloaded 3",
        );
        tree.expect(TICK, "");

        let mut tree = nearly_ready();
        tree.play([reload]);
        tree.expect_among(reaped(201, BROKEN), FOLLOWS);
    }
}

#[test]
fn who_asked_hears_of_the_reload_that_is_theirs() {
    let refused = "reload failed: a worker did not boot; generation 1 goes on serving";
    let mut tree = nearly_ready();
    tree.expect(ask_as(8, Command::Reload), LATER);
    tree.expect(ask_as(9, Command::Reload), LATER);
    tree.expect_among(
        reaped(201, BROKEN),
        &format!("error: {refused}\nnews: not reloaded 1\nreply 7: error: {refused}"),
    );
    tree.play([built(3, PLAN)]);
    tree.fork(3);
    tree.load(3);
    tree.nearly_fill(3);
    let served = "reloaded: generation 3 serves";
    tree.play([ready(3, 1, 1)]);
    tree.expect_among(
        retired(1),
        &format!("news: reloaded 3\nreply 8: ok: {served}\nreply 9: ok: {served}"),
    );

    let mut tree = nearly_ready();
    tree.play([ask_as(8, Command::Reload)]);
    let leaves = "error: reload given up: the server leaves";
    tree.expect_among(
        signal(SIGTERM),
        &format!("reply 7: {leaves}\nreply 8: {leaves}"),
    );
}

#[test]
fn a_reload_during_the_boot_follows_it() {
    let mut tree = Tree::loaded();
    tree.expect(
        signal(SIGHUP),
        "info: reload: generation 1 is still being made ready, another one follows it",
    );
    tree.nearly_fill(1);
    tree.expect_among(
        ready(1, 1, 1),
        &format!("info: ready: 2 workers\nnews: ready 2\n{BEGINS}"),
    );
}

#[test]
fn a_fourth_generation_on_its_way_out_is_waited_for() {
    let mut tree = Tree::serving();
    for generation_number in 2..=4 {
        tree.play([signal(SIGHUP), built(generation_number, PLAN)]);
        tree.fork(generation_number);
        tree.load(generation_number);
        tree.fill(generation_number, 2);
        tree.play([retired(generation_number - 1)]);
        assert_eq!(tree.master.serving, Some(generation_number));
    }
    let waits = "info: reload: begins when an earlier generation has gone";
    tree.expect(ask(Command::Reload), waits);
    tree.expect(TICK, "");
    let follows = "drop 2\ninfo: reload: making generation 5 ready\nnews: reloading\nbuild 5";
    assert!(tree.bury(2).ends_with(follows), "any of them makes room");
    tree.expect_among(
        not_built(5),
        "reply 7: error: reload failed: bind: the address is taken; \
         generation 4 goes on serving",
    );
}

#[test]
fn epochs_and_indices_of_two_generations_have_nothing_to_do_with_each_other() {
    let mut tree = Tree::retiring();
    tree.expect_among(
        reaped(200, KILLED),
        "vacate 2:0\nacceptor 2: gone 0/1\ntemplate 2: fork 0/2",
    );
    tree.expect(here(1, 0, 2, 102), "KILL 102");
    tree.expect(here(2, 0, 2, 202), "");
}

#[test]
fn what_a_generation_that_is_gone_says_means_nothing() {
    let mut tree = Tree::retiring();
    tree.bury(1);
    for event in [
        here(1, 0, 2, 102),
        ready(1, 0, 2),
        overdue(1, 0, false),
        memory(1, 0, 500),
        dumped(1, 0, 1),
        acceptor_ready(1),
        changed(1),
    ] {
        tree.expect(event, "");
    }
}
