"""Open-loop load: a connection for each request, opened when it is due, whatever became of those before.

One thread and one epoll: cheap enough to open thousands of connections in a second beside the server.
"""

import errno
import os
import random
import resource
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bench.servers import Address

REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
ANSWER_BYTES_MAX = 1 << 16
# Between two looks at the clock, so that deadlines are kept while nothing happens.
TURN_S = 0.05

# The outcomes of a request. Each request has exactly one.
SERVED = "served"  # 200, within the client's patience
TOLD = "told"  # 503 or 429: turned away, but with an answer
GATEWAY = "gateway"  # 502 or 504, from the proxy in front
REFUSED = "refused"  # no connection: the kernel's queue was full, or no process listened
BROKEN = "broken"  # reset, or closed without a whole answer
LATE = "late"  # nothing, for as long as the client's patience lasted
OTHER = "other"

KINDS = {200: SERVED, 429: TOLD, 503: TOLD, 502: GATEWAY, 504: GATEWAY}


@dataclass
class Request:
    due_s: float
    """From the start of the load."""
    kind: str = ""
    latency_s: float = 0.0
    """From when it was due until the answer, or until it was known that there will be none."""
    service_s: float = 0.0
    """The time that it took by the app's own measure, if it was served."""


@dataclass
class Load:
    """When requests are due, and how long and how politely their clients wait."""

    due_s: Sequence[float]
    patience_s: float
    # Close the connection once patience ends; else keep it, as a proxy does that ignores that its client has left.
    hang_up: bool = True
    # Called at these times, in order.
    at: Sequence[tuple[float, Callable[[], None]]] = field(default_factory=list)


def evenly(count: int, over_s: float) -> list[float]:
    return [number * over_s / count for number in range(count)]


def poisson(rate_per_s: float, over_s: float, seed: int) -> list[float]:
    dice = random.Random(seed)
    due_s, times = dice.expovariate(rate_per_s), []
    while due_s < over_s:
        times.append(due_s)
        due_s += dice.expovariate(rate_per_s)
    return times


def count(requests: Iterable[Request]) -> Counter[str]:
    return Counter(request.kind for request in requests)


def offer(address: Address, load: Load) -> list[Request]:
    """Send all of it; each request has its `kind` in the end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    offering = _Offering(address, load)
    try:
        offering.run()
    finally:
        offering.close()
    return offering.requests


@dataclass
class _Client:
    request: Request
    socket: socket.socket
    sent: bool = False
    answer: bytes = b""
    over: bool = False


class _Offering:
    def __init__(self, address: Address, load: Load) -> None:
        self.address = address
        self.load = load
        self.requests = [Request(due_s) for due_s in load.due_s]
        self.clients: dict[int, _Client] = {}
        self.silent: list[socket.socket] = []
        # In the order in which their patience ends: it is the same for all.
        self.patient: deque[_Client] = deque()
        self.epoll = select.epoll()
        self.began_s = 0.0

    def run(self) -> None:
        waiting, calls = iter(self.requests), iter(self.load.at)
        following, call = next(waiting, None), next(calls, None)
        self.began_s = time.monotonic()
        while following or call or self.clients:
            now_s = time.monotonic() - self.began_s
            while call and call[0] <= now_s:
                call[1]()
                call = next(calls, None)
            while following and following.due_s <= now_s:
                self.open(following)
                following = next(waiting, None)
            pause_s = min(TURN_S, following.due_s - now_s) if following else TURN_S
            for fd, events in self.epoll.poll(max(0.0, pause_s)):
                if fd in self.clients:
                    self.go_on(self.clients[fd], events)
            self.lose_patience()

    def open(self, request: Request) -> None:
        family = socket.AF_UNIX if self.address.path else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        error = connection.connect_ex(self.address.path or ("127.0.0.1", self.address.port))
        client = _Client(request, connection)
        if error not in (0, errno.EINPROGRESS):
            connection.close()
            self.end(request, REFUSED)
            return
        self.clients[connection.fileno()] = client
        self.epoll.register(connection.fileno(), select.EPOLLOUT)
        self.patient.append(client)

    def go_on(self, client: _Client, events: int) -> None:
        try:
            if not client.sent:
                error = client.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, os.strerror(error))
                client.socket.send(REQUEST)
                client.sent = True
                self.epoll.modify(client.socket.fileno(), select.EPOLLIN)
                return
            part = client.socket.recv(ANSWER_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            self.finish(client, BROKEN if client.sent else REFUSED)
            return
        client.answer += part
        if not part or events & select.EPOLLHUP or is_whole(client.answer):
            self.finish(client, kind_of(client.answer) if is_whole(client.answer) else BROKEN)

    def lose_patience(self) -> None:
        now_s = time.monotonic() - self.began_s
        while self.patient and self.patient[0].request.due_s + self.load.patience_s <= now_s:
            client = self.patient.popleft()
            if not client.over:
                self.finish(client, LATE, close=self.load.hang_up)

    def finish(self, client: _Client, kind: str, close: bool = True) -> None:
        client.over = True
        fd = client.socket.fileno()
        self.epoll.unregister(fd)
        del self.clients[fd]
        if kind == SERVED:
            client.request.service_s = int(client.answer.rpartition(b"\r\n\r\n")[2]) / 1e9
        self.end(client.request, kind)
        if close:
            client.socket.close()
        else:
            self.silent.append(client.socket)

    def end(self, request: Request, kind: str) -> None:
        request.kind = kind
        request.latency_s = time.monotonic() - self.began_s - request.due_s

    def close(self) -> None:
        for connection in [*self.silent, *(client.socket for client in self.clients.values())]:
            connection.close()
        self.epoll.close()


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0].strip()
    return bool(end) and length.isdigit() and len(body) >= int(length)


def kind_of(answer: bytes) -> str:
    return KINDS.get(int(answer.split(b" ", 2)[1]), OTHER)
