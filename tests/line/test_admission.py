"""The line is bounded in length and in time; a client that is turned away gets the reason, and when to come again."""

import signal
import time
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.unread import until_read
from support.wire import Response, Wire, request
from support.witness import acceptor_has_seen

pytestmark = pytest.mark.own("gunicorn's queue is the kernel's")


def hold(server: Server, gate: Gate) -> Wire:
    wire = server.connect()
    wire.send(request("GET", "/wait?held"))
    gate.announcement()
    return wire


def assert_told(response: Response) -> None:
    assert response.status == 503
    retry_after = response.header("Retry-After")
    assert retry_after is not None and retry_after.isdigit() and 1 <= int(retry_after) <= 3600
    assert 0 < len(response.body) < 1000
    # A balancer may send it to another host, whatever its method.
    assert response.header("Stanchion-Not-Run") == "1"


def test_beyond_max_waiting_requests_are_refused_at_once_and_the_others_served(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    counts = Counts(tmp_path / "ctl")
    server = serve("waiting:app", "--max-waiting", "5", "--keep-alive", "60", *counts.arguments, env=gate.environment)
    held = hold(server, gate)
    wires = [server.connect() for _ in range(20)]
    for wire in wires:
        wire.send(request("GET", "/pid?x"))
    eventually(lambda: counts.requests()["arrived"] == 21, "all have come")
    acceptor_has_seen(server.address)
    refused = []
    for wire in wires:
        if not wire.silent(0.05):
            assert_told(wire.response())
            refused.append(wire)
    # The design lets a request be handed ahead to each seat, beside the five that wait in the line.
    assert 20 - 5 - 2 <= len(refused) <= 20 - 5
    for wire in refused:
        assert wire.silent(0.05), "the connection of a refused request stays open"
    gate.let_pass(1)
    assert held.response().status == 200
    for wire in wires:
        if wire not in refused:
            assert wire.response().status == 200
        assert wire.get("/pid").status == 200
        wire.close()
    held.close()


def test_a_client_that_waits_longer_than_the_queue_timeout_gets_the_reason(
    serve: Serve, gate: Gate, clock: Clock
) -> None:
    times = ("--queue-timeout", "100", "--timeout", "0")
    server = serve("waiting:app", *times, env=gate.environment | clock.environment)
    held = hold(server, gate)
    wires = [server.connect() for _ in range(5)]
    for wire in wires:
        wire.send(request("GET", "/wait?late"))
    until_read(*wires)
    clock.advance(90)
    assert all(wire.silent(0.1) for wire in wires)
    clock.advance(11)
    # The first too, which has been handed ahead to the only seat.
    for wire in wires:
        assert_told(wire.response())
    gate.let_pass(1)
    assert held.response().status == 200
    for wire in [held, *wires]:
        assert wire.get("/pid").status == 200, "whoever was told is still welcome"
        wire.close()


def test_by_the_kernels_clock_the_queue_timeout_passes_too(serve: Serve) -> None:
    """While there is no worker at all: one that gets no core would take the request too late."""
    server = serve("hello:app", "--queue-timeout", "1")
    server.signal(signal.SIGWINCH)
    eventually(lambda: "stanchion-work" not in server.names(), "the worker leaves")
    with server.connect() as wire:
        since_s = time.monotonic()
        assert_told(wire.get("/"))
        assert time.monotonic() - since_s > 0.9


def test_a_refusal_is_logged(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--max-waiting", "1", "--access-logfile", "-", env=gate.environment)
    held = hold(server, gate)
    wires = [server.connect() for _ in range(5)]
    for wire in wires:
        wire.send(request("GET", "/pid?x"))
    server.stdout.wait_for('" 503 ', 2)
    gate.let_pass(1)
    for wire in [held, *wires]:
        assert wire.response().status in (200, 503)
        wire.close()


def test_connections_beyond_the_limit_wait_in_the_kernel_and_are_served_when_there_is_room(
    serve: Serve, gate: Gate
) -> None:
    """None of those that have a place idles: the server would close it for the one that waits."""
    server = serve("waiting:app", "--max-connections", "10", "--threads", "11", env=gate.environment)
    open_ones = [server.connect() for _ in range(10)]
    for wire in open_ones:
        wire.send(request("GET", "/wait"))
    gate.announcements(10)
    with server.connect() as late:
        late.send(request("GET", "/pid"))
        assert late.silent(0.3)
        open_ones.pop().close()
        assert late.response().status == 200
    for wire in open_ones:
        wire.close()
