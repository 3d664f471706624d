"""An acceptor whose loop hangs is found, by its own CPU time or by the service manager, and costs seconds."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.clock import Clock
from support.counts import Counts
from support.manager import listening
from support.patience import eventually
from support.processes import gone
from support.server import Serve
from support.tracing import BLOCK, HERE, SPIN, go_on_with

pytestmark = pytest.mark.own("gunicorn's workers accept by themselves")

BY_TRACING = pytest.mark.skipif(
    not HERE, reason="NOT TESTED: only root may have another process run other code, here of x86-64"
)


TWO_TICKS_S = 4.5
"""More than twice the CPU time that a turn may take."""


@BY_TRACING
def test_a_loop_that_spins_ends_with_its_stack_in_the_log_and_is_replaced(serve: Serve, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("hello:app", *counts.arguments)
    before = server.acceptor_by_name()
    with server.connect() as wire:
        assert wire.get("/").status == 200
        mark = server.log.mark()
        go_on_with(before.pid, SPIN)
        # It needs 4 s of a core, and the machine may be busy.
        gone(before.pid, within_s=100)
        assert wire.closed()
    functions = server.log.wait(r"has taken more than 2 s of CPU time, .* where it was: (.*)", mark)[1].split(" < ")
    assert any(name.startswith("stanchion_acceptor::") for name in functions), functions
    server.log.wait("its connections are lost, another one is started", mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200
    assert counts.events()["connections_lost"] == 1


@BY_TRACING
def test_a_loop_that_is_blocked_has_used_no_cpu_time(serve: Serve) -> None:
    """A timer of CLOCK_MONOTONIC would tick twice meanwhile, and end the acceptor."""
    server = serve("hello:app")
    before = server.acceptor_by_name()
    block(before.pid)
    time.sleep(TWO_TICKS_S)
    assert server.acceptor_by_name().pid == before.pid
    before.kill()


def stop(pid: int) -> None:
    psutil.Process(pid).send_signal(signal.SIGSTOP)


def block(pid: int) -> None:
    go_on_with(pid, BLOCK)


@pytest.mark.parametrize("hold", [stop, pytest.param(block, marks=BY_TRACING)])
def test_the_master_names_an_acceptor_that_stands_still_and_ends_one_that_is_blocked(
    hold: Callable[[int], None], serve: Serve, tmp_path: Path, clock: Clock
) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("hello:app", *counts.arguments, env=clock.environment)
    before = server.acceptor_by_name()

    def seconds_pass(count: int) -> None:
        for _ in range(count):
            clock.advance(1)
            # The master answers what comes in a turn, and then looks at the clock.
            assert [counts.ready_workers() for _ in range(2)]

    for _ in range(10):
        seconds_pass(1)
        with server.connect() as wire:
            assert wire.get("/").status == 200
    assert counts.status()["acceptor_still_s"] is None
    mark = server.log.mark()
    hold(before.pid)
    seconds_pass(10)
    named = server.log.only(rf"the acceptor \({before.pid}\) has made no turn of its loop for \d\.\d s: (.*)", mark)
    assert ("stopped" if hold is stop else "blocked") in named[1]
    assert counts.status()["acceptor_still_s"] >= 5
    seconds_pass(30)
    if hold is stop:
        assert server.acceptor_by_name().pid == before.pid
        before.send_signal(signal.SIGCONT)
        server.log.wait(rf"the acceptor \({before.pid}\) goes on", mark)
    else:
        server.log.wait("the master kills it", mark)
        gone(before.pid)
        server.log.wait("its connections are lost, another one is started", mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200
    eventually(lambda: counts.status()["acceptor_still_s"] is None, "the acceptor turns")
    server.log.only("has made no turn of its loop for .* clients wait", mark)


@pytest.mark.parametrize("hold", [stop, pytest.param(block, marks=BY_TRACING)])
def test_the_master_withholds_watchdog_while_the_acceptor_stands_still(
    hold: Callable[[int], None], serve: Serve, tmp_path: Path, clock: Clock
) -> None:
    with listening(tmp_path) as ear:
        told = {"NOTIFY_SOCKET": str(ear.path), "WATCHDOG_USEC": "2000000"}
        counts = Counts(tmp_path / "control")
        server = serve("hello:app", *counts.arguments, env=told | clock.environment)
        ear.wait("READY=1")
        # Each time that its clock goes on the master sends WATCHDOG=1, as long as the acceptor turns.
        for _ in range(3):
            clock.advance(1)
            ear.wait("WATCHDOG=1")
        before = server.acceptor_by_name()
        mark = server.log.mark()
        hold(before.pid)
        for _ in range(10):
            clock.advance(1)
            # The master answers what comes in a turn, and then looks at the clock.
            assert [counts.ready_workers() for _ in range(2)]
        server.log.wait(rf"the acceptor \({before.pid}\) has made no turn of its loop for", mark)
        server.log.wait("the master withholds WATCHDOG=1", mark)
        ear.heard()
        for _ in range(5):
            clock.advance(1)
            assert [counts.ready_workers() for _ in range(2)]
        assert "WATCHDOG=1" not in ear.heard()
        if hold is stop:
            before.send_signal(signal.SIGCONT)
        else:
            # A service manager would kill the service; here another process turns in its place.
            before.kill()
        ear.wait("WATCHDOG=1")
