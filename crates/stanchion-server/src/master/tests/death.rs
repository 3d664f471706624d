//! Any child may die at any moment.

use super::*;

#[test]
fn a_killed_worker_is_replaced_at_once_under_a_new_tenure() {
    let mut tree = Tree::serving();
    for tenure in 1..4 {
        let pid = if tenure == 1 {
            WORKERS[0]
        } else {
            200 + i32::from(tenure)
        };
        tree.expect(
            Event::Reaped(pid, KILLED),
            &[
                "vacate 0",
                &format!("acceptor: gone 0/{tenure} Killed(9)"),
                &format!("warning: worker 0 ({pid}) was killed by SIGKILL"),
                &format!("template 1: fork 0/{}", tenure + 1),
            ],
        );
        let pid = 201 + i32::from(tenure);
        tree.play([forked(0, tenure + 1, pid), ready(0, tenure + 1, pid)]);
    }
}

#[test]
fn a_worker_that_leaves_by_itself_is_replaced_without_a_word() {
    let mut tree = Tree::serving();
    let replaced = [
        "vacate 0",
        "acceptor: gone 0/1 Left(0)",
        "template 1: fork 0/2",
    ];
    tree.expect(Event::Reaped(WORKERS[0], LEFT), &replaced);
}

#[test]
fn an_overdue_worker_is_killed_once_and_its_clients_are_told_why() {
    let mut tree = Tree::serving();
    let overdue = Event::Overdue {
        worker: 0,
        ran_ms: 30_042,
    };
    let killed =
        "error: worker 0 (100) is killed: a request has run for 30042 ms, past its timeout";
    tree.expect(overdue.clone(), &[killed, "KILL 100"]);
    tree.expect(overdue.clone(), &[]);
    tree.expect(
        Event::Report(ToMaster::Replace {
            worker: 0,
            tenure: 1,
        }),
        &[],
    );
    tree.expect(
        Event::Reaped(WORKERS[0], KILLED),
        &[
            "vacate 0",
            "acceptor: gone 0/1 TimedOut",
            "warning: worker 0 (100) was killed by SIGKILL",
            "template 1: fork 0/2",
        ],
    );
    tree.expect(overdue.clone(), &[]);
    tree.play([forked(0, 2, 102), ready(0, 2, 102)]);
    tree.expect(
        Event::Report(ToMaster::Replace {
            worker: 0,
            tenure: 1,
        }),
        &[],
    );
    assert_eq!(
        tree.step(overdue).len(),
        2,
        "its successor is another worker"
    );
}

#[test]
fn a_worker_that_wrote_where_it_should_not_is_killed_once() {
    let mut tree = Tree::serving();
    let replace = Event::Report(ToMaster::Replace {
        worker: 1,
        tenure: 1,
    });
    let killed = "error: worker 1 (101) is replaced: it wrote where it should not";
    tree.expect(replace.clone(), &[killed, "KILL 101"]);
    tree.expect(replace, &[]);
    tree.expect(
        Event::Reaped(WORKERS[1], KILLED),
        &[
            "vacate 1",
            "acceptor: gone 1/1 Killed(9)",
            "warning: worker 1 (101) was killed by SIGKILL",
            "template 1: fork 1/2",
        ],
    );
}

#[test]
fn a_worker_may_be_ready_before_its_fork_is_reported() {
    let mut tree = Tree::loaded();
    tree.expect(
        ready(0, 1, 100),
        &[
            "acceptor: ready 0/1=100",
            "info: worker ready worker=0 pid=100 generation=1",
        ],
    );
    tree.expect(forked(0, 1, 100), &[]);
}

#[test]
fn a_worker_may_have_served_and_ended_before_its_fork_is_reported() {
    let mut tree = Tree::loaded();
    tree.play([ready(0, 1, 100), Event::Reaped(100, LEFT)]);
    tree.expect(forked(0, 1, 100), &[]);
}

