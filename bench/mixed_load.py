"""Fast and slow requests, open loop, and the ideal single line for the very same arrivals."""

import asyncio
import heapq
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench.apps.mixed import FAST_S, SLOW_S

WORKERS = 4
CONNECTIONS = 32
# How long after the last arrival its answer may still come.
DRAIN_S = 20.0


@dataclass(frozen=True)
class Mix:
    """The requests: mostly for the fast page, at times for the slow one."""

    slow_path: str
    slow_share: float
    arrivals_per_s: float


# Half load.
HALF = Mix("/slow", 0.1, 0.5 * WORKERS / (0.9 * FAST_S + 0.1 * SLOW_S))


@dataclass(frozen=True)
class Served:
    slow: bool
    arrived_s: float
    # Until the answer had come; as the client saw it.
    latency_s: float
    # The time that the app itself took.
    service_s: float


@dataclass
class Outcome:
    served: list[Served] = field(default_factory=list)
    failures: int = 0


def ideal_latencies_s(requests: Sequence[Served], workers: int = WORKERS) -> list[float]:
    """One first-come-first-served line before `workers` tills, with the arrivals and service times that were seen.

    `requests` are in order of arrival, and so are the answers.
    """
    free_at_s = [0.0] * workers
    latencies_s = []
    for request in requests:
        start_s = max(request.arrived_s, heapq.heappop(free_at_s))
        heapq.heappush(free_at_s, start_s + request.service_s)
        latencies_s.append(start_s + request.service_s - request.arrived_s)
    return latencies_s


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank; NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Client(Protocol):
    """A client that asks for one page at a time."""

    async def get(self, path: str) -> bytes: ...

    def close(self) -> None: ...


class Connection:
    """One keep-alive connection, opened again where the server closed it."""

    def __init__(self, port: int, **how: Any) -> None:
        """`how` is what asyncio's open_connection takes besides."""
        self.port = port
        self.how = how
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> bytes:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, **self.how)
        reader, writer = self.streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ", 2)[1])
        body = await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        if b"connection: close" in head:
            self.close()
        if status != 200:
            raise ConnectionError(f"status {status}")
        return body

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def offer(port: int, duration_s: float, seed: int, mix: Mix = HALF) -> Outcome:
    """By keep-alive connections of HTTP/1.1."""
    return await offer_to([Connection(port) for _ in range(CONNECTIONS)], duration_s, seed, mix)


async def offer_to(connections: Sequence[Client], duration_s: float, seed: int, mix: Mix = HALF) -> Outcome:
    """Open loop: arrivals come when they come (Poisson), each on an idle connection chosen at random.

    An arrival that finds all connections busy waits for one, and that wait is part of its latency.
    """
    # Two, so that the arrivals of a seed are the same whatever the server does.
    arrivals, choices = random.Random(seed), random.Random(seed)
    idle = list(connections)
    returned = asyncio.Semaphore(len(connections))
    outcome = Outcome()

    async def send(slow: bool, arrived_s: float) -> None:
        async with returned:
            connection = idle.pop(choices.randrange(len(idle)))
            try:
                body = await connection.get(mix.slow_path if slow else "/")
                latency_s = time.perf_counter() - arrived_s
                outcome.served.append(Served(slow, arrived_s, latency_s, int(body) / 1e9))
            except (OSError, EOFError, ValueError, IndexError):
                outcome.failures += 1
                connection.close()
            finally:
                idle.append(connection)

    began_s = due_s = time.perf_counter()
    async with asyncio.timeout(duration_s + DRAIN_S), asyncio.TaskGroup() as sent:
        while due_s < began_s + duration_s:
            await asyncio.sleep(due_s - time.perf_counter())
            sent.create_task(send(arrivals.random() < mix.slow_share, time.perf_counter()))
            due_s += arrivals.expovariate(mix.arrivals_per_s)
    for connection in connections:
        connection.close()
    outcome.served.sort(key=lambda request: request.arrived_s)
    return outcome
