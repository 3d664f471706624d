"""Workers under gevent: their start, deadlines, signals and ends."""

import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from support.asgi import all_run
from support.clock import Clock
from support.ctl import ctl
from support.gate import Gate
from support.greenlets import GEVENT
from support.patience import PATIENCE_S, eventually
from support.processes import gone
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("of one line for all greenlets")

HOOKS = """
import os, time
from rendezvous import announce
def say(what): announce(f"{os.getpid()} {what}")
def pre_request(worker, req): say(f"before {req.path}")
def post_request(worker, req, environ, resp): say(f"after {req.path}: {resp.status}")
def worker_int(worker):
    time.sleep(0.01)
    say("is interrupted")
def worker_abort(worker):
    say("aborts")
def worker_exit(server, worker):
    time.sleep(0.01)
    say("ends")
"""


@pytest.fixture
def hooks(tmp_path: Path) -> list[str]:
    config = tmp_path / "hooks.conf.py"
    config.write_text(HOOKS)
    return ["-c", str(config)]


def held(server: Server, stack: ExitStack, gate: Gate, path: str) -> tuple[Wire, int]:
    """A request that runs, and the worker that runs it."""
    wire = stack.enter_context(server.connect())
    wire.send(request("GET", path))
    return wire, int(gate.announcement().split()[0])


