"""Messages of WebSockets that are compressed (RFC 7692): as Python's websockets and zlib have it."""

import json
import os
import random
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from support.counts import Counts
from support.frames import (
    BINARY,
    CONTINUED,
    DEFLATED,
    EXTENSIONS,
    FIN,
    OFFER,
    PING,
    PONG,
    TAIL,
    TEXT,
    Raw,
    deflated,
)
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.websocket import Ask, seen, sessions

from .conftest import ServeAsgi

pytestmark = pytest.mark.own("its clients speak frames")

ASGI = ("--interface", "asgi")
DEFLATE = "--ws-per-message-deflate"
# With a smaller window a message would take too long.
COMPRESSED_FROM_BITS = 12
AGREED = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
# The server sends messages of the app's up to this length uncompressed.
PLAIN_BYTES_MAX = 1023


def inflated(data: bytes, window_bits: int = 15) -> bytes:
    stream = zlib.decompressobj(wbits=-window_bits)
    # Little at a time: zlib finds in its window what comes again, and not in what it has given in the same call.
    pieces = [stream.decompress(data + TAIL, 64 if window_bits < 15 else 0)]
    while stream.unconsumed_tail:
        pieces.append(stream.decompress(stream.unconsumed_tail, 64))
    return b"".join(pieces)


