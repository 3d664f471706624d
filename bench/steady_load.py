"""Clients that never pause, for what should not be noticed: every request is answered, or is counted as failed.

A client sends only on a connection that the server has not closed by then, and obeys `Connection: close`. From the
first byte it has sent, anything but a whole answer of 200 is a failure.
"""

import contextlib
import select
import socket
import threading
import time
from dataclasses import dataclass

# Of each kind: with keep-alive where the server has it, and with a connection for each request.
CLIENTS = 4
PAUSE_S = 0.005
ANSWER_S = 10.0


class Broken(Exception):
    """No whole answer of 200 came."""


@dataclass
class Tally:
    answered: int = 0
    failed: int = 0


class Steady:
    """The load on a port, for as long as the `with` lasts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._tallies = [Tally() for _ in range(2 * CLIENTS)]
        self._threads = [
            threading.Thread(target=self._client, args=(tally, number < CLIENTS))
            for number, tally in enumerate(self._tallies)
        ]

    def __enter__(self) -> "Steady":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def failed(self) -> int:
        return sum(tally.failed for tally in self._tallies)

    @property
    def answered(self) -> int:
        return sum(tally.answered for tally in self._tallies)

    def _client(self, tally: Tally, keep_alive: bool) -> None:
        connection: socket.socket | None = None
        while not self._stop.wait(PAUSE_S):
            try:
                connection, _ = exchange(self._port, connection, keep_alive)
                tally.answered += 1
            except (OSError, Broken):
                tally.failed += 1
                connection = None
        if connection:
            connection.close()


def exchange(port: int, connection: socket.socket | None, keep_alive: bool) -> tuple[socket.socket | None, bytes]:
    """One request; the connection, if there may be another one on it, and the body."""
    option = b"" if keep_alive else b"Connection: close\r\n"
    data = b"GET / HTTP/1.1\r\nHost: bench\r\n" + option + b"\r\n"
    if connection and not sent_first(connection, data):
        connection.close()
        connection = None
    if connection is None:
        connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        connection.sendall(data)
    with contextlib.ExitStack() as stack:
        stack.enter_context(connection)
        head, body = answer(connection)
        if keep_alive and b"\r\nconnection: close\r\n" not in head:
            stack.pop_all()
            return connection, body
    return None, body


def sent_first(connection: socket.socket, data: bytes) -> bool:
    """Send on a connection that was used before; False if the server had closed it before the first byte."""
    if select.select([connection], [], [], 0)[0]:
        try:
            unasked = connection.recv(1)
        except ConnectionResetError:
            return False
        if unasked:
            raise Broken("bytes that nobody asked for")
        return False
    try:
        connection.sendall(data)
    except BrokenPipeError:
        return False
    return True


def answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head in lower case, and the body; Broken if it is no whole 200."""
    deadline = time.monotonic() + ANSWER_S
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            head = head.lower() + b"\r\n"
            length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            if not head.startswith((b"http/1.1 200", b"http/1.0 200")) or not length.strip().isdigit():
                raise Broken(head.decode("latin-1"))
            if len(body) == int(length):
                return head, body
        part = connection.recv(65536)
        if not part or time.monotonic() > deadline:
            raise Broken(f"ended after {len(data)} bytes")
        data += part
