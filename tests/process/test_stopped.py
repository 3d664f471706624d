"""Processes that a signal or a debugger has stopped: log and `ctl status` name each, and no request waits forever."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.clock import Clock
from support.control_group import NEEDS_FREEZER, frozen
from support.counts import Counts
from support.ctl import ctl
from support.gate import Gate
from support.manager import listening
from support.patience import eventually
from support.processes import gone, standing_still
from support.server import Serve, Server
from support.tracing import HERE, traced

pytestmark = pytest.mark.own("gunicorn's master only kills a worker that does not beat")

ASGI = ("--interface", "asgi")
FROZEN_S = 10
LOGGING = {
    "version": 1,
    "handlers": {"all": {"class": "logging.StreamHandler"}},
    "root": {"handlers": []},
    "loggers": {name: {"level": "INFO", "handlers": ["all"]} for name in ("gunicorn.error", "gunicorn.access")},
}
"""The scribe runs Python's handlers."""


@pytest.fixture
def seconds_pass(counts: Counts, clock: Clock) -> Callable[[int], None]:
    def passing(count: int) -> None:
        for _ in range(count):
            clock.advance(1)
            # The master answers what comes in a turn, and then looks at the clock.
            assert all(counts.status() for _ in range(2))

    return passing


@pytest.fixture
def stopped() -> Iterator[Callable[[psutil.Process], None]]:
    """Stops processes; at the end they go on, those that are left."""
    with ExitStack() as stack:
        yield lambda process: stack.enter_context(standing_still(process))


Stop = Callable[[psutil.Process], None]
Pass = Callable[[int], None]


def idle(counts: Counts) -> dict[str, Any]:
    """The one worker, once its threads wait for requests."""
    [worker] = counts.workers()
    eventually(lambda: all(seat["state"] == "idle" for seat in counts.workers()[0]["seats"]), "its seats are taken")
    return worker


def named(server: Server, name: str) -> psutil.Process:
    [found] = server.of_name(name)
    return found


@pytest.mark.parametrize(
    "app",
    [("hello:app",), ("hello:app", "--threads", "3"), ("looping:app", *ASGI)],
    ids=["thread", "threads", "loop"],
)
def test_a_stopped_worker_for_which_a_request_waits_is_replaced_and_the_request_answered(
    serve: Serve, counts: Counts, clock: Clock, gate: Gate, seconds_pass: Pass, stopped: Stop, app: tuple[str, ...]
) -> None:
    limits = ("--timeout", "30", "--queue-timeout", "0")
    server = serve(*app, "-w", "1", *limits, *counts.arguments, env=clock.environment | gate.environment)
    process = psutil.Process(idle(counts)["pid"])
    mark = server.log.mark()
    stopped(process)
    with server.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        eventually(lambda: counts.requests()["in_flight"] == 1, "it has come")
        seconds_pass(12)
        assert process.is_running() and not server.log.matches("is killed", mark)
        # A master that gets no core for a second starts its count again: perhaps the worker got none either.
        for _ in range(120):
            if server.log.matches("is killed", mark):
                break
            seconds_pass(1)
        server.log.wait(rf"worker 0 \({process.pid}\) is killed: it", mark)
        seconds_pass(5)
        gone(process.pid)
        assert wire.response().status == 200
    assert counts.status()["stopped"] == []
    # It has ended, and that is what the log says of it.
    seconds_pass(2)
    server.log.wait(rf"worker 0 \({process.pid}\) was killed by SIGKILL", mark)
    assert not server.log.matches(rf"the worker 0 \({process.pid}\) goes on", mark)


def test_a_worker_that_takes_no_request_is_named_with_the_reason(
    serve: Serve, counts: Counts, clock: Clock, seconds_pass: Pass, stopped: Stop
) -> None:
    server = serve("hello:app", *counts.arguments, env=clock.environment)
    worker = idle(counts)
    mark = server.log.mark()
    stopped(psutil.Process(worker["pid"]))
    with server.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        eventually(lambda: counts.requests()["in_flight"] == 1, "it has come")
        seconds_pass(8)
        name = rf"worker 0 \({worker['pid']}\)"
        server.log.only(rf"{name} has taken no request for \d\.\d s though one waits: a signal has stopped it", mark)
        server.log.only(rf"the {name}: a signal has stopped it \(kill -CONT {worker['pid']}\)", mark)
        assert counts.status()["stopped"] == [f"worker 0 ({worker['pid']})"]
        assert [one["stopped"] for one in counts.workers()] == [True]
        assert "  ready, stopped  " in ctl(counts.path, "workers").stdout
        psutil.Process(worker["pid"]).send_signal(signal.SIGCONT)
        assert wire.response().status == 200
        seconds_pass(2)
    server.log.wait(rf"{name} takes requests again", mark)
    server.log.wait(rf"the {name} goes on", mark)
    assert counts.status()["stopped"] == []
    assert [(one["pid"], one["stopped"]) for one in counts.workers()] == [(worker["pid"], False)]


