"""WebSockets and event streams: what a message costs, and what those cost on which nothing happens."""

import base64
import contextlib
import os
import select
import socket
import time
from collections.abc import Iterator

from bench.idle import allow_descriptors, memory_of_each
from bench.measure import ANSWER_S, CLIENT_CORE, WARM_UP_S, Figures, OtherLoad, Plan, serving
from bench.processes import ServerError
from bench.servers import Server
from bench.turns import Stand, Turn, cpu_figures, spent_since

CONNECTIONS = 32
TURN_S = 1
IDLE_SOCKETS = 1_000
IDLE_STREAMS = 5_000
# Opened and closed before the first look.
WARM_UP = 50
KEY = base64.b64encode(bytes(16)).decode()
HANDSHAKE = (
    f"GET / HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
).encode()
STREAM = b"GET /events HTTP/1.1\r\nHost: bench\r\n\r\n"
PING, PONG = 0x89, 0x8A
# More than a ping of the server in front of a message, as servers send them.
PING_BYTES = 64
FIRST_EVENT = b"data: first\n\n"
# So many streams at once are more than a worker takes as a rule.
OWN = ("--worker-concurrency", str(IDLE_STREAMS + WARM_UP))


def echo(message_bytes: int) -> Stand:
    """Each connection sends a message when the one before has come back."""
    # A key of zeros masks nothing away from a client that is to be cheap (RFC 6455, section 5.3).
    sent = head(0x80, message_bytes) + bytes(4) + b"x" * message_bytes
    answered = head(0, message_bytes) + b"x" * message_bytes

    @contextlib.contextmanager
    def stand(server: Server) -> Iterator[Turn]:
        with serving(server, "asgi:echo") as (tree, port), opened(port, HANDSHAKE, CONNECTIONS) as connections:

            def turn() -> Figures:
                others = OtherLoad()
                before = tree.cpu()
                with on_the_clients_core():
                    count = exchange(connections, sent, answered, TURN_S)
                spent = spent_since(before, tree.cpu())
                all_ns = sum(cpu.all_ns for cpu in spent.values())
                figures = {"rps": count / TURN_S, "failures": 0, "requests": count}
                return {**figures, "others_share": others.share(all_ns), **dict(cpu_figures("", spent, count))}

            exchange(connections, sent, answered, WARM_UP_S)
            yield turn

    return stand


def head(masked: int, length: int) -> bytes:
    """Of a whole binary message (RFC 6455, section 5.2)."""
    if length < 126:
        return bytes([0x82, masked | length])
    if length < 1 << 16:
        return bytes([0x82, masked | 126]) + length.to_bytes(2, "big")
    return bytes([0x82, masked | 127]) + length.to_bytes(8, "big")


@contextlib.contextmanager
def on_the_clients_core() -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CLIENT_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def opened(port: int, request: bytes, count: int, until: bytes = b"\r\n\r\n") -> Iterator[list[socket.socket]]:
    """So many connections, each answered as far as `until`."""
    with contextlib.ExitStack() as connections_end:
        connections = []
        for number in range(count):
            connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
            connections.append(connections_end.enter_context(connection))
            connection.sendall(request)
            got = b""
            while until not in got:
                piece = connection.recv(65536)
                if not piece:
                    raise ServerError(f"connection {number + 1} of {count} was not opened: {got[:80]!r}")
                got += piece
        yield connections


def exchange(connections: list[socket.socket], sent: bytes, answered: bytes, duration_s: float) -> int:
    """How many messages came back."""
    waiting = {connection.fileno(): (connection, bytearray()) for connection in connections}
    # Not more, for Python makes room for all of it each time.
    piece_bytes = len(answered) + PING_BYTES
    poll = select.epoll()
    count, until_s = 0, time.perf_counter() + duration_s
    with contextlib.closing(poll):
        for descriptor, (connection, _) in waiting.items():
            poll.register(descriptor, select.EPOLLIN)
            connection.sendall(sent)
        outstanding = len(connections)
        while outstanding:
            events = poll.poll(ANSWER_S)
            if not events:
                raise ServerError("a message did not come back")
            is_over = time.perf_counter() > until_s
            for descriptor, _ in events:
                connection, got = waiting[descriptor]
                piece = connection.recv(piece_bytes)
                if not piece:
                    raise ServerError("a WebSocket was closed under load")
                if got or piece != answered:
                    got += piece
                    whole = whole_frames(connection, got, answered)
                else:
                    whole = 1
                count += whole
                if is_over:
                    outstanding -= whole
                elif whole:
                    connection.sendall(sent)
    return count


def whole_frames(connection: socket.socket, got: bytearray, answered: bytes) -> int:
    """Takes the messages that have come whole off the front. Servers ping between messages, and are answered."""
    count = 0
    while got:
        is_ping = got[0] == PING
        end = 2 + got[1] if is_ping and len(got) > 1 else len(answered)
        if len(got) < end:
            break
        if is_ping:
            # With as much, and of the same (RFC 6455, section 5.5.3).
            connection.sendall(bytes([PONG, 0x80 | got[1]]) + bytes(4) + got[2:end])
        elif got[:end] != answered:
            raise ServerError(f"another message came back: {bytes(got[:20])!r}")
        else:
            count += 1
        del got[:end]
    return count


def idle_sockets(server: Server, _plan: Plan, _round: int) -> Figures:
    return idle(server, "asgi:echo", HANDSHAKE, IDLE_SOCKETS, b"\r\n\r\n")


def idle_streams(server: Server, _plan: Plan, _round: int) -> Figures:
    return idle(server, "asgi:events", STREAM, IDLE_STREAMS, FIRST_EVENT)


def idle(server: Server, app: str, request: bytes, count: int, until: bytes) -> Figures:
    allow_descriptors(count + 1000)
    own = OWN if server.name == "stanchion-asgi" else ()
    with serving(server, app, own=own) as (tree, port):
        with opened(port, request, WARM_UP, until):
            pass
        return memory_of_each(tree, opened(port, request, count, until), lambda some: sum(map(is_closed, some)))


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return not connection.recv(1, socket.MSG_PEEK)
    return False
