"""Clients that flood, and clients that hardly move, on every protocol. Beside them the server answers an honest client
each time. In the end each request has one outcome, no account has bytes, and the acceptor sleeps."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.client_memory import memory
from support.http2 import GET, POST, PREFACE, frame, setting
from support.server import Serve
from support.target import Target, launch
from support.tls import NAME, Authority
from support.tlslite import TLS_1_2, TLS_1_3, Breaker
from support.wire import Wire, request

pytestmark = pytest.mark.own("each promise is about stanchion's limits")

MIB = 1 << 20
CONNECTIONS = 8
ROUNDS = 40
"""Turns that each attacker takes; the honest client asks after each."""
BYTES_MAX = 16 * MIB
"""All attackers together take less."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4
BEGINNING = PREFACE + frame(SETTINGS, 0, 0)
FIELDS = b"\x00\x01a\x01b" * 100
"""Literal ones, of a name and a value of a byte."""


def streams() -> Iterator[int]:
    return iter(range(1, 1 << 30, 2))


Turns = Iterator[bytes]
"""The bytes of each turn, without end."""


def ended_streams(frame_behind: Callable[[int], bytes]) -> Turns:
    """A frame behind each request resets its stream (CVE-2023-44487), or has the server do so (CVE-2025-8671)."""
    numbers = streams()
    yield BEGINNING
    while True:
        turn = b""
        for _ in range(100):
            number = next(numbers)
            turn += frame(HEADERS, END_HEADERS | END_STREAM, number, GET) + frame_behind(number)
        yield turn


def reset(number: int) -> bytes:
    return frame(RST_STREAM, 0, number, struct.pack(">I", 8))


def window_of_none(number: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, number, bytes(4))


def window_past_all(number: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, number, struct.pack(">I", 0x7FFFFFFF))


def data_behind_the_end(number: int) -> bytes:
    return frame(DATA, 0, number, b"x")


def priority_on_itself(number: int) -> bytes:
    return frame(PRIORITY, 0, number, struct.pack(">IB", number, 1))


def repeated(first: bytes, again: bytes, times: int = 500) -> Turns:
    yield BEGINNING + first
    while True:
        yield again * times


def hpack_bombs() -> Turns:
    """One field of 4,000 bytes goes into the table, and each byte of later heads stands for it."""
    numbers = streams()
    big = b"\x40\x01x\x7f" + bytes([0xA1, 0x1E]) + b"y" * 4000
    yield BEGINNING + frame(HEADERS, END_HEADERS | END_STREAM, next(numbers), GET + big)
    while True:
        head = GET + b"\xbe" * 15_000
        yield b"".join(frame(HEADERS, END_HEADERS | END_STREAM, next(numbers), head) for _ in range(10))


def one_byte_windows() -> Turns:
    """Each turn lets the server send a byte of each answer."""
    numbers = list(range(1, 40, 2))
    yield BEGINNING + setting(4, 0) + b"".join(frame(HEADERS, END_HEADERS | END_STREAM, n, GET) for n in numbers)
    while True:
        yield b"".join(frame(WINDOW_UPDATE, 0, n, struct.pack(">I", 1)) for n in numbers)


def dripped_body() -> Turns:
    yield BEGINNING + frame(HEADERS, END_HEADERS, 1, POST)
    while True:
        yield frame(DATA, 0, 1, b"x")


HTTP2: dict[str, Callable[[], Turns]] = {
    "rapid resets": lambda: ended_streams(reset),
    "resets by windows of 0": lambda: ended_streams(window_of_none),
    "resets by windows past all": lambda: ended_streams(window_past_all),
    "resets by data behind the end": lambda: ended_streams(data_behind_the_end),
    "resets by a priority on itself": lambda: ended_streams(priority_on_itself),
    # A head of no end (CVE-2024-27316), empty and not.
    "continuations": lambda: repeated(frame(HEADERS, 0, 1, GET), frame(CONTINUATION, 0, 1, FIELDS), 20),
    "empty continuations": lambda: repeated(frame(HEADERS, 0, 1, GET), frame(CONTINUATION, 0, 1)),
    # CVE-2019-9512, 9515, 9518 and 9511.
    "pings": lambda: repeated(b"", frame(PING, 0, 0, bytes(8))),
    "settings": lambda: repeated(b"", frame(SETTINGS, 0, 0)),
    "settings of tables": lambda: repeated(b"", setting(1, 0) + setting(1, 4096)),
    "empty data": lambda: repeated(frame(HEADERS, END_HEADERS, 1, POST), frame(DATA, 0, 1)),
    "padding": lambda: repeated(frame(HEADERS, END_HEADERS, 1, POST), frame(DATA, 8, 1, b"\xff" + bytes(255)), 50),
    "priorities": lambda: repeated(b"", frame(PRIORITY, 0, 3, struct.pack(">IB", 0, 1))),
    "windows": lambda: repeated(b"", frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))),
    "unknown frames": lambda: repeated(b"", frame(0xBE, 0, 0, bytes(1000)), 50),
    "hpack bombs": hpack_bombs,
    "windows of a byte": one_byte_windows,
    "a body that drips": dripped_body,
}


