"""Conversations in TLS of which one message or record is not as it should be.

The client is right in all else: it has the keys, and its Finished is of what it has sent. The server ends each such
connection with the alert that the RFC has for it, where rustls sends one: "closed" is an end without. It says what the
tables say of each; an entry that is not as the RFC has it gives the section and the reason.
"""

from collections.abc import Callable, Iterable

import pytest

from support.target import Target
from support.tls_raw import (
    ALERT,
    APPLICATION,
    CCS,
    HANDSHAKE,
    HEARTBEAT,
    MASTER_SECRET,
    Hello,
    ask,
    message,
    record,
    records,
    vector,
)
from support.tls_raw import TICKET as TICKETS_OF_1_2
from support.tls_twisted import Client, Messages, Records, outcome, session_of
from support.tlslite import TLS_1_2, TLS_1_3

pytestmark = pytest.mark.own("each promise is about how stanchion configures TLS")

VERSIONS = {"1.2": TLS_1_2, "1.3": TLS_1_3}
TICKET, END_OF_EARLY, CERTIFICATE, VERIFY, KEY_EXCHANGE, FINISHED, KEY_UPDATE = 4, 5, 11, 15, 16, 20, 24
CHANGE = -1
PLAIN_RECORDS = {"1.2": 3, "1.3": 2}
"""The client sends so many before its Finished, which is encrypted. The next one has its request."""
MAC, LATE, ODD, ILLEGAL = "bad_record_mac", "unexpected_message", "decode_error", "illegal_parameter"

Change = Callable[[bytes], bytes]
Twist = Callable[[int, bytes], Iterable[tuple[int, bytes]]]
"""The records to send in place of a message, by its content type and bytes."""


def of(kind: int, twist: Twist) -> Messages:
    """Twists the handshake messages of one kind, or ChangeCipherSpec (which is none)."""

    def twisted(number: int, content: int, data: bytes) -> Iterable[tuple[int, bytes]]:
        is_it = content == CCS if kind == CHANGE else (content, data[0]) == (HANDSHAKE, kind)
        return twist(content, data) if is_it else [(content, data)]

    return twisted


def body(change: Change) -> Twist:
    """The message with another body, and the length of that."""
    return lambda content, data: [(content, message(data[0], change(data[4:])))]


def longer_by(count: int) -> Twist:
    """The length is not that of the body."""
    return lambda content, data: [(content, data[:1] + (len(data) - 4 + count).to_bytes(3, "big") + data[4:])]


def behind(*others: tuple[int, bytes]) -> Twist:
    return lambda content, data: [*others, (content, data)]


def within(*others: tuple[int, bytes]) -> Twist:
    return lambda content, data: [(content, data[:2]), *others, (content, data[2:])]


def as_type(kind: int) -> Twist:
    return lambda content, data: [(kind, data)]


