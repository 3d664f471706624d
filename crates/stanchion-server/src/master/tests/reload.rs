//! HUP and `--reload`: a new template beside the old one, then worker after worker.

use stanchion_sys::signal::{SIGTTIN, SIGTTOU};

use super::*;

const LOADING_2: [&str; 2] = [
    "info: reload: loading the app anew, generation 2",
    "fork template 2",
];
const LOADING_3: [&str; 2] = [
    "info: reload: loading the app anew, generation 3",
    "fork template 3",
];
const ADOPTED: [&str; 3] = ["KILL 11", "drop template 1", "TERM 100"];

#[test]
fn workers_are_replaced_one_by_one_and_the_log_says_when_all_are() {
    for reload in [Event::Signal(SIGHUP), changed()] {
        let mut tree = Tree::serving();
        tree.expect(reload, &LOADING_2);
        tree.expect(
            Event::TemplateForked {
                generation: 2,
                pid: Some(NEXT),
            },
            &[],
        );
        tree.expect(template_ready(2), &ADOPTED);
        tree.expect(Event::Reaped(TEMPLATE, KILLED), &[]);
        tree.expect(
            Event::Reaped(WORKERS[0], LEFT),
            &[
                "vacate 0",
                "acceptor: gone 0/1 Left(0)",
                "template 2: fork 0/2",
            ],
        );
        tree.expect(forked(0, 2, 102), &[]);
        tree.expect(
            ready(0, 2, 102),
            &[
                "acceptor: ready 0/2=102",
                "info: worker ready worker=0 pid=102 generation=2",
                "TERM 101",
            ],
        );
        tree.expect(
            Event::Reaped(WORKERS[1], LEFT),
            &[
                "vacate 1",
                "acceptor: gone 1/1 Left(0)",
                "template 2: fork 1/2",
            ],
        );
        tree.expect(forked(1, 2, 103), &[]);
        tree.expect(
            ready(1, 2, 103),
            &[
                "acceptor: ready 1/2=103",
                "info: worker ready worker=1 pid=103 generation=2",
                "info: reloaded: all workers run generation 2",
            ],
        );
        tree.expect(Event::Tick, &[]);
    }
}

#[test]
fn code_that_cannot_be_loaded_leaves_the_old_one_serving() {
    let mut tree = Tree::reloading();
    let failed =
        "error: reload failed: the new template exited with code 4; the old code goes on serving";
    tree.expect(
        Event::Reaped(NEXT, Exit::Code(4)),
        &[failed, "drop template 2"],
    );
    tree.expect(template_ready(2), &[]);
    tree.expect(
        Event::Reaped(WORKERS[0], LEFT),
        &[
            "vacate 0",
            "acceptor: gone 0/1 Left(0)",
            "template 1: fork 0/2",
        ],
    );
    // The mended code is another generation.
    tree.expect(changed(), &LOADING_3);
}

#[test]
fn a_template_that_cannot_be_forked_leaves_the_old_one_serving() {
    let mut tree = Tree::serving();
    tree.play([Event::Signal(SIGHUP)]);
    let failed = "error: reload failed: there is no new template; the old code goes on serving";
    tree.expect(
        Event::TemplateForked {
            generation: 2,
            pid: None,
        },
        &[failed],
    );
    tree.expect(Event::Signal(SIGHUP), &LOADING_3);
}

/// What the one under way loads may be older than what is meant.
#[test]
fn a_reload_during_a_reload_follows_it() {
    let follows = ["info: reload: generation 2 is still loading, another one follows it"];
    let failed =
        "error: reload failed: the new template exited with code 4; the old code goes on serving";
    for reload in [Event::Signal(SIGHUP), changed()] {
        let mut tree = Tree::reloading();
        tree.expect(reload.clone(), &follows);
        tree.expect(reload.clone(), &follows);
        let [loading, fork] = LOADING_3;
        tree.expect(
            template_ready(2),
            &["KILL 11", "drop template 1", loading, fork, "TERM 100"],
        );
        tree.play([Event::TemplateForked {
            generation: 3,
            pid: Some(13),
        }]);
        tree.expect(template_ready(3), &["KILL 12", "drop template 2"]);

        let mut tree = Tree::reloading();
        tree.play([reload]);
        let actions = [failed, "drop template 2", loading, fork];
        tree.expect(Event::Reaped(NEXT, Exit::Code(4)), &actions);
    }
}

#[test]
fn a_reload_while_workers_are_being_replaced_goes_on_with_the_newest() {
    let mut tree = Tree::reloading();
    tree.play([
        template_ready(2),
        Event::Reaped(WORKERS[0], LEFT),
        ready(0, 2, 102),
    ]);
    tree.expect(Event::Signal(SIGHUP), &LOADING_3);
    tree.play([
        Event::TemplateForked {
            generation: 3,
            pid: Some(13),
        },
        Event::Reaped(WORKERS[1], LEFT),
        ready(1, 2, 103),
    ]);
    tree.expect(
        template_ready(3),
        &["KILL 12", "drop template 2", "TERM 102"],
    );
}