def head_that_drips() -> Turns:
    yield b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    while True:
        yield b"x"


def body_that_drips() -> Turns:
    yield request("POST", "/text/plain?len=5", ["Content-Length: 100000"])
    while True:
        yield b"x"


def chunks_of_a_byte() -> Turns:
    yield request("POST", "/text/plain?len=5", ["Transfer-Encoding: chunked"])
    while True:
        yield b"1\r\nx\r\n" * 500


def extensions_of_chunks() -> Turns:
    yield request("POST", "/text/plain?len=5", ["Transfer-Encoding: chunked"])
    while True:
        yield b"1;" + b"x" * 3_000


def pipelines() -> Turns:
    while True:
        yield request("GET", "/text/plain?len=5") * 50


def empty_lines() -> Turns:
    while True:
        yield b"\r\n" * 2_000


HTTP1: dict[str, Callable[[], Turns]] = {
    "a head that drips": head_that_drips,
    "a body that drips": body_that_drips,
    "chunks of a byte": chunks_of_a_byte,
    "extensions of chunks": extensions_of_chunks,
    "pipelines": pipelines,
    "empty lines": empty_lines,
}


def masked(first: int, payload: bytes = b"") -> bytes:
    """A frame of a client (RFC 6455 section 5.2), masked with zeroes."""
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


def websocket(again: bytes, times: int, first: bytes = b"") -> Turns:
    fields = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    yield request("GET", "/echo", [*fields, "Sec-WebSocket-Version: 13"]) + first
    while True:
        yield again * times


WEBSOCKETS: dict[str, Callable[[], Turns]] = {
    "pings": lambda: websocket(masked(0x89, bytes(100)), 100),
    "pongs": lambda: websocket(masked(0x8A), 500),
    "empty fragments": lambda: websocket(masked(0x00), 200, masked(0x01)),
    "empty messages": lambda: websocket(masked(0x81), 300),
    "a message that drips": lambda: websocket(masked(0x00, b"x"), 1, masked(0x01, b"x")),
    "broken frames": lambda: websocket(masked(0xFF), 10),
}


def survive(
    target: Target,
    attack: Callable[[], Turns],
    path: str = "/text/plain?len=5",
    connect: Callable[[], Any] | None = None,
) -> None:
    """The attackers connect as others do, or by `connect`."""
    most = 0
    with ExitStack() as stack:
        attackers = []
        for _ in range(CONNECTIONS):
            sock = stack.enter_context((connect or target.connect)())
            sock.settimeout(0)
            attackers.append((sock, attack()))
        for number in range(ROUNDS):
            for sock, turns in list(attackers):
                try:
                    sock.sendall(next(turns))
                except (BlockingIOError, ssl.SSLWantWriteError):
                    # The server reads no more for now.
                    pass
                except OSError:
                    attackers.remove((sock, turns))
            target.answers_others(path)
            if number % 10 == 9:
                most = max(most, memory(target.admin)["bytes"])
        # The other direction goes on as if nothing were.
        for sock, _ in attackers:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
    target.is_itself_again()
    assert most < BYTES_MAX, f"{most / MIB:.1f} MiB"


