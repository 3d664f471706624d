"""A client of HTTP/2 costs memory for bytes that it sends and does not read, and streams that others want."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.http2 import POST, PREFACE, Talk, frame, setting
from support.patience import PATIENCE_S, eventually
from support.processes import sleeps
from support.server import Serve, Server

pytestmark = pytest.mark.own("only peers that it trusts may speak HTTP/2 without TLS with gunicorn")

HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
NOBODY_TRUSTED = ("--forwarded-allow-ips", "")
DATA, HEADERS, WINDOW_UPDATE = 0, 1, 8
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
REFUSED_STREAM, CALM = 7, 11
STREAMS = range(1, 200, 2)
MIB = 1 << 20


@contextmanager
def growth_is_below(server: Server, bytes_max: int) -> Iterator[None]:
    """Assert a limit on the growth of the acceptor's memory in the block."""
    process = server.acceptor_by_name()
    before = process.memory_info().rss
    yield
    grown = process.memory_info().rss - before
    assert grown < bytes_max, f"{grown / MIB:.0f} MiB"


def test_trailers_are_dropped_when_they_come(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    """Each field is one byte here, and 72 of them in the decoded list, which has 14 MB in all. With more fields in a
    head the client would be sent away.
    """
    connections, streams = 75, STREAMS[:20]

    def grown(fields: int) -> int:
        """An acceptor grows by this, with requests that have trailers of so many fields."""
        counts = Counts(tmp_path / f"counts-{fields}")
        server = serve("waiting:app", *HTTP2, *counts.arguments, env=gate.environment)
        before = server.acceptor_by_name().memory_info().rss
        with ExitStack() as stack:
            for _ in range(connections):
                sock = stack.enter_context(server.address.connect())
                requests = [
                    frame(HEADERS, END_HEADERS, number, POST)
                    + frame(DATA, 0, number, b"x")
                    + frame(HEADERS, END_HEADERS | END_STREAM, number, b"\x95" * fields)
                    for number in streams
                ]
                sock.sendall(PREFACE + setting(INITIAL_WINDOW_SIZE, 0) + b"".join(requests))
            eventually(lambda: counts.requests()["arrived"] == connections * len(streams), "all have arrived")
            return server.acceptor_by_name().memory_info().rss - before

    one, many = grown(1), grown(127)
    assert many < one + 4 * MIB, f"{one / MIB:.0f} MiB, and {many / MIB:.0f} MiB"


def test_trailers_of_thousands_of_fields_end_their_connection(serve: Serve, gate: Gate) -> None:
    """The fields of a head are counted before h2 has them, and no request stands for those of trailers."""
    server = serve("waiting:app", *HTTP2, env=gate.environment)
    with growth_is_below(server, 30 * MIB):
        for _ in range(75):
            with Talk(server.address) as talk:
                number = talk.begin("/wait", method="POST", ends=False)
                talk.send(frame(HEADERS, END_HEADERS | END_STREAM, number, b"\x95" * 7400))
                talk.end()
                assert talk.goodbye is not None and talk.goodbye.error_code == CALM


def test_answers_that_are_not_read_are_bounded_for_each_client(serve: Serve, counts: Counts) -> None:
    """h2 has little of them, and the streams that have the rest are counted."""
    limits = ("--max-response-memory", "1M", "--max-connections-per-client", "100", *NOBODY_TRUSTED)
    server = serve("bodies:flowing", *HTTP2, *counts.arguments, *limits)
    all_of_it = [server.acceptor_by_name(), *server.processes()]
    connections = 20
    with ExitStack() as stack, growth_is_below(server, 40 * MIB):
        for _ in range(connections):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(PATIENCE_S)
            sock.connect(("127.0.0.1", server.address.port))
            window = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7FFF0000))
            sock.sendall(PREFACE + setting(INITIAL_WINDOW_SIZE, 0x7FFFFFFF) + window)
            for number in STREAMS:
                head = b"\x82\x86\x41\x01a\x04\x0b/told?64000"
                sock.sendall(frame(HEADERS, END_HEADERS | END_STREAM, number, head))

        def all_are_seen() -> bool:
            seen = counts.requests()["arrived"] + counts.events()["streams_refused"]
            return seen == connections * len(STREAMS) and all(sleeps(process.pid) for process in all_of_it)

        eventually(all_are_seen, "all is done that can be")
        # The others were answered, or are being, each in the place of one that was.
        assert counts.requests()["in_flight"] <= 100


def test_a_body_in_tiny_frames_keeps_no_buffers(serve: Serve, gate: Gate) -> None:
    """Each byte of a stream that is not read comes with many that are for none: h2's pieces share its buffers."""
    wide = ("--http2-initial-window-size", "1000000")
    server = serve("uploading:app", "--interface", "asgi", *wide, *HTTP2, env=gate.environment)
    with Talk(server.address) as talk:
        number = talk.begin("/late", method="POST", ends=False)
        talk.say(number, bytes(600_000), ends=False)
        assert gate.announcement() == "runs"
        # Its worker has no room for more.
        talk.ping()
        with growth_is_below(server, 4 * MIB):
            # It has a type that the server does not know, and must ignore (RFC 9113 section 4.1).
            unknown = frame(0xBE, 0, 0, bytes(12_000))
            # More would be a flood: 32 bytes of frames may come for each byte of a body.
            for _ in range(7):
                talk.send((frame(DATA, 0, number, b"x") + unknown) * 100)
            talk.ping()


def test_a_client_has_no_more_than_half_of_the_streams(serve: Serve, gate: Gate, counts: Counts) -> None:
    few = ("--max-connections", "200", *NOBODY_TRUSTED)
    server = serve("waiting:app", *few, *HTTP2, *counts.arguments, bind="0.0.0.0:0", env=gate.environment)
    address = ("127.0.0.1", server.address.port)
    with ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(socket.create_connection(address, PATIENCE_S, source_address=("127.0.0.2", 0)))
            sock.sendall(PREFACE + setting(INITIAL_WINDOW_SIZE, 65_535))
            for number in STREAMS:
                sock.sendall(frame(HEADERS, END_HEADERS, number, POST) + frame(DATA, 0, number, b"x"))
        eventually(lambda: counts.events()["streams_refused"] == 100, "half of them are refused")
        other = socket.create_connection(address, PATIENCE_S)
        with Talk(server.address, sock=other) as talk:
            assert [talk.get("/pid").status for _ in range(6)] == [200] * 6


def test_streams_that_only_drip_make_way_for_others(serve: Serve, gate: Gate, clock: Clock) -> None:
    few = ("--max-connections", "100", "--max-connections-per-client", "0", *NOBODY_TRUSTED)
    # Nothing else ends in the time by which the clock is set.
    times = ("--body-timeout", "1000", "--min-body-rate", "1", "--keep-alive", "1000", "--header-timeout", "1000")
    server = serve("waiting:app", *few, *times, *HTTP2, env=gate.environment | clock.environment)
    with Talk(server.address) as crowd, Talk(server.address) as other:
        for _ in STREAMS:
            crowd.say(crowd.begin("/wait", method="POST", ends=False), bytes(600), ends=False)
        crowd.ping()
        assert other.get("/pid").reset == REFUSED_STREAM
        # None is too slow yet, and none is faster than that.
        clock.advance(300)
        eventually(lambda: other.get("/pid").status == 200, "another client is served")
