//! Coming up, and failing to.

use super::*;

#[test]
fn acceptor_and_template_come_first_then_workers_and_it_is_said_once() {
    let mut tree = Tree::new(PLAN);
    tree.expect(Event::Started, &["fork acceptor", "fork template 1"]);
    tree.expect(Event::AcceptorForked(Some(ACCEPTOR)), &[]);
    tree.expect(
        Event::TemplateForked {
            generation: 1,
            pid: Some(TEMPLATE),
        },
        &[],
    );
    tree.expect(Event::Report(ToMaster::AcceptorReady), &[]);
    tree.expect(
        template_ready(1),
        &["template 1: fork 0/1", "template 1: fork 1/1"],
    );
    tree.expect(forked(0, 1, 100), &[]);
    tree.expect(
        ready(0, 1, 100),
        &[
            "acceptor: ready 0/1=100",
            "info: worker ready worker=0 pid=100 generation=1",
        ],
    );
    tree.expect(forked(1, 1, 101), &[]);
    tree.expect(
        ready(1, 1, 101),
        &[
            "acceptor: ready 1/1=101",
            "info: worker ready worker=1 pid=101 generation=1",
            "info: ready: 2 workers",
        ],
    );
    tree.play([Event::Reaped(101, LEFT), forked(1, 2, 102)]);
    tree.expect(
        ready(1, 2, 102),
        &[
            "acceptor: ready 1/2=102",
            "info: worker ready worker=1 pid=102 generation=1",
        ],
    );
}

#[test]
fn a_slow_acceptor_is_waited_for() {
    let mut tree = Tree::booting();
    tree.play([
        template_ready(1),
        forked(0, 1, 100),
        ready(0, 1, 100),
        forked(1, 1, 101),
    ]);
    tree.expect(
        ready(1, 1, 101),
        &[
            "acceptor: ready 1/1=101",
            "info: worker ready worker=1 pid=101 generation=1",
        ],
    );
    tree.expect(
        Event::Report(ToMaster::AcceptorReady),
        &["info: ready: 2 workers"],
    );
}

#[test]
fn nothing_is_due_while_children_boot() {
    assert_eq!(Tree::booting().master.next_tick_ms(), None);
    assert_eq!(Tree::loaded().master.next_tick_ms(), None);
    assert_eq!(Tree::serving().master.next_tick_ms(), None);
}

#[test]
fn an_app_that_the_template_cannot_load_ends_the_server() {
    for (exit, code) in [
        (Exit::Code(4), 4),
        (Exit::Code(3), 3),
        (Exit::Code(1), 3),
        (KILLED, 3),
    ] {
        let mut tree = Tree::booting();
        let lost = format!("error: the app could not be loaded: the template {exit}");
        tree.expect(Event::Reaped(TEMPLATE, exit), &[&lost, "acceptor: quit"]);
        tree.expect(Event::Reaped(ACCEPTOR, LEFT), &[&format!("exit {code}")]);
    }
}

#[test]
fn an_app_that_no_worker_can_load_ends_the_server() {
    for code in [3, 4] {
        let mut tree = Tree::loaded();
        tree.play([forked(0, 1, 100), forked(1, 1, 101)]);
        tree.expect(
            Event::Reaped(100, Exit::Code(code)),
            &[
                "vacate 0",
                "acceptor: gone 0/1 Left(CODE)"
                    .replace("CODE", &code.to_string())
                    .as_str(),
                &format!(
                    "error: worker 0 (100) exited with code {code} while booting: \
                     no worker was ever ready, so the server leaves"
                ),
                "acceptor: quit",
                "KILL 11",
                "TERM 101",
            ],
        );
        tree.play([
            Event::Reaped(ACCEPTOR, LEFT),
            Event::Reaped(TEMPLATE, KILLED),
        ]);
        let actions = tree.step(Event::Reaped(101, Exit::Code(4)));
        assert_eq!(
            actions.last(),
            Some(&format!("exit {code}")),
            "the first reason counts"
        );
    }
}

#[test]
fn an_acceptor_that_was_never_ready_ends_the_server() {
    let mut tree = Tree::booting();
    tree.play([
        template_ready(1),
        forked(0, 1, 100),
        ready(0, 1, 100),
        forked(1, 1, 101),
    ]);
    tree.expect(
        Event::Reaped(ACCEPTOR, Exit::Code(1)),
        &[
            "error: the acceptor exited with code 1 before it was ready",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    );
    tree.play([TEMPLATE, 100].map(|pid| Event::Reaped(pid, LEFT)));
    let actions = tree.step(Event::Reaped(101, LEFT));
    assert_eq!(actions.last().map(String::as_str), Some("exit 1"));
}

#[test]
fn workers_that_die_while_booting_are_forked_ever_more_slowly() {
    let mut tree = Tree::new(Plan { workers: 1, ..PLAN });
    tree.play([
        Event::Started,
        Event::AcceptorForked(Some(ACCEPTOR)),
        Event::TemplateForked {
            generation: 1,
            pid: Some(TEMPLATE),
        },
        template_ready(1),
    ]);
    for (tenure, (failures, wait_ms)) in (1..).zip([(1, 100), (2, 200), (3, 400)]) {
        tree.play([forked(0, tenure, 100)]);
        tree.expect(
            Event::Reaped(100, KILLED),
            &[
                "vacate 0",
                &format!("acceptor: gone 0/{tenure} Killed(9)"),
                &format!(
                    "error: worker 0 (100) was killed by SIGKILL while booting, \
                     failure {failures} in a row; next try in {wait_ms} ms"
                ),
            ],
        );
        tree.expect_tick_after(wait_ms, &[&format!("template 1: fork 0/{}", tenure + 1)]);
    }
    tree.play([
        ready(0, 4, 100),
        Event::Reaped(100, LEFT),
        forked(0, 5, 100),
    ]);
    let actions = tree.step(Event::Reaped(100, Exit::Code(4)));
    let again = "error: worker 0 (100) exited with code 4 while booting, \
                 failure 1 in a row; next try in 100 ms";
    assert_eq!(
        actions.last().map(String::as_str),
        Some(again),
        "one that was ready starts it over"
    );
}

#[test]
fn workers_that_die_together_are_one_failure() {
    let mut tree = Tree::loaded();
    tree.play([
        forked(0, 1, 100),
        forked(1, 1, 101),
        Event::Reaped(100, KILLED),
    ]);
    tree.play([Event::Reaped(101, KILLED)]);
    tree.expect_tick_after(100, &["template 1: fork 0/2", "template 1: fork 1/2"]);
}

#[test]
fn what_the_kernel_refuses_to_fork_is_tried_again() {
    let mut tree = Tree::new(PLAN);
    tree.play([Event::Started]);
    tree.expect(Event::AcceptorForked(None), &[]);
    tree.expect(
        Event::TemplateForked {
            generation: 1,
            pid: None,
        },
        &[],
    );
    tree.expect_tick_after(100, &["fork acceptor", "fork template 1"]);
    tree.play([
        Event::AcceptorForked(Some(ACCEPTOR)),
        Event::TemplateForked {
            generation: 1,
            pid: None,
        },
    ]);
    tree.expect_tick_after(200, &["fork template 1"]);
    tree.play([
        Event::TemplateForked {
            generation: 1,
            pid: Some(TEMPLATE),
        },
        template_ready(1),
    ]);
    tree.expect(
        not_forked(0, 1),
        &["error: worker 0 could not be forked; next try in 100 ms"],
    );
    tree.expect_tick_after(100, &["template 1: fork 0/2"]);
}
