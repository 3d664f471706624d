"""Event loops of several workers: which loop gets a request, while one is blocked and when one dies."""

import signal
from collections import Counter
from contextlib import ExitStack

import psutil
import pytest

from support.asgi import all_run, all_turn
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn has no line for event loops")

ASGI = ("--interface", "asgi", "--loop", "asyncio")
"""The order of what the tests see does not depend on what is installed."""


def hold(server: Server, stack: ExitStack) -> int:
    """A request that runs until the stack ends; gives the worker that runs it."""
    wire = stack.enter_context(server.connect())
    wire.send(request("GET", "/hold"))
    wire.head()
    return held_by(wire)


def held_by(wire: Wire) -> int:
    """The pid of the worker, which is the first chunk: less than ten digits."""
    length = int(wire.body_bytes(len("8\r\n")), 16)
    return int(wire.body_bytes(length + len("\r\n")))


def test_no_request_waits_for_a_loop_that_is_blocked(serve: Serve, gate: Gate) -> None:
    """Though the blocked loop is the one that runs the fewest requests, and so is called first."""
    server = serve("looping:app", *ASGI, "-w", "4", "--timeout", "120", env=gate.environment)
    with ExitStack() as stack:
        blocked = stack.enter_context(server.connect())
        blocked.send(request("GET", "/block"))
        pid = int(gate.announcement().split()[0])
        assert pid not in [hold(server, stack) for _ in range(9)]
        wires = [stack.enter_context(server.connect()) for _ in range(8)]
        answered: Counter[int] = Counter()

        def ask() -> None:
            for wire in wires:
                wire.send(request("GET", "/"))
            answered.update(int(wire.response().text) for wire in wires)
            assert pid not in answered

        for _ in range(25):
            ask()
        # A worker may have got no core so far.
        eventually(lambda: len(answered) == 3 or ask(), "all others take their part")
        assert blocked.silent(0.1), "it was blocked all the time"
        gate.let_pass(1)
        assert int(blocked.response().text) == pid


def test_requests_go_to_the_worker_that_runs_the_fewest(serve: Serve, gate: Gate) -> None:
    """While that one gets no core, others do its part; then the next ones are its."""
    server = serve("looping:app", *ASGI, "-w", "4", env=gate.environment)
    all_turn(server, 4)
    with ExitStack() as stack:
        running = Counter(hold(server, stack) for _ in range(100))
        while len(running) < 4 or max(running.values()) - min(running.values()) > 2:
            assert running.total() < 400, running
            running[hold(server, stack)] += 1


def test_of_many_requests_at_once_each_worker_gets_its_part(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "-w", "4", env=gate.environment)
    all_turn(server, 4)

    def have_their_parts() -> bool:
        with ExitStack() as stack:
            wires = [stack.enter_context(server.connect()) for _ in range(100)]
            for wire in wires:
                wire.send(request("GET", "/hold"))
            for wire in wires:
                wire.head()
            running = Counter(held_by(wire) for wire in wires)
            print(running)
            return len(running) == 4 and max(running.values()) <= 50

    # While one gets no core, the others do its part.
    eventually(have_their_parts, "each gets its part", 2 * PATIENCE_S)


@pytest.mark.parametrize("retries", [False, True])
def test_of_a_worker_that_is_killed_the_requests_it_had_are_lost_and_no_others(
    serve: Serve, gate: Gate, retries: bool
) -> None:
    retry = ["--retry-idempotent"] if retries else []
    server = serve("looping:app", *ASGI, "-w", "2", *retry, env=gate.environment)
    mark = server.log.mark()
    with ExitStack() as stack:
        of: dict[int, list[Wire]] = {}

        def begin() -> int:
            wire = stack.enter_context(server.connect())
            wire.send(request("GET", "/pass"))
            pid = int(gate.announcement().split()[0])
            of.setdefault(pid, []).append(wire)
            return pid

        all_run(begin, 2, least=10)
        victim, other = of
        psutil.Process(victim).send_signal(signal.SIGKILL)
        lost = of[victim]
        if retries:
            gate.announcements(len(lost))
        else:
            assert [wire.response().status for wire in lost] == [502] * len(lost)
        # All of the dead one is gone by now: a thread of it that waits for a pass would take one.
        gate.let_pass(len(of[other]) + len(lost) * retries)
        if retries:
            assert [wire.response().status for wire in lost] == [200] * len(lost)
        assert [wire.response().text for wire in of[other]] == [str(other)] * len(of[other])
    assert gate.announced() == []
    server.log.wait("worker ready", mark)


@pytest.mark.timeout(120)
def test_a_loop_that_is_full_leaves_requests_in_the_line(serve: Serve, gate: Gate) -> None:
    server = serve("looping:app", *ASGI, "-w", "2", "--worker-concurrency", "3", env=gate.environment)
    with ExitStack() as stack:
        waiting = [stack.enter_context(server.connect()) for _ in range(4)]
        with ExitStack() as holders:
            running = Counter(hold(server, holders) for _ in range(6))
            assert sorted(running.values()) == [3, 3]
            for wire in waiting:
                wire.send(request("GET", "/"))
            assert all(wire.silent(0.1) for wire in waiting)
        assert {int(wire.response().text) for wire in waiting} <= set(running)
