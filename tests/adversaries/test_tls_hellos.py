"""Hellos that are not as they should be: the server answers each at once, by an alert or by its own hello.

An entry that is not as the RFC has it gives the section and the reason.
"""

import pytest

from support.target import Target
from support.tls_raw import (
    ALERT,
    ALPN,
    APPLICATION,
    CCS,
    COOKIE,
    EARLY,
    FORMATS,
    GROUPS,
    HANDSHAKE,
    LATE_AUTH,
    MASTER_SECRET,
    MODES,
    P384,
    PADDING,
    PSK,
    RENEGOTIATION,
    SECURE,
    SERVER_NAME,
    SHARES,
    SIGNATURES,
    STATUS,
    SUITES_1_3,
    VERSIONS,
    X25519,
    Hello,
    ask,
    first_words,
    heard,
    message,
    modern,
    record,
    records,
    share,
    u16s,
    vector,
    x25519,
)

pytestmark = pytest.mark.own("each promise is about how stanchion configures TLS")

OLD = Hello()
NEW = modern()
LATE, ODD, ILLEGAL, NONE = "unexpected_message", "decode_error", "illegal_parameter", "handshake_failure"
GREASE = (0x0A0A, 0x1A1A, 0x2A2A, 0xFAFA)


def identity(ticket: bytes, binder: bytes = bytes(32)) -> bytes:
    """A PSK and its binder (RFC 8446 section 4.2.11)."""
    return vector(vector(ticket) + bytes(4)) + vector(vector(binder, 1))


def cut(hello: Hello, each: int = 16_000) -> bytes:
    return records(hello.message(), each)


def of_record(kind: int, payload: bytes) -> bytes:
    return record(kind, payload) + NEW.record()


CUT = cut(NEW, 9)

