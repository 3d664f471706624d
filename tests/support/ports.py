"""TCP ports in a row that no other process has."""

import contextlib
import socket
from collections.abc import Iterator

ATTEMPTS = 200
LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def row_of_ports(count: int) -> Iterator[int]:
    """The first of `count` ports in a row, which a server may listen on, and no other process meanwhile.

    They are bound here without SO_REUSEADDR, so only one test gets each; then the option is set, with which Linux lets
    a server that sets it too bind and listen beside a socket that does not listen (socket(7)).
    """
    for _ in range(ATTEMPTS):
        with contextlib.ExitStack() as stack:
            try:
                base = _bind(stack, 0)
                for port in range(base + 1, base + count):
                    _bind(stack, port)
            except (OSError, OverflowError):
                continue
            yield base
            return
    raise AssertionError(f"no {count} ports in a row are free")


def _bind(stack: contextlib.ExitStack, port: int) -> int:
    sock = stack.enter_context(socket.socket())
    sock.bind((LOOPBACK, port))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound: int = sock.getsockname()[1]
    return bound
