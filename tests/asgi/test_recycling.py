"""Event loops that are replaced, added and taken away: the old one takes no more, and finishes what it has."""

import itertools
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from support.asgi import all_run
from support.counts import Counts
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.processes import gone
from support.server import Serve, Server
from support.websocket import Open, sessions
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn has no line for event loops")

ASGI = ("--interface", "asgi", "--loop", "asyncio")

HOOKS = """\
import os
from rendezvous import announce
def worker_abort(worker): announce(f"{os.getpid()} aborts")
"""


def pid_at(server: Server, target: str = "/") -> int:
    with server.connect() as wire:
        return int(wire.get(target).text)


def begin(server: Server, stack: ExitStack, gate: Gate) -> tuple[Wire, int]:
    """A request that runs until it is let pass, and the worker that runs it."""
    wire = stack.enter_context(server.connect())
    wire.send(request("GET", "/pass"))
    return wire, int(gate.announcement().split()[0])


@contextmanager
def finishing(server: Server, gate: Gate) -> Iterator[int]:
    """A worker with a request that ends well, and the worker with it, though others serve by then."""
    with ExitStack() as stack:
        wire, pid = begin(server, stack, gate)
        yield pid
        eventually(lambda: pid_at(server) != pid, "another worker answers", 2 * PATIENCE_S)
        assert all(pid_at(server) != pid for _ in range(20)), "the old one takes no more"
        assert wire.silent(0.1)
        gate.let_pass(1)
        response = wire.response()
        assert (response.status, response.text) == (200, str(pid))
    gone(pid)


@pytest.mark.parametrize(
    ("limit", "targets", "why"),
    [
        (("--max-requests", "3"), ["/"] * 3, "max_requests"),
        (("--max-memory", "150M"), ["/grow?200"], r"it takes \d+ MiB \(max_memory\)"),
        (("--max-lifetime", "1"), [], r"it has lived for \d+ s \(max_lifetime\)"),
    ],
    ids=["requests", "memory", "lifetime"],
)
def test_a_loop_that_has_had_enough_finishes_what_it_has(
    serve: Serve, gate: Gate, limit: tuple[str, str], targets: list[str], why: str
) -> None:
    """It is not asked for anything once it may be on its way out."""
    server = serve("looping:app", *ASGI, *limit, env=gate.environment)
    mark = server.log.mark()
    with finishing(server, gate) as pid:
        assert all(pid_at(server, target) == pid for target in targets)
    server.log.wait(why, mark)
    assert not server.log.matches(r"\[ERROR\]")


@pytest.mark.parametrize(
    ("limit", "messages", "why"),
    [
        (("--max-requests", "11"), ["0", b"0"] * 4, r"it has served 3 requests and 8 messages \(max_requests\)"),
        (("--max-memory", "150M"), ["200"], r"it takes \d+ MiB \(max_memory\)"),
        (("--max-lifetime", "4"), [], r"it has lived for \d+ s \(max_lifetime\)"),
    ],
    ids=["messages", "memory", "lifetime"],
)
def test_a_loop_that_has_had_enough_of_sessions_tells_them_to_come_again(
    serve: Serve,
    gate: Gate,
    counts: Counts,
    opens: Open,
    limit: tuple[str, str],
    messages: list[str | bytes],
    why: str,
) -> None:
    limits = (*limit, "--session-grace", "0.2")
    server = serve("looping:app", *ASGI, *limits, *counts.arguments, env=gate.environment)
    mark = server.log.mark()
    with finishing(server, gate):
        clients = [opens(server) for _ in range(3)]
        for client, message in zip(itertools.cycle(clients), messages, strict=False):
            client.text(message) if isinstance(message, str) else client.bytes(message)
            assert client.hear() == message
        server.log.wait(why, mark)
        assert [client.until_end() for client in clients] == [[(1012, "the server restarts")]] * 3
        eventually(lambda: sessions(counts) == {"begun": 3, "closed_by_server": 3}, "they are counted")
    assert not server.log.matches(r"\[ERROR\]")


def test_a_reload_brings_new_loops_and_the_old_ones_finish(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "-w", "2", env=gate.environment)
    mark = server.log.mark()
    with finishing(server, gate):
        server.signal(signal.SIGHUP)
        server.log.wait("reloaded", mark)


def test_an_upgrade_brings_new_loops_and_the_old_ones_finish(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "-w", "2", env=gate.environment)
    mark = server.log.mark()
    with finishing(server, gate):
        server.signal(signal.SIGUSR2)
        server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))


def test_term_lets_requests_finish_that_run_and_that_wait(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "--worker-concurrency", "2", env=gate.environment)
    with ExitStack() as stack:
        running = [begin(server, stack, gate) for _ in range(2)]
        waiting = stack.enter_context(server.connect())
        waiting.send(request("GET", "/"))
        assert waiting.silent(0.1), "there is no seat for it"
        server.signal(signal.SIGTERM)
        server.log.wait("TERM: draining, then leaving")
        gate.let_pass(2)
        assert [wire.response().status for wire, _ in running] == [200] * 2
        assert int(waiting.response().text) == running[0][1]
    assert server.exit_code() == 0


def test_int_ends_what_runs(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, env=gate.environment)
    with ExitStack() as stack:
        wires = [begin(server, stack, gate)[0] for _ in range(3)]
        begun = stack.enter_context(server.connect())
        begun.send(request("GET", "/hold"))
        started = begun.head()
        server.signal(signal.SIGINT)
        assert {wire.response().status for wire in wires} <= {502, 503}
        with pytest.raises(BrokenOff):
            begun.read_body(started)
    assert server.exit_code() == 0


def test_abrt_to_a_worker_runs_its_hook_and_ends_its_requests_alone(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "abort.conf.py").write_text(HOOKS)
    arguments = ["-w", "2", "-c", str(tmp_path / "abort.conf.py")]
    server = serve("looping:app", *ASGI, *arguments, env=gate.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        of: dict[int, list[Wire]] = {}

        def begun() -> int:
            wire, pid = begin(server, stack, gate)
            of.setdefault(pid, []).append(wire)
            return pid

        all_run(begun, 2, least=6)
        victim, other = of
        psutil.Process(victim).send_signal(signal.SIGABRT)
        assert gate.announcement() == f"{victim} aborts"
        assert [wire.response().status for wire in of[victim]] == [502] * len(of[victim])
        gone(victim)
        # A thread of the dead one does not take the others' passes.
        gate.let_pass(len(of[other]))
        assert [wire.response().text for wire in of[other]] == [str(other)] * len(of[other])
    server.log.wait("worker ready", mark)


def test_ttin_adds_a_loop_and_ttou_has_one_finish(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("looping:app", *ASGI, *counts.arguments, env=gate.environment)
    with ExitStack() as stack:
        server.signal(signal.SIGTTIN)
        eventually(lambda: len(counts.ready_workers()) == 2, "there is one more")
        running: list[tuple[Wire, int]] = []

        def begun() -> int:
            running.append(begin(server, stack, gate))
            return running[-1][1]

        all_run(begun, 2)
        server.signal(signal.SIGTTOU)
        eventually(lambda: len(counts.ready_workers()) == 1, "one is to leave")
        (staying,) = counts.ready_workers()
        eventually(lambda: {pid_at(server) for _ in range(20)} == {staying}, "it takes no more")
        gate.let_pass(len(running))
        assert [int(wire.response().text) for wire, _ in running] == [pid for _, pid in running]
    for pid in {pid for _, pid in running} - {staying}:
        gone(pid)
    assert pid_at(server) == staying
