"""Thousands of clients that dawdle, and what is left for those that do not."""

import contextlib
import itertools
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import wrk
from bench.apps import big
from bench.measure import CLIENT_CORE, Figures, Plan, serving, watching
from bench.processes import ServerError
from bench.servers import Server

WORKERS = 2
# Half of them dawdle in the head, half in the body.
SENDERS = 2_000
READERS = 200
READ_BYTES = 1_000
TICKS_PER_S = 20
# Until all of them are connected and have begun.
SETTLE_S = 4.0
# In loads as long as those of other cases: the whole must be long against the 6 s or so after which stanchion calls off
# a body that is too slow, and the sender comes again. Else the load meets all of them at once, or none.
ALONE_LOADS = 3
AMONG_LOADS = 9
# Of pages that cost something: with hello wrk itself is at its limit, and the slow clients share its core.
LOAD = wrk.Load()
# Small, so that a reader's answer waits at the server and not in the kernel.
RECEIVE_BUFFER_BYTES = 4096

HEAD = b"GET / HTTP/1.1\r\nHost: bench\r\nX-Slow: "
POST = b"POST / HTTP/1.1\r\nHost: bench\r\nContent-Length: 1000000\r\n\r\n"
BIG = b"GET /big HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"


def slow(server: Server, plan: Plan, _round: int) -> Figures:
    """The same clients of wrk without the slow ones, with them, and without them again."""
    with serving(server, "big:app", workers=WORKERS) as (tree, port):
        address = ("127.0.0.1", port)
        dawdlers = [
            *(Dawdler(address, HEAD if number % 2 else POST) for number in range(SENDERS)),
            *(Dawdler(address, BIG, reads=True) for _ in range(READERS)),
        ]
        others_share = watching(tree)
        figures = beside(dawdlers, LOAD, port, plan)
        return {**figures, "others_share": others_share()}


def beside(dawdlers: "Sequence[Dawdler]", load: wrk.Load, port: int, plan: Plan) -> Figures:
    """The rate of a load beside these clients, as a share of its rate before and after."""
    before = pace(load, port, plan.load_s * ALONE_LOADS)
    with Dawdlers(dawdlers) as there:
        time.sleep(SETTLE_S)
        among = pace(load, port, plan.load_s * AMONG_LOADS)
        connected = there.connected
    after = pace(load, port, plan.load_s * ALONE_LOADS)
    alone_rps = (before.rps + after.rps) / 2
    return {
        "share": among.rps / alone_rps,
        "lost": 1 - among.rps / alone_rps,
        "rps": among.rps,
        "alone_rps": alone_rps,
        "p99_ms": among.p99_ms,
        "alone_p99_ms": (before.p99_ms + after.p99_ms) / 2,
        "connected": connected,
        "failures": 0,
    }


@dataclass(frozen=True)
class Pace:
    rps: float
    p99_ms: float


def pace(load: wrk.Load, port: int, load_s: int) -> Pace:
    """Requests a second; none at all where no worker is left for wrk."""
    try:
        seen = wrk.run(load, port, load_s, CLIENT_CORE, len(big.PAGE))
    except subprocess.CalledProcessError as error:
        raise ServerError(f"wrk could not connect: {error.stdout or error.stderr}") from error
    return Pace(seen.requests / seen.duration_s, seen.p99_ms)


class Dawdlers:
    """The slow clients, in a thread of their own, while the `with` lasts. If one is cut off, it comes again."""

    def __init__(self, clients: "Sequence[Dawdler]") -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._dawdle)
        self._clients = clients

    def __enter__(self) -> "Dawdlers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for client in self._clients:
            client.leave()

    @property
    def connected(self) -> int:
        return sum(client.socket is not None for client in self._clients)

    def _dawdle(self) -> None:
        os.sched_setaffinity(0, {CLIENT_CORE})  # Of this thread alone (sched_setaffinity(2)).
        for tick in self._ticks():
            for client in self._clients[tick % TICKS_PER_S :: TICKS_PER_S]:
                client.step()

    def _ticks(self) -> Iterator[int]:
        began_s = time.monotonic()
        for tick in itertools.count():
            if self._stop.wait(max(0.0, began_s + tick / TICKS_PER_S - time.monotonic())):
                return
            yield tick


class Dawdler:
    def __init__(
        self, address: tuple[str, int], opening: bytes, *, reads: bool = False, source: str = "127.0.0.1"
    ) -> None:
        self.address = address
        self.source = source
        self.opening = opening
        self.reads = reads
        self.socket: socket.socket | None = None

    def step(self) -> None:
        """Once a second: a byte there, or a thousand back; or a new connection."""
        try:
            if self.socket is None:
                self.come()
            elif self.reads:
                if not self.socket.recv(READ_BYTES):
                    self.leave()
            else:
                self.socket.send(b"x")
        except BlockingIOError:
            pass
        except OSError:
            self.leave()

    def come(self) -> None:
        connection = socket.socket()
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            connection.settimeout(1 / TICKS_PER_S)
            connection.bind((self.source, 0))
            connection.connect(self.address)
            connection.setblocking(False)
            connection.send(self.opening)
            self.socket = connection
            stack.pop_all()

    def leave(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None