def like_json(length: int) -> bytes:
    """Data as compressible as the messages of apps."""
    numbers = random.Random(length)
    items = [{"id": numbers.getrandbits(40), "name": f"user {numbers.getrandbits(8)}"} for _ in range(length // 36 + 1)]
    return json.dumps(items).encode()[:length].ljust(length)


Opening = Callable[..., Raw]


@pytest.fixture
def raw() -> Iterator[Opening]:
    with ExitStack() as clients:

        def opened(server: Server, offer: str | None = OFFER, path: str = "/") -> Raw:
            return Raw(clients.enter_context(server.connect()), offer, path)

        yield opened


@pytest.fixture(scope="module")
def server(shared_serve: Serve) -> Server:
    return shared_serve("sockets:app", *ASGI, DEFLATE)


def test_nothing_is_compressed_unless_it_is_switched_on(serve: Serve, raw: Opening) -> None:
    client = raw(serve("sockets:app", *ASGI))
    assert (client.answer.status, client.answer.header(EXTENSIONS)) == (101, None)
    client.send(FIN | TEXT, bytes(10_000))
    assert client.message() == ([FIN | TEXT], bytes(10_000))
    client.send(FIN | DEFLATED | TEXT, deflated(b"x"))
    assert client.closed() == 1002


@pytest.mark.parametrize(
    ("offer", "status", "agreed"),
    [
        (None, 101, None),
        (OFFER, 101, AGREED),
        ("permessage-deflate; server_max_window_bits=8", 101, None),
        ("permessage-deflate;", 400, None),
    ],
)
def test_what_a_client_offers_is_agreed_on_or_declined(
    server: Server, offer: str | None, status: int, agreed: str | None, raw: Opening
) -> None:
    client = raw(server, offer)
    assert (client.answer.status, client.answer.header(EXTENSIONS)) == (status, agreed)
    if status == 101:
        client.send(FIN | TEXT, b"x" * 10_000)
        firsts, payload = client.message()
        if agreed is None:
            assert (firsts, payload) == ([FIN | TEXT], b"x" * 10_000)
        else:
            assert (firsts, inflated(payload)) == ([FIN | DEFLATED | TEXT], b"x" * 10_000)


def test_an_answer_that_is_no_websocket_agrees_on_nothing(server: Server, raw: Opening, asked: Ask) -> None:
    denied = raw(server, path="/deny")
    assert (denied.answer.status, denied.answer.header(EXTENSIONS)) == (403, None)
    plain = asked(server, **{EXTENSIONS: OFFER})
    assert (plain.status, plain.header(EXTENSIONS)) == (200, None)


def test_messages_of_all_sizes_come_back_to_websockets_as_they_went(serve_asgi: ServeAsgi) -> None:
    server = serve_asgi("sockets:app", DEFLATE)
    host, port = server.address.host, server.address.port
    with connect(f"ws://{host}:{port}/", proxy=None, max_size=None, open_timeout=PATIENCE_S) as client:
        assert client.response is not None
        assert client.response.headers[EXTENSIONS] == AGREED
        for text in ("", "héllo 𝄞", like_json(1024).decode(), "ä" * 300_000, like_json(3_000_000).decode()):
            client.send(text)
            assert client.recv(PATIENCE_S) == text
        for data in (b"", b"\x00\xff", os.urandom(5_000), os.urandom(3_000_000), bytes(10_000_000)):
            client.send(data)
            assert client.recv(PATIENCE_S) == data
        # In fragments, of which the last is empty.
        client.send(["one ", "", "message" * 1000])
        assert client.recv(PATIENCE_S) == "one " + "message" * 1000
        client.send("close")
        with pytest.raises(ConnectionClosedError, match="as asked"):
            client.recv(PATIENCE_S)


@pytest.mark.parametrize("bits", [9, 15])
def test_a_window_is_no_larger_than_the_client_has_said(server: Server, bits: int, raw: Opening) -> None:
    client = raw(server, f"permessage-deflate; server_max_window_bits={bits}")
    # Repetitions lie farther back than the window reaches.
    data = like_json(1 << bits) + os.urandom(1 << (bits - 1))
    client.send(FIN | BINARY, data * 4)
    firsts, payload = client.message()
    if bits < COMPRESSED_FROM_BITS:
        assert (firsts, payload) == ([FIN | BINARY], data * 4)
    else:
        assert firsts[0] == FIN | DEFLATED | BINARY
        assert inflated(payload, bits) == data * 4


def test_short_messages_and_those_that_would_become_longer_are_sent_as_they_are(server: Server, raw: Opening) -> None:
    client = raw(server)
    unlike = os.urandom(5_000)
    for plain in (b"", b"x" * PLAIN_BYTES_MAX, unlike):
        client.send(FIN | BINARY, plain)
        assert client.message() == ([FIN | BINARY], plain)
    client.send(FIN | TEXT, b"x" * (PLAIN_BYTES_MAX + 1))
    first, payload = client.frame()
    assert (first, len(payload) < 50) == (FIN | DEFLATED | TEXT, True)
    assert inflated(payload) == b"x" * (PLAIN_BYTES_MAX + 1)


def test_a_long_message_says_in_its_first_frame_alone_that_it_is_compressed(server: Server, raw: Opening) -> None:
    client = raw(server)
    data = like_json(9_000_000)
    client.send(FIN | DEFLATED | BINARY, deflated(data))
    firsts, payload = client.message()
    assert len(firsts) > 1 and len(payload) > 1 << 20, "it goes out in pieces"
    assert {first & ~FIN for first in firsts[1:]} == {CONTINUED}
    assert firsts[0] == DEFLATED | BINARY
    assert inflated(payload) == data


def test_fragments_with_control_frames_between_them_are_one_message(server: Server, raw: Opening) -> None:
    client = raw(server)
    whole = deflated("fünf".encode() * 1000)
    client.send(DEFLATED | TEXT, whole[:1])
    client.send(FIN | PING, b"first")
    client.send(CONTINUED, b"")
    for at in range(1, len(whole)):
        client.send(CONTINUED, whole[at : at + 1])
    client.send(FIN | PING, b"second")
    client.send(FIN | CONTINUED, b"")
    # The worker may be faster than the second pong.
    frames = [client.frame() for _ in range(3)]
    assert [payload for first, payload in frames if first == FIN | PONG] == [b"first", b"second"]
    (payload,) = (payload for first, payload in frames if first == FIN | DEFLATED | TEXT)
    assert inflated(payload) == "fünf".encode() * 1000
    # A message that is not compressed may come among those that are.
    client.send(FIN | TEXT, b"plain")
    assert client.frame() == (FIN | TEXT, b"plain")


EMPTY = {
    "as RFC 7692 section 7.2.3.6 has it": b"\x00",
    "nothing": b"",
    "a block with the fixed codes": b"\x02\x00",
    "a last block": b"\x01",
    "a last block with the fixed codes": b"\x03\x00\x00",
    "two blocks": b"\x00" + TAIL + b"\x00",
}


def test_an_empty_message_is_what_zlib_takes_for_one(server: Server, raw: Opening) -> None:
    """crates/stanchion-websocket/tests/deflate.rs has all of them; so has Python's websockets, by its zlib."""
    assert {inflated(empty) for empty in EMPTY.values()} == {b""}
    client, empty = raw(server), EMPTY["two blocks"]
    for kind in (TEXT, BINARY):
        client.send(FIN | DEFLATED | kind, empty)
        assert client.frame() == (FIN | kind, b"")
        client.send(DEFLATED | kind, b"")
        client.send(FIN | CONTINUED, empty)
        assert client.frame() == (FIN | kind, b"")


BAD = {
    "a bomb": ([(FIN | DEFLATED | BINARY, deflated(bytes(1_000_001)))], 1009),
    "no UTF-8": ([(FIN | DEFLATED | TEXT, deflated(b"\xc3\x28"))], 1007),
    "a fragment that says it later": ([(TEXT, b"a"), (FIN | DEFLATED | CONTINUED, b"b")], 1002),
}


def test_what_is_no_message_closes_its_websocket_and_no_other(serve: Serve, counts: Counts, raw: Opening) -> None:
    server = serve("sockets:app", *ASGI, DEFLATE, "--ws-max-size", "1000000", "-w", "1", *counts.arguments)
    other, codes = raw(server), []

    def are_counted() -> bool:
        return sessions(counts) == {"begun": 1 + len(codes), "closed_by_server": len(codes)}

    def are_told() -> bool:
        ends = [event[::2] for event in seen(server) if isinstance(event[0], int)]
        return ends == [[code, "OSError"] for code in codes]

    for name, (frames, code) in BAD.items():
        client = raw(server)
        for first, payload in frames:
            client.send(first, payload)
        assert client.closed() == code, name
        codes.append(code)
        eventually(are_counted, f"{name} is counted")
        eventually(are_told, f"the app gets the end by {name}")
        # The other one sends a message of the greatest length allowed.
        other.send(FIN | DEFLATED | BINARY, deflated(bytes(1_000_000)))
        assert inflated(other.message()[1]) == bytes(1_000_000), name
    assert "[ERROR]" not in server.log.text()


def test_a_client_that_has_sent_what_is_no_message_and_gone_is_counted_once(
    serve: Serve, counts: Counts, raw: Opening
) -> None:
    server = serve("sockets:app", *ASGI, DEFLATE, "-w", "1", *counts.arguments)
    for _ in range(20):
        client = raw(server)
        client.send(FIN | DEFLATED | TEXT, b"\xff")
        client.wire.close()

    def ended() -> int:
        now = sessions(counts)
        return now.get("closed_by_server", 0) + now.get("cut", 0)

    eventually(lambda: ended() == 20, "all have ended")
    assert sessions(counts)["begun"] == 20
    assert counts.settled()["in_flight"] == 0
    assert {event[0] for event in seen(server) if isinstance(event[0], int)} <= {1006, 1007}


BOMBS_AHEAD_MAX = 100
"""So many are sent that have not been seen to be received."""


def test_a_flood_of_bombs_leaves_the_loop_time_for_what_others_want(serve_asgi: ServeAsgi, raw: Opening) -> None:
    """Their requests are answered between its messages, and not once there are no more of them."""
    server = serve_asgi("sockets:app", DEFLATE, "-w", "1")
    client = raw(server, path="/count")
    bomb = deflated(bytes(1 << 20))
    is_enough = Event()
    sent = received = 0

    def flood() -> None:
        nonlocal sent
        while not is_enough.wait(0 if sent - received < BOMBS_AHEAD_MAX else 0.001):
            if sent - received < BOMBS_AHEAD_MAX:
                client.send(FIN | DEFLATED | BINARY, bomb)
                sent += 1

    between: set[int] = set()

    def is_answered_between() -> bool:
        """The acceptor reads this request after all that was sent before it."""
        nonlocal received
        before = sent
        received = max([event[1] for event in seen(server) if event[0] == "received"], default=0)
        if 0 < received < before:
            between.add(received)
        return len(between) >= 5

    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood)
        try:
            eventually(is_answered_between, "requests are answered between messages", 2 * PATIENCE_S)
        finally:
            is_enough.set()
        flooding.result(PATIENCE_S)
    # None was lost for that.
    eventually(lambda: seen(server)[-1] == ["received", sent], "all are received")


def test_of_several_that_flood_all_are_heard(serve_asgi: ServeAsgi, raw: Opening) -> None:
    server = serve_asgi("sockets:app", DEFLATE, "-w", "1")
    data = bytes(1 << 20)
    clients = [raw(server) for _ in range(5)]
    for client in clients:
        for _ in range(4):
            client.send(FIN | DEFLATED | BINARY, deflated(data))
    for client in clients:
        for _ in range(4):
            assert inflated(client.message()[1]) == data


SOCKETS = 200


def anonymous_bytes(server: Server) -> int:
    """The anonymous memory of its processes, so without files and the memory in which requests cross."""
    rollups = [Path(f"/proc/{process.pid}/smaps_rollup").read_text() for process in server.processes()]
    return sum(1024 * int(kb) for rollup in rollups for kb in re.findall(r"^Anonymous: +(\d+) kB", rollup, re.M))


def test_a_websocket_that_idles_holds_no_window(serve: Serve, raw: Opening) -> None:
    """Each has sent and got a compressed message, and takes what one takes that never did."""
    server = serve("sockets:app", *ASGI, DEFLATE, "-w", "1", "--worker-sessions", str(2 * SOCKETS + 10))
    data = like_json(20_000)

    def open_and_talk(offer: str | None) -> None:
        for _ in range(SOCKETS):
            client = raw(server, offer)
            client.send(FIN | (DEFLATED if offer else 0) | TEXT, deflated(data) if offer else data)
            assert (inflated(client.message()[1]) if offer else client.message()[1]) == data

    # Memory that only the first WebSockets take.
    for offer in (OFFER, None):
        client = raw(server, offer)
        client.send(FIN | TEXT, data)
        client.message()
    before = anonymous_bytes(server)
    open_and_talk(None)
    plain = anonymous_bytes(server) - before
    open_and_talk(OFFER)
    compressed = anonymous_bytes(server) - before - plain
    # A window alone has 32 KiB.
    assert compressed < plain + SOCKETS * (16 << 10)
