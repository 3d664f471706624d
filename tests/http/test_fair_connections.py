"""No client has all the connections, and no connection has a worker."""

import contextlib
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from support.counts import Counts
from support.haste import LINGERS_S, in_haste
from support.patience import PATIENCE_S, eventually
from support.server import UNHURRIED, Serve, Server
from support.unread import until_read
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
                sock = socket.create_connection((host, port), timeout=PATIENCE_S, source_address=(source, 0))
                return stack.enter_context(Wire(sock))

            first, second = connect(), connect()
            assert [wire.get("/").status for wire in (first, second)] == [200, 200]
            # It does not wait for a request, and it reads what one sends nevertheless.
            assert_turned_away(connect())
            attempts = []

            def come_eagerly() -> None:
                attempts.append(eager := connect())
                eager.send(request("POST", "/", ["Content-Length: 10000000"]) + b"b" * 10_000_000)
                eager.half_close()
                assert_turned_away(eager)

            in_haste(come_eagerly, LINGERS_S)
            assert counts.requests()["refused_too_many_connections"] == 1 + len(attempts)
            if other:
                assert connect(other).get("/").status == 200, "another client"
            first.close()
            assert first_served(connect).status == 200, "a place is free again"
            assert second.get("/").status == 200
        server.log.wait(rf"429: a client's fault: too many connections from this client \(from \"{host}\"\)")

    def test_by_default_one_client_cannot_have_every_connection(self, serve: Serve, counts: Counts) -> None:
        """An attack: as many connections as there are places, each with half a body, so that none of them idles."""
        server = serve("hello:app", "--max-connections", "12", *UNHURRIED, *NOBODY_TRUSTED, *counts.arguments)
        with ExitStack() as stack:
            for _ in range(6):
                wire = stack.enter_context(from_address(server, "127.0.0.2"))
                wire.send(request("POST", "/", ["Content-Length: 1000"]) + b"b")
                until_read(wire)
                assert wire.silent(0.1), "half of the places are its"
            for _ in range(10):
                with from_address(server, "127.0.0.2") as wire:
                    assert_turned_away(wire)
                eventually(lambda: counts.open_connections() == 6, "the one that was turned away has gone")
            with from_address(server, "127.0.0.3") as other:
                assert other.get("/").status == 200
        assert counts.requests()["refused_too_many_connections"] == 10

    def test_being_told_so_takes_no_places_of_others_either(self, serve: Serve, counts: Counts) -> None:
        """An attack: connections far past those that one may have, none of which its client closes."""
        limits = ("--max-connections", "12", "--keep-alive", "60")
        server = serve("hello:app", *limits, *NOBODY_TRUSTED, *counts.arguments)
        served, told, reset = [], 0, 0
        with ExitStack() as stack:
            other = stack.enter_context(from_address(server, "127.0.0.3"))
            assert other.get("/").status == 200
            wires = []
            for _ in range(40):
                try:
                    wires.append(stack.enter_context(from_address(server, "127.0.0.2")))
                except ConnectionResetError:
                    # The acceptor was quicker than the return of connect(2).
                    reset += 1
            eventually(lambda: counts.events()["connections_accepted"] == 41, "all have come in, or been sent away")
            for wire in wires:
                try:
                    status = wire.get("/").status
                except ConnectionError:
                    reset += 1
                else:
                    told += status == 429
                    served += [wire] if status == 200 else []
            assert len(served) == 6, "half of the places are its"
            assert told >= 3 and reset > 0 and told + reset == 34, f"{told} {reset}"
            assert [wire.get("/").status for wire in served] == [200] * 6
            assert other.get("/").status == 200
        assert (counts.events()["connections_waited"], counts.events()["connections_shed"]) == (0, 0)
        assert counts.requests()["refused_too_many_connections"] == 34
        server.log.wait(r"connection reset, far above max_connections_per_client \(from \"127.0.0.2\"\)")

    def test_behind_a_trusted_proxy_there_is_no_such_limit(self, serve: Serve, counts: Counts) -> None:
        server = serve("hello:app", "--max-connections", "12", *counts.arguments)
        with ExitStack() as stack:
            wires = [stack.enter_context(server.connect()) for _ in range(12)]
            assert [wire.get("/").status for wire in wires] == [200] * 12
        assert counts.requests()["refused_too_many_connections"] == 0