#[test]
fn a_worker_may_be_reaped_before_its_fork_is_reported() {
    let mut tree = Tree::loaded();
    tree.expect(Event::Reaped(100, KILLED), &[]);
    tree.now_ms += 60_000;
    tree.expect(Event::Tick, &[]);
    tree.expect(
        forked(0, 1, 100),
        &[
            "vacate 0",
            "acceptor: gone 0/1 Killed(9)",
            "error: worker 0 (100) was killed by SIGKILL while booting, \
             failure 1 in a row; next try in 100 ms",
        ],
    );
    tree.expect_tick_after(100, &["template 1: fork 0/2"]);
}

#[test]
fn a_worker_may_be_reaped_before_it_is_known_to_be_ready() {
    let gone = [
        "acceptor: ready 0/1=100",
        "info: worker ready worker=0 pid=100 generation=1",
        "vacate 0",
        "acceptor: gone 0/1 Killed(9)",
        "warning: worker 0 (100) was killed by SIGKILL",
        "template 1: fork 0/2",
    ];
    let mut tree = Tree::loaded();
    tree.play([Event::Reaped(100, KILLED)]);
    tree.expect(ready(0, 1, 100), &gone);
    tree.expect(forked(0, 1, 100), &[]);
}

/// The kernel gives pids anew, and the master reaps every orphan of the app.
#[test]
fn a_worker_with_the_pid_of_an_orphan_that_was_reaped_long_ago_lives() {
    let mut tree = Tree::serving();
    tree.play([Event::Reaped(102, LEFT)]);
    tree.now_ms += 60_000;
    tree.play([Event::Reaped(WORKERS[0], LEFT)]);
    tree.expect(forked(0, 2, 102), &[]);
}

#[test]
fn a_killed_template_is_replaced_and_nobody_else_notices() {
    let mut tree = Tree::serving();
    tree.expect(
        Event::Reaped(TEMPLATE, KILLED),
        &[
            "warning: the template was killed by SIGKILL; another one is started",
            "fork template 1",
        ],
    );
    // Without a template, the dead are not replaced yet.
    tree.play([Event::Reaped(WORKERS[0], LEFT)]);
    tree.expect(
        Event::TemplateForked {
            generation: 1,
            pid: Some(21),
        },
        &[],
    );
    tree.expect(template_ready(1), &["template 1: fork 0/2"]);
}

#[test]
fn a_template_that_dies_again_and_again_while_loading_is_started_ever_more_slowly() {
    let mut tree = Tree::serving();
    tree.play([Event::Reaped(TEMPLATE, KILLED)]);
    for (pid, wait_ms) in [(21, 100), (22, 200), (23, 400)] {
        tree.play([Event::TemplateForked {
            generation: 1,
            pid: Some(pid),
        }]);
        let lost = format!(
            "error: the template exited with code 4 before it was ready; next try in {wait_ms} ms"
        );
        tree.expect(Event::Reaped(pid, Exit::Code(4)), &[&lost]);
        tree.expect_tick_after(wait_ms, &["fork template 1"]);
    }
}

/// Else it would load the app, die of the first fork, and load the app, as fast as it can.
#[test]
fn a_template_that_dies_again_and_again_while_forking_is_started_ever_more_slowly() {
    let mut tree = Tree::serving();
    tree.play([Event::Reaped(WORKERS[0], KILLED)]);
    let mut pid = TEMPLATE;
    for (tenure, wait_ms) in [(3, 100), (4, 200), (5, 400)] {
        let lost = format!(
            "error: the template was killed by SIGKILL while forking; next try in {wait_ms} ms"
        );
        tree.expect(Event::Reaped(pid, KILLED), &[&lost]);
        tree.expect_tick_after(wait_ms, &["fork template 1"]);
        pid += 20;
        tree.play([Event::TemplateForked {
            generation: 1,
            pid: Some(pid),
        }]);
        tree.expect(
            template_ready(1),
            &[&format!("template 1: fork 0/{tenure}")],
        );
    }
    tree.play([forked(0, 5, 105), Event::Reaped(pid, KILLED)]);
    assert_eq!(
        tree.master.next_tick_ms(),
        None,
        "one that has forked starts it over"
    );
}