def test_an_idle_worker_that_is_stopped_is_named_and_left_alone(
    serve: Serve, counts: Counts, clock: Clock, seconds_pass: Pass, stopped: Stop
) -> None:
    """No request waits for it: the other one takes each."""
    server = serve("hello:app", "-w", "2", *counts.arguments, env=clock.environment)
    before = {worker["pid"] for worker in counts.workers()}
    mark = server.log.mark()
    stopped(psutil.Process(min(before)))
    for _ in range(40):
        seconds_pass(1)
        with server.connect() as wire:
            assert wire.get("/").status == 200
    server.log.only(rf"the worker \d \({min(before)}\): a signal has stopped it", mark)
    assert {worker["pid"] for worker in counts.workers()} == before


@pytest.mark.skipif(not HERE, reason="NOT TESTED: only root may trace another process, here of x86-64")
def test_a_worker_in_a_debugger_is_named_and_left_alone(
    serve: Serve, counts: Counts, clock: Clock, seconds_pass: Pass
) -> None:
    server = serve("hello:app", *counts.arguments, env=clock.environment)
    [worker] = counts.workers()
    mark = server.log.mark()
    with server.connect() as wire:
        with traced(worker["pid"]):
            wire.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
            eventually(lambda: counts.requests()["in_flight"] == 1, "it has come")
            seconds_pass(45)
            server.log.only("has taken no request for .* a debugger has stopped it", mark)
        assert wire.response().status == 200
    assert counts.workers()[0]["pid"] == worker["pid"]


@pytest.mark.parametrize("name", ["stanchion-tmpl", "stanchion-scrb"])
def test_a_stopped_template_or_scribe_is_named_and_the_service_manager_hears_no_watchdog(
    serve: Serve, counts: Counts, clock: Clock, seconds_pass: Pass, stopped: Stop, tmp_path: Path, name: str
) -> None:
    with listening(tmp_path) as ear:
        told = {"NOTIFY_SOCKET": str(ear.path), "WATCHDOG_USEC": "2000000"}
        conf = tmp_path / "conf.py"
        conf.write_text(f"logconfig_dict = {LOGGING!r}\n")
        server = serve("hello:app", "--preload", "-c", str(conf), *counts.arguments, env=told | clock.environment)
        ear.wait("READY=1")
        process = named(server, name)
        stopped(process)
        seconds_pass(4)
        what = "template" if name == "stanchion-tmpl" else "scribe"
        assert counts.status()["stopped"] == [f"{what} ({process.pid})"]
        ear.heard()
        seconds_pass(5)
        assert "WATCHDOG=1" not in ear.heard()
        with server.connect() as wire:
            assert wire.get("/").status == 200
        # Not only once it goes on, if it is the one that writes the log.
        server.log.wait(rf"the {what} \({process.pid}\): a signal has stopped it")
        process.send_signal(signal.SIGCONT)
        seconds_pass(3)
        ear.wait("WATCHDOG=1")
        assert counts.status()["stopped"] == []
    server.log.wait(rf"the {what} \({process.pid}\) goes on")


@pytest.mark.parametrize("name", ["stanchion-acpt", "stanchion-tmpl", "stanchion-work", "stanchion-scrb"])
def test_a_stopped_process_does_not_outlive_the_master(serve: Serve, tmp_path: Path, stopped: Stop, name: str) -> None:
    conf = tmp_path / "conf.py"
    conf.write_text(f"logconfig_dict = {LOGGING!r}\n")
    server = serve("hello:app", "--preload", "-c", str(conf))
    with server.connect() as wire:
        assert wire.get("/").status == 200
    stopped(named(server, name))
    server.signal(signal.SIGKILL)
    eventually(lambda: not server.processes(), "everyone leaves")


def test_a_worker_that_goes_on_leaves_only_if_the_master_has_ended(serve: Serve, counts: Counts) -> None:
    server = serve("hello:app", *counts.arguments)
    worker = idle(counts)
    for _ in range(3):
        psutil.Process(worker["pid"]).send_signal(signal.SIGCONT)
        with server.connect() as wire:
            assert wire.get("/").status == 200
    assert counts.workers()[0]["pid"] == worker["pid"]


@NEEDS_FREEZER
def test_a_request_is_not_overdue_for_time_in_which_the_server_was_frozen(
    serve: Serve, counts: Counts, gate: Gate
) -> None:
    """The server is stopped as in a container that is paused."""
    server = serve("waiting:app", "--timeout", str(FROZEN_S / 2), *counts.arguments, env=gate.environment)
    before = {process.pid for process in server.processes()}
    mark = server.log.mark()
    with server.connect() as wire:
        wire.send(b"GET /wait HTTP/1.1\r\nHost: shop\r\n\r\n")
        gate.announcement()
        with frozen(before):
            # The server measures by the kernel's clock how long it stood, which no test sets forward: so wait.
            time.sleep(FROZEN_S)
        # The master answers what comes in a turn, and looks at deadlines in each.
        assert all(counts.status() for _ in range(2))
        gate.open()
        assert wire.response().status == 200
        assert {process.pid for process in server.processes()} == before
    assert not server.log.matches("is killed", mark)
