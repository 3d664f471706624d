"""The lab's own client: open loop by a schedule, or closed loop by a number of clients.

A request's latency counts from when it was due, not from when the client came to send it: a server that stalls is not
made to look quick by a client that politely waits ("coordinated omission").
"""

import contextlib
import gc
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from stanchion_lab.load.clients import Asked, Client, Clients
from stanchion_lab.load.figures import of_requests, percentile, served_ms, shares_of
from stanchion_lab.load.offered import Offered, Progress, Target
from stanchion_lab.load.schedule import SEED_OF_CONNECTIONS, arrivals_s, paths
from stanchion_lab.result import REFUSED
from stanchion_lab.scenario import REQUESTS_MAX, SECONDS_MAX, Load

# Between two looks at the clock while nothing happens.
TURN_S = 0.05
PROGRESS_EACH_S = 0.2
# So long a client of a closed loop stays away that was refused: a full queue is not asked as fast as a core can.
AFTER_REFUSAL_S = 0.01


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    """Each request ends in exactly one outcome, and all have ended by the load's time and the patience."""
    del directory
    with _undisturbed():
        offering = _discipline(load)(load, target)
        try:
            offering.run(progress)
        finally:
            offering.clients.close()
    requests = offering.requests
    return Offered(
        tool="own",
        command=in_words(load, target),
        figures=of_requests(requests) | offering.of_client(),
        latencies_ms=served_ms(requests),
        timeline=[(one.due_s, one.latency_s * 1e3, one.outcome) for one in requests],
        shares=shares_of(requests),
    )


