"""Hellos of TLS byte by byte, true to the grammar or not, and what a server says first to them."""

import contextlib
import socket
import struct
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from support.target import Target
from support.tls import NAME
from support.tlslite import AlertDescription

CCS, ALERT, HANDSHAKE, APPLICATION, HEARTBEAT = 20, 21, 22, 23, 24
SERVER_NAME, STATUS, GROUPS, FORMATS, SIGNATURES, HEARTBEATS, ALPN = 0, 5, 10, 11, 13, 15, 16
PADDING, MAC_LATER, MASTER_SECRET, SIZE_LIMIT, TICKET = 21, 22, 23, 28, 35
PSK, EARLY, VERSIONS, COOKIE, MODES, LATE_AUTH, SHARES, RENEGOTIATION = 41, 42, 43, 44, 45, 49, 51, 0xFF01
"""Extensions, by IANA's numbers."""
X25519, P256, P384, HYBRID = 29, 23, 24, 0x11EC
SUITES_1_3 = (0x1301, 0x1302, 0x1303)
SUITES_1_2 = (0xC02B, 0xC02C, 0xCCA9, 0xC02F, 0xC030, 0xCCA8)
"""Suites with ECDHE, for certificates of ECDSA and then of RSA."""
FALLBACK, SECURE = 0x5600, 0x00FF
"""Suites that are signals (RFC 7507, and RFC 5746 section 3.3)."""
HELLO_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that asks for another hello (RFC 8446 section 4.1.3)."""


def u16s(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}H", *numbers)


def vector(data: bytes, length_bytes: int = 2) -> bytes:
    return len(data).to_bytes(length_bytes, "big") + data


def message(kind: int, body: bytes) -> bytes:
    """A handshake message."""
    return bytes([kind]) + vector(body, 3)


def record(kind: int, payload: bytes, version: int = 0x0303) -> bytes:
    return bytes([kind]) + u16s(version) + vector(payload)


def records(payload: bytes, each: int, kind: int = HANDSHAKE) -> bytes:
    """The payload in records of so many bytes."""
    return b"".join(record(kind, payload[at : at + each]) for at in range(0, len(payload), each))


def share(group: int, key: bytes) -> bytes:
    return u16s(group) + vector(key)


def x25519() -> bytes:
    return X25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


@dataclass(frozen=True)
class Hello:
    """A client's, of TLS 1.2 as it stands; `modern` makes one of 1.3."""

    version: int = 0x0303
    random: bytes = bytes(range(32))
    session: bytes = b""
    suites: tuple[int, ...] = SUITES_1_2
    compressions: bytes = b"\0"
    extensions: dict[int, bytes] = field(
        default_factory=lambda: {
            SERVER_NAME: vector(b"\0" + vector(NAME.encode())),
            GROUPS: vector(u16s(X25519, P256, P384)),
            FORMATS: b"\1\0",
            SIGNATURES: vector(u16s(0x0403, 0x0503, 0x0804, 0x0805, 0x0401)),
            RENEGOTIATION: b"\0",
        }
    )
    behind: bytes = b""
    """More extensions, as they are."""

    def __or__(self, extensions: dict[int, bytes | None]) -> "Hello":
        """The hello with these extensions, and without those whose body is None."""
        merged = {kind: body for kind, body in (self.extensions | extensions).items() if body is not None}
        return replace(self, extensions=merged)

    def but(self, **fields: object) -> "Hello":
        return replace(self, **fields)  # type: ignore[arg-type]

    def body(self) -> bytes:
        extensions = b"".join(u16s(kind) + vector(body) for kind, body in self.extensions.items()) + self.behind
        return (
            u16s(self.version)
            + self.random
            + vector(self.session, 1)
            + vector(u16s(*self.suites))
            + vector(self.compressions, 1)
            + (vector(extensions) if extensions else b"")
        )

    def message(self) -> bytes:
        return message(1, self.body())

    def record(self) -> bytes:
        return record(HANDSHAKE, self.message(), 0x0301)


def modern(*suites: int) -> Hello:
    hello = Hello(session=bytes(range(32)), suites=suites or SUITES_1_3)
    return hello | {VERSIONS: b"\2" + u16s(0x0304), SHARES: vector(share(X25519, x25519()))}


