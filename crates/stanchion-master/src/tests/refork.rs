//! A worker becomes the template, and the template before goes on until no worker of its own is left, or if anything fails.

use super::*;
use crate::generation::Generation;
use crate::refork::REFORKS_MAX;
use crate::stage::WorkerStage;

const REFORK: Command = Command::Refork { worker: Some(0) };

/// The worker that becomes the template.
const NEXT: i32 = 100;

const GIVEN_UP: &str =
    "the re-fork from worker 0 (100) is given up, and the template before it goes on";

fn other_said(pid: i32, said: FromTemplate) -> MasterEvent {
    MasterEvent::OfGeneration(1, GenerationEvent::OtherTemplateSaid { pid, said })
}

fn next_ready() -> MasterEvent {
    other_said(NEXT, FromTemplate::Ready)
}

fn warm(index: u16) -> MasterEvent {
    worker_said(1, index, 1, FromWorker::Warm { requests: 50 })
}

/// Worker 0 ends its requests.
fn becoming() -> Tree {
    let mut tree = Tree::serving();
    tree.play([ask(REFORK)]);
    tree
}

/// Worker 0 is the template, and its first fork is asked for.
fn proving() -> Tree {
    let mut tree = becoming();
    tree.play([next_ready()]);
    tree
}

/// That fork serves, and the successor of worker 1 is asked for.
fn replacing() -> Tree {
    let mut tree = proving();
    tree.play([here(1, 0, 2, 110), ready(1, 0, 2)]);
    tree
}

#[test]
fn all_workers_are_forks_of_it_in_the_end() {
    let mut tree = Tree::serving();
    tree.expect(
        ask(REFORK),
        "info: re-fork: worker 0 (100) ends its requests, and becomes the template
         offer 1:0/1=100
         TERM 100",
    );
    // Its place is not given to another worker.
    tree.expect(TICK, "");
    tree.expect(
        next_ready(),
        "vacate 1:0
         acceptor 1: gone 0/1
         news: gone 0=100 refork
         info: re-fork: worker 0 (100) is the template, and a worker that it forks has to answer a request
         swap templates 1
         template 1: fork 0/2 canary",
    );
    tree.expect(here(1, 0, 2, 110), "");
    tree.expect(
        ready(1, 0, 2),
        "acceptor 1: ready 0/2=110
         info: worker ready worker=0 pid=110 generation=1
         info: re-fork: the app has answered in the first worker of the new template, and the other workers are replaced one at a time
         info: worker 1 (101) is to be replaced: it is no fork of the new template (re-fork)
         template 1: fork 2/1 nr=1",
    );
    tree.play([here(1, 2, 1, 112)]);
    tree.expect_among(ready(1, 2, 1), "TERM 101");
    tree.expect(
        reaped(101, LEFT),
        "vacate 1:1
         acceptor 1: gone 1/1
         news: gone 1=101 refork
         KILL 11
         drop other template 1
         info: re-forked: 2 workers from the template that was worker 0 (100)
         reply 7: ok: re-forked: 2 workers",
    );
    tree.expect_among(
        ask_as(8, REFORK),
        "reply 8: error: there is no re-fork: one is under way",
    );
    tree.expect(reaped(11, KILLED), "");
    assert_eq!(tree.due_in_ms(), None);
    // From now on it is the template, as any other.
    tree.expect(
        reaped(NEXT, KILLED),
        "warning: the template was killed by SIGKILL; another one is started\nfork template 1",
    );
}