@pytest.fixture(scope="module")
def shop(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Target:
    h2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
    return launch(shared_serve, tmp_path_factory.mktemp("shop"), "bodies:compressible", *h2)


@pytest.fixture(scope="module")
def sockets(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return launch(shared_serve, tmp_path_factory.mktemp("sockets"), "sockets:app", "--interface", "asgi")


@pytest.fixture(scope="module")
def secret(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Target:
    home = tmp_path_factory.mktemp("secret")
    authority = Authority(home)
    target = launch(shared_serve, home, "bodies:compressible", *authority.issue(NAME).arguments())
    target.authority = authority
    return target


@pytest.mark.parametrize("attack", HTTP2.values(), ids=HTTP2)
def test_over_http2(shop: Target, attack: Callable[[], Turns]) -> None:
    survive(shop, attack)


@pytest.mark.parametrize("attack", HTTP1.values(), ids=HTTP1)
def test_over_http1(shop: Target, attack: Callable[[], Turns]) -> None:
    survive(shop, attack)


@pytest.mark.parametrize("attack", HTTP1.values(), ids=HTTP1)
def test_over_tls(secret: Target, attack: Callable[[], Turns]) -> None:
    survive(secret, attack)


@pytest.mark.parametrize("attack", WEBSOCKETS.values(), ids=WEBSOCKETS)
def test_over_websockets(sockets: Target, attack: Callable[[], Turns]) -> None:
    survive(sockets, attack, "/seen")


def hello() -> bytes:
    """The first flight of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(inward, outward, server_hostname=NAME)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outward.read()


HELLO = hello()


def bytes_of_a_hello() -> Turns:
    for position in range(min(len(HELLO) - 1, 10 * ROUNDS)):
        yield HELLO[position : position + 1]
    while True:
        yield b""


def hellos_and_no_more() -> Turns:
    yield HELLO
    while True:
        yield b""


def alerts_that_are_no_end() -> Turns:
    """Warnings before and behind a hello (CVE-2016-8610)."""
    while True:
        yield b"\x15\x03\x03\x00\x02\x01\x5a" * 200


def changes_of_cipher() -> Turns:
    yield HELLO
    while True:
        yield b"\x14\x03\x03\x00\x01\x01" * 200


def records_without_bytes() -> Turns:
    while True:
        yield b"\x16\x03\x01\x00\x00" * 200


def records_of_a_byte() -> Turns:
    message = b"\x01\x00\xff\xff" + bytes(65_535)
    for position in range(len(message)):
        yield b"\x16\x03\x01\x00\x01" + message[position : position + 1]


def long_records() -> Turns:
    while True:
        yield b"\x16\x03\x01\x48\x01" + bytes(0x4801)


def garbage() -> Turns:
    while True:
        yield bytes(range(256)) * 20


HANDSHAKES = [
    bytes_of_a_hello,
    hellos_and_no_more,
    alerts_that_are_no_end,
    changes_of_cipher,
    records_without_bytes,
    records_of_a_byte,
    long_records,
    garbage,
]


@pytest.mark.parametrize("attack", HANDSHAKES)
def test_in_handshakes(secret: Target, attack: Callable[[], Turns]) -> None:
    survive(secret, attack, connect=secret.server.address.connect)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
def test_after_a_handshake_another_one_is_refused(secret: Target, version: tuple[int, int]) -> None:
    """Renegotiation (CVE-2011-1473) and post-handshake messages that a client may not send (RFC 8446 section 4.1.2)."""
    with Breaker(secret.server.address, version) as client:
        wire = Wire(client)  # type: ignore[arg-type]
        assert wire.get("/text/plain?len=5").status == 200
        client.send_hello_again()
        # An alert, and in TLS 1.3 the end with it.
        assert client.plain.recv(1 << 16)
    secret.is_itself_again()


@pytest.mark.parametrize(
    ("version", "flood"),
    [
        (TLS_1_2, Breaker.send_empty_record),
        (TLS_1_3, Breaker.send_empty_record),
        # Each asks for another one (RFC 8446 section 4.6.3).
        (TLS_1_3, Breaker.send_key_update),
    ],
    ids=["empty records in 1.2", "empty records in 1.3", "changes of keys"],
)
def test_in_sessions(secret: Target, version: tuple[int, int], flood: Callable[[Breaker], None]) -> None:
    with Breaker(secret.server.address, version) as client:
        goes_on = True
        for _ in range(ROUNDS):
            try:
                for _ in range(50 * goes_on):
                    flood(client)
            except OSError:
                goes_on = False
            secret.answers_others()
    secret.is_itself_again()