def in_words(load: Load, target: Target) -> str:
    if load.rate_per_s:
        rhythm = f"{load.rate_per_s:g} requests per second, {load.arrivals} arrivals,"
        over = f"over {load.connections} kept connections" if load.keep_alive else "each on a connection of its own"
    else:
        rhythm = f"{load.connections} clients, {f'{load.requests} requests in all,' if load.requests else ''}"
        over = "on kept connections" if load.keep_alive else "each request on a connection of its own"
    paths_and_shares = " ".join(f"{path}:{share:g}" for path, share in load.paths.items())
    lasting = f" for {load.for_s:g} s" if load.for_s else ""
    to = " ".join((target.address, *target.more))
    return f"{rhythm} {over}{lasting}, patience {load.patience_s:g} s, to {to} {load.method} {paths_and_shares}"


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """By the collector of cycles: here are none, and it would stop the clock to look at a million requests."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Offering(ABC):
    """A load while it is offered. The subclasses say which client asks what, when."""

    def __init__(self, load: Load, target: Target) -> None:
        self.load = load
        self.requests: list[Asked] = []
        self.paths = paths(load.paths)
        host = "localhost" if target.unix_path else target.address
        end = "" if load.keep_alive else "Connection: close\r\n"
        body = "Content-Length: 0\r\n" if load.method == "POST" else ""
        self._heads = {
            path: f"{load.method} {path} HTTP/1.1\r\nHost: {host}\r\n{end}{body}".encode() for path in load.paths
        }
        self.clients = Clients(target, self._bytes_of, load, self.ended)

    def run(self, progress: Progress) -> None:
        next_progress_s = 0.0
        while True:
            now_s = self.clients.now_s()
            if now_s >= next_progress_s:
                progress(min(1.0, self.done(now_s)))
                next_progress_s = now_s + PROGRESS_EACH_S
            begins_s = self.begin(now_s)
            busy = self.clients.busy()
            if begins_s is None and not busy:
                break
            until_s = now_s + TURN_S if begins_s is None else min(begins_s, now_s + TURN_S)
            if busy:
                until_s = min(until_s, self.clients.patience_ends_s())
            self.clients.turn(until_s - self.clients.now_s())
        progress(1.0)

    def due(self, at_s: float) -> Asked:
        request = Asked(at_s, next(self.paths), number=len(self.requests))
        self.requests.append(request)
        self.clients.due(request)
        return request

    def _bytes_of(self, request: Asked) -> bytes:
        number = b"X-Number: %d\r\n" % request.number if self.load.numbered else b""
        return b"%b%b\r\n" % (self._heads[request.path], number)

    def of_client(self) -> dict[str, float]:
        """Figures of the client itself."""
        return {}

    @abstractmethod
    def begin(self, now_s: float) -> float | None:
        """Ask all that is due by now; when the next will be, None if there will be none."""

    @abstractmethod
    def ended(self, client: Client, request: Asked) -> None:
        """Its request has its outcome."""

    @abstractmethod
    def done(self, now_s: float) -> float:
        """The share."""


class _Open(_Offering):
    """Requests come when they are due, each with a connection of its own."""

    def __init__(self, load: Load, target: Target) -> None:
        super().__init__(load, target)
        self._arrivals_s = arrivals_s(load)
        self._next_s = next(self._arrivals_s, None)
        self._behind_ms: list[float] = []

    def begin(self, now_s: float) -> float | None:
        while self._next_s is not None and self._next_s <= now_s:
            self._behind_ms.append((self.clients.now_s() - self._next_s) * 1e3)
            self.arrive(self.due(self._next_s))
            self._next_s = next(self._arrivals_s, None)
        return self._next_s

    def of_client(self) -> dict[str, float]:
        """How late the client came to its own arrivals. That is in the latencies, too: where it is not small beside
        them, the client had no time, and they show the client and not the server."""
        ordered = sorted(self._behind_ms)
        return {"behind_ms.p99": percentile(ordered, 0.99), "behind_ms.max": ordered[-1]} if ordered else {}

    def arrive(self, request: Asked) -> None:
        self.clients.ask(Client(), request)

    def ended(self, client: Client, request: Asked) -> None:
        pass  # and so has its client

    def done(self, now_s: float) -> float:
        return now_s / self.load.for_s


class _OpenKept(_Open):
    """Requests come when they are due, each on a kept connection that is idle, chosen at random; else they wait."""

    def __init__(self, load: Load, target: Target) -> None:
        super().__init__(load, target)
        self._idle = [Client() for _ in range(load.connections)]
        self._waiting: deque[Asked] = deque()
        self._dice = random.Random(SEED_OF_CONNECTIONS)

    def begin(self, now_s: float) -> float | None:
        following_s = super().begin(now_s)
        while self._idle and self._waiting:
            request = self._waiting.popleft()
            if not request.outcome:  # else its patience ended while it waited
                self._ask(request)
        return following_s

    def arrive(self, request: Asked) -> None:
        if self._idle and not self._waiting:
            self._ask(request)
        else:
            self._waiting.append(request)

    def _ask(self, request: Asked) -> None:
        at = self._dice.randrange(len(self._idle))
        self._idle[at], self._idle[-1] = self._idle[-1], self._idle[at]
        self.clients.ask(self._idle.pop(), request)

    def ended(self, client: Client, request: Asked) -> None:
        self._idle.append(client)


class _Closed(_Offering):
    """Each client asks again when it has its answer."""

    def __init__(self, load: Load, target: Target) -> None:
        super().__init__(load, target)
        self._idle = deque(Client() for _ in range(load.connections))
        self._refused: deque[tuple[float, Client]] = deque()
        self._requests_max = load.requests or REQUESTS_MAX
        self._ends_s = load.for_s or SECONDS_MAX

    def begin(self, now_s: float) -> float | None:
        while self._refused and self._refused[0][0] <= now_s:
            self._idle.append(self._refused.popleft()[1])
        for _ in range(len(self._idle)):
            if self._over(now_s):
                return None
            self.clients.ask(self._idle.popleft(), self.due(now_s))
        if self._over(now_s):
            return None
        return self._refused[0][0] if self._refused else self._ends_s

    def _over(self, now_s: float) -> bool:
        return now_s >= self._ends_s or len(self.requests) >= self._requests_max

    def ended(self, client: Client, request: Asked) -> None:
        if request.outcome == REFUSED:
            self._refused.append((self.clients.now_s() + AFTER_REFUSAL_S, client))
        else:
            self._idle.append(client)

    def done(self, now_s: float) -> float:
        return max(now_s / self._ends_s, len(self.requests) / self._requests_max)


def _discipline(load: Load) -> type[_Offering]:
    if not load.rate_per_s:
        return _Closed
    return _OpenKept if load.keep_alive else _Open