#[test]
fn workers_asked_of_the_old_template_are_asked_of_the_new_one() {
    let mut tree = Tree::reloading();
    tree.play([Event::Reaped(WORKERS[0], KILLED)]);
    tree.expect(
        template_ready(2),
        &["KILL 11", "drop template 1", "template 2: fork 0/3"],
    );
    // The old one had done it already.
    tree.expect(forked(0, 2, 102), &["KILL 102"]);
    tree.expect(
        Event::Reaped(102, KILLED),
        &["acceptor: gone 0/2 Killed(9)"],
    );
}

/// After a reload it is the new code that is loaded again, under its own generation.
#[test]
fn the_template_of_a_later_generation_is_replaced_too() {
    let mut tree = Tree::reloading();
    tree.play([template_ready(2), Event::Reaped(TEMPLATE, KILLED)]);
    tree.expect(
        Event::Reaped(NEXT, KILLED),
        &[
            "warning: the template was killed by SIGKILL; another one is started",
            "fork template 2",
        ],
    );
    tree.play([Event::Reaped(WORKERS[0], LEFT)]);
    tree.play([Event::TemplateForked {
        generation: 2,
        pid: Some(22),
    }]);
    tree.expect(template_ready(2), &["template 2: fork 0/2"]);
}

#[test]
fn a_reload_while_the_template_is_dead_brings_one() {
    let mut tree = Tree::serving();
    tree.play([
        Event::Reaped(TEMPLATE, KILLED),
        Event::TemplateForked {
            generation: 1,
            pid: Some(21),
        },
        Event::Reaped(21, Exit::Code(4)),
    ]);
    tree.expect(Event::Signal(SIGHUP), &LOADING_2);
    tree.expect(
        Event::TemplateForked {
            generation: 2,
            pid: Some(NEXT),
        },
        &[],
    );
    tree.expect(template_ready(2), &["drop template 1", "TERM 100"]);
    assert_eq!(
        tree.master.next_tick_ms(),
        Some(tree.now_ms + PLAN.graceful_ms)
    );
}

#[test]
fn both_templates_may_be_loading_and_either_may_come_first() {
    let mut tree = Tree::reloading();
    tree.play([Event::Reaped(TEMPLATE, KILLED)]);
    let fork = Event::TemplateForked {
        generation: 1,
        pid: Some(21),
    };
    tree.expect(fork.clone(), &[]);
    tree.expect(
        template_ready(2),
        &["KILL 21", "drop template 1", "TERM 100"],
    );

    let mut tree = Tree::reloading();
    tree.play([Event::Reaped(TEMPLATE, KILLED), fork.clone()]);
    tree.expect(template_ready(1), &[]);
    tree.expect(
        template_ready(2),
        &["KILL 21", "drop template 1", "TERM 100"],
    );

    let mut tree = Tree::reloading();
    tree.play([Event::Reaped(TEMPLATE, KILLED)]);
    tree.expect(template_ready(2), &["drop template 1", "TERM 100"]);
    tree.expect(fork, &["KILL 21"]);
}

#[test]
fn rolling_waits_until_all_are_ready_and_heeds_the_number() {
    let mut tree = Tree::reloading();
    tree.play([Event::Signal(SIGTTIN)]);
    tree.expect(
        template_ready(2),
        &["KILL 11", "drop template 1", "template 2: fork 2/2"],
    );
    tree.play([forked(2, 2, 102)]);
    tree.expect(
        ready(2, 2, 102),
        &[
            "acceptor: ready 2/2=102",
            "info: worker ready worker=2 pid=102 generation=2",
            "TERM 100",
        ],
    );
    tree.expect(
        Event::Signal(SIGTTOU),
        &["info: TTOU: 2 workers", "TERM 102"],
    );
    tree.play([Event::Reaped(102, LEFT), Event::Reaped(WORKERS[0], LEFT)]);
    let actions = tree.step(ready(0, 2, 103));
    assert_eq!(actions.last().map(String::as_str), Some("TERM 101"));
}

#[test]
fn a_reload_under_way_is_given_up_when_the_server_stops() {
    let mut tree = Tree::reloading();
    tree.play([Event::Signal(SIGTERM)]);
    tree.expect(
        Event::Reaped(ACCEPTOR, LEFT),
        &["KILL 11", "KILL 12", "TERM 100", "TERM 101"],
    );
    tree.play([WORKERS[0], WORKERS[1], TEMPLATE].map(|pid| Event::Reaped(pid, LEFT)));
    tree.expect(Event::Reaped(NEXT, KILLED), &["drop template 2", "exit 0"]);
}