@dataclass(frozen=True)
class Answer:
    """The server's first words: a ServerHello, or the alert with which it ended, or none."""

    alert: str = ""
    version: int = 0
    random: bytes = b""
    session: bytes = b""
    suite: int = 0
    compression: int = 0
    extensions: dict[int, bytes] = field(default_factory=dict)
    messages: tuple[int, ...] = ()
    """The kinds of its first flight's messages, as far as they are not encrypted."""
    kinds: tuple[int, ...] = ()
    """The types of the records that came."""
    fails_in_secret: bool = False
    """Its first encrypted record is as short as an alert (RFC 8446 section 5.2: two bytes, their type and the tag)."""

    @property
    def word(self) -> str:
        if self.alert:
            return self.alert
        if not self.messages:
            return "closed"
        if self.random == HELLO_RETRY:
            return "retry"
        if self.fails_in_secret:
            return "1.3 and an alert"
        return "1.3" if VERSIONS in self.extensions else {0x0303: "1.2"}.get(self.version, hex(self.version))


def name_of(level: int, description: int) -> str:
    """The name of an alert; a warning has `warning` before it."""
    name = AlertDescription.toRepr(description) or str(description)
    return str(name) if level == 2 else f"warning {name}"


def read_records(sock: socket.socket) -> list[tuple[int, bytes]]:
    """Read until the server ends, sends an alert, or is done: with ServerHelloDone, or with encrypted records."""
    data, found = b"", []
    with contextlib.suppress(ConnectionResetError):
        while some := sock.recv(1 << 16):
            data += some
            while len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[3:5], "big"):
                length = int.from_bytes(data[3:5], "big")
                found.append((data[0], data[5 : 5 + length]))
                data = data[5 + length :]
                if is_over(*found[-1]):
                    return found
    assert not data, f"the server ended within a record: {data!r}"
    return found


def is_over(kind: int, payload: bytes) -> bool:
    is_done = kind == HANDSHAKE and payload.endswith(message(14, b""))
    is_retry = kind == HANDSHAKE and payload[6:38] == HELLO_RETRY
    return kind in (ALERT, APPLICATION) or is_done or is_retry


def heard(sock: socket.socket) -> Answer:
    found = read_records(sock)
    kinds = tuple(kind for kind, _ in found)
    alert = "".join(name_of(*payload) for kind, payload in found if kind == ALERT and len(payload) == 2)
    # Records behind a change of cipher are encrypted.
    open_ones = found[: kinds.index(CCS)] if CCS in kinds else found
    said = b"".join(payload for kind, payload in open_ones if kind == HANDSHAKE)
    messages = []
    first = b""
    while said:
        length = int.from_bytes(said[1:4], "big")
        first = first or said[4 : 4 + length]
        messages.append(said[0])
        said = said[4 + length :]
    if not messages:
        return Answer(alert, kinds=kinds)
    assert messages[0] == 2, messages
    session_end = 35 + first[34]
    rest = first[session_end + 5 :]
    extensions = {}
    while rest:
        kind, length = struct.unpack(">HH", rest[:4])
        extensions[kind] = rest[4 : 4 + length]
        rest = rest[4 + length :]
    return Answer(
        alert,
        int.from_bytes(first[:2], "big"),
        first[2:34],
        first[35:session_end],
        int.from_bytes(first[session_end : session_end + 2], "big"),
        first[session_end + 2],
        extensions,
        tuple(messages),
        kinds,
        next((len(payload) for kind, payload in found if kind == APPLICATION), 0) == 2 + 1 + 16,
    )


def ask(sock: socket.socket, said: Hello | bytes) -> Answer:
    """The answer, on a connection that ends then."""
    with sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        sock.sendall(said.record() if isinstance(said, Hello) else said)
        # A server that waits for more has the end of what it gets.
        sock.shutdown(socket.SHUT_WR)
        return heard(sock)
    return Answer()


def first_words(target: Target, hello: Hello | bytes) -> Answer:
    """The server's answer to this hello, over a new connection."""
    return ask(target.server.address.connect(), hello)
