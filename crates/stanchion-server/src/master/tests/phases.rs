//! Every phase and every kind of event: what is not in the table does nothing.

use stanchion_sys::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1};

use super::*;

fn every_event() -> Vec<(&'static str, Event)> {
    let template = |generation, pid| Event::TemplateForked { generation, pid };
    vec![
        ("started", Event::Started),
        ("tick", Event::Tick),
        ("TERM", Event::Signal(SIGTERM)),
        ("INT", Event::Signal(SIGINT)),
        ("QUIT", Event::Signal(SIGQUIT)),
        ("HUP", Event::Signal(SIGHUP)),
        ("TTIN", Event::Signal(SIGTTIN)),
        ("TTOU", Event::Signal(SIGTTOU)),
        ("USR1", Event::Signal(SIGUSR1)),
        ("CHLD", Event::Signal(SIGCHLD)),
        ("acceptor killed", Event::Reaped(ACCEPTOR, KILLED)),
        ("acceptor left", Event::Reaped(ACCEPTOR, LEFT)),
        ("template killed", Event::Reaped(TEMPLATE, KILLED)),
        ("next killed", Event::Reaped(NEXT, KILLED)),
        ("worker killed", Event::Reaped(WORKERS[0], KILLED)),
        ("worker left", Event::Reaped(WORKERS[0], LEFT)),
        ("stranger left", Event::Reaped(999, LEFT)),
        ("acceptor forked", Event::AcceptorForked(Some(20))),
        ("acceptor not forked", Event::AcceptorForked(None)),
        ("template forked", template(1, Some(21))),
        ("template not forked", template(1, None)),
        ("next forked", template(2, Some(22))),
        ("next not forked", template(2, None)),
        ("acceptor ready", Event::Report(ToMaster::AcceptorReady)),
        ("template ready", template_ready(1)),
        ("next ready", template_ready(2)),
        ("worker forked", forked(0, 1, WORKERS[0])),
        ("worker not forked", not_forked(0, 1)),
        ("worker ready", ready(0, 1, WORKERS[0])),
        ("late forked", forked(0, 9, 109)),
        ("late not forked", not_forked(0, 9)),
        ("late ready", ready(0, 9, 109)),
        (
            "replace",
            Event::Report(ToMaster::Replace {
                worker: 0,
                tenure: 1,
            }),
        ),
        (
            "replace late",
            Event::Report(ToMaster::Replace {
                worker: 0,
                tenure: 9,
            }),
        ),
        ("changed", changed()),
        (
            "overdue",
            Event::Overdue {
                worker: 0,
                ran_ms: 30_042,
            },
        ),
        (
            "overdue stranger",
            Event::Overdue {
                worker: 2,
                ran_ms: 30_042,
            },
        ),
    ]
}

/// What each event leads to.
type Rows = &'static [(&'static str, &'static [&'static str])];

fn check(situation: impl Fn() -> Tree, rows: Rows) {
    let events = every_event();
    for (name, _) in rows {
        assert!(
            events.iter().any(|(event, _)| event == name),
            "no event is called {name}"
        );
    }
    let mut wrong = Vec::new();
    for (name, event) in events {
        let row = rows.iter().find(|(row, _)| *row == name);
        let expected = row.map_or(&[][..], |(_, actions)| actions);
        let actions = situation().step(event);
        if actions != expected {
            wrong.push(format!("(\"{name}\", &{actions:#?}),"));
        }
    }
    assert!(wrong.is_empty(), "these differ:\n{}", wrong.join("\n"));
}

#[test]
fn booting() {
    check(Tree::booting, BOOTING);
}

#[test]
fn loaded() {
    check(Tree::loaded, LOADED);
}

#[test]
fn serving() {
    check(Tree::serving, SERVING);
}

#[test]
fn reloading() {
    check(Tree::reloading, RELOADING);
}

#[test]
fn draining() {
    check(Tree::draining, DRAINING);
}

#[test]
fn stopping() {
    check(Tree::stopping, STOPPING);
}

#[test]
fn gone() {
    check(Tree::gone, &[]);
}

const BOOTING: Rows = &[
    (
        "TERM",
        &["info: TERM: draining, then leaving", "acceptor: drain 5000"],
    ),
    (
        "INT",
        &["info: leaving at once", "acceptor: quit", "KILL 11"],
    ),
    (
        "QUIT",
        &["info: leaving at once", "acceptor: quit", "KILL 11"],
    ),
    (
        "HUP",
        &[
            "info: reload: loading the app anew, generation 2",
            "fork template 2",
        ],
    ),
    ("TTIN", &["info: TTIN: 3 workers"]),
    ("TTOU", &["info: TTOU: 1 workers"]),
    ("USR1", &["warning: signal 10 is not handled now"]),
    (
        "acceptor killed",
        &[
            "error: the acceptor was killed by SIGKILL before it was ready",
            "KILL 11",
        ],
    ),
    (
        "acceptor left",
        &[
            "error: the acceptor exited with code 0 before it was ready",
            "KILL 11",
        ],
    ),
    (
        "template killed",
        &[
            "error: the app could not be loaded: the template was killed by SIGKILL",
            "acceptor: quit",
        ],
    ),
    ("acceptor forked", &["KILL 20"]),
    ("template forked", &["KILL 21"]),
    ("next forked", &["KILL 22"]),
    (
        "template ready",
        &["template 1: fork 0/1", "template 1: fork 1/1"],
    ),
    ("worker forked", &["KILL 100"]),
    ("worker ready", &["KILL 100"]),
    ("late forked", &["KILL 109"]),
    ("late ready", &["KILL 109"]),
    (
        "changed",
        &[
            "info: reload: loading the app anew, generation 2",
            "fork template 2",
        ],
    ),
];