HELLOS: dict[str, tuple[Hello | bytes, str]] = {
    # Suites (RFC 8446 section 4.1.2).
    "no suite": (OLD.but(suites=()), ODD),
    "only signals": (OLD.but(suites=(SECURE, 0x5600)), NONE),
    "only unknown suites": (NEW.but(suites=GREASE), NONE),
    "unknown suites too": (NEW.but(suites=(*GREASE, *SUITES_1_3)), "1.3"),
    "a suite twice": (NEW.but(suites=(0x1301, 0x1301)), "1.3"),
    "30,000 suites": (records(OLD.but(suites=(*range(0x2000, 0x2000 + 30_000), 0xC02B)).message(), 16_000), "1.2"),
    # Compressions.
    "no compression": (OLD.but(compressions=b""), ODD),
    "every compression": (OLD.but(compressions=bytes(range(255))), "1.2"),
    # Groups and signatures (RFC 8446 sections 4.2.7 and 4.2.3).
    "groups of no byte": (NEW | {GROUPS: b""}, ODD),
    "no groups": (NEW | {GROUPS: vector(b"")}, ODD),
    "half a group": (NEW | {GROUPS: vector(b"\0")}, ODD),
    "groups longer than they are": (NEW | {GROUPS: b"\0\4\0\x1d"}, ODD),
    "unknown groups": (NEW | {GROUPS: vector(u16s(*GREASE)), SHARES: vector(b"")}, NONE),
    "unknown groups too": (NEW | {GROUPS: vector(u16s(*GREASE, X25519))}, "1.3"),
    "many groups": (cut(NEW | {GROUPS: vector(u16s(*range(0x2000, 0x6E20), X25519))}), "1.3"),
    # RFC 8446 section 9.2 has missing_extension; to rustls they are clients with which it has nothing in common.
    "1.3 without groups": (NEW | {GROUPS: None}, NONE),
    "1.3 without shares": (NEW | {SHARES: None}, NONE),
    "1.3 without signatures": (NEW | {SIGNATURES: None}, NONE),
    "signatures of no byte": (NEW | {SIGNATURES: b""}, ODD),
    "no signatures": (NEW | {SIGNATURES: vector(b"")}, ODD),
    "half a signature": (NEW | {SIGNATURES: vector(b"\4")}, ODD),
    "1.2 without signatures": (OLD | {SIGNATURES: None}, NONE),
    "unknown signatures too": (OLD | {SIGNATURES: vector(u16s(*GREASE, 0x0403))}, "1.2"),
    # Shares (RFC 8446 section 4.2.8).
    "shares of no byte": (NEW | {SHARES: b""}, ODD),
    "half a share": (NEW | {SHARES: vector(share(X25519, x25519())[:20])}, ODD),
    "a share of no byte": (NEW | {SHARES: vector(share(X25519, b""))}, ODD),
    "a share too short": (NEW | {SHARES: vector(share(X25519, bytes(31)))}, ILLEGAL),
    "a share too long": (NEW | {SHARES: vector(share(X25519, x25519() + b"\0"))}, ILLEGAL),
    "a share twice": (NEW | {SHARES: vector(2 * share(X25519, x25519()))}, ILLEGAL),
    "unknown shares too": (NEW | {SHARES: vector(share(0x0A0A, b"\0") + share(X25519, x25519()))}, "1.3"),
    "shares of another group": (NEW | {SHARES: vector(share(0x0A0A, b"\0"))}, "retry"),
    # Versions (RFC 8446 section 4.2.1).
    "versions of no byte": (NEW | {VERSIONS: b""}, ODD),
    "no version": (NEW | {VERSIONS: b"\0"}, ODD),
    "a version and a half": (NEW | {VERSIONS: b"\3\3\4\3"}, ODD),
    "127 versions": (NEW | {VERSIONS: vector(u16s(*range(0x7A00, 0x7A00 + 126), 0x0304), 1)}, "1.3"),
    # Keys from before (RFC 8446 section 4.2.11).
    "a PSK before another extension": (NEW | {MODES: b"\1\1", PSK: identity(bytes(48)), PADDING: b""}, ILLEGAL),
    "a PSK without modes": (NEW | {PSK: identity(bytes(48))}, "missing_extension"),
    "a PSK of the server's own kind alone": (NEW | {MODES: b"\1\0", PSK: identity(bytes(48))}, "1.3"),
    "a PSK that is none": (NEW | {MODES: b"\1\1", PSK: identity(bytes(48))}, "1.3"),
    "a PSK of 40,000 bytes": (records((NEW | {MODES: b"\1\1", PSK: identity(bytes(40_000))}).message(), 16_000), "1.3"),
    "a PSK of no byte": (NEW | {MODES: b"\1\1", PSK: b""}, ODD),
    "a PSK without binder": (NEW | {MODES: b"\1\1", PSK: vector(vector(bytes(48)) + bytes(4)) + vector(b"")}, ODD),
    "modes of no byte": (NEW | {MODES: b""}, ODD),
    "unknown modes": (NEW | {MODES: b"\2\x0b\xfa"}, "1.3"),
    "early data without a PSK": (NEW | {EARLY: b""}, "1.3"),
    # Names (RFC 6066 section 3).
    "names of no byte": (OLD | {SERVER_NAME: b""}, ODD),
    "no name": (OLD | {SERVER_NAME: vector(b"")}, ODD),
    "a name of no byte": (OLD | {SERVER_NAME: vector(b"\0\0\0")}, ODD),
    "a name longer than it is": (OLD | {SERVER_NAME: vector(b"\0\0\x10abc")}, ODD),
    "two names": (OLD | {SERVER_NAME: vector(2 * (b"\0" + vector(b"a.test")))}, ODD),
    "a name with a NUL": (OLD | {SERVER_NAME: vector(b"\0" + vector(b"shop\0.test"))}, ILLEGAL),
    # RFC 6066 has no addresses. Clients send them, and rustls takes them for no name.
    "an address for a name": (OLD | {SERVER_NAME: vector(b"\0" + vector(b"127.0.0.1"))}, "1.2"),
    # Protocols (RFC 7301 section 3.1).
    "protocols of no byte": (OLD | {ALPN: b""}, ODD),
    "no protocol": (OLD | {ALPN: vector(b"")}, ODD),
    "a protocol of no byte": (OLD | {ALPN: vector(b"\0")}, ODD),
    "a protocol longer than it is": (OLD | {ALPN: vector(b"\5h2")}, ODD),
    "10,000 protocols": (records((OLD | {ALPN: vector(10_000 * b"\3foo" + b"\2h2")}).message(), 16_000), "1.2"),
    # The others.
    "renegotiation at once": (OLD | {RENEGOTIATION: b"\x0c" + bytes(12)}, "1.2"),
    "renegotiation of no byte": (OLD | {RENEGOTIATION: b""}, ODD),
    "no forms of points": (OLD | {FORMATS: b"\0"}, ODD),
    "only compressed points": (OLD | {FORMATS: b"\1\1"}, ILLEGAL),
    "a master secret with a byte": (OLD | {MASTER_SECRET: b"\0"}, ODD),
    "a cookie": (NEW | {COOKIE: vector(b"x")}, "1.3"),
    "later certificates": (NEW | {LATE_AUTH: b""}, "1.3"),
    "OCSP that is broken": (OLD | {STATUS: b"\1\0"}, ODD),
    "300 unknown extensions": (NEW | dict.fromkeys(range(28672, 28672 + 300), b"x"), "1.3"),
    "an unknown extension of 60,000 bytes": (records((NEW | {0x7000: bytes(60_000)}).message(), 16_000), "1.3"),
    "an extension twice": (NEW.but(behind=u16s(GROUPS) + vector(vector(u16s(X25519)))), ILLEGAL),
    "an unknown extension twice": (NEW.but(behind=2 * (u16s(0x7000) + vector(b""))), ILLEGAL),
    "half an extension": (NEW.but(behind=b"\x70"), ODD),
    "an extension longer than it is": (NEW.but(behind=b"\x70\0\0\5abcd"), ODD),
    # Records (RFC 8446 section 5.1).
    "in bytes": (records(NEW.message(), 1), "1.3"),
    "in two records": (records(NEW.message(), 3), "1.3"),
    "a record of no byte before": (of_record(HANDSHAKE, b""), ODD),
    "a record of no byte within": (CUT[:14] + record(HANDSHAKE, b"") + CUT[14:], ODD),
    "data before": (of_record(APPLICATION, b"x"), LATE),
    "a change of cipher before": (of_record(CCS, b"\1"), LATE),
    "type 0 before": (of_record(0, b"x"), ODD),
    "type 25 before": (of_record(25, b"x"), ODD),
    "a warning before": (of_record(ALERT, b"\1\x5a"), "1.3"),
    "a fatal alert before": (of_record(ALERT, b"\2\x28"), "closed"),
    "another message before": (record(HANDSHAKE, message(20, bytes(12))) + NEW.record(), LATE),
    "an unknown message before": (record(HANDSHAKE, message(77, b"")) + NEW.record(), LATE),
    "a hello behind it": (record(HANDSHAKE, 2 * NEW.message()), LATE),
    # RFC 8446 section 4.1.2 has unexpected_message; what stands in one record across a change of keys is that too.
    "half a message behind it": (record(HANDSHAKE, NEW.message() + b"\x14\0"), LATE),
    "a record that is too long": (b"\x16\3\1\x48\1" + bytes(0x4801), ODD),
    # The server waits for the rest, for as long as a handshake may take; here the client ends.
    "a message of 16 MiB": (record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(100)), "closed"),
}  # fmt: skip


