"""Many clients in one thread: one epoll, sockets that never block, and a patience that is kept.

The kernel is asked for as little as can be, since the client runs beside the server: the request is sent right after
connect(2), which on loopback and on unix sockets has done its work by then, and epoll only ever waits for the answer.
"""

import errno
import os
import random
import select
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from stanchion_lab.load.answer import Answer, Malformed
from stanchion_lab.load.figures import Request, outcome_of
from stanchion_lab.load.offered import Failed, Target
from stanchion_lab.load.schedule import SEED_OF_HOSTS
from stanchion_lab.result import BROKEN, LATE, REFUSED
from stanchion_lab.scenario import Load

RECEIVE_BYTES = 1 << 14
# No answer says so: the client itself could not go on, and what it measures would be itself.
OUR_OWN = {
    errno.EADDRNOTAVAIL: "has no local port left: offer fewer requests, or over a longer time",
    errno.EMFILE: "has no file descriptor left: raise `ulimit -n`, or offer fewer connections",
    errno.ENFILE: "has no file descriptor left in the whole system: offer fewer connections",
    errno.ENOBUFS: "has no memory for sockets left: offer fewer connections",
    errno.ENOMEM: "has no memory for sockets left: offer fewer connections",
}
WITHOUT_ANSWER = (REFUSED, BROKEN, LATE)
# Errors of send(2) after a connect(2) that was still under way: there never was a connection.
NO_CONNECTION = (errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(slots=True, eq=False)
class Asked(Request):
    number: int = 0
    client: "Client | None" = None
    """The client that asks it; None before and after."""


class Client:
    """One connection at a time, and at most one request on it."""

    __slots__ = ("answer", "request", "socket", "unsent")

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.request: Asked | None = None
        self.answer = Answer()
        self.unsent = b""


class Clients:
    """Each request is first `due`, then asked by a client, unless its patience ends before; then `ended` is called."""

    def __init__(
        self,
        target: Target,
        requests: Callable[[Asked], bytes],
        load: Load,
        ended: Callable[[Client, Asked], None],
    ) -> None:
        self._family = socket.AF_UNIX if target.unix_path else socket.AF_INET
        self._addresses: list[str | tuple[str, int]] = (
            [target.unix_path] if target.unix_path else [*target.hosts_and_ports]
        )
        self._dice = random.Random(SEED_OF_HOSTS)
        self._requests = requests
        self._patience_s = load.patience_s
        self._hang_up = load.hang_up
        self._keep_alive = load.keep_alive
        self._ended = ended
        self._epoll = select.epoll()
        self._by_fd: dict[int, Client] = {}
        # In order of their being due, which is the order in which patience ends: it is the same for all.
        self._patient: deque[Asked] = deque()
        self._silent: list[socket.socket] = []
        self.began_s = monotonic()

    def now_s(self) -> float:
        return monotonic() - self.began_s

    def due(self, request: Asked) -> None:
        """Its patience runs from now on, whether a client is free to ask it or not."""
        self._patient.append(request)

    def ask(self, client: Client, request: Asked) -> None:
        """On the client's connection, or a new one."""
        request.client, client.request = client, request
        client.answer, client.unsent = Answer(), self._requests(request)
        if client.socket is not None:
            self._send(client)
            if client.unsent and client.socket is not None:
                self._epoll.modify(client.socket.fileno(), select.EPOLLOUT)
            return
        client.socket = self._new_socket()
        error = client.socket.connect_ex(self._dice.choice(self._addresses))
        # On a unix socket, EAGAIN is a full queue and not "later" (connect(2)).
        if error not in (0, errno.EINPROGRESS):
            if error in OUR_OWN:
                client.socket.close()
                raise Failed(f"the lab's client {OUR_OWN[error]} ({os.strerror(error)})")
            self._end(client, REFUSED)
            return
        self._by_fd[client.socket.fileno()] = client
        self._send(client)
        if client.socket is not None:
            self._epoll.register(client.socket.fileno(), select.EPOLLOUT if client.unsent else select.EPOLLIN)

    def turn(self, at_most_s: float) -> None:
        """Wait for answers, and see to them."""
        for fd, _ in self._epoll.poll(max(0.0, at_most_s)):
            client = self._by_fd.get(fd)
            if client is None:
                continue  # closed by an earlier one of this turn
            if client.unsent:
                self._send(client)
                if not client.unsent and client.socket is not None:
                    self._epoll.modify(fd, select.EPOLLIN)
            else:
                self._receive(client)
        self._lose_patience()

    def busy(self) -> bool:
        """Whether a request is without its outcome."""
        while self._patient and self._patient[0].outcome:
            self._patient.popleft()
        return bool(self._patient)

    def patience_ends_s(self) -> float:
        """The end of patience for the first request that has no outcome; only while busy."""
        return self._patient[0].due_s + self._patience_s

    def close(self) -> None:
        for client in list(self._by_fd.values()):
            self._hang_up_on(client)
        for silent in self._silent:
            silent.close()
        self._epoll.close()

    def _send(self, client: Client) -> None:
        assert client.socket is not None
        try:
            sent = client.socket.send(client.unsent, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(client, REFUSED if error.errno in NO_CONNECTION else BROKEN)
            return
        client.unsent = client.unsent[sent:]

    def _receive(self, client: Client) -> None:
        assert client.socket is not None
        data: bytes | None
        try:
            data = client.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = None
        if client.request is None:
            self._hang_up_on(client)  # the server closes it while idle, or sends without a request
            return
        try:
            whole = data is not None and (client.answer.feed(data) if data else client.answer.end())
        except Malformed:
            self._end(client, BROKEN)
            return
        if whole:
            self._end(client, outcome_of(client.answer.status))
        elif not data:
            self._end(client, BROKEN)

    def _lose_patience(self) -> None:
        now_s = self.now_s()
        while self.busy() and self.patience_ends_s() <= now_s:
            request = self._patient.popleft()
            if request.client is None:
                request.outcome, request.latency_s = LATE, now_s - request.due_s
            else:
                self._end(request.client, LATE)

    def _end(self, client: Client, outcome: str) -> None:
        request = client.request
        assert request is not None
        client.request, request.client = None, None
        client.unsent = b""
        request.outcome = outcome
        request.latency_s = self.now_s() - request.due_s
        answered = outcome not in WITHOUT_ANSWER
        if answered:
            request.status, request.worker = client.answer.status, client.answer.worker
        if outcome == LATE and not self._hang_up:
            self._stay_silent(client)
        elif not (answered and self._keep_alive and client.answer.keeps):
            self._hang_up_on(client)
        self._ended(client, request)

    def _stay_silent(self, client: Client) -> None:
        assert client.socket is not None
        self._epoll.unregister(client.socket.fileno())
        del self._by_fd[client.socket.fileno()]
        self._silent.append(client.socket)
        client.socket = None

    def _hang_up_on(self, client: Client) -> None:
        """epoll forgets a socket that is closed (epoll(7))."""
        assert client.socket is not None
        self._by_fd.pop(client.socket.fileno(), None)
        client.socket.close()
        client.socket = None

    def _new_socket(self) -> socket.socket:
        try:
            return socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            raise Failed(f"the lab's client {OUR_OWN.get(error.errno or 0, 'gets no socket')} ({error})") from error