const LOADED: Rows = &[
    (
        "TERM",
        &["info: TERM: draining, then leaving", "acceptor: drain 5000"],
    ),
    (
        "INT",
        &["info: leaving at once", "acceptor: quit", "KILL 11"],
    ),
    (
        "QUIT",
        &["info: leaving at once", "acceptor: quit", "KILL 11"],
    ),
    (
        "HUP",
        &[
            "info: reload: loading the app anew, generation 2",
            "fork template 2",
        ],
    ),
    ("TTIN", &["info: TTIN: 3 workers", "template 1: fork 2/1"]),
    ("TTOU", &["info: TTOU: 1 workers"]),
    ("USR1", &["warning: signal 10 is not handled now"]),
    (
        "acceptor killed",
        &[
            "error: the acceptor was killed by SIGKILL; its connections are lost, another one is started",
            "fork acceptor",
        ],
    ),
    (
        "acceptor left",
        &[
            "error: the acceptor exited with code 0; its connections are lost, another one is started",
            "fork acceptor",
        ],
    ),
    (
        "template killed",
        &["error: the template was killed by SIGKILL while forking; next try in 100 ms"],
    ),
    ("acceptor forked", &["KILL 20"]),
    ("template forked", &["KILL 21"]),
    ("next forked", &["KILL 22"]),
    (
        "worker not forked",
        &["error: worker 0 could not be forked; next try in 100 ms"],
    ),
    (
        "worker ready",
        &[
            "acceptor: ready 0/1=100",
            "info: worker ready worker=0 pid=100 generation=1",
        ],
    ),
    ("late forked", &["KILL 109"]),
    ("late ready", &["KILL 109"]),
    (
        "changed",
        &[
            "info: reload: loading the app anew, generation 2",
            "fork template 2",
        ],
    ),
];

const SERVING: Rows = &[
    (
        "TERM",
        &["info: TERM: draining, then leaving", "acceptor: drain 5000"],
    ),
    (
        "INT",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    ),
    (
        "QUIT",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    ),
    (
        "HUP",
        &[
            "info: reload: loading the app anew, generation 2",
            "fork template 2",
        ],
    ),
    ("TTIN", &["info: TTIN: 3 workers", "template 1: fork 2/1"]),
    ("TTOU", &["info: TTOU: 1 workers", "TERM 101"]),
    ("USR1", &["warning: signal 10 is not handled now"]),
    (
        "acceptor killed",
        &[
            "error: the acceptor was killed by SIGKILL; its connections are lost, another one is started",
            "fork acceptor",
            "acceptor: ready 0/1=100",
            "acceptor: ready 1/1=101",
        ],
    ),
    (
        "acceptor left",
        &[
            "error: the acceptor exited with code 0; its connections are lost, another one is started",
            "fork acceptor",
            "acceptor: ready 0/1=100",
            "acceptor: ready 1/1=101",
        ],
    ),
    (
        "template killed",
        &[
            "warning: the template was killed by SIGKILL; another one is started",
            "fork template 1",
        ],
    ),
    (
        "worker killed",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Killed(9)",
            "warning: worker 0 (100) was killed by SIGKILL",
            "template 1: fork 0/2",
        ],
    ),
    (
        "worker left",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Left(0)",
            "template 1: fork 0/2",
        ],
    ),
    ("acceptor forked", &["KILL 20"]),
    ("template forked", &["KILL 21"]),
    ("next forked", &["KILL 22"]),
    ("late forked", &["KILL 109"]),
    ("late ready", &["KILL 109"]),
    (
        "replace",
        &[
            "error: worker 0 (100) is replaced: it wrote where it should not",
            "KILL 100",
        ],
    ),
    (
        "changed",
        &[
            "info: reload: loading the app anew, generation 2",
            "fork template 2",
        ],
    ),
    (
        "overdue",
        &[
            "error: worker 0 (100) is killed: a request has run for 30042 ms, past its timeout",
            "KILL 100",
        ],
    ),
];

