"""The memory that all sessions (open WebSockets) together may hold, and how the server notices clients gone."""

import resource
import socket
from collections.abc import Iterator

import pytest

from support.clock import Clock
from support.counts import Counts
from support.patience import eventually
from support.server import UNHURRIED, Serve, Server
from support.unread import untaken_bytes
from support.websocket import Open, WebSocket, seen, sessions
from support.witness import acceptor_has_seen

ASGI = ("--interface", "asgi")
PINGS = ("--ws-ping-interval", "100", "--ws-ping-timeout", "100", "--loop-timeout", "0")
PING = ("ping", b"")
NO_PINGS = ("--ws-ping-interval", "0")
CLIENTS = 1000
LONG_BYTES = 1 << 17
MEMORY_BYTES = 16 << 20
OWN_BYTES = 16 << 10
NO_MEMORY = (1013, "no memory is left for messages")
TOO_SLOW = (1008, "the rest of a message came too slowly")
# More than a slot takes in for its worker, and more than a client may have besides.
LARGE_BYTES = 300_000


def all_but_a_byte() -> bytes:
    header = b"\x82\xff" + (LONG_BYTES + 1).to_bytes(8, "big") + bytes(4)
    return header + bytes(LONG_BYTES)


def fragment(data: bytes, of_more: bool = True) -> bytes:
    """The start of a binary message, or its end."""
    first = b"\x02" if of_more else b"\x80"
    return first + b"\xff" + len(data).to_bytes(8, "big") + bytes(4) + data


def has_room(client: WebSocket) -> bool:
    """Whether it was not sent away."""
    client.wire.sock.setblocking(False)
    try:
        return not client.wire.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        client.wire.sock.setblocking(True)


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Raise the limit of open files to the number of clients, for this test alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, CLIENTS + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("many_open_files")
def test_what_a_thousand_clients_have_sent_of_messages_is_bounded_together(
    serve: Serve, counts: Counts, opens: Open
) -> None:
    memory = ("--max-ws-memory", str(MEMORY_BYTES), "--body-timeout", "0")
    server = serve("sockets:app", *ASGI, *memory, *NO_PINGS, *UNHURRIED, *counts.arguments)
    clients = [opens(server) for _ in range(CLIENTS)]
    before = server.acceptor().memory_full_info().uss
    for client in clients:
        client.wire.send(all_but_a_byte())
    fit = MEMORY_BYTES // (LONG_BYTES - OWN_BYTES)
    eventually(lambda: sum(map(has_room, clients)) <= fit, "the others are sent away")
    # A message that needs more than a read is counted as it comes, so two that come at once may both find no room.
    held = [client for client in clients if has_room(client)]
    assert fit - 8 <= len(held) <= fit
    # Buffers of sockets are the kernel's. The first part of each message is beside the bound of all, and so is what is
    # kept of memory that is free. All of them would be 131 MB.
    assert server.acceptor().memory_full_info().uss - before < 2 * MEMORY_BYTES
    for client in clients:
        if client not in held:
            assert client.until_end() == [NO_MEMORY]
    assert sessions(counts) == {"begun": CLIENTS, "closed_by_server": CLIENTS - len(held)}
    server.log.only(r"\[ERROR\] clients send more at once over WebSockets")

    # A client that leaves makes room.
    for client in held[1:]:
        client.drop()
    eventually(lambda: sessions(counts).get("cut") == len(held) - 1, "they are gone")
    held[0].wire.send(bytes(1))
    assert held[0].hear() == bytes(LONG_BYTES + 1)


def test_a_message_that_does_not_go_on_gives_its_memory_back(
    serve: Serve, counts: Counts, clock: Clock, opens: Open
) -> None:
    limits = ("--max-ws-memory", str(LONG_BYTES), "--body-timeout", "100", "--loop-timeout", "0")
    server = serve("sockets:app", *ASGI, *limits, *NO_PINGS, *UNHURRIED, *counts.arguments, env=clock.environment)
    short, stuck, other, later = (opens(server) for _ in range(4))
    for client, sent in ((short, bytes(OWN_BYTES)), (stuck, bytes(LONG_BYTES))):
        client.wire.send(fragment(sent) + b"\x89\x80" + bytes(4))
        assert client.hear() == ("pong", b"")
    other.wire.send(fragment(bytes(LONG_BYTES)))
    assert other.until_end() == [NO_MEMORY]
    clock.advance(101)
    assert stuck.until_end() == [TOO_SLOW]
    eventually(lambda: codes_seen(server) == [1008, 1013], "the app is told")
    later.wire.send(fragment(bytes(LONG_BYTES)) + fragment(b"", of_more=False))
    assert later.hear() == bytes(LONG_BYTES)
    # A message that takes no memory from others may wait.
    short.wire.send(fragment(b"the end", of_more=False))
    assert short.hear() == bytes(OWN_BYTES) + b"the end"
    assert sessions(counts) == {"begun": 4, "closed_by_server": 2}