BODY = 400_000


class TestSpool:
    """A few clients cannot keep the large bodies of all others out, however much they have in the spool."""

    LIMITS = ("--max-spool", "4M", "--limit-request-body", "1M")

    def hoard(self, server: Server, stack: ExitStack, source: str, *fields: str) -> int:
        """Sends bodies without their ends until no more are taken; gives how many are held."""
        for number in range(20):
            wire = stack.enter_context(from_address(server, source))
            wire.send(request("POST", "/", [f"Content-Length: {BODY}", *fields]))
            # The server may have said no by then, and a reset come back.
            with contextlib.suppress(ConnectionError):
                wire.send(b"b" * (BODY - 1))
            until_read(wire)
            # The server has dealt with it when it has answered another client.
            with from_address(server, "127.0.0.99") as other:
                assert other.get("/").status == 200
            if not wire.silent(0.1):
                assert wire.response().status == 429
                return number
        raise AssertionError("there is no end to what it may have")

    def test_four_clients_do_not_deny_it_to_all_others(self, serve: Serve, counts: Counts) -> None:
        server = serve("echo:app", *self.LIMITS, *NOBODY_TRUSTED, *counts.arguments)
        with ExitStack() as stack:
            held = [self.hoard(server, stack, f"127.0.0.{last}") for last in range(2, 6)]
            assert held == sorted(held, reverse=True) and held[0] == 5, "half of it, and then of what is left"
            with from_address(server, "127.0.0.9") as honest:
                answer = honest.post("/", b"b" * 150_000)
                assert (answer.status, answer.json()["length"]) == (200, 150_000)
        assert counts.requests()["refused_spool_share_full"] == 4
        assert counts.requests()["refused_spool_full"] == 0
        server.log.wait("429 POST / .*a client's fault: too much of this client is in the spool")

    def test_behind_a_proxy_they_are_told_apart_by_what_it_says(self, serve: Serve) -> None:
        server = serve("echo:app", *self.LIMITS)
        with ExitStack() as stack:
            assert self.hoard(server, stack, "127.0.0.1", "X-Forwarded-For: 192.0.2.1") == 5
            with server.connect() as other:
                assert other.post("/", b"b" * BODY, "X-Forwarded-For: 192.0.2.2").status == 200
            # A request without a client's address may be any client's, and has all the room there is.
            nameless = [stack.enter_context(server.connect()) for _ in range(5)]
            for wire in nameless:
                wire.send(request("POST", "/", [f"Content-Length: {BODY}"]) + b"b" * (BODY - 1))
            for wire in nameless:
                wire.send(b"b")
                assert wire.response().status == 200

    def test_a_slow_reader_has_no_more_of_it_either(self, serve: Serve) -> None:
        """Then its worker waits for it, as past `max_spool`; and others may send large bodies."""
        server = serve("answers:app", "-w", "3", "--max-spool", "4M", *NOBODY_TRUSTED)
        with ExitStack() as stack:
            for _ in range(2):
                slow = stack.enter_context(from_address(server, "127.0.0.2"))
                slow.send(request("GET", "/noise?320"))
            server.log.wait("a worker waits for a slow client")
            with from_address(server, "127.0.0.9") as honest:
                assert honest.post("/with-length", b"b" * BODY).status == 200


def from_address(server: Server, source: str) -> Wire:
    """A connection from another address: all of 127.0.0.0/8 is this host."""
    name = (server.address.host, server.address.port)
    sock = socket.create_connection(name, timeout=PATIENCE_S, source_address=(source, 0))
    return Wire(sock)


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