#[test]
fn a_worker_of_a_dead_template_that_turns_up_is_killed_and_cleared_up_after() {
    for first in [forked(0, 2, 102), ready(0, 2, 102)] {
        let mut tree = Tree::serving();
        tree.play([
            Event::Reaped(WORKERS[0], KILLED),
            Event::Reaped(TEMPLATE, KILLED),
        ]);
        tree.expect_tick_after(100, &["fork template 1"]);
        tree.play([Event::TemplateForked {
            generation: 1,
            pid: Some(21),
        }]);
        tree.expect(template_ready(1), &["template 1: fork 0/3"]);
        // It may have pulled a request before the signal comes.
        tree.expect(first, &["KILL 102"]);
        tree.expect(ready(0, 2, 102), &[]);
        tree.expect(
            Event::Reaped(102, KILLED),
            &["acceptor: gone 0/2 Killed(9)"],
        );
        tree.expect(forked(0, 2, 102), &[]);
        tree.play([forked(0, 3, 103)]);
        tree.expect(
            ready(0, 3, 103),
            &[
                "acceptor: ready 0/3=103",
                "info: worker ready worker=0 pid=103 generation=1",
            ],
        );
    }
}

#[test]
fn a_worker_of_a_dead_template_that_was_reaped_before_it_turned_up_is_cleared_up_after() {
    let mut tree = Tree::serving();
    tree.play([
        Event::Reaped(WORKERS[0], KILLED),
        Event::Reaped(TEMPLATE, KILLED),
        Event::Reaped(102, KILLED),
    ]);
    tree.expect(ready(0, 2, 102), &["acceptor: gone 0/2 Killed(9)"]);
}

#[test]
fn a_killed_acceptor_is_replaced_and_told_who_has_gone_and_who_serves() {
    let mut tree = Tree::serving();
    // The dying acceptor may not have heard of this one.
    tree.play([Event::Reaped(WORKERS[0], KILLED), forked(0, 2, 102)]);
    let lost = "error: the acceptor was killed by SIGKILL; its connections are lost, another one is started";
    tree.expect(
        Event::Reaped(ACCEPTOR, KILLED),
        &[
            lost,
            "fork acceptor",
            "acceptor: gone 0/1 Killed(9)",
            "acceptor: ready 1/1=101",
        ],
    );
    tree.expect(Event::AcceptorForked(Some(20)), &[]);
    tree.expect(
        ready(0, 2, 102),
        &[
            "acceptor: ready 0/2=102",
            "info: worker ready worker=0 pid=102 generation=1",
        ],
    );
    tree.expect(Event::Report(ToMaster::AcceptorReady), &[]);
}

#[test]
fn a_leaving_worker_is_introduced_to_a_new_acceptor_too() {
    let mut tree = Tree::serving();
    tree.play([Event::Signal(stanchion_sys::signal::SIGTTOU)]);
    let actions = tree.step(Event::Reaped(ACCEPTOR, KILLED));
    assert_eq!(
        actions[1..],
        [
            "fork acceptor",
            "acceptor: ready 0/1=100",
            "acceptor: ready 1/1=101"
        ]
    );
}

#[test]
fn while_there_is_no_acceptor_nobody_is_told_and_its_successor_hears_it_all() {
    let mut tree = Tree::serving();
    tree.play([
        Event::Reaped(ACCEPTOR, KILLED),
        Event::AcceptorForked(Some(20)),
    ]);
    let lost = "error: the acceptor exited with code 1 before it was ready; next try in 100 ms";
    tree.expect(Event::Reaped(20, Exit::Code(1)), &[lost]);
    tree.expect(
        Event::Reaped(WORKERS[0], LEFT),
        &["vacate 0", "template 1: fork 0/2"],
    );
    tree.expect(
        ready(0, 2, 102),
        &["info: worker ready worker=0 pid=102 generation=1"],
    );
    tree.expect_tick_after(
        100,
        &[
            "fork acceptor",
            "acceptor: gone 0/1 Left(0)",
            "acceptor: ready 0/2=102",
            "acceptor: ready 1/1=101",
        ],
    );
    tree.expect(Event::AcceptorForked(None), &[]);
    assert_eq!(tree.master.next_tick_ms(), Some(tree.now_ms + 200));
}