def test_messages_for_an_app_that_does_not_receive_are_bounded_together(
    serve: Serve, counts: Counts, opens: Open
) -> None:
    server = serve("sockets:app", *ASGI, "--max-ws-memory", str(1 << 20), *NO_PINGS, *counts.arguments)
    clients = [opens(server, "/deaf") for _ in range(20)]
    for client in clients:
        client.bytes(bytes(LARGE_BYTES))
    eventually(lambda: sum(map(has_room, clients)) <= 7, "the others are sent away")
    away = [client for client in clients if not has_room(client)]
    assert [client.hear() for client in away] == [NO_MEMORY] * len(away)


def test_a_client_that_is_there_is_pinged_again_while_its_app_does_not_receive(
    serve: Serve, counts: Counts, clock: Clock, opens: Open
) -> None:
    server = serve("sockets:app", *ASGI, *PINGS, *counts.arguments, env=clock.environment)
    client = opens(server, "/deaf")
    client.bytes(bytes(LARGE_BYTES))
    for _ in range(3):
        clock.advance(101)
        assert client.hear() == PING
        eventually(lambda: untaken_bytes(client.wire.sock) == 0, "its kernel has acknowledged that")
        clock.advance(101)
        acceptor_has_seen(server.address)
    assert sessions(counts) == {"begun": 1}


def test_a_client_whose_machine_takes_nothing_is_noticed_while_its_app_does_not_receive(
    serve: Serve, counts: Counts, clock: Clock, opens: Open
) -> None:
    server = serve("sockets:app", *ASGI, *PINGS, *counts.arguments, env=clock.environment)
    # Its kernel has no room for what the app says, so it acknowledges no ping behind that: as if it were gone.
    client = opens(server, "/said-and-deaf", receive_buffer_bytes=4096)
    client.bytes(bytes(LARGE_BYTES))

    def is_noticed() -> bool:
        # Less than the time for which the server still reads from a client that it has closed, which begins then: after
        # that, bytes that the client has not read yet would be lost.
        clock.advance(9)
        return sessions(counts).get("closed_by_server", 0) == 1

    eventually(is_noticed, "it is noticed")
    # A client that sends to a closed connection gets a reset.
    client.answers_pings = False
    heard = client.until_end()
    assert heard[0] == bytes(50_000)
    assert [one for one in heard[1:] if one != PING] == [(1011, "a ping was not answered")]
    assert sessions(counts) == {"begun": 1, "closed_by_server": 1}


def codes_seen(server: Server) -> list[int]:
    """The codes with which sessions have ended for the app."""
    return sorted(event[0] for event in seen(server) if isinstance(event[0], int))


def codes(client: WebSocket) -> list[int]:
    """The codes of the close frames that it hears, and nothing else. Not by wsproto, which does not know all codes."""
    heard = b"".join(iter(lambda: client.wire.sock.recv(1 << 16), b""))
    assert heard[:1] == b"\x88" and len(heard) == 2 + heard[1]
    return [int.from_bytes(heard[2:4], "big")]


def closed_with(client: WebSocket, code: int) -> list[int]:
    """The codes that a client hears which closes with this code."""
    client.wire.send(b"\x88\x82\x00\x00\x00\x00" + code.to_bytes(2, "big"))
    return codes(client)


MAY_BE_SENT = [1000, 4999]
NONE_MAY_SEND = [1005, 5000]
"""crates/stanchion-websocket/src/code.rs has all codes."""


def test_a_code_that_may_be_sent_is_sent_by_either_side(serve: Serve, counts: Counts, opens: Open) -> None:
    server = serve("sockets:app", *ASGI, *counts.arguments)
    for number, code in enumerate(MAY_BE_SENT, 1):
        assert closed_with(opens(server), code) == [code]
        client = opens(server)
        client.text(f"close {code}")
        header = client.wire.sock.recv(2, socket.MSG_PEEK)
        assert header == b"\x88\x02"
        client.wire.send(b"\x88\x80\x00\x00\x00\x00")
        assert codes(client) == [code]
        assert sessions(counts) == {"begun": 2 * number, "closed_by_client": number, "closed_by_app": number}
    eventually(lambda: codes_seen(server) == sorted(2 * MAY_BE_SENT), "the app is told")


def test_a_code_that_none_may_send_is_sent_by_neither_side(serve: Serve, counts: Counts, opens: Open) -> None:
    server = serve("sockets:app", *ASGI, *counts.arguments)
    for number, code in enumerate(NONE_MAY_SEND, 1):
        assert closed_with(opens(server), code) == [1002]
        client = opens(server)
        client.text(f"close {code}")
        assert client.hear() == f"no code of a close that may be sent: {code}"
        # The second client is still there.
        assert sessions(counts) == {"begun": 2 * number, "closed_by_server": number}
    eventually(lambda: codes_seen(server) == [1002] * len(NONE_MAY_SEND), "the app is told")