#[test]
fn the_client_is_told_why_there_is_none() {
    let not_for_threads = || {
        Tree::serving_with(GenerationPlan {
            refork: ReforkPlan::Never("an event loop"),
            ..PLAN
        })
    };
    let not_preloaded = || {
        let mut tree = Tree::booting();
        tree.play([
            acceptor_ready(1),
            not_for_workers(1),
            template_forked(1, Some(12)),
            template_ready(1),
            ready(1, 0, 1),
            here(1, 1, 1, 101),
            ready(1, 1, 1),
        ]);
        tree
    };
    let alone = || Tree::serving_with(GenerationPlan { workers: 1, ..PLAN });
    let without_template = || {
        let mut tree = Tree::serving();
        tree.play([reaped(11, KILLED)]);
        tree
    };
    let without_worker = || {
        let mut tree = Tree::serving();
        tree.play([reaped(100, KILLED), reaped(101, KILLED)]);
        tree
    };
    let table: [(&str, Situation); 8] = [
        ("an event loop", not_for_threads),
        (
            "the import of the app has left what does not survive a fork: an earlier warning names it",
            not_preloaded,
        ),
        ("a single worker shares its memory with no other one", alone),
        ("one is under way", becoming),
        ("one is under way", replacing),
        (
            "no template is ready that could go on if it failed",
            without_template,
        ),
        (
            "no worker serves that could become the template",
            without_worker,
        ),
        ("nothing serves yet", Tree::loaded),
    ];
    for (why, situation) in table {
        situation().expect(
            ask_as(8, REFORK),
            &format!(
                "warning: there is no re-fork: {why}\nreply 8: error: there is no re-fork: {why}"
            ),
        );
    }
    // Another worker serves than the one that had served most.
    let mut tree = Tree::serving();
    tree.play([reaped(100, KILLED)]);
    tree.expect_among(ask_as(8, REFORK), "offer 1:1/1=101\nTERM 101");
    Tree::draining().expect(
        ask_as(8, REFORK),
        "warning: ctl: not while the server leaves\nreply 8: error: ctl: not while the server leaves",
    );
}

#[test]
fn the_worker_says_what_keeps_it_from_being_the_template() {
    let mut tree = becoming();
    let reason = "has 1 thread: \"pump\"".to_owned();
    tree.expect(
        other_said(NEXT, FromTemplate::Unfit { reason }),
        &format!(
            "warning: {GIVEN_UP}: the worker has 1 thread: \"pump\"
             reply 7: error: {GIVEN_UP}: the worker has 1 thread: \"pump\"
             drop other template 1
             template 1: fork 2/1 nr=0"
        ),
    );
    tree.expect_among(reaped(NEXT, LEFT), "vacate 1:0");
    tree.expect_among(ask_as(8, Command::Refork { worker: Some(1) }), "TERM 101");
}

/// The events, and what follows from the last of them among else.
type Failure = (&'static str, Situation, Vec<MasterEvent>, &'static str);

#[test]
fn whatever_fails_the_template_before_goes_on() {
    let killed = |pid| vec![reaped(pid, KILLED)];
    let table: [Failure; 10] = [
        (
            "the worker has ended, or is wanted no more",
            becoming,
            killed(NEXT),
            "template 1: fork 0/2",
        ),
        (
            "the template has ended",
            becoming,
            killed(11),
            "fork template 1",
        ),
        (
            "the new template was killed by SIGKILL",
            proving,
            killed(NEXT),
            "swap templates 1\ndrop other template 1",
        ),
        (
            "the new template was killed by SIGKILL",
            replacing,
            killed(NEXT),
            "swap templates 1\ndrop other template 1",
        ),
        (
            "a worker that it forked did not boot, as the lines above say",
            proving,
            vec![here(1, 0, 2, 110), reaped(110, Exit::Code(3))],
            "KILL 100\nswap templates 1\ndrop other template 1",
        ),
        (
            "a worker that it forked did not boot, as the lines above say",
            proving,
            vec![not_forked(1, 0, 2)],
            "KILL 100\nswap templates 1\ndrop other template 1",
        ),
        (
            "a worker that it forked did not boot, as the lines above say",
            replacing,
            vec![here(1, 2, 1, 112), reaped(112, KILLED)],
            "KILL 100\nswap templates 1\ndrop other template 1",
        ),
        (
            "fewer than two workers are wanted",
            proving,
            vec![signal(SIGTTOU)],
            "KILL 100\nswap templates 1\ndrop other template 1",
        ),
        (
            "the generation leaves",
            becoming,
            vec![signal(SIGTERM)],
            "drop other template 1",
        ),
        (
            "the generation leaves",
            replacing,
            vec![signal(SIGINT)],
            "KILL 100\nswap templates 1\ndrop other template 1\nKILL 11",
        ),
    ];
    for (why, situation, mut events, after) in table {
        let mut tree = situation();
        let last = events.pop().expect("at least one");
        tree.play(events);
        tree.expect_among(
            last,
            &format!("warning: {GIVEN_UP}: {why}\nreply 7: error: {GIVEN_UP}: {why}\n{after}"),
        );
    }
}

