//! The interface by which the app is called, where the app is to decide it.

use super::*;

/// For an asynchronous app.
const ASGI: GenerationPlan = GenerationPlan {
    is_event_loop: true,
    ..GUESS
};

const AGAIN: &str = "info: the app is asynchronous (ASGI): the server starts again for it";

fn of_worker(generation_number: u32, index: u16) -> MasterEvent {
    worker_said(generation_number, index, 1, FromWorker::OtherInterface)
}

/// As serving, after the first import has found an asynchronous app.
fn serving_asgi() -> Tree {
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1), other_interface(1), built(2, ASGI)]);
    tree.play([reaped(template(1), BROKEN), reaped(acceptor(1), LEFT)]);
    tree.fork(2);
    tree.load(2);
    tree.fill(2, 2);
    tree
}

#[test]
fn nobody_comes_in_before_it_is_known_whether_the_app_can_be_called_like_this() {
    let mut tree = Tree::booting_with(GUESS);
    tree.expect(acceptor_ready(1), "acceptor 1: accept operators");
    tree.play([template_ready(1), here(1, 0, 1, 100), here(1, 1, 1, 101)]);
    tree.expect(
        ready(1, 0, 1),
        "acceptor 1: ready 0/1=100
         info: worker ready worker=0 pid=100 generation=1
         acceptor 1: accept",
    );
    tree.expect(
        ready(1, 1, 1),
        "acceptor 1: ready 1/1=101
         info: worker ready worker=1 pid=101 generation=1
         info: ready: 2 workers
         news: ready 2",
    );
    // Nor by an acceptor that comes up later.
    let mut tree = Tree::booting_with(GUESS);
    tree.play([template_ready(1)]);
    tree.fill(1, 1);
    tree.expect(acceptor_ready(1), "acceptor 1: accept");
}

#[test]
fn a_first_generation_for_the_wrong_interface_goes_and_another_one_is_the_server() {
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1)]);
    tree.expect(
        other_interface(1),
        &format!("{AGAIN}\nbuild 2 like 1 with template 11\nacceptor 1: quit"),
    );
    tree.expect(built(2, ASGI), "fork acceptor 2\nfork template 2");
    // That it ends is no failure, whatever its exit code.
    tree.expect(reaped(template(1), BROKEN), "");
    tree.fork(2);
    tree.expect(acceptor_ready(2), "acceptor 2: accept operators");
    tree.expect(reaped(acceptor(1), LEFT), "drop 1");
    tree.play([template_ready(2)]);
    tree.nearly_fill(2);
    tree.expect(
        ready(2, 1, 1),
        "acceptor 2: ready 1/1=201
         info: worker ready worker=1 pid=201 generation=2
         info: ready: 2 workers
         news: ready 2",
    );
}

#[test]
fn the_template_that_has_imported_the_app_may_come_along() {
    let with = |template| MasterEvent::GenerationBuilt {
        generation_number: 2,
        plan: Ok(ASGI),
        template: Some(template),
    };
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1), other_interface(1)]);
    tree.expect(with(11), "fork acceptor 2");
    tree.play([acceptor_forked(2, Some(20)), acceptor_ready(2)]);
    tree.expect(reaped(acceptor(1), LEFT), "drop 1");
    tree.expect(
        template_ready(2),
        "template 2: fork 0/1\ntemplate 2: fork 1/1",
    );
    // The template may have the app for itself alone.
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1), other_interface(1), with(11)]);
    tree.expect(
        not_for_workers(2),
        "template 2: become 0/1\nfork template 2 without the app",
    );
    // The server leaves meanwhile.
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1), other_interface(1), signal(SIGINT)]);
    tree.expect(with(11), "KILL 11\ndrop 2");
}

#[test]
fn a_worker_that_has_imported_the_app_by_itself_may_say_so_too_and_the_others_are_not_heard() {
    let mut tree = Tree::loaded_with(GUESS);
    tree.play([here(1, 0, 1, 100), here(1, 1, 1, 101)]);
    tree.expect(
        of_worker(1, 1),
        &format!("{AGAIN}\nbuild 2 like 1\nacceptor 1: quit\nKILL 11\nTERM 100\nTERM 101"),
    );
    tree.play([built(2, ASGI)]);
    tree.expect(of_worker(1, 0), "");
    for pid in [100, 101] {
        let actions = tree.step(reaped(pid, BROKEN));
        assert!(!actions.contains("leaves"), "{actions}");
    }
}

#[test]
fn workers_wanted_by_hand_are_wanted_of_the_second_generation_too() {
    let mut tree = Tree::booting_with(GUESS);
    tree.play([signal(SIGTTIN), other_interface(1), built(2, ASGI)]);
    tree.fork(2);
    let actions = tree.step(template_ready(2));
    assert_eq!(actions.lines().count(), 3, "{actions}");
}

#[test]
fn an_app_that_is_something_else_at_each_import_is_not_followed_for_ever() {
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1), other_interface(1), built(2, ASGI)]);
    tree.fork(2);
    tree.expect_among(
        other_interface(2),
        "error: the app is asynchronous at one import and a WSGI app at the next: say what it is by --interface: \
         the server leaves
         news: stopping
         KILL 21",
    );
    for pid in [10, 11, 21] {
        tree.play([reaped(pid, BROKEN)]);
    }
    tree.expect(reaped(20, LEFT), "drop 2\nexit 4");
}

