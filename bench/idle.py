"""The cost of idle connections: kept alive, each has been answered once."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from bench import nginx
from bench.apps import hello
from bench.measure import ANSWER_S, Figures, Plan, serving
from bench.processes import ServerError, Tree
from bench.servers import Server

CONNECTIONS = 5000
# Opened, answered and closed before the first look: memory made at the first need is no cost of the connections.
WARM_UP = 200
# The connections idle so long before the second look: time to give back memory that only busy connections need.
REST_S = 1.0
# One connection of so many is asked again: a server that has closed them would look frugal.
ASKED_AGAIN = 50
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"


def idle(server: Server, _plan: Plan, _round: int) -> Figures:
    allow_descriptors(CONNECTIONS + 1000)
    with serving(server, "hello:app", floor=nginx.floor()) as (tree, port):
        with answered(port, WARM_UP):
            pass
        return memory_of_each(tree, answered(port, CONNECTIONS), closed_of_some)


def memory_of_each(
    tree: Tree, opened: AbstractContextManager[list[socket.socket]], closed: Callable[[list[socket.socket]], int]
) -> Figures:
    """Memory of all processes of the server for each of these connections, which idle, and how many it has closed."""
    time.sleep(REST_S)
    before = tree.pss_bytes(), tree.anonymous_bytes()
    with opened as connections:
        time.sleep(REST_S)
        after = tree.pss_bytes(), tree.anonymous_bytes()
        failures, count = closed(connections), len(connections)
    pss_kb, anonymous_kb = ((now - then) / count / 1e3 for now, then in zip(after, before, strict=True))
    return {"pss_kb": pss_kb, "anonymous_kb": anonymous_kb, "failures": failures, "requests": count}


def closed_of_some(connections: list[socket.socket]) -> int:
    return sum(not is_alive(connection) for connection in connections[::ASKED_AGAIN])


def allow_descriptors(count: int) -> None:
    """For us and, as they inherit it, for the servers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise ServerError(f"{count} descriptors are needed, and ulimit -Hn is {hard}")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@contextlib.contextmanager
def answered(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, on each of which one request was answered."""
    with contextlib.ExitStack() as connections_end:
        connections = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
            connections.append(connections_end.enter_context(connection))
            if not is_alive(connection):
                raise ServerError(f"connection {len(connections)} of {count} was not answered and kept")
        yield connections


def is_alive(connection: socket.socket) -> bool:
    """Whether a request on it is answered, and the connection not closed by that."""
    got = b""
    try:
        connection.sendall(REQUEST)
        while not got.endswith(hello.BODY):
            piece = connection.recv(65536)
            if not piece:
                return False
            got += piece
    except (ConnectionError, TimeoutError):
        return False
    return b"connection: close" not in got.lower()
