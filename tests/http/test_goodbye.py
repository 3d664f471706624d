"""An answer that ends a connection arrives whole, and then an end and no reset, whatever the client still sends.

Closing a socket with bytes unread sends a reset, which may overtake the answer (RFC 9112 section 9.6).
"""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.haste import LINGERS_S, in_haste
from support.patience import eventually
from support.server import UNHURRIED, Serve, Server
from support.unread import unacknowledged_bytes, until_read
from support.wire import Wire, chunked, request

pytestmark = pytest.mark.own("gunicorn resets")

FLOOD = b"f" * 10_000_000
CHUNKED = ["Transfer-Encoding: chunked"]
BINDS = pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:server.sock"])

TCP_CLOSE_WAIT = 8
"""The other side has ended, and this one has not (include/net/tcp_states.h)."""

TCP_INFO_BYTES = 144
TCPI_SEGS_IN = slice(140, 144)
"""How many segments have come (include/uapi/linux/tcp.h)."""

DEADLINE_S = 100
LIMITS = (
    *("--limit-request-body", "1000000", "--keep-alive", "1000"),
    *("--body-timeout", f"{DEADLINE_S}", "--header-timeout", f"{DEADLINE_S}", *UNHURRIED),
)

REFUSED = {
    "length": (413, request("POST", "/", [f"Content-Length: {len(FLOOD)}"]), FLOOD),
    "length, close": (413, request("POST", "/", ["Connection: close", f"Content-Length: {len(FLOOD)}"]), FLOOD),
    "one large chunk": (413, request("POST", "/", CHUNKED), chunked([FLOOD])),
    "small chunks": (413, request("POST", "/", CHUNKED), chunked([FLOOD[:1000]] * 10_000)),
    "small chunks, close": (413, request("POST", "/", [*CHUNKED, "Connection: close"]), chunked([FLOOD[:1000]] * 9000)),
    "not HTTP": (400, b"nonsense\r\n\r\n", FLOOD),
    "not a chunk": (400, request("POST", "/", CHUNKED), b"xyz\r\n" + FLOOD),
    "not a host": (400, request("POST", "/", ["Host: a@b", f"Content-Length: {len(FLOOD)}"], host=None), FLOOD),
    "a long field": (431, request("GET", "/", ["X-Long: " + "v" * 9000]), FLOOD),
    "a long line": (414, request("GET", "/" + "a" * 5000), FLOOD),
    "an endless head": (431, b"GET / HTTP/1.1\r\nX-Long: ", FLOOD),
    "unknown coding": (501, request("POST", "/", ["Transfer-Encoding: gzip, chunked"]), FLOOD),
    "unknown expectation": (417, request("POST", "/", ["Expect: luck", f"Content-Length: {len(FLOOD)}"]), FLOOD),
}


@pytest.fixture(scope="module")
def tcp(shared_serve: Serve, shared_clock: Clock) -> Server:
    return shared_serve("echo:app", *LIMITS, env=shared_clock.environment)


@pytest.fixture(scope="module")
def whole(shared_serve: Serve) -> Server:
    """Its answers are whole when they leave the worker. The echo's have an end that the app gives in a second step, and
    the acceptor may come by in between: then what is there goes out before the end.
    """
    return shared_serve("hello:app")


@pytest.fixture(scope="module")
def unix(shared_serve: Serve, shared_clock: Clock) -> Server:
    return shared_serve("echo:app", *LIMITS, bind="unix:server.sock", env=shared_clock.environment)


