"""A server that does with each connection what a test says, in threads of the test itself."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from support.patience import PATIENCE_S

Script = Callable[[socket.socket], None]


@contextlib.contextmanager
def scripted(script: Script, path: Path | None = None) -> Iterator[str]:
    """Its address, as the lab has addresses. Each connection is given to `script`, and closed behind it."""
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    listener.listen(1024)
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def one(connection: socket.socket) -> None:
        # The client may leave at any time, and the test may end.
        with contextlib.suppress(OSError), connection:
            script(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # shut down below
            connection.settimeout(PATIENCE_S)
            connections.append(connection)
            threads.append(threading.Thread(target=one, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"unix:{path}" if path else f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        accepting.join(PATIENCE_S)
        listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(PATIENCE_S)


def request_line(connection: socket.socket) -> str:
    """The request line of the next request, which has no body; empty if there is none."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        data = connection.recv(1)
        if not data:
            return ""
        head += data
    return head.partition(b"\r\n")[0].decode("latin-1")


def reset(connection: socket.socket) -> None:
    """Close with RST (SO_LINGER of zero, socket(7))."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
