//! Every situation and every kind of event, in `situations.txt`: what is not in the table does nothing.

use std::collections::BTreeMap;

use super::*;

const TABLE: &str = include_str!("situations.txt");

const SITUATIONS: [(&str, Situation); 13] = [
    ("booting", Tree::booting),
    ("loaded", Tree::loaded),
    ("serving", Tree::serving),
    ("building", Tree::building),
    ("retiring", Tree::retiring),
    ("taking over", Tree::taking_over),
    ("upgrading", Tree::upgrading),
    ("handed over", Tree::handed_over),
    ("handing over", Tree::handing_over),
    ("lame duck", Tree::lame_duck),
    ("draining", Tree::draining),
    ("stopping", Tree::stopping),
    ("gone", Tree::gone),
];

fn every_event() -> Vec<(String, MasterEvent)> {
    let mut events: Vec<(String, MasterEvent)> = [
        ("tick", TICK),
        ("TERM", signal(SIGTERM)),
        ("INT", signal(SIGINT)),
        ("QUIT", signal(SIGQUIT)),
        ("HUP", signal(SIGHUP)),
        ("USR1", signal(SIGUSR1)),
        ("USR2", signal(SIGUSR2)),
        ("WINCH", signal(SIGWINCH)),
        ("TTIN", signal(SIGTTIN)),
        ("TTOU", signal(SIGTTOU)),
        ("asked to scale to 1", ask_as(8, Command::Scale(1))),
        ("asked to scale to 4", ask_as(8, Command::Scale(4))),
        ("asked to reload", ask_as(8, Command::Reload)),
        ("asked to upgrade", ask_as(8, Command::Upgrade)),
        ("asked to drain", ask_as(8, Command::Drain)),
        ("asked for stacks", ask_as(8, Command::Dump)),
        ("stranger left", reaped(999, LEFT)),
        ("heir started", MasterEvent::HeirStarted(Some(51))),
        ("heir not started", MasterEvent::HeirStarted(None)),
        ("heir ready", MasterEvent::HeirReady),
        ("predecessor gone", MasterEvent::PredecessorGone),
        ("heir left", reaped(HEIR, LEFT)),
        ("heir ended", MasterEvent::HeirEnded(HEIR)),
        ("generation 2 built", built(2, PLAN)),
        ("generation 2 not built", not_built(2)),
    ]
    .map(|(name, event)| (name.to_owned(), event))
    .into();
    for generation in [1, 2] {
        let of_generation = [
            ("acceptor forked", acceptor_forked(generation, Some(15))),
            ("acceptor not forked", acceptor_forked(generation, None)),
            ("acceptor ready", acceptor_ready(generation)),
            ("acceptor retired", retired(generation)),
            ("acceptor killed", reaped(acceptor(generation), KILLED)),
            ("acceptor left", reaped(acceptor(generation), LEFT)),
            ("template forked", template_forked(generation, Some(16))),
            ("template not forked", template_forked(generation, None)),
            ("template ready", template_ready(generation)),
            ("template not for workers", not_for_workers(generation)),
            ("template killed", reaped(template(generation), KILLED)),
            (
                "worker there",
                here(generation, 0, 1, worker(generation, 0)),
            ),
            ("worker not forked", not_forked(generation, 0, 1)),
            ("worker ready", ready(generation, 0, 1)),
            ("worker killed", reaped(worker(generation, 0), KILLED)),
            ("worker left", reaped(worker(generation, 0), LEFT)),
            ("late there", here(generation, 0, 9, 109)),
            ("late not forked", not_forked(generation, 0, 9)),
            ("late ready", ready(generation, 0, 9)),
            ("worker silent", silent(generation, 0, 1)),
            ("late silent", silent(generation, 0, 9)),
            ("replace", replace(generation, 0, 1)),
            ("replace late", replace(generation, 0, 9)),
            ("due", due(generation, 0, 1)),
            ("due late", due(generation, 0, 9)),
            ("dumped", dumped(generation, 0, 1)),
            ("changed", changed(generation)),
            ("overdue", overdue(generation, 0, false)),
            ("overdue stranger", overdue(generation, 2, false)),
            ("memory fair", memory(generation, 0, 100)),
            ("memory much", memory(generation, 0, 101)),
            ("memory too much", memory(generation, 0, 201)),
            ("memory of a stranger", memory(generation, 2, 201)),
        ];
        events.extend(of_generation.map(|(name, event)| (format!("{generation}: {name}"), event)));
    }
    events
}

/// The rows of each situation: `event -> action | action`, below `[situation]` or
/// `[situation, as another but]`, which has the rows of that one that it has none for itself.
fn parse() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    let mut table: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut here = "";
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        if let Some(head) = line.strip_prefix('[') {
            let head = head.trim_end_matches(']');
            let (name, base) = head.split_once(", as ").unwrap_or((head, ""));
            let base = base.trim_end_matches(" but");
            here = name;
            let rows = if base.is_empty() {
                BTreeMap::new()
            } else {
                table[base].clone()
            };
            table.insert(name, rows);
        } else {
            let (event, actions) = line.split_once(" -> ").expect("a row");
            let rows = table.get_mut(here).expect("a situation");
            let inherited = rows.insert(event, actions);
            assert_ne!(inherited, Some(actions), "[{here}] {line} is so anyway");
        }
    }
    table
}

#[test]
fn every_event_in_every_situation() {
    let table = parse();
    let mut wrong = Vec::new();
    for (name, situation) in SITUATIONS {
        let rows = &table[name];
        let events = every_event();
        for row in rows.keys() {
            let known = events.iter().any(|(event, _)| event == row);
            assert!(known, "[{name}] no event is called {row:?}");
        }
        for (event, happened) in events {
            let expected = rows.get(event.as_str()).copied().unwrap_or("nothing");
            let actions = situation().step(happened);
            let actual = match actions.as_str() {
                "" => "nothing".to_owned(),
                some => some.replace('\n', " | "),
            };
            if actual != expected {
                wrong.push(format!("[{name}] {event} -> {actual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "these differ:\n{}", wrong.join("\n"));
    assert_eq!(table.len(), SITUATIONS.len());
}
