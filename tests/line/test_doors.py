"""Clients that come while the acceptor's loop is kept from its core are accepted then, and served later.

The loop is held still, so that nothing here depends on how the kernel divides its cores.
"""

import collections
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support import held_thread
from support.held_thread import held
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.wire import Wire, request

BACKLOG = 100
BURST = 90
"""Fits the kernel's queue."""
BURSTS = 4
CONNECTING = "02"
"""`SS_CONNECTING` of linux/net.h, as /proc/net/unix shows it."""

pytestmark = pytest.mark.own("peers have no thread that accepts for them")
HOLDS = pytest.mark.skipif(bool(held_thread.unavailable()), reason=held_thread.unavailable())


def policies_of(process: psutil.Process) -> dict[str, int]:
    """The scheduling policy of each of its threads, by name."""
    tasks = list(Path(f"/proc/{process.pid}/task").iterdir())
    return {(task / "comm").read_text().strip(): os.sched_getscheduler(int(task.name)) for task in tasks}


@pytest.fixture
def crowd() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as connections:
        yield connections


def come(server: Server, count: int, crowd: contextlib.ExitStack) -> list[Wire]:
    """Connect, without waiting: with a full queue connect(2) on a unix socket fails (unix(7))."""
    wires = []
    for _ in range(count):
        wire = crowd.enter_context(contextlib.closing(Wire.connect(server.addresses[0], PATIENCE_S)))
        wire.send(request("GET", "/", ["Connection: close"]))
        wires.append(wire)
    return wires


def none_is_queued(server: Server) -> bool:
    """Whether the acceptor has accepted all connections: the kernel shows the others as still connecting (the St of
    unix_seq_show in net/unix/af_unix.c)."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return not [words for words in lines if words[-1] == server.addresses[0].path and words[5] == CONNECTING]


def open_door(server: Server) -> None:
    """Wait until it serves: the master says that it is ready before the acceptor has heard that it may accept."""
    with Wire.connect(server.addresses[0], PATIENCE_S) as wire:
        wire.send(request("GET", "/", ["Connection: close"]))
        assert wire.response().status == 200


def statuses(wires: list[Wire]) -> dict[int, int]:
    return collections.Counter(wire.response().status for wire in wires)


@pytest.fixture
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    home = tmp_path_factory.mktemp("doors")
    server = serve("hello:app", "--backlog", str(BACKLOG), bind=f"unix:{home}/app.sock")
    open_door(server)
    return server


@HOLDS
def test_who_comes_while_the_loop_has_no_core_is_accepted_and_served(
    server: Server, crowd: contextlib.ExitStack
) -> None:
    process = server.acceptor_by_name()
    wires = []
    with held(process.pid):
        for number in range(1, BURSTS + 1):
            wires += come(server, BURST, crowd)
            eventually(lambda: none_is_queued(server), f"{number * BURST} are accepted")
    assert statuses(wires) == {200: BURSTS * BURST}


@HOLDS
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP], ids=["drain", "reload"])
def test_who_was_accepted_meanwhile_is_served_when_the_door_closes_next(
    server: Server, crowd: contextlib.ExitStack, told: signal.Signals
) -> None:
    process = server.acceptor_by_name()
    with held(process.pid):
        wires = come(server, BURST, crowd)
        eventually(lambda: none_is_queued(server), f"{BURST} are accepted")
        mark = server.log.mark()
        server.signal(told)
        # More clients come, which are in the kernel's queue by then, or in ours.
        wires += come(server, BURST, crowd)
    assert statuses(wires) == {200: 2 * BURST}
    if told == signal.SIGTERM:
        assert server.exit_code(within_s=2 * PATIENCE_S) == 0
    else:
        server.log.wait(r"reloaded: generation", mark)


@pytest.mark.privileges
def test_the_thread_is_as_prompt_as_the_log_says_and_the_loop_is_not(server: Server) -> None:
    policies = policies_of(server.acceptor_by_name())
    is_real_time = bool(server.log.matches("accepting does not wait for a free core"))
    assert policies.pop("stanchion-door") == (os.SCHED_RR if is_real_time else os.SCHED_OTHER)
    assert set(policies.values()) == {os.SCHED_BATCH}
