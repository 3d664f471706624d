"""`stanchion ctl refork`, `--refork-after`: a worker that has served becomes the template, or nothing changes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import psutil
import pytest

from support.counts import Counts
from support.ctl import ctl
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import APPS, Serve, Server
from support.steady import Steady
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has no re-fork")

EXIT_FAILED, EXIT_USAGE = 1, 2

HOOKS = APPS / "reforking_hooks.conf.py"

GIVEN_UP = r"WARNING\] the re-fork from worker \d \(\d+\) is given up, and the template before it goes on: "

WORKERS = 3


@dataclass
class Reforking:
    """A server whose workers may become the template."""

    server: Server
    counts: Counts
    gate: Gate

    def template(self) -> int:
        """The only one. A worker has this name, too, for a moment after its fork."""
        templates = eventually(lambda: self._only(self.server.of_name("stanchion-tmpl")), "there is one template")
        return templates[0].pid

    @staticmethod
    def _only(found: list[psutil.Process]) -> list[psutil.Process]:
        return found if len(found) == 1 else []

    def workers(self) -> set[int]:
        return set(self.counts.ready_workers())

    def ask_all(self, path: str = "/") -> set[int]:
        """Ask until each worker has answered; gives their process ids."""
        seen = set[int]()

        def all_have_answered() -> set[int]:
            with self.server.connect() as wire:
                answer = wire.get(path)
            assert answer.status == 200, answer.text
            seen.add(int(answer.text))
            # A worker that is still to be replaced may have been there before.
            workers = self.workers()
            return workers if seen >= workers else set()

        return eventually(all_have_answered, "each worker has answered")

    def refork(self) -> CompletedProcess[str]:
        return ctl(self.counts.path, "refork")

    def hold(self, step: str) -> None:
        self._held().write_text(step)

    def let_go(self) -> None:
        self._held().unlink()

    def _held(self) -> Path:
        return Path(self.gate.environment["GATE"], "held")


@pytest.fixture
def reforking(serve: Serve, gate: Gate, tmp_path: Path) -> Callable[..., Reforking]:
    def start(*arguments: str, workers: str = f"{WORKERS}", **env: str) -> Reforking:
        counts = Counts(tmp_path / "ctl")
        words = ("reforking:app", "-w", workers, *counts.arguments, *arguments)
        return Reforking(serve(*words, env={**gate.environment, **env}), counts, gate)

    return start


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.privileges
def test_all_workers_become_forks_of_the_worker_that_has_served_most(
    reforking: Callable[..., Reforking], threads: str
) -> None:
    it = reforking("--threads", threads, "--warm-up", "/")
    first, before = it.template(), it.ask_all()
    with it.server.connect() as wire:
        warm = int(wire.get("/late").text)
        assert it.gate.announcement() == f"imported {warm}"
        for _ in range(100):
            wire.get("/")
    served = {worker["pid"]: worker["served"] for worker in it.counts.workers()}
    done = it.refork()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "re-forked: 3 workers\n"
    most = int(it.server.log.only(r"re-forked: 3 workers from the template that was worker \d \((\d+)\)")[1])
    # The last request may have been counted since.
    assert served[most] >= max(served.values()) - 1
    assert it.template() == most != first
    after = it.ask_all("/late")
    assert len(after) == WORKERS
    assert not after & before
    # Its forks have what it has imported.
    imported = {int(line.removeprefix("imported ")) for line in it.gate.announced()}
    assert imported == (set() if warm == most else after)
    assert sorted(worker["index"] for worker in it.counts.workers()) == [0, 1, 2]
    # A child that the app forks in one of them is no worker.
    with it.server.connect() as wire:
        assert wire.get("/forks").status == 200
    assert it.gate.announcement().startswith("forked ")
    eventually(lambda: it.server.names().count("stanchion-work") == WORKERS, "the child has ended")
    # The new template is one like any other.
    mark = it.server.log.mark()
    os.kill(after.pop(), signal.SIGKILL)
    it.server.log.wait("worker ready", mark)
    assert len(it.ask_all("/late")) == WORKERS
    os.kill(it.template(), signal.SIGKILL)
    it.server.log.wait("the template was killed by SIGKILL; another one is started", mark)
    eventually(lambda: it.server.of_name("stanchion-tmpl"), "another template is there")


def test_no_request_is_lost_while_workers_follow_each_other_as_the_template(
    reforking: Callable[..., Reforking],
) -> None:
    it = reforking()
    templates = [it.template()]
    with Steady(it.server.addresses) as load:
        for _ in range(3):
            load.more()
            # Of the second and third, the worker itself is the fork of a worker.
            assert it.refork().returncode == 0
            templates.append(it.template())
        load.more()
    load.assert_no_failure()
    assert len(set(templates)) == 4
    assert not it.server.log.matches("given up|ERROR")


def test_a_worker_that_becomes_the_template_ends_its_requests_first(reforking: Callable[..., Reforking]) -> None:
    it = reforking()
    with ExitStack() as stack:
        wires = [stack.enter_context(it.server.connect()) for _ in range(WORKERS)]
        for wire in wires:
            wire.send(request("GET", "/wait"))
        waiting = {int(line.removeprefix("waits ")) for line in it.gate.announcements(WORKERS)}
        command = begin(it)
        it.server.log.wait("ends its requests, and becomes the template")
        assert not it.server.log.matches("looks at what it would hand on")
        it.gate.let_pass(WORKERS)
        answers = [wire.response() for wire in wires]
    assert [answer.status for answer in answers] == [200] * WORKERS
    assert {int(answer.text) for answer in answers} == waiting
    assert ended(command) == 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        # A worker may have been asked twice.
        ("/thread", r'\d+ threads?: "pump"(, "pump")*, '),
        ("/connects", r"a connection to 127\.0\.0\.1:\d+ \(tcp\)(; a connection [^;]+)*, "),
        ("/database", r"the SQLite database /\S+/visits\.db(; the SQLite [^;]+)*, "),
        ("/listens", r"a socket that listens at 127\.0\.0\.1:\d+ \(tcp\)(; a socket [^;]+)*, "),
    ],
)
def test_a_worker_in_which_the_app_has_left_something_is_not_the_template(
    reforking: Callable[..., Reforking], peer: str, tmp_path: Path, path: str, reason: str
) -> None:
    it = reforking(PEER=peer, DATABASE=str(tmp_path / "visits.db"))
    template, before = it.template(), it.ask_all(path)
    done = it.refork()
    assert done.returncode == EXIT_FAILED
    it.server.log.only(
        rf"{GIVEN_UP}the worker has {reason}which its forks would lack or share: have the app end them in worker_exit"
    )
    assert "goes on: the worker has " in done.stderr
    eventually(lambda: len(it.workers()) == WORKERS, "it is replaced")
    assert it.template() == template
    assert len(it.workers() & before) == WORKERS - 1
    it.ask_all()


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        ("raises", r"the app has raised at GET /canary\n(.*\n)+.*ZeroDivisionError: of the canary"),
        ("503", r"the app has answered GET /canary with 503"),
        ("exits", ""),
        ("locks", r"the app has not answered GET /canary within 1 s; it may wait for a lock .*\n(.*\n)+.*with lock:"),
    ],
)
def test_a_canary_that_does_not_answer_ends_the_re_fork(
    reforking: Callable[..., Reforking], breaks: str, reason: str
) -> None:
    it = reforking("--warm-up", "/canary", "--timeout", "1")
    template = it.template()
    before = it.ask_all("/locks" if breaks == "locks" else f"/breaks?{breaks}")
    with Steady(it.server.addresses) as load:
        assert it.refork().returncode == EXIT_FAILED
        load.more()
    load.assert_no_failure()
    it.server.log.only(rf"{GIVEN_UP}a worker that it forked did not boot, as the lines above say")
    if reason:
        assert re.search(rf"worker \d, the first of a re-fork, does not serve: {reason}", it.server.log.text())
    eventually(lambda: len(it.workers()) == WORKERS, "it is replaced")
    assert it.template() == template
    assert len(it.workers() & before) == WORKERS - 1


NEXT, BEFORE, CANARY = "the next template", "the template before", "a worker that it forks"

STEPS = ("draining", "leaving", "collecting", "proving", "replacing")

IN_GATE = {
    ("draining", "HUP"),
    ("leaving", NEXT),
    ("collecting", "TERM"),
    ("collecting", BEFORE),
    ("proving", "USR2"),
    ("proving", NEXT),
    ("replacing", CANARY),
}
"""The others run at night."""

EVENTS = [
    (step, event)
    for step in STEPS
    for event in ("HUP", "USR2", "TERM", NEXT, BEFORE, CANARY)
    if event != CANARY or step in ("proving", "replacing")
]


@pytest.mark.parametrize(
    ("step", "event"),
    [one if one in IN_GATE else pytest.param(*one, marks=pytest.mark.large) for one in EVENTS],
)
def test_at_each_step_it_is_stopped_or_killed(reforking: Callable[..., Reforking], step: str, event: str) -> None:
    it = reforking("-c", str(HOOKS))
    before = it.template()
    with ExitStack() as stack:
        load = None
        if step == "draining":
            # Each worker has one, so whichever is chosen has it.
            wires = [stack.enter_context(it.server.connect()) for _ in range(WORKERS)]
            for wire in wires:
                wire.send(request("GET", "/wait"))
            it.gate.announcements(WORKERS)
        else:
            load = stack.enter_context(Steady(it.server.addresses, each=1))
            it.hold("forked" if step in ("proving", "replacing") else step)
        mark = it.server.log.mark()
        command = begin(it)
        said = it.server.log.wait(r"re-fork: worker \d \((\d+)\) ends its requests", mark)
        following = int(said[1])
        canary = 0
        if step != "draining":
            canary = int(it.gate.announcement().split()[1])
        if step == "replacing":
            it.gate.let_pass(1)
            canary = int(it.gate.announcement().split()[1])
        if load:
            it.let_go()
        if event in (NEXT, BEFORE, CANARY):
            os.kill({NEXT: following, BEFORE: before, CANARY: canary}[event], signal.SIGKILL)
        else:
            it.server.signal(signal.Signals[f"SIG{event}"])
        if event == "HUP":
            it.server.log.wait("reload: making generation 2 ready", mark)
        it.gate.open()
        code = ended(command)
        if event == "TERM":
            assert it.server.exit_code() == 0
            return
        if event == "USR2":
            it.server.follow(int(it.server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
        if event == "HUP":
            it.server.log.wait("reloaded: generation 2 serves", mark)
        if load:
            load.more()
            load.assert_no_failure()
        elif event != NEXT:
            assert [wire.response().status for wire in wires] == [200] * WORKERS
    expected = ["stanchion", "stanchion-acpt", "stanchion-tmpl", *["stanchion-work"] * WORKERS]
    eventually(lambda: it.server.names() == expected, f"the processes of a server that serves: {it.server.names()}")
    eventually(lambda: len(it.workers()) == WORKERS, "all are ready")
    it.ask_all()
    if event == BEFORE and step in ("proving", "replacing"):
        assert code == 0
        assert it.template() == following
    if event in (NEXT, CANARY):
        assert code == EXIT_FAILED
        it.server.log.only(GIVEN_UP)
        assert it.template() == before
    # It leaves nothing that would hinder another one.
    again = it.refork()
    assert again.returncode == 0, again.stderr


def begin(it: Reforking) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stanchion", "ctl", "--control", f"unix:{it.counts.path}", "refork"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(command: subprocess.Popen[str]) -> int:
    command.communicate(timeout=3 * PATIENCE_S)
    return command.returncode


def test_signals_to_the_next_template_concern_the_master_alone(reforking: Callable[..., Reforking]) -> None:
    it = reforking("-c", str(HOOKS))
    it.hold("collecting")
    command = begin(it)
    following = int(it.gate.announcement().split()[1])
    it.let_go()
    # As Ctrl-C sends it to all processes of a terminal.
    os.kill(following, signal.SIGINT)
    os.kill(following, signal.SIGTERM)
    it.gate.open()
    assert ended(command) == 0
    assert it.template() == following


@pytest.mark.parametrize("survives", [True, False])
def test_both_templates_reopen_the_error_log(build: Serve, gate: Gate, tmp_path: Path, survives: bool) -> None:
    log, counts = tmp_path / "error.log", Counts(tmp_path / "ctl")
    words = ("-w", "2", "-c", str(HOOKS), "--log-level", "debug", "--error-logfile", str(log), *counts.arguments)
    server = build("reforking:app", *words, env=gate.environment).launch()
    eventually(lambda: log.exists() and "ready: " in log.read_text(), "it serves")
    it = Reforking(server, counts, gate)
    early = it.workers()
    it.hold("forked")
    command = begin(it)
    early.add(int(gate.announcement().split()[1]))
    it.let_go()
    [following] = re.findall(r"re-fork: worker \d \((\d+)\) is the template", log.read_text())
    log.rename(tmp_path / "error.log.1")
    server.signal(signal.SIGUSR1)
    eventually(log.exists, "the master has reopened it")
    if not survives:
        # The template before forks the next worker.
        os.kill(int(following), signal.SIGKILL)
    gate.open()
    assert ended(command) == (0 if survives else EXIT_FAILED)
    # Until the canary is gone there are two as well.
    late = eventually(lambda: len(it.workers()) == 2 and it.workers() - early, "all are ready")
    eventually(lambda: late <= {int(pid) for pid in re.findall(r"\[(\d+)\] \[DEBUG\]", log.read_text())}, "the log")


def test_when_the_master_is_killed_the_next_template_ends_too(reforking: Callable[..., Reforking]) -> None:
    it = reforking("-c", str(HOOKS))
    it.hold("collecting")
    command = begin(it)
    it.gate.announcement()
    os.kill(it.server.pid, signal.SIGKILL)
    # It is held, and never let go.
    eventually(lambda: not it.server.processes(), "all have ended")
    assert ended(command) != 0


def test_a_worker_becomes_the_template_once_after_so_many_requests(reforking: Callable[..., Reforking]) -> None:
    it = reforking("--refork-after", "20")
    first, before = it.template(), it.workers()
    with Steady(it.server.addresses) as load:
        it.server.log.wait("re-forked: 3 workers")
        load.more(50)
    load.assert_no_failure()
    assert it.template() in before - {first}
    it.server.log.only("ends its requests, and becomes the template")
    # A reload begins the count again.
    mark = it.server.log.mark()
    assert ctl(it.counts.path, "reload").returncode == 0
    with Steady(it.server.addresses):
        it.server.log.wait("re-forked: 3 workers", mark)


@pytest.mark.parametrize(
    ("app", "arguments", "reason"),
    [
        ("reforking:app", ("--no-preload",), "without preload_app each worker imports the app, and shares no memory"),
        ("reforking:app", ("-w", "1"), "a single worker shares its memory with no other one"),
        ("asgi_cases:app", (), "an event loop, with its connections, does not survive a fork"),
        ("warming:with_thread()", (), "the import of the app has left what does not survive a fork"),
    ],
)
def test_where_there_is_none_the_command_says_why(
    serve: Serve, tmp_path: Path, app: str, arguments: tuple[str, ...], reason: str
) -> None:
    counts = Counts(tmp_path / "ctl")
    server = serve(app, "-w", "2", *counts.arguments, *arguments)
    done = ctl(counts.path, "refork")
    assert done.returncode == EXIT_FAILED
    assert f"there is no re-fork: {reason}" in done.stderr
    server.log.only(rf"WARNING\] there is no re-fork: {reason}")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-w", "2", "--no-preload"), "without preload_app each worker imports the app"),
        (("-w", "2", "--loop", "gevent"), "with gevent each worker imports the app"),
        (("-w", "2", "--max-requests", "20"), "expected fewer than max_requests"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(build: Serve, arguments: tuple[str, ...], reason: str) -> None:
    server = build("reforking:app", "--refork-after", "20", *arguments).launch()
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    [line] = [line for line in server.log.lines() if "setting `refork_after` from command line: " in line]
    assert reason in line


@pytest.mark.parametrize("arguments", [("--interface", "asgi"), ()])
def test_it_is_for_workers_with_threads(build: Serve, arguments: tuple[str, ...]) -> None:
    server = build("api:app", "--workers", "2", "--refork-after", "20", *arguments).launch()
    server.log.wait("setting `refork_after`.*: an event loop, with its connections, does not survive a fork")
    assert server.exit_code() == EXIT_USAGE