#[test]
fn a_step_that_does_not_end_is_given_up_at_its_bound() {
    let table: [(Situation, u64, &str); 3] = [
        (
            becoming,
            65_000,
            "the worker was not ready to fork 60 s after graceful_timeout: a request, the hook worker_exit or a destructor does not end",
        ),
        (
            proving,
            60_000,
            "no worker that it forked was ready within 60 s: a hook for workers does not end",
        ),
        (
            replacing,
            60_000,
            "the new template does not fork what it is asked for",
        ),
    ];
    for (situation, wait_ms, why) in table {
        let mut tree = situation();
        assert_eq!(tree.due_in_ms(), Some(wait_ms), "{why}");
        tree.now_ms += wait_ms;
        tree.expect_among(TICK, &format!("reply 7: error: {GIVEN_UP}: {why}"));
    }
}

#[test]
fn a_worker_that_does_not_end_its_requests_is_killed() {
    let mut tree = becoming();
    tree.now_ms += 65_000;
    tree.expect_among(
        TICK,
        "drop other template 1
         warning: worker 0 (100) did not leave in time and is killed
         KILL 100",
    );
}

#[test]
fn a_canary_that_hangs_is_killed_and_its_successor_is_none() {
    let mut tree = proving();
    tree.play([here(1, 0, 2, 110)]);
    tree.now_ms += 60_000;
    tree.expect_among(
        TICK,
        "KILL 110
         KILL 100
         swap templates 1
         drop other template 1
         template 1: fork 2/1 nr=0",
    );
    tree.expect_among(reaped(110, KILLED), "news: gone 0=110 boot");
    tree.expect(reaped(NEXT, KILLED), "");
}

#[test]
fn after_a_failure_workers_of_the_template_before_are_not_replaced_any_more() {
    let mut tree = Tree::serving_with(GenerationPlan {
        workers: 3,
        workers_max: 5,
        ..PLAN
    });
    tree.play([
        ask(REFORK),
        next_ready(),
        here(1, 0, 2, 110),
        ready(1, 0, 2),
        reaped(NEXT, KILLED),
    ]);
    // The successor of worker 1 was asked for: it comes from the other template, or is asked for again.
    tree.play([here(1, 3, 1, 113)]);
    tree.expect_among(ready(1, 3, 1), "TERM 101");
    let actions = tree.step(reaped(101, LEFT));
    assert!(!actions.contains("worker 2"), "{actions}");
}

#[test]
fn without_the_template_before_it_goes_on_and_a_failure_costs_an_import() {
    let mut tree = proving();
    tree.expect(
        reaped(11, KILLED),
        "drop other template 1
         warning: the template before the re-fork was killed by SIGKILL: if the new one fails, the app is imported again",
    );
    tree.play([here(1, 0, 2, 110), ready(1, 0, 2)]);
    tree.expect_among(reaped(NEXT, KILLED), "swap templates 1\nfork template 1");
}

#[test]
fn a_report_of_another_process_is_none() {
    let mut tree = becoming();
    for pid in [101, 11] {
        tree.expect(other_said(pid, FromTemplate::Ready), "");
    }
    tree.expect(ready(1, 0, 1), "");
    let mut tree = proving();
    tree.expect(next_ready(), "");
    // A worker of the template before that boots late is no canary.
    let mut tree = Tree::loaded();
    tree.fill(1, 2);
    tree.play([signal(SIGTTIN), ask(REFORK), next_ready()]);
    tree.play([here(1, 2, 1, 102)]);
    let actions = tree.step(ready(1, 2, 1));
    assert!(!actions.contains("re-fork"), "{actions}");
}

#[test]
fn the_first_worker_that_has_answered_so_many_requests_becomes_it_once() {
    let mut tree = Tree::serving_with(GenerationPlan {
        refork: ReforkPlan::AfterRequests,
        ..PLAN
    });
    // The one that has served for longest: a worker does not choose itself.
    tree.expect_among(warm(1), "offer 1:0/1=100\nTERM 100");
    tree.expect(warm(1), "");
    tree.play([reaped(100, KILLED)]);
    tree.expect(warm(1), "");
    // No setting asks for it, or the generation does not serve.
    Tree::serving().expect(warm(0), "");
    let mut tree = Tree::serving_with(GenerationPlan {
        refork: ReforkPlan::AfterRequests,
        ..PLAN
    });
    tree.play([reaped(11, KILLED)]);
    tree.expect(
        warm(0),
        "warning: there is no re-fork after 50 requests (refork_after): no template is ready that could go on if it failed",
    );
}

