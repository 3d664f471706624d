"""A line that stands says why in the log and in /status, and what that has cost when it is over."""

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.address import Address
from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.processes import standing_still
from support.server import Serve, Server
from support.wire import Wire

pytestmark = pytest.mark.own("gunicorn has no line, and says nothing of a full queue")

WAIT = b"GET /wait?order=7 HTTP/1.1\r\nHost: shop\r\n\r\n"
SLOW = ("--timeout", "1000", "--queue-timeout", "1000")


@pytest.fixture
def admin(tmp_path: Path) -> Address:
    return Address(path=str(tmp_path / "admin"))


@pytest.fixture
def wires() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def status(admin: Address) -> Any:
    with Wire.connect(admin) as wire:
        return wire.get("/status").json()


def ask(server: Server, wires: ExitStack, count: int) -> list[Wire]:
    asking = [wires.enter_context(server.connect()) for _ in range(count)]
    for wire in asking:
        wire.send(WAIT)
    return asking


def test_a_full_line_is_told_of_with_what_the_seats_do_and_with_what_it_cost_when_it_is_over(
    serve: Serve, gate: Gate, clock: Clock, admin: Address, wires: ExitStack
) -> None:
    few = ("-w", "1", "--threads", "2", "--max-waiting", "2", "--admin", f"unix:{admin.path}")
    server = serve("waiting:app", *few, *SLOW, env=gate.environment | clock.environment)
    mark = server.log.mark()
    assert status(admin)["standstill"] is None
    running = ask(server, wires, 2)
    gate.announcements(2)
    # Some of them are handed out ahead, and are not in the line.
    others = ask(server, wires, 8)
    eventually(lambda: status(admin)["requests"]["refused_line_full"] > 0, "the line is full")
    server.log.wait(r"the line stands: \d wait, the oldest for 0\.\d s: all 2 seats are busy, the longest for ", mark)
    eventually(lambda: status(admin)["requests"]["arrived"] == 10, "all have come")
    refused = status(admin)["requests"]["refused_line_full"]
    clock.advance(62)
    told = server.log.wait(r"the line still stands after 6\d s: (\d) wait, the oldest for 6\d\.\d s: (.*)", mark)
    assert int(told[1]) == 8 - refused
    assert told[2].startswith("all 2 seats are busy, the longest for 6")
    assert told[2].endswith(" s with GET /wait, 1 more like it")
    shown = status(admin)["standstill"]
    assert (shown["waiting"], shown["since_s"] >= 60, shown["oldest_wait_s"] >= 60) == (8 - refused, True, True)
    assert shown["why"].startswith("all 2 seats are busy, the longest for 6")
    gate.open()
    assert sorted(wire.response().status for wire in running + others) == [200] * (10 - refused) + [503] * refused
    for _ in range(3):
        # A look finds the line calm, and a later one that it has been so for a while.
        clock.advance(6)
        assert status(admin)["line"]["waiting"] == 0
    cost = f"it turned away {refused}, 0 waited too long, 0 clients left"
    server.log.wait(rf"the line goes on, after 6\d\.\d s: {cost}, the longest wait was 6\d\.\d s", mark)
    assert status(admin)["standstill"] is None


def test_a_lane_that_may_have_no_more_seats_is_named(
    serve: Serve, gate: Gate, clock: Clock, admin: Address, wires: ExitStack
) -> None:
    lane = ("--threads", "2", "--lane", "streams=/wait seats_max=1", "--admin", f"unix:{admin.path}")
    server = serve("waiting:app", *lane, *SLOW, env=gate.environment | clock.environment)
    mark = server.log.mark()
    asking = ask(server, wires, 3)
    gate.announcement()
    eventually(lambda: status(admin)["requests"]["arrived"] == 3, "all have come")
    clock.advance(6)
    why = "each lane in which requests wait has as many seats as it may: streams 1 (seats_max)"
    server.log.wait(rf"the line stands: 2 wait, the oldest for 6\.\d s: {re.escape(why)}", mark)
    assert status(admin)["standstill"]["why"] == why
    gate.let_pass(3)
    assert [wire.response().status for wire in asking] == [200] * 3


def test_a_client_beyond_its_own_limit_makes_no_line_stand(
    serve: Serve, gate: Gate, clock: Clock, admin: Address, wires: ExitStack
) -> None:
    limits = ("--max-waiting-per-client", "1", "--forwarded-allow-ips", "", "--admin", f"unix:{admin.path}")
    server = serve("waiting:app", "-w", "1", *limits, *SLOW, env=gate.environment | clock.environment)
    mark = server.log.mark()
    ask(server, wires, 8)
    eventually(lambda: status(admin)["requests"]["refused_too_many_of_client"] > 0, "it is beyond its limit")
    # The acceptor looks once a second, and the oldest may wait for five.
    for _ in range(3):
        clock.advance(1.2)
        assert status(admin)["standstill"] is None
    assert not server.log.matches("the line stands", mark)
    gate.let_pass(8)


def test_what_a_standstill_has_cost_is_told_too_if_the_server_leaves_before_it_is_over(
    serve: Serve, gate: Gate, clock: Clock, admin: Address, wires: ExitStack
) -> None:
    few = ("-w", "1", "--max-waiting", "1", "--admin", f"unix:{admin.path}")
    server = serve("waiting:app", *few, *SLOW, env=gate.environment | clock.environment)
    running = ask(server, wires, 1)
    gate.announcement()
    others = ask(server, wires, 4)
    eventually(lambda: status(admin)["requests"]["refused_line_full"] > 0, "the line is full")
    eventually(lambda: status(admin)["requests"]["arrived"] == 5, "all have come")
    server.log.wait("the line stands: ")
    refused = status(admin)["requests"]["refused_line_full"]
    gate.open()
    assert [wire.response().status for wire in running + others].count(200) == 5 - refused
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    cost = f"it turned away {refused}, 0 waited too long, 0 clients left"
    server.log.only(rf"the acceptor leaves, and the line has stood for \d\.\d s: {cost}, the longest wait was \d\.\d s")


def test_requests_that_a_stopped_worker_does_not_take_stand(
    serve: Serve, clock: Clock, admin: Address, wires: ExitStack
) -> None:
    server = serve("hello:app", "--admin", f"unix:{admin.path}", *SLOW, env=clock.environment)
    mark = server.log.mark()
    eventually(lambda: status(admin)["seats"][0]["state"] == "idle", "its seat is taken")
    with standing_still(psutil.Process(status(admin)["seats"][0]["pid"])):
        [wire] = ask(server, wires, 1)
        eventually(lambda: status(admin)["requests"]["in_flight"] == 1, "it has come")
        clock.advance(6)
        server.log.wait(
            r"the line stands: 1 wait, the oldest for 6\.\d s: 1 of 1 seats are idle and take nothing", mark
        )
    assert wire.response().status == 200