def test_hooks_of_requests_run_in_their_greenlets(serve: Serve, gate: Gate, hooks: list[str]) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, *hooks, env=gate.environment)
    with server.connect() as wire:
        pid = wire.get("/").text
        assert gate.announcements(2) == [f"{pid} before /", f"{pid} after /: 200 OK"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_worker_that_is_interrupted_runs_hooks_that_wait(
    serve: Serve, gate: Gate, hooks: list[str], number: signal.Signals
) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, *hooks, "-w", "1", env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire:
        pid = int(wire.get("/").text)
    gate.announcements(2)
    psutil.Process(pid).send_signal(number)
    assert gate.announcements(2) == [f"{pid} is interrupted", f"{pid} ends"]
    gone(pid)
    server.log.wait("worker ready", mark)
    assert not server.log.matches("Traceback", mark)


def test_a_request_past_its_deadline_is_answered_504_and_its_greenlet_goes_on(
    serve: Serve, gate: Gate, clock: Clock
) -> None:
    deadline = ("--timeout", "100", "--loop-timeout", "0")
    server = serve("frameworks.gevent:app", *GEVENT, *deadline, env=gate.environment | clock.environment)
    with server.connect() as late:
        late.send(request("GET", "/pass"))
        pid = gate.announcement().split()[0]
        clock.advance(101)
        assert late.response().status == 504
        with server.connect() as other:
            assert other.get("/").text == pid
        gate.let_pass(1)
        assert gate.announcement() == f"{pid} goes on"
        assert late.get("/").text == pid


def test_a_worker_to_whose_start_a_request_has_waited_takes_the_next_ones_also_when_its_hub_was_late(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    """Its hub was to look again before it could, so it never did, which showed when it was late for the first time."""
    control = tmp_path / "control.sock"
    one_each = ("--worker-concurrency", "1", "--control", f"unix:{control}")
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "1", *one_each, env=gate.environment)
    with ExitStack() as stack:
        _, first = held(server, stack, gate, "/hold")
        wire = stack.enter_context(server.connect())
        wire.send(request("GET", "/"))
        assert ctl(control, "scale", "2").returncode == 0
        second = wire.response().text
        assert int(second) != first
        assert wire.get("/sleep?0.5").text == second
        assert [wire.get("/").text for _ in range(5)] == [second] * 5


def test_a_hub_that_is_blocked_is_named_with_its_stack_and_others_serve(serve: Serve, gate: Gate) -> None:
    begun_s = time.monotonic()
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", "--loop-timeout", "0.5", env=gate.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        blocked, pid = held(server, stack, gate, "/block")
        told = rf"the event loop of worker \d \({pid}\) has not turned for (\d+\.\d) s \(loop_timeout\)"
        assert 0.5 <= float(server.log.wait(told, mark)[1]) <= time.monotonic() - begun_s
        server.log.wait("wait_for_pass", mark)
        with server.connect() as other:
            assert {int(other.get("/").text) for _ in range(20)}.isdisjoint({pid})
        gate.let_pass(1)
        assert int(blocked.response().text) == pid
        server.log.wait(rf"the event loop of worker \d \({pid}\) turns again", mark)


def test_a_hub_that_is_stuck_is_replaced(serve: Serve, gate: Gate, hooks: list[str]) -> None:
    # Each hub must get a core now and then in so long, or it is taken for stuck, too.
    limits = ["--timeout", "3", "--loop-timeout", "0.5"]
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", *limits, *hooks, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as stuck:
        stuck.send(request("GET", "/sleep?60"))
        pid = int(gate.announcements(2)[0].split()[0])
        assert stuck.response().status == 504
    eventually(lambda: gate.announcement() == f"{pid} aborts", "its hook has run")
    gone(pid)
    server.log.wait("worker ready", mark)


def test_a_server_that_is_told_to_end_waits_for_its_greenlets(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", env=gate.environment)
    with ExitStack() as stack:
        held_ones = [held(server, stack, gate, "/pass") for _ in range(6)]
        server.signal(signal.SIGTERM)
        server.log.wait("TERM: draining, then leaving")
        gate.let_pass(6)
        assert [wire.response().text for wire, _ in held_ones] == [str(pid) for _, pid in held_ones]
    assert server.exit_code() == 0


def test_a_server_that_runs_nothing_ends_at_once(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", "--graceful-timeout", "600", env=gate.environment)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


def test_of_a_worker_that_is_killed_the_requests_it_had_are_lost_and_no_others(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", env=gate.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        running: list[tuple[Wire, int]] = []

        def begin() -> int:
            running.append(held(server, stack, gate, "/pass"))
            return running[-1][1]

        all_run(begin, 2, least=10)
        victim = running[0][1]
        psutil.Process(victim).kill()
        gone(victim)
        # All of the dead one is gone: a thread of it that waits for a pass would take one.
        gate.let_pass(sum(pid != victim for _, pid in running))
        statuses = Counter((pid == victim, wire.response().status) for wire, pid in running)
        assert set(statuses) == {(True, 502), (False, 200)}
    server.log.wait("worker ready", mark)


def test_workers_are_replaced_after_max_requests_and_no_request_is_lost(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, "--max-requests", "10", env=gate.environment)
    pids = set()

    def answered_by_three() -> bool:
        answer = wire.get("/")
        assert answer.status == 200
        pids.add(answer.text)
        return len(pids) == 3

    with server.connect() as wire:
        eventually(answered_by_three, "two workers have been replaced", 3 * PATIENCE_S)


def test_new_code_comes_in_by_a_reload(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        held_one, before = held(server, stack, gate, "/pass")
        server.signal(signal.SIGHUP)
        server.log.wait("reloaded: generation 2", mark)
        with server.connect() as wire:
            assert int(wire.get("/").text) != before
        gate.let_pass(1)
        assert int(held_one.response().text) == before
    gone(before)


@pytest.mark.parametrize("path", ["/exit", "/exit-behind"])
def test_an_app_that_exits_ends_its_worker_and_not_the_other_requests(serve: Serve, gate: Gate, path: str) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        held_one, pid = held(server, stack, gate, "/pass")
        with server.connect() as wire:
            assert wire.get(path).status == (500 if path == "/exit" else 200)
        server.log.wait("asked to exit.*the worker leaves", mark)
        gate.let_pass(1)
        assert int(held_one.response().text) == pid
    gone(pid)
    server.log.wait("worker ready", mark)


@pytest.mark.parametrize("used", ["from gevent import monkey; monkey.patch_all()", "import gevent; gevent.sleep(0.01)"])
def test_a_config_file_may_use_gevent_in_the_master(serve: Serve, gate: Gate, tmp_path: Path, used: str) -> None:
    config = tmp_path / "early.conf.py"
    config.write_text(
        f"{used}\nimport time\n"
        "def on_starting(server): time.sleep(0.01)\n"
        "def pre_fork(server, worker): time.sleep(0.01)\n"
        "def post_fork(server, worker): time.sleep(0.01)\n"
    )
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", "-c", str(config), env=gate.environment)
    with ExitStack() as stack:
        held_ones: list[tuple[Wire, int]] = []

        def begin() -> int:
            held_ones.append(held(server, stack, gate, "/pass"))
            return held_ones[-1][1]

        all_run(begin, 2, least=6)
        gate.let_pass(len(held_ones))
        assert [wire.response().text for wire, _ in held_ones] == [str(pid) for _, pid in held_ones]
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


def test_an_asynchronous_app_is_refused(build: Serve, gate: Gate) -> None:
    server = build("looping:app", *GEVENT, env=gate.environment).launch()
    assert server.exit_code() != 0
    server.log.wait(
        "the app is asynchronous .ASGI., and the setting `interface` from -k gevent says wsgi|"
        "the setting `loop` from .* says gevent, which runs WSGI apps"
    )


def test_without_gevent_the_server_says_what_to_install(build: Serve, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['gevent'] = None\n")
    server = build("hello:app", *GEVENT, env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parent.parent / 'apps'}"})
    server.launch()
    assert server.exit_code() != 0
    server.log.wait(
        rf"says gevent, which this Python does not have; install it: {sys.executable} -m pip install gevent"
    )


def test_no_other_server_imports_gevent(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(
        "import sys\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    return [repr('gevent' in sys.modules or 'stanchion.greenlets' in sys.modules).encode()]\n"
    )
    server = serve("asking:app", "--pythonpath", str(tmp_path))
    with server.connect() as wire:
        assert wire.get("/").text == "False"


def test_a_process_that_the_app_forks_takes_no_requests(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    with server.connect() as wire:
        pid = wire.get("/forks?1").text
        assert gate.announcement() == "the child's hub turns"
        for _ in range(200):
            assert wire.get("/").text == pid