def bit(number: int) -> Change:
    return lambda data: data[: number // 8] + bytes([data[number // 8] ^ 1 << number % 8]) + data[number // 8 + 1 :]


WARNING = (ALERT, b"\1\x5a")
"""The alert user_canceled, which TLS 1.3 knows too (RFC 8446 section 6.1)."""
ANYWHERE: dict[str, tuple[Twist, str]] = {
    # RFC 5246 section 7.2.2 and RFC 8446 section 5: unexpected_message. rustls cannot read a content type that it does
    # not know, heartbeats among them, and says that.
    "a heartbeat before": (behind((HEARTBEAT, b"\1\x40\0")), ODD),
    "as a heartbeat": (as_type(HEARTBEAT), ODD),
    "as type 0": (as_type(0), ODD),
    "as type 255": (as_type(255), ODD),
    "data before": (behind((APPLICATION, b"x")), LATE),
    "data of no byte before": (behind((APPLICATION, b"")), LATE),
    "as data": (as_type(APPLICATION), LATE),
    "some warnings before": (behind(*[WARNING] * 3), "answered"),
    # CVE-2016-8610: too many are the end.
    "many warnings before": (behind(*[WARNING] * 6), "closed"),
    "an alert of no byte before": (behind((ALERT, b"")), ODD),
    "an alert of three bytes before": (behind((ALERT, b"\1\x5a\1")), ODD),
    "a hello before": (behind((HANDSHAKE, Hello().message())), LATE),
    "an unknown message before": (behind((HANDSHAKE, message(99, b""))), LATE),
}
OF_HANDSHAKE: dict[str, tuple[Twist, str]] = {
    **ANYWHERE,
    "in two records": (within(), "answered"),
    "a byte in each record": (
        lambda content, data: [(content, data[at : at + 1]) for at in range(len(data))],
        "answered",
    ),
    # RFC 8446 section 5.1 wants an alert for what comes within a message; rustls ends without one.
    "data within": (within((APPLICATION, b"x")), "closed"),
    "data of no byte within": (within((APPLICATION, b"")), "closed"),
    "a warning within": (within(WARNING), "closed"),
    "far too long": (longer_by(0xFFFF00), "closed"),
}
KEY_EXCHANGES: dict[str, tuple[Twist, str]] = {
    **OF_HANDSHAKE,
    # RFC 8422 section 5.11.
    "another length of the point": (body(bit(0)), ODD),
    "another form of point": (body(bit(8)), ILLEGAL),
    "a point beside the curve": (body(lambda key: key[:-1] + bytes([key[-1] ^ 1])), ILLEGAL),
    "the point 0": (body(lambda key: b"\x41\4" + bytes(64)), ILLEGAL),
    "a byte behind it": (body(lambda key: key + b"\0"), ODD),
    # RFC 5246 section 7.2.2 has decode_error; rustls ends without an alert where a field is cut.
    "a byte too short": (body(lambda key: key[:-1]), "closed"),
    "no byte": (body(lambda key: b""), "closed"),
    # The next record is another's.
    "a byte longer than it is": (longer_by(1), "closed"),
    "a byte shorter than it is": (longer_by(-1), "closed"),
    "left out": (lambda content, data: [], LATE),
    "twice": (behind((HANDSHAKE, message(KEY_EXCHANGE, b"\x41\4" + bytes(64)))), ILLEGAL),
    # CVE-2014-0224: keys that the other side does not have yet.
    "a change of cipher before": (behind((CCS, b"\1")), LATE),
    "a change of cipher within": (within((CCS, b"\1")), "closed"),
    "nothing within": (within((HANDSHAKE, b"")), ODD),
    # An alert that ends nothing, since it is not encrypted.
    "an end before": (behind((ALERT, b"\1\0")), "answered"),
}
CHANGES: dict[str, dict[str, tuple[Twist, str]]] = {
    "1.2": {
        **ANYWHERE,
        "another value": (lambda content, data: [(content, b"\2")], ODD),
        "no byte": (lambda content, data: [(content, b"")], ODD),
        "two bytes": (lambda content, data: [(content, b"\1\1")], ODD),
        "twice": (behind((CCS, b"\1")), LATE),
    },
    # RFC 8446 section 5: they mean nothing, but have to be right.
    "1.3": {
        **ANYWHERE,
        "another value": (lambda content, data: [(content, b"\2")], LATE),
        "no byte": (lambda content, data: [(content, b"")], ODD),
        "two bytes": (lambda content, data: [(content, b"\1\1")], LATE),
        "left out": (lambda content, data: [], "answered"),
        "twice": (behind((CCS, b"\1")), "answered"),
        # RFC 8446 has no bound; rustls does.
        "seven": (behind(*[(CCS, b"\1")] * 6), "closed"),
    },
}
END: dict[str, tuple[Twist, str]] = {
    **OF_HANDSHAKE,
    # RFC 8446 section 4.4.4 has decrypt_error for one that is wrong, and of another length it is.
    "a byte too short": (body(lambda digest: digest[:-1]), "decrypt_error"),
    "a byte too long": (body(lambda digest: digest + b"\0"), "decrypt_error"),
    "a record too long": (body(lambda digest: digest + bytes(16_000)), "decrypt_error"),
    "no byte": (body(lambda digest: b""), "decrypt_error"),
    # RFC 8446 section 5.1 forbids these; rustls lets them pass where they are encrypted.
    "nothing within": (within((HANDSHAKE, b"")), "answered"),
}
ENDS: dict[str, dict[str, tuple[Twist, str]]] = {
    "1.2": END | {"a change of cipher before": (behind((CCS, b"\1")), ODD)},
    # tlslite sends a CCS without encryption whatever the state.
    "1.3": END | {"a change of cipher before": (behind((CCS, b"\1")), "answered")},
}


def assert_outcomes(target: Target, version: str, kind: int, table: dict[str, tuple[Twist, str]]) -> None:
    address = target.server.address
    came = {name: outcome(address, VERSIONS[version], of(kind, twist)) for name, (twist, _) in table.items()}
    assert came == {name: expected for name, (_, expected) in table.items()}


def test_client_key_exchange(target: Target) -> None:
    assert_outcomes(target, "1.2", KEY_EXCHANGE, KEY_EXCHANGES)


@pytest.mark.parametrize("version", VERSIONS)
def test_change_cipher_spec(target: Target, version: str) -> None:
    assert_outcomes(target, version, CHANGE, CHANGES[version])


@pytest.mark.parametrize("version", VERSIONS)
def test_finished(target: Target, version: str) -> None:
    assert_outcomes(target, version, FINISHED, ENDS[version])


@pytest.mark.parametrize(("version", "length"), [("1.2", 12), ("1.3", 48)])
def test_finished_with_a_wrong_bit(target: Target, version: str, length: int) -> None:
    """Each byte of the message in turn has another wrong bit."""
    for at in range(length):
        came = outcome(target.server.address, VERSIONS[version], of(FINISHED, body(bit(8 * at + at % 8))))
        assert came == "decrypt_error", at


# ---- Records


def payload(change: Change) -> Callable[[bytes], Iterable[bytes]]:
    return lambda data: [data[:3] + vector(change(data[5:]))]


def flipped(at: int) -> Callable[[bytes], Iterable[bytes]]:
    return payload(lambda data: data[: at % len(data)] + bytes([data[at] ^ 0x80]) + data[at % len(data) + 1 :])


def header(first: bytes) -> Callable[[bytes], Iterable[bytes]]:
    return lambda data: [first + data[len(first) :]]


def plain(kind: int, said: bytes) -> Callable[[bytes], Iterable[bytes]]:
    """A record that is not encrypted comes before it."""
    return lambda data: [record(kind, said), data]


RECORDS: dict[str, tuple[Callable[[bytes], Iterable[bytes]], str]] = {
    **{f"a wrong bit in byte {at}": (flipped(at), MAC) for at in (*range(17), *range(-17, 0))},
    "a byte too short": (payload(lambda data: data[:-1]), MAC),
    "shorter than its tag": (payload(lambda data: data[:15]), MAC),
    "a byte too long": (payload(lambda data: data + b"\0"), MAC),
    "as long as one may be": (payload(lambda data: bytes(0x4100)), MAC),
    # RFC 5246 section 6.2.3 and RFC 8446 section 5.2: record_overflow. rustls gives it for what is decrypted, and has
    # one bound for both versions before.
    "longer than one may be": (payload(lambda data: bytes(0x4801)), ODD),
    "of type 255": (header(b"\xff"), ODD),
    "of version 0": (header(b"\x17\0\0"), ODD),
    "in bytes": (lambda data: [data[at : at + 1] for at in range(len(data))], "answered"),
    "data without encryption before": (plain(APPLICATION, b"hello" * 10), MAC),
}
RECORDS_OF: dict[str, dict[str, tuple[Callable[[bytes], Iterable[bytes]], str]]] = {
    # Type and version are part of what is authenticated (RFC 5246 section 6.2.3.3).
    "1.2": RECORDS | {"of type 24": (header(b"\x18"), MAC), "of version 1.0": (header(b"\x17\3\1"), MAC)},
    # RFC 8446 section 5.2: the version is to be ignored. The type is to be 23; rustls does not look at one that it
    # knows, since what is inside says it.
    "1.3": RECORDS | {"of type 24": (header(b"\x18"), "answered"), "of version 1.0": (header(b"\x17\3\1"), "answered")},
}


@pytest.mark.parametrize("place", ["end of the handshake", "request"])
@pytest.mark.parametrize("version", VERSIONS)
def test_records(target: Target, version: str, place: str) -> None:
    which = PLAIN_RECORDS[version] + (place == "request")

    def at(twist: Callable[[bytes], Iterable[bytes]]) -> Records:
        return lambda number, data: twist(data) if number == which else [data]

    table = dict(RECORDS_OF[version])
    if place != "request":
        # Its type is 22 in 1.2, so these headers change that as well.
        table |= {"of version 0": (header(b"\x16\0\0"), ODD)}
        if version == "1.2":
            table |= {"of version 1.0": (header(b"\x16\3\1"), MAC)}
    address = target.server.address
    came = {name: outcome(address, VERSIONS[version], records=at(twist)) for name, (twist, _) in table.items()}
    assert came == {name: expected for name, (_, expected) in table.items()}


# ---- Sessions

Said = list[tuple[int, bytes]]
UPDATE = message(KEY_UPDATE, b"\0")
SESSIONS: dict[str, tuple[Said, str, str]] = {
    # The client says this behind the handshake; the server answers so in 1.2, and so in 1.3.
    "a key update of a wrong value": ([(HANDSHAKE, message(KEY_UPDATE, b"\2"))], LATE, ILLEGAL),
    "a key update of no byte": ([(HANDSHAKE, message(KEY_UPDATE, b""))], ODD, ODD),
    "a key update of two bytes": ([(HANDSHAKE, message(KEY_UPDATE, b"\0\0"))], ODD, ODD),
    # RFC 8446 section 5.1: behind it the keys are others, so it ends its record.
    "two key updates in a record": ([(HANDSHAKE, 2 * UPDATE)], LATE, LATE),
    "a key update and a half": ([(HANDSHAKE, UPDATE + UPDATE[:3])], LATE, LATE),
    # RFC 8446 section 5.1 wants an alert; rustls ends without one.
    "data within a key update": (
        [(HANDSHAKE, UPDATE[:2]), (APPLICATION, b"x"), (HANDSHAKE, UPDATE[2:])],
        "closed",
        "closed",
    ),
    # RFC 5246 section 7.2.2: a warning, after which the client goes on or ends. RFC 8446 section 4.1.2: an error.
    "another hello": ([(HANDSHAKE, Hello().message())], "no_renegotiation", LATE),
    "a request of the server's": ([(HANDSHAKE, message(0, b""))], LATE, LATE),
    # RFC 8446 section 4.6.2: a client that was not asked to does not show a certificate.
    "a certificate": ([(HANDSHAKE, message(CERTIFICATE, bytes(4)))], ODD, LATE),
    "a signature": ([(HANDSHAKE, message(VERIFY, b"\4\3\0\0"))], LATE, LATE),
    "another end": ([(HANDSHAKE, message(FINISHED, bytes(32)))], LATE, LATE),
    "the end of early data": ([(HANDSHAKE, message(END_OF_EARLY, b""))], LATE, LATE),
    # It cannot be read before it is out of place.
    "a ticket": ([(HANDSHAKE, message(TICKET, bytes(30)))], ODD, ODD),
    "an unknown message": ([(HANDSHAKE, message(99, b""))], LATE, LATE),
    "a message of 16 MiB": ([(HANDSHAKE, b"\x14\xff\xff\xff" + bytes(100))], "closed", "closed"),
    # RFC 8446 section 5.1 forbids it; rustls has nothing to read.
    "a message of no byte": ([(HANDSHAKE, b"")], "answered", "answered"),
    # Heartbleed, and content types that there are not: rustls cannot read those.
    "a heartbeat": ([(HEARTBEAT, b"\1\0\1x" + bytes(16))], ODD, ODD),
    "a heartbeat that is too greedy": ([(HEARTBEAT, b"\1\x40\0")], ODD, ODD),
    "type 25": ([(25, b"x")], ODD, ODD),
    "type 255": ([(255, b"")], ODD, ODD),
    "an alert of no byte": ([(ALERT, b"")], ODD, ODD),
    "an alert of three bytes": ([(ALERT, b"\1\x5a\1")], ODD, ODD),
    "two alerts in a record": ([(ALERT, b"\1\x5a\1\x5a")], ODD, ODD),
    "an alert of the level 3": ([(ALERT, b"\3\x5a")], ILLEGAL, ILLEGAL),
    "a warning": ([WARNING], "answered", "answered"),
    # RFC 8446 section 6: in 1.3 each other one is an error.
    "a warning of a certificate": ([(ALERT, b"\1\x29")], "answered", ODD),
    "five warnings": ([WARNING] * 5, "closed", "closed"),
    "a fatal alert": ([(ALERT, b"\2\x50")], "closed", "closed"),
    "the end": ([(ALERT, b"\1\0")], "closed", "closed"),
    "some records of no byte": ([(APPLICATION, b"")] * 31, "answered", "answered"),
    # The RFCs have no bound for them; rustls does.
    "many records of no byte": ([(APPLICATION, b"")] * 33, "closed", "closed"),
    "a record that is too long": ([(APPLICATION, b"G" * 16_385)], "record_overflow", "record_overflow"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions(target: Target, version: str) -> None:
    came = {
        name: outcome(target.server.address, VERSIONS[version], then=lambda client, said=said: client.say(*said))
        for name, (said, *_) in SESSIONS.items()
    }
    column = list(VERSIONS).index(version)
    assert came == {name: expected[column] for name, (_, *expected) in SESSIONS.items()}


INNER: dict[str, tuple[bytes, str]] = {
    "padded": (b"\x17" + bytes(500), "answered"),
    "padded as far as may be": (b"\x17" + bytes(16_384), "answered"),
    "padded too far": (b"\x17" + bytes(16_385), "record_overflow"),
    "a byte too long": (b"G" * 16_385 + b"\x17", "record_overflow"),
    "a change of cipher": (b"\1\x14", LATE),
    # RFC 8446 section 5.4: unexpected_message; rustls ends without an alert.
    "of no byte": (b"", "closed"),
    "of padding alone": (bytes(10), "closed"),
}


def test_plaintexts_of_1_3(target: Target) -> None:
    """RFC 8446 section 5.4."""
    came = {
        name: outcome(target.server.address, TLS_1_3, then=lambda client, said=said: client.say_inner(said))
        for name, (said, _) in INNER.items()
    }
    assert came == {name: expected for name, (_, expected) in INNER.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_records_of_a_byte(target: Target, version: str) -> None:
    """A request in records of one byte each, and one split after its first byte (as clients do for CBC, 1/n-1)."""
    for cut in (1, 100_000):
        data = b"GET /text/plain?len=5 HTTP/1.1\r\nHost: a\r\n\r\n"

        def then(client: Client, cut: int = cut, data: bytes = data) -> None:
            pieces = [data[at : at + 1] for at in range(len(data))] if cut == 1 else [data[:1], data[1:]]
            client.say(*[(APPLICATION, piece) for piece in pieces])

        assert outcome(target.server.address, VERSIONS[version], then=then) == "answered"


def test_key_updates(target: Target) -> None:
    """RFC 8446 section 4.6.3: the client's keys change with each, and the server's with those that ask for it."""
    for kind in (0, 1):

        def then(client: Client, kind: int = kind) -> None:
            for _ in range(20):
                for _ in client.tls.send_keyupdate_request(kind):
                    raise AssertionError("the socket blocks")

        assert outcome(target.server.address, TLS_1_3, then=then) == "answered"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_that_comes_again(target: Target, version: str) -> None:
    """The request in it is answered once, if the server had not seen the copy by then."""
    again = PLAIN_RECORDS[version] + 1
    before = target.counts.settled()["arrived"]
    came = outcome(
        target.server.address,
        VERSIONS[version],
        records=lambda number, data: [data, data] if number == again else [data],
    )
    assert came in ("answered", MAC)
    assert target.counts.settled()["arrived"] <= before + 1


# ---- Tickets

TICKETS: dict[str, Change] = {
    **{f"a wrong bit in byte {at}": bit(8 * at) for at in (0, 1, 5, 15, 16, 17, 31, 40)},
    "a byte too short": lambda ticket: ticket[:-1],
    "a byte too long": lambda ticket: ticket + b"\0",
    "of a byte": lambda ticket: ticket[:1],
    "of zeros": lambda ticket: bytes(len(ticket)),
    "of 16,000 bytes": lambda ticket: ticket + bytes(16_000),
    "of 60,000 bytes": lambda ticket: ticket + bytes(60_000),
}


def test_tickets_of_1_3(target: Target) -> None:
    """RFC 8446 section 4.6.1: with a ticket that is not the server's the handshake is a whole one."""
    address = target.server.address
    session = session_of(address, TLS_1_3)
    assert outcome(address, TLS_1_3, session=session) == "resumed"
    for name, change in TICKETS.items():
        session = session_of(address, TLS_1_3)
        for ticket in session.tickets:
            ticket.ticket = bytearray(change(bytes(ticket.ticket)))
        assert outcome(address, TLS_1_3, session=session) == "answered", name


def test_tickets_of_1_2(target: Target) -> None:
    """RFC 5077 section 3.1. By the first words of the server: with its own ticket it shows no certificate."""
    address = target.server.address
    session = session_of(address, TLS_1_2)
    [ticket] = [bytes(ticket.ticket) for ticket in session.tls_1_0_tickets]
    hello = Hello(suites=(session.cipherSuite,)) | {MASTER_SECRET: b""}
    resumed = ask(address.connect(), hello | {TICKETS_OF_1_2: ticket})
    assert (resumed.word, CERTIFICATE in resumed.messages) == ("1.2", False)
    for name, change in TICKETS.items():
        said = (hello | {TICKETS_OF_1_2: change(ticket)}).message()
        whole = ask(address.connect(), records(said, 16_000))
        assert (whole.word, CERTIFICATE in whole.messages) == ("1.2", True), name


def test_a_ticket_of_another_client(target: Target) -> None:
    """A client that has a ticket, and not its secret, has no right binder (RFC 8446 section 4.2.11.2)."""
    address = target.server.address
    session = session_of(address, TLS_1_3)
    session.resumptionMasterSecret = bytearray(len(session.resumptionMasterSecret))
    assert outcome(address, TLS_1_3, session=session) == "decrypt_error"