@pytest.fixture(params=["tcp", "unix"])
def server(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@contextlib.contextmanager
def pouring(wire: Wire, flood: bytes) -> Iterator[list[OSError]]:
    """Sends all the while; gives what went wrong with it."""
    problems: list[OSError] = []

    def pour() -> None:
        try:
            wire.send(flood)
        except OSError as problem:
            problems.append(problem)

    thread = threading.Thread(target=pour)
    thread.start()
    yield problems
    thread.join()


def assert_told(wire: Wire, status: int) -> None:
    response = wire.response()
    assert response.status == status, response.body
    assert response.closes()
    assert wire.rest() == b"", "an end, not a reset"


@pytest.mark.parametrize(
    ("sent", "status"), [(request("GET", "/", ["Connection: close"]), 200), (b"nonsense\r\n\r\n", 400)]
)
def test_the_fin_comes_with_the_last_answer(whole: Server, sent: bytes, status: int) -> None:
    """Answer and FIN are the server's third segment: the first is its SYN, and the second acknowledges the request."""
    with whole.connect() as wire:
        wire.send(sent)
        assert_told(wire, status)
        info = wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        assert int.from_bytes(info[TCPI_SEGS_IN], sys.byteorder) <= 3


@pytest.mark.parametrize("case", REFUSED)
def test_a_client_that_reads_only_when_all_is_sent_is_told(server: Server, case: str) -> None:
    status, head, flood = REFUSED[case]

    def ask() -> None:
        with server.connect() as wire:
            wire.send(head)
            wire.send(flood)
            wire.half_close()
            assert_told(wire, status)

    in_haste(ask, LINGERS_S)


@pytest.mark.parametrize("case", REFUSED)
def test_a_client_that_reads_while_it_sends_is_told(server: Server, case: str) -> None:
    status, head, flood = REFUSED[case]

    def ask() -> None:
        with server.connect() as wire:
            wire.send(head)
            with pouring(wire, flood) as problems:
                assert_told(wire, status)
            assert problems == []

    in_haste(ask, LINGERS_S)


@pytest.mark.parametrize("case", [case for case in REFUSED if REFUSED[case][0] != 413])
def test_a_client_that_pauses_is_told_at_once_that_no_more_comes(tcp: Server, case: str) -> None:
    """The end follows the answer; that the client may still speak shows that it was not a close(2)."""
    _, head, flood = REFUSED[case]

    def ask() -> None:
        with tcp.connect() as wire:
            wire.send(head)
            wire.send(flood[:70_000])
            assert wire.response().closes()
            assert wire.rest() == b""
            for _ in range(2):
                wire.send(b"more")
                eventually(lambda: not unacknowledged_bytes(wire.sock), "the server's side takes it")
            state = wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            assert state == TCP_CLOSE_WAIT, "a reset"

    in_haste(ask, LINGERS_S)


STARTED = {
    "head": b"GET / HTTP/1.1\r\nX-A: ",
    "body": request("POST", "/", ["Content-Length: 900000"]) + b"b",
}


@pytest.mark.parametrize("started", STARTED.values(), ids=STARTED)
def test_408_for_a_head_and_for_a_body(server: Server, shared_clock: Clock, started: bytes) -> None:
    def ask() -> None:
        with server.connect() as wire:
            wire.send(started)
            until_read(wire)
            shared_clock.advance(DEADLINE_S)
            assert wire.response().status == 408
            wire.send(FLOOD)
            wire.half_close()
            assert wire.rest() == b""

    in_haste(ask, LINGERS_S)


@BINDS
def test_503_when_the_line_is_full(serve: Serve, gate: Gate, bind: str, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "ctl")
    server = serve("waiting:app", "--max-waiting", "1", *counts.arguments, env=gate.environment, bind=bind)
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(server.connect())
        held.send(request("GET", "/wait"))
        gate.announcement()
        waiting = [stack.enter_context(server.connect()) for _ in range(2)]
        for number, wire in enumerate(waiting):
            wire.send(request("GET", "/pid"))
            eventually(lambda number=number: counts.requests()["arrived"] == 2 + number, "it has arrived")
            assert wire.silent(0.1)
        body = b"b" * 1_000_000

        def ask() -> None:
            with server.connect() as wire:
                for _ in range(2):
                    # The body is read before there is a place to ask for: the connection can stay.
                    response = wire.post("/pid", body)
                    assert response.status == 503 and response.header("Retry-After")
                    assert not response.closes()
                wire.send(request("POST", "/pid", ["Connection: close"], body) + FLOOD)
                wire.half_close()
                assert_told(wire, 503)

        in_haste(ask, LINGERS_S)
        gate.open()
        assert [wire.response().status for wire in (held, *waiting)] == [200] * 3


@BINDS
def test_requests_after_the_last_one_do_not_reset_its_answer(serve: Serve, bind: str) -> None:
    server = serve("hello:app", bind=bind)

    def ask() -> None:
        with server.connect() as wire:
            with pouring(wire, request("GET", "/", ["Connection: close"]) + request("GET", "/") * 200_000) as problems:
                response = wire.response()
                assert response.body == b"hello\n" and response.closes()
                assert wire.rest() == b""
            assert problems == []

    in_haste(ask, LINGERS_S)


def test_a_client_that_never_stops_costs_a_bounded_amount(server: Server) -> None:
    sent = 0
    with server.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 1000000000000"]))
        with contextlib.suppress(ConnectionError):
            while sent < 100_000_000:
                sent += wire.sock.send(FLOOD)
    assert sent < 100_000_000


def test_a_client_that_never_stops_costs_a_bounded_time(server: Server, shared_clock: Clock) -> None:
    """Even if the client never pauses for as long as the server waits for it."""
    with server.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 1000000000000"]))
        assert wire.response().status == 413
        took_s = 0
        with contextlib.suppress(ConnectionError):
            while took_s < 20:
                # Less wakes the server later.
                wire.send(FLOOD[:20_000])
                until_read(wire)
                shared_clock.advance(1)
                took_s += 1
        assert took_s < 20


def test_a_client_that_stays_silent_is_not_waited_for(server: Server) -> None:
    acceptor = server.acceptor_by_name()
    before = acceptor.num_fds()
    with server.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 1000001"]))
        assert_told(wire, 413)
        eventually(lambda: acceptor.num_fds() <= before, "its connection is closed")