def test_hellos(target: Target) -> None:
    came = {name: first_words(target, hello).word for name, (hello, _) in HELLOS.items()}
    assert came == {name: expected for name, (_, expected) in HELLOS.items()}


@pytest.mark.parametrize("hello", [OLD, NEW], ids=["1.2", "1.3"])
def test_hellos_that_are_cut(target: Target, hello: Hello) -> None:
    """The length of the message is that of what is left. One without extensions is of TLS 1.2."""
    whole, bare = hello.body(), len(hello.but(extensions={}).body())
    for length in range(len(whole)):
        word = first_words(target, record(HANDSHAKE, message(1, whole[:length]))).word
        assert word == (NONE if length == bare else ODD), length


@pytest.mark.parametrize("hello", [OLD, NEW], ids=["1.2", "1.3"])
def test_hellos_with_bytes_behind(target: Target, hello: Hello) -> None:
    for count in (1, 2, 3, 255, 10_000):
        assert first_words(target, record(HANDSHAKE, message(1, hello.body() + bytes(count)))).word == ODD


def test_records_that_end_early(target: Target) -> None:
    """The client ends within its hello, at each byte, and the server then ends too."""
    whole = NEW.record()
    for length in range(0, len(whole), 7):
        assert first_words(target, whole[:length]).word == "closed"


def test_a_byte_of_the_hello_is_another(target: Target) -> None:
    """Each byte in turn: whatever comes of it, it is a hello or an alert."""
    whole = NEW.record()
    words = {
        first_words(target, whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]).word
        for at in range(5, len(whole))
    }
    alerts = {LATE, ODD, ILLEGAL, NONE, "protocol_version", "missing_extension"}
    assert words <= alerts | {"1.2", "1.3", "1.3 and an alert", "retry", "closed"}
    assert {"1.3", ODD, ILLEGAL} <= words


FIRST = modern(0x1301) | {SHARES: vector(b"")}
SECOND: dict[str, tuple[Hello, str]] = {
    # RFC 8446 section 4.1.2: the second hello is the first, with the share that was asked for.
    "right": (FIRST | {SHARES: vector(share(X25519, x25519()))}, "1.3"),
    "without a share again": (FIRST, ILLEGAL),
    "with a share of another group": (FIRST | {SHARES: vector(share(P384, b"\4" + bytes(96)))}, ILLEGAL),
    "with another suite": ((FIRST | {SHARES: vector(share(X25519, x25519()))}).but(suites=(0x1302,)), ILLEGAL),
    "with early data": (FIRST | {SHARES: vector(share(X25519, x25519())), EARLY: b""}, ILLEGAL),
    "of 1.2": (OLD, "protocol_version"),
}


@pytest.mark.parametrize("name", SECOND)
def test_hellos_behind_a_retry(target: Target, name: str) -> None:
    second, expected = SECOND[name]
    sock = target.server.address.connect()
    sock.sendall(FIRST.record())
    assert heard(sock).word == "retry"
    assert ask(sock, second).word == expected
