"""A client that sends or reads slowly costs a connection, and never a worker."""

import contextlib
import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.ctl import ctl
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("elsewhere a slow client has a worker, or a thread of one")

SENDERS = 150
"""Clients that send heads slowly, and as many that send bodies slowly."""
READERS = 50
ANSWER_BYTES = 1_000_000
"""So much response_buffer holds for one reader."""
ROUNDS = 20


def busy_seats(control: Path) -> list[str]:
    shown = ctl(control, "workers", "--json")
    assert shown.returncode == 0, shown.stderr
    seats = [seat for worker in json.loads(shown.stdout)["data"] for seat in worker["seats"]]
    assert len(seats) == 2
    return [seat["state"] for seat in seats if seat["state"] != "idle"]


def slow_reader(server: Server) -> Wire:
    wire = Wire(server.address.connect(receive_buffer_bytes=8192))
    wire.send(request("GET", f"/big-whole?{ANSWER_BYTES}"))
    return wire


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:server.sock"])
def test_no_worker_is_ever_held(serve: Serve, tmp_path: Path, bind: str) -> None:
    control = tmp_path / "control"
    # The deadlines that would end these clients are tested elsewhere.
    deadlines = ("--header-timeout", "--body-timeout", "--min-body-rate", "--write-timeout", "--min-response-rate")
    patient = [word for deadline in deadlines for word in (deadline, "0")]
    server = serve("answers:app", "-w", "2", *patient, "--control", f"unix:{control}", bind=bind)
    head = request("GET", "/one-chunk", ["X-Drip: " + "d" * ROUNDS])
    body = b"b" * ROUNDS
    with ExitStack() as stack:
        heads = [stack.enter_context(server.connect()) for _ in range(SENDERS)]
        bodies = [stack.enter_context(server.connect()) for _ in range(SENDERS)]
        readers = [stack.enter_context(slow_reader(server)) for _ in range(READERS)]
        for wire in heads:
            wire.send(head[:-ROUNDS])
        for wire in bodies:
            wire.send(request("POST", "/one-chunk", [f"Content-Length: {ROUNDS}"]))
        for wire in readers:
            assert wire.head().status == 200
        normal = stack.enter_context(server.connect())
        for number in range(ROUNDS):
            for wire in heads:
                wire.send(head[number - ROUNDS :][:1])
            if number < ROUNDS - 1:
                for wire in bodies:
                    wire.send(body[number:][:1])
            for wire in readers:
                wire.body_bytes(1000)
            if number == ROUNDS - 1:
                break
            normal.send(request("GET", "/with-length") * 2 + request("GET", "/one-chunk"))
            assert [normal.response().body for _ in range(3)] == [b"four", b"four", b"alone"]
            if number % 6 == 0:
                # A client has its answer before the seat has been left.
                eventually(lambda: busy_seats(control) == [], "all of these clients are slow: no worker runs for them")
        # The server has given up none of them.
        for wire in bodies:
            wire.send(b"b")
        for wire in (*heads, *bodies):
            assert wire.response().status == 200
        for wire in readers:
            assert wire.body_bytes(ANSWER_BYTES - ROUNDS * 1000)[-1:] == b"w"
    # Root is warned of being root.
    assert not server.log.matches(r"\[(ERROR|WARNING)\] (?!the app runs as root)")


def test_a_thousand_that_say_nothing_are_let_go(serve: Serve, counts: Counts, clock: Clock) -> None:
    server = serve("hello:app", "--header-timeout", "100", *counts.arguments, env=clock.environment)
    with ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(1000)]
        with server.connect() as normal:
            assert normal.get("/").status == 200
        eventually(lambda: counts.open_connections() == len(silent), "all are there")
        clock.advance(101)
        for wire in silent:
            with contextlib.suppress(ConnectionResetError):
                assert wire.rest() == b""


def drip(*wires: Wire) -> None:
    """The start of a head, for so long that the rest of it is left to gather in the kernel."""
    for wire in wires:
        wire.send(b"GET /one-chunk HTTP/1.1\r\nHost: test\r\nX-Drip: ")
    for _ in range(8):
        time.sleep(0.2)
        for wire in wires:
            wire.send(b"d")


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:server.sock"])
def test_a_head_that_drips_is_seen_to_end_though_few_bytes_do_not_wake_the_acceptor(
    serve: Serve, counts: Counts, bind: str
) -> None:
    server = serve("answers:app", "--header-timeout", "0", *counts.arguments, bind=bind)
    with server.connect() as wire, server.connect() as leaver, server.connect() as sudden:
        drip(wire, leaver, sudden)
        leaver.close()
        sudden.send(b"\r\nX-Much: " + b"m" * 2000 + b"\r\n\r\n")
        assert sudden.response().body == b"alone"
        wire.send(b"\r\n\r\n")
        assert wire.response().body == b"alone"
        # The bytes of the next request do wake the acceptor.
        assert wire.get("/one-chunk").body == b"alone"
        assert wire.ask("POST", "/one-chunk", body=b"b").body == b"alone"
        eventually(lambda: counts.open_connections() == 2, "whoever left is gone")


def test_a_head_that_drips_has_its_deadline_all_the_same(serve: Serve, clock: Clock) -> None:
    server = serve("answers:app", "--header-timeout", "100", env=clock.environment)
    with server.connect() as wire:
        drip(wire)
        clock.advance(101)
        assert wire.response().status == 408
        assert wire.closed()