#[test]
fn what_the_operator_has_said_no_child_can_change() {
    let mut tree = Tree::booting();
    tree.expect(other_interface(1), "");
    let mut tree = Tree::loaded();
    tree.play([here(1, 0, 1, 100)]);
    tree.expect(of_worker(1, 0), "");
}

#[test]
fn a_server_whose_app_has_changed_is_to_be_reloaded_and_that_is_said_once() {
    let mut tree = Tree::serving_with(GUESS);
    tree.play([reaped(100, KILLED), here(1, 0, 2, 102)]);
    let said = || worker_said(1, 0, 2, FromWorker::OtherInterface);
    tree.expect(
        said(),
        "error: the app has become asynchronous (ASGI) since it was loaded: reload the server",
    );
    tree.expect(said(), "");
    let mut tree = serving_asgi();
    tree.expect(other_interface(2), "");
    tree.play([reaped(template(2), KILLED), template_forked(2, Some(22))]);
    tree.expect(
        other_interface(2),
        "error: the app has become a WSGI app since it was loaded: reload the server",
    );
}

#[test]
fn a_worker_that_was_to_leave_before_it_was_ready_is_none_that_serves() {
    let mut tree = Tree::loaded_with(GUESS);
    tree.play([here(1, 0, 1, 100), here(1, 1, 1, 101), signal(SIGTTOU)]);
    tree.expect(ready(1, 1, 1), "TERM 101");
    tree.expect_among(of_worker(1, 0), "build 2 like 1");
}

#[test]
fn what_one_worker_serves_no_other_one_can_stop() {
    let mut tree = Tree::loaded_with(GUESS);
    tree.nearly_fill(1);
    tree.expect(
        of_worker(1, 1),
        "error: the app has become asynchronous (ASGI) since it was loaded: reload the server",
    );
    tree.expect(of_worker(1, 1), "");
    tree.expect_among(reaped(101, BROKEN), "acceptor 1: gone 1/1");
    assert!(tree.due_in_ms().is_some(), "another one is forked");
}

#[test]
fn a_reload_brings_an_app_of_the_other_kind_and_the_next_one_takes_it_for_that() {
    let mut tree = Tree::serving_with(GUESS);
    tree.play([ask(Command::Reload), built(2, GUESS)]);
    tree.fork(2);
    tree.expect(
        other_interface(2),
        "info: the app is asynchronous (ASGI): the reload starts again for it
         build 3 like 2 with template 21
         acceptor 2: quit",
    );
    tree.play([built(3, ASGI), reaped(21, BROKEN), reaped(20, LEFT)]);
    tree.fork(3);
    tree.load(3);
    tree.nearly_fill(3);
    tree.expect_among(
        ready(3, 1, 1),
        "acceptor 3: accept
         acceptor 1: retire 5000
         news: promoted 3",
    );
    // And back again.
    let mut tree = serving_asgi();
    tree.play([signal(SIGHUP), built(3, ASGI)]);
    tree.fork(3);
    tree.expect_among(
        other_interface(3),
        "info: the app is a WSGI app: the reload starts again for it
         build 4 like 3 with template 31",
    );
}

#[test]
fn a_second_generation_that_cannot_be_made_is_as_bad_as_a_first_one() {
    let mut tree = Tree::booting_with(GUESS);
    tree.play([acceptor_ready(1), other_interface(1)]);
    tree.expect_among(
        not_built(2),
        "error: bind: the address is taken: the server leaves\nnews: stopping",
    );
    let mut tree = Tree::serving_with(GUESS);
    tree.play([ask(Command::Reload), built(2, GUESS)]);
    tree.fork(2);
    tree.play([other_interface(2)]);
    tree.expect(
        not_built(3),
        "error: reload failed: bind: the address is taken; generation 1 goes on serving
         news: not reloaded 1
         reply 7: error: reload failed: bind: the address is taken; generation 1 goes on serving",
    );
}

#[test]
fn a_new_master_whose_app_is_asynchronous_shares_the_doors_with_the_old_one_until_it_serves() {
    let mut tree = Tree::heir_with(GUESS, Some(1));
    tree.expect(acceptor_ready(1), "acceptor 1: shared true");
    tree.play([other_interface(1), built(2, ASGI)]);
    tree.fork(2);
    tree.expect(acceptor_ready(2), "acceptor 2: shared true");
    tree.play([template_ready(2), here(2, 0, 1, 200)]);
    tree.expect_among(
        ready(2, 0, 1),
        "acceptor 2: accept\ninfo: ready: 1 worker\nnews: ready 1",
    );
}

#[test]
fn who_is_told_to_leave_makes_no_second_generation() {
    for number in [SIGTERM, SIGINT] {
        let mut tree = Tree::booting_with(GUESS);
        tree.play([acceptor_ready(1), signal(number)]);
        tree.expect(other_interface(1), "");
    }
}