const RELOADING: Rows = &[
    (
        "TERM",
        &["info: TERM: draining, then leaving", "acceptor: drain 5000"],
    ),
    (
        "INT",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "KILL 12",
            "TERM 100",
            "TERM 101",
        ],
    ),
    (
        "QUIT",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "KILL 12",
            "TERM 100",
            "TERM 101",
        ],
    ),
    (
        "HUP",
        &["info: reload: generation 2 is still loading, another one follows it"],
    ),
    ("TTIN", &["info: TTIN: 3 workers", "template 1: fork 2/1"]),
    ("TTOU", &["info: TTOU: 1 workers", "TERM 101"]),
    ("USR1", &["warning: signal 10 is not handled now"]),
    (
        "acceptor killed",
        &[
            "error: the acceptor was killed by SIGKILL; its connections are lost, another one is started",
            "fork acceptor",
            "acceptor: ready 0/1=100",
            "acceptor: ready 1/1=101",
        ],
    ),
    (
        "acceptor left",
        &[
            "error: the acceptor exited with code 0; its connections are lost, another one is started",
            "fork acceptor",
            "acceptor: ready 0/1=100",
            "acceptor: ready 1/1=101",
        ],
    ),
    (
        "template killed",
        &[
            "warning: the template was killed by SIGKILL; another one is started",
            "fork template 1",
        ],
    ),
    (
        "next killed",
        &[
            "error: reload failed: the new template was killed by SIGKILL; the old code goes on serving",
            "drop template 2",
        ],
    ),
    (
        "worker killed",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Killed(9)",
            "warning: worker 0 (100) was killed by SIGKILL",
            "template 1: fork 0/2",
        ],
    ),
    (
        "worker left",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Left(0)",
            "template 1: fork 0/2",
        ],
    ),
    ("acceptor forked", &["KILL 20"]),
    ("template forked", &["KILL 21"]),
    ("next forked", &["KILL 22"]),
    ("next ready", &["KILL 11", "drop template 1", "TERM 100"]),
    ("late forked", &["KILL 109"]),
    ("late ready", &["KILL 109"]),
    (
        "replace",
        &[
            "error: worker 0 (100) is replaced: it wrote where it should not",
            "KILL 100",
        ],
    ),
    (
        "changed",
        &["info: reload: generation 2 is still loading, another one follows it"],
    ),
    (
        "overdue",
        &[
            "error: worker 0 (100) is killed: a request has run for 30042 ms, past its timeout",
            "KILL 100",
        ],
    ),
];

const DRAINING: Rows = &[
    (
        "TERM",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    ),
    (
        "INT",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    ),
    (
        "QUIT",
        &[
            "info: leaving at once",
            "acceptor: quit",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    ),
    ("HUP", &["warning: signal 1 is not handled now"]),
    ("TTIN", &["warning: signal 21 is not handled now"]),
    ("TTOU", &["warning: signal 22 is not handled now"]),
    ("USR1", &["warning: signal 10 is not handled now"]),
    (
        "acceptor killed",
        &[
            "error: the acceptor was killed by SIGKILL while leaving; its connections are lost",
            "KILL 11",
            "TERM 100",
            "TERM 101",
        ],
    ),
    ("acceptor left", &["KILL 11", "TERM 100", "TERM 101"]),
    (
        "template killed",
        &[
            "warning: the template was killed by SIGKILL; another one is started",
            "fork template 1",
        ],
    ),
    (
        "worker killed",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Killed(9)",
            "warning: worker 0 (100) was killed by SIGKILL",
            "template 1: fork 0/2",
        ],
    ),
    (
        "worker left",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Left(0)",
            "template 1: fork 0/2",
        ],
    ),
    ("acceptor forked", &["KILL 20"]),
    ("template forked", &["KILL 21"]),
    ("next forked", &["KILL 22"]),
    ("late forked", &["KILL 109"]),
    ("late ready", &["KILL 109"]),
    (
        "replace",
        &[
            "error: worker 0 (100) is replaced: it wrote where it should not",
            "KILL 100",
        ],
    ),
    (
        "overdue",
        &[
            "error: worker 0 (100) is killed: a request has run for 30042 ms, past its timeout",
            "KILL 100",
        ],
    ),
];

const STOPPING: Rows = &[
    ("TERM", &["info: leaving already"]),
    ("INT", &["info: leaving already"]),
    ("QUIT", &["info: leaving already"]),
    ("HUP", &["warning: signal 1 is not handled now"]),
    ("TTIN", &["warning: signal 21 is not handled now"]),
    ("TTOU", &["warning: signal 22 is not handled now"]),
    ("USR1", &["warning: signal 10 is not handled now"]),
    (
        "acceptor killed",
        &["error: the acceptor was killed by SIGKILL while leaving; its connections are lost"],
    ),
    (
        "worker killed",
        &[
            "vacate 0",
            "acceptor: gone 0/1 Killed(9)",
            "warning: worker 0 (100) was killed by SIGKILL",
        ],
    ),
    ("worker left", &["vacate 0", "acceptor: gone 0/1 Left(0)"]),
    ("acceptor forked", &["KILL 20"]),
    ("template forked", &["KILL 21"]),
    ("next forked", &["KILL 22"]),
    ("worker ready", &["TERM 100"]),
    ("late forked", &["KILL 109"]),
    ("late ready", &["KILL 109"]),
    (
        "replace",
        &[
            "error: worker 0 (100) is replaced: it wrote where it should not",
            "KILL 100",
        ],
    ),
    (
        "overdue",
        &[
            "error: worker 0 (100) is killed: a request has run for 30042 ms, past its timeout",
            "KILL 100",
        ],
    ),
];