#[test]
fn the_number_of_templates_that_follow_each_other_so_is_bounded() {
    let mut tree = Tree::serving();
    let mut epochs = [1, 1, 0];
    for nth in 0..REFORKS_MAX {
        let template = tree.master.generation(1).and_then(Generation::template_pid);
        let workers = &tree.master.generation(1).expect("it serves").workers;
        let one = workers.present().next().expect("a worker");
        let worker = Some(one.worker.index);
        tree.play([
            ask_as(u64::from(nth), Command::Refork { worker }),
            other_said(one.pid, FromTemplate::Ready),
        ]);
        // Each worker that is asked for serves, and each that is asked to leave does.
        for pid in 1_000 * (i32::from(nth) + 1).. {
            let workers = &tree.master.generation(1).expect("it serves").workers;
            let asked = workers.all().find(|one| one.pid.is_none());
            let leaves = workers.all().find(|one| one.stage == WorkerStage::Leaving);
            if let Some(index) = asked.map(|one| one.index) {
                epochs[usize::from(index)] += 1;
                let epoch = epochs[usize::from(index)];
                tree.play([here(1, index, epoch, pid), ready(1, index, epoch)]);
            } else if let Some(old) = leaves.and_then(|one| one.pid) {
                tree.play([reaped(old, LEFT)]);
            } else {
                break;
            }
        }
        tree.play([reaped(template.expect("a template"), KILLED)]);
    }
    let why = format!("there were {REFORKS_MAX}, and no more follow before a reload");
    tree.expect(
        ask_as(1_000, REFORK),
        &format!(
            "warning: there is no re-fork: {why}\nreply 1000: error: there is no re-fork: {why}"
        ),
    );
}

#[test]
fn a_worker_that_is_to_leave_meanwhile_is_no_template() {
    let mut tree = Tree::serving_with(GenerationPlan { workers: 3, ..PLAN });
    tree.play([ask(REFORK), signal(SIGTTOU)]);
    let actions = tree.step(next_ready());
    let why = "the worker has ended, or is wanted no more";
    assert!(actions.contains(&format!("{GIVEN_UP}: {why}")), "{actions}");
    assert!(!actions.contains("swap templates"), "{actions}");
}

#[test]
fn a_worker_that_becomes_the_template_hears_the_masters_term_again() {
    // The kernel merged the master's TERM with an operator's.
    let terminated = || worker_said(1, 0, 1, FromWorker::Terminated);
    let mut tree = becoming();
    tree.expect(terminated(), "TERM 100");
    tree.expect(terminated(), "");
}

#[test]
fn a_worker_that_is_to_be_the_template_says_nothing_about_forks() {
    let said = || FromTemplate::NotForked(WorkerRef { index: 1, epoch: 2 });
    for (mut tree, is_heard) in [(becoming(), false), (proving(), true)] {
        tree.play([reaped(101, KILLED)]);
        let actions = tree.step(other_said(NEXT, said()));
        assert_eq!(actions.contains("could not"), is_heard, "{actions}");
    }
}

#[test]
fn a_single_worker_is_no_template_until_there_are_more() {
    let mut tree = Tree::serving_with(GenerationPlan {
        workers: 1,
        elastic_max: Some(4),
        refork: ReforkPlan::AfterRequests,
        ..PLAN
    });
    tree.expect(warm(0), "");
    let why = "9 requests wait".to_owned();
    tree.play([acceptor_said(1, FromAcceptor::Want { workers: 2, why })]);
    tree.play([here(1, 1, 1, 101), ready(1, 1, 1)]);
    tree.expect_among(warm(1), "offer 1:0/1=100\nTERM 100");
}

#[test]
fn no_worker_is_given_up_while_one_is_away_for_a_re_fork() {
    let want = |workers| {
        let why = "one was not needed".to_owned();
        acceptor_said(1, FromAcceptor::Want { workers, why })
    };
    let mut tree = Tree::serving_with(GenerationPlan {
        workers: 1,
        elastic_max: Some(4),
        ..PLAN
    });
    tree.play([want(2), here(1, 1, 1, 101), ready(1, 1, 1), ask(REFORK)]);
    let actions = tree.step(want(1));
    assert!(!actions.contains("TERM"), "{actions}");
    tree.play([next_ready()]);
    let actions = tree.step(want(1));
    assert!(!actions.contains("TERM"), "{actions}");
}

#[test]
fn the_server_waits_for_the_end_of_each_template() {
    let mut tree = replacing();
    tree.play([signal(SIGINT)]);
    let last = [10, 11, 101, 110].map(|pid| reaped(pid, LEFT));
    tree.play(last);
    // The worker that was asked for does not come.
    tree.expect(silent(1, 2, 1), "");
    tree.expect(reaped(NEXT, KILLED), "drop 1\nexit 0");
}
