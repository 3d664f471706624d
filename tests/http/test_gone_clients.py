"""A client that hangs up while its request waits leaves the line before the app runs for it."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn runs the app for nobody")

BEHIND = request("GET", "/pid?pipelined")
GET = request("GET", "/wait?left")
POST = request("POST", "/wait?left", body=b"b" * 100_000)
KINDS = {"GET": GET, "POST": POST, "pipelined": GET + 5 * BEHIND}


def close_both_sides(wire: Wire) -> None:
    wire.sock.shutdown(socket.SHUT_RDWR)
    wire.close()


@pytest.fixture(params=["TCP", "unix"])
def transport(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def start(transport: str, serve: Serve, gate: Gate, counts: Counts, tmp_path: Path) -> Iterator[Serve]:
    """A server of `waiting:app` whose only seat is taken, and has one more request handed out ahead."""
    bind = "127.0.0.1:0" if transport == "TCP" else f"unix:{tmp_path / 'socket'}"

    def started(*arguments: str) -> Server:
        server = serve("waiting:app", *arguments, *counts.arguments, bind=bind, env=gate.environment)
        for query in ("held", "ahead"):
            wire = server.connect()
            wire.send(request("GET", f"/wait?{query}"))
            arrive(counts, 1 if query == "held" else 2)
            held.append(wire)
        gate.announcement()
        return server

    held: list[Wire] = []
    yield started
    for wire in held:
        wire.close()


def arrive(counts: Counts, how_many: int) -> None:
    eventually(lambda: counts.requests()["arrived"] >= how_many, f"{how_many} requests have arrived")


def assert_only_the_held_ran(counts: Counts, gate: Gate) -> None:
    gate.let_pass(2)
    assert gate.announcement().endswith("ahead")
    settled = counts.settled()
    assert settled["answered"] == 2
    assert settled["arrived"] == 3, "nothing that was sent behind it was run"
    assert gate.announced() == []


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("leave", [Wire.close, Wire.reset, Wire.half_close, close_both_sides])
def test_a_client_that_hangs_up_leaves_the_line(
    start: Serve, gate: Gate, counts: Counts, leave: Callable[[Wire], None], what: str
) -> None:
    server = start()
    leaving = server.connect()
    leaving.send(KINDS[what])
    arrive(counts, 3)
    with counts.one_more("abandoned_waiting"):
        leave(leaving)
    assert_only_the_held_ran(counts, gate)
    leaving.close()


@pytest.mark.parametrize("what", KINDS)
def test_a_client_that_sends_on_and_then_hangs_up_leaves_the_line(
    start: Serve, gate: Gate, counts: Counts, what: str
) -> None:
    server = start()
    leaving = server.connect()
    leaving.send(KINDS[what])
    arrive(counts, 3)
    with counts.one_more("abandoned_waiting"):
        leaving.send(3 * BEHIND)
        leaving.close()
    assert_only_the_held_ran(counts, gate)


@pytest.mark.parametrize("what", ["GET", "POST"])
def test_with_half_close_one_that_has_only_shut_its_sending_side_is_served(
    start: Serve, gate: Gate, counts: Counts, what: str
) -> None:
    server = start("--half-close")
    staying = server.connect()
    staying.send(KINDS[what])
    staying.half_close()
    arrive(counts, 3)
    gate.let_pass(3)
    assert staying.response().status == 200
    assert staying.closed()
    staying.close()
    assert counts.settled()["answered"] == 3


def test_with_half_close_requests_that_were_pipelined_before_it_are_all_served(
    start: Serve, gate: Gate, counts: Counts
) -> None:
    server = start("--half-close")
    staying = server.connect()
    staying.send(KINDS["pipelined"])
    staying.half_close()
    gate.let_pass(3)
    for _ in range(6):
        assert staying.response().status == 200
    assert staying.closed()
    staying.close()


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("first_half", [False, True])
def test_with_half_close_one_whose_connection_is_reset_leaves_the_line(
    start: Serve, gate: Gate, counts: Counts, what: str, first_half: bool
) -> None:
    """Over a unix socket to close it is to do so (unix(7) has no FIN to acknowledge)."""
    server = start("--half-close")
    leaving = server.connect()
    leaving.send(KINDS[what])
    if first_half:
        leaving.half_close()
    arrive(counts, 3)
    with counts.one_more("abandoned_waiting"):
        leaving.reset()
    assert_only_the_held_ran(counts, gate)
