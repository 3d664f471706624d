"""No client has all the connections, and no connection has a worker."""

import contextlib
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.counts import Counts
from support.server import Serve
from support.wire import Response, Wire, request

pytestmark = pytest.mark.own("gunicorn has no limits of connections")

NOBODY_TRUSTED = ("--forwarded-allow-ips", "")


def assert_turned_away(wire: Wire) -> None:
    response = wire.response()
    assert response.status == 429
    assert response.closes()
    assert response.header("Retry-After") == "1"
    assert b"too many connections" in response.body
    assert wire.rest() == b"", "an end, not a reset"


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    return Counts(tmp_path / "ctl")


class TestPerClient:
    @pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "127.0.0.2"), ("::1", None)])
    def test_one_more_is_told_429_and_the_others_are_served(
        self, serve: Serve, counts: Counts, host: str, other: str | None
    ) -> None:
        bind = f"[{host}]:0" if ":" in host else f"{host}:0"
        server = serve("hello:app", "--max-connections-per-client", "2", *NOBODY_TRUSTED, *counts.arguments, bind=bind)
        port = server.address.port
        with ExitStack() as stack:

            def connect(source: str = host) -> Wire:
                sock = socket.create_connection((host, port), timeout=10, source_address=(source, 0))
                return stack.enter_context(Wire(sock))

            first, second = connect(), connect()
            assert [wire.get("/").status for wire in (first, second)] == [200, 200]
            # It does not wait for a request, and it reads what one sends nevertheless.
            assert_turned_away(connect())
            eager = connect()
            eager.send(request("POST", "/", ["Content-Length: 10000000"]) + b"b" * 10_000_000)
            eager.half_close()
            assert_turned_away(eager)
            assert counts.requests()["refused_too_many_connections"] == 2
            if other:
                assert connect(other).get("/").status == 200, "another client"
            first.close()
            assert first_served(connect).status == 200, "a place is free again"
            assert second.get("/").status == 200
        server.log.wait(rf"429: a client's fault: too many connections from this client \(from \"{host}\"\)")


def first_served(connect: Callable[[], Wire]) -> Response:
    """The server may hear of a new connection before it hears of the end of an old one."""
    for _ in range(100):
        wire = connect()
        with contextlib.suppress(ConnectionError):
            response = wire.get("/")
            if response.status == 200:
                return response
    raise AssertionError("never served")


def test_trusted_proxies_and_unix_sockets_have_no_limit(serve: Serve) -> None:
    for bind in ("127.0.0.1:0", "unix:server.sock"):
        server = serve("hello:app", "--max-connections-per-client", "1", bind=bind)
        with ExitStack() as stack:
            wires = [stack.enter_context(server.connect()) for _ in range(5)]
            assert [wire.get("/").status for wire in wires] == [200] * 5


class TestKeepaliveRequests:
    def test_the_last_answer_says_so(self, serve: Serve) -> None:
        server = serve("hello:app", "--keepalive-requests", "3")
        for _ in range(2):
            with server.connect() as wire:
                assert [wire.get("/").closes() for _ in range(3)] == [False, False, True]
                assert wire.rest() == b""

    def test_an_http_1_0_client_is_told_too(self, serve: Serve) -> None:
        server = serve("hello:app", "--keepalive-requests", "2")
        with server.connect() as wire:
            kept = [wire.get("/", "Connection: keep-alive", version="1.0") for _ in range(2)]
            assert [(response.header("Connection") or "").lower() for response in kept] == ["keep-alive", "close"]
            assert wire.rest() == b""

    def test_pipelined_requests_past_it_are_not_answered(self, serve: Serve) -> None:
        server = serve("hello:app", "--keepalive-requests", "5")
        with server.connect() as wire:
            wire.send(request("GET", "/") * 20)
            assert [wire.response().closes() for _ in range(5)] == [False] * 4 + [True]
            assert wire.rest() == b""

    def test_a_refused_request_counts(self, serve: Serve) -> None:
        server = serve("hello:app", "--keepalive-requests", "2", "--max-waiting", "1")
        with server.connect() as wire:
            assert not wire.get("/").closes()
            assert wire.get("/").closes()


def test_tls_on_a_plain_port_is_told_in_clear(serve: Serve) -> None:
    server = serve("hello:app")
    hello = b"\x01" + struct.pack("!I", 512)[1:] + b"\x03\x03" + b"r" * 510
    with server.connect() as wire:
        wire.send(b"\x16\x03\x01" + struct.pack("!H", len(hello)) + hello)
        response = wire.response()
        assert (response.status, response.closes()) == (400, True)
        assert b"TLS on a port for plain HTTP" in response.body
        assert wire.rest() == b""
    server.log.wait(r"400: a client's fault: TLS on a port for plain HTTP \(from \"127.0.0.1\"\)")
