"""Honest clients, open loop: each request is sent when it is due, whatever became of those before.

They speak HTTP/1.1 and HTTP/2 over TLS, mostly over kept connections, and some over new ones. The clients are this
file, run as a program on a core, where it comes before all programs of the usual schedule. To each line of its input it
answers with a line, once no request has waited for long, or after a while. At the end of its input it stops, and prints
what became of each request.
"""

import asyncio
import itertools
import json
import random
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from types import TracebackType
from typing import Any

from bench import certificate, h2_client
from bench.apps import big
from bench.mixed_load import Client, Connection
from bench.processes import ServerError
from bench.servers import PYTHON

REQUESTS_PER_S = 200.0
KEPT_H1, KEPT_H2, NEW_H1, NEW_H2 = "kept h1", "kept h2", "new h1", "new h2"
# Each way in its turn: one request of ten opens a connection.
TURNS = (*(KEPT_H1, KEPT_H2) * 5, NEW_H1, *(KEPT_H1, KEPT_H2) * 4, NEW_H2)
PATIENCE_S = 3.0
# More than there are requests within the patience of their clients, and a bound where the server answers none of them.
OUTSTANDING_MAX = 2000
END_S = PATIENCE_S + 5.0
# A request has not waited for long.
CALM_S = 0.1
SETTLED_S = PATIENCE_S + 2.0
LOOK_S = 0.02
CALM, NOT_CALM = b"calm\n", b"not calm\n"
SOURCE = "127.0.0.3"
"""No proxy that the server trusts, as 127.0.0.1 is, and none of the attackers."""


@dataclass(frozen=True)
class Asked:
    """A request. If it failed, it counts as if its client had waited until it lost patience."""

    due_s: float
    """By the monotonic clock, which all processes have in common."""
    latency_s: float
    """From then until the whole answer had come."""
    way: str
    failed: bool


class Clients:
    """The honest clients of a port."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._contexts = {protocol: context_for(protocol) for protocol in ("h2", "http/1.1")}
        self._idle: list[Connection] = []
        self._shared: asyncio.Future[h2_client.Connection] | None = None
        self._dice = random.Random(seed)
        # When each was due.
        self._outstanding: dict[asyncio.Task[None], float] = {}
        self._next_due_s = time.monotonic()
        self.asked: list[Asked] = []

    async def run(self, until: asyncio.Event) -> None:
        ways: dict[str, Callable[[], Awaitable[bytes]]] = {
            KEPT_H1: self._over_kept,
            KEPT_H2: self._over_shared,
            NEW_H1: self._over_new,
            NEW_H2: self._over_new_h2,
        }
        due_s = self._next_due_s = time.monotonic()
        for way in itertools.cycle(TURNS):
            due_s += self._dice.expovariate(REQUESTS_PER_S)
            self._next_due_s = due_s
            if await is_set_within(until, due_s - time.monotonic()):
                break
            if len(self._outstanding) < OUTSTANDING_MAX:
                task = asyncio.create_task(self._ask(way, ways[way], due_s))
                self._outstanding[task] = due_s
                task.add_done_callback(self._outstanding.pop)
            else:
                self.asked.append(Asked(due_s, PATIENCE_S, way, failed=True))
        await asyncio.gather(*self._outstanding)
        for connection in self._idle:
            connection.close()

    async def settle(self) -> bool:
        """Waits until no request has waited for long; false if some still do after a while."""
        until_s = time.monotonic() + SETTLED_S
        while not (is_calm := self._waits_s() < CALM_S) and time.monotonic() < until_s:
            await asyncio.sleep(LOOK_S)
        return is_calm

    def _waits_s(self) -> float:
        """For how long the request has waited that was due first, which these clients may not even have sent yet."""
        return time.monotonic() - min((self._next_due_s, *self._outstanding.values()))

    async def _ask(self, way: str, get: Callable[[], Awaitable[bytes]], due_s: float) -> None:
        try:
            async with asyncio.timeout(due_s + PATIENCE_S - time.monotonic()):
                failed = await get() != big.PAGE
        except (OSError, EOFError, ValueError, IndexError):
            # A timeout is an OSError.
            failed = True
        latency_s = PATIENCE_S if failed else time.monotonic() - due_s
        self.asked.append(Asked(due_s, latency_s, way, failed))

    async def _over_kept(self) -> bytes:
        """On an idle connection, or on one more where all are in use."""
        connection = self._idle.pop() if self._idle else self._new()
        body = await self._closing_at_a_failure(connection)
        self._idle.append(connection)
        return body

    async def _over_new(self) -> bytes:
        connection = self._new()
        body = await self._closing_at_a_failure(connection)
        connection.close()
        return body

    async def _closing_at_a_failure(self, connection: Client) -> bytes:
        try:
            return await connection.get("/")
        except BaseException:
            connection.close()
            raise

    async def _over_shared(self) -> bytes:
        """As a stream of the one connection that all of these requests share."""
        if self._shared is None or (self._shared.done() and is_lost(self._shared)):
            self._shared = asyncio.ensure_future(self._new_h2())
        shared = self._shared
        try:
            return await (await asyncio.shield(shared)).get("/")
        except OSError:
            if self._shared is shared:
                self._shared = None
            raise

    async def _over_new_h2(self) -> bytes:
        connection = await self._new_h2()
        try:
            return await connection.get("/")
        finally:
            connection.leave()

    def _new(self) -> Connection:
        return Connection(self._port, ssl=self._contexts["http/1.1"], local_addr=(SOURCE, 0))

    async def _new_h2(self) -> h2_client.Connection:
        how: dict[str, Any] = {"ssl": self._contexts["h2"], "local_addr": (SOURCE, 0)}
        return await h2_client.connect(self._port, "https", **how)


def is_lost(connection: "asyncio.Future[h2_client.Connection]") -> bool:
    return connection.cancelled() or connection.exception() is not None or connection.result().is_over


def context_for(protocol: str) -> ssl.SSLContext:
    context = certificate.unverifying()
    context.set_alpn_protocols([protocol])
    return context


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Without a timer where the time has come."""
    if seconds > 0:
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
    else:
        await asyncio.sleep(0)
    return event.is_set()


class HonestClients:
    """The program on a core, for as long as the `with` lasts; then `asked` is what became of all requests."""

    def __init__(self, port: int, seed: int, core: int) -> None:
        command = [PYTHON, "-m", "bench.honest_load", str(port), str(seed)]
        # sched(7): a process of SCHED_FIFO takes the core from those of SCHED_OTHER at once. It needs CAP_SYS_NICE.
        self._command = ["chrt", "--fifo", "1", "taskset", "-c", str(core), *command]
        self.asked: list[Asked] = []

    def __enter__(self) -> "HonestClients":
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def settle(self) -> bool:
        """Waits until no request has waited for long; false if some still do after a while."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise ServerError("the honest clients have ended")
        return said == CALM

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with self._process:
            try:
                said, _ = self._process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
        if kind is not None:
            return
        if self._process.returncode:
            raise ServerError(f"the honest clients ended with {self._process.returncode}")
        self.asked = [Asked(*one) for one in json.loads(said)]


async def main(port: int, seed: int) -> list[Asked]:
    clients, until = Clients(port, seed), asyncio.Event()
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def obey() -> None:
        while await lines.readline():
            is_calm = await clients.settle()
            sys.stdout.buffer.write(CALM if is_calm else NOT_CALM)
            sys.stdout.flush()
        until.set()

    async with asyncio.TaskGroup() as together:
        together.create_task(obey())
        together.create_task(clients.run(until))
    return clients.asked


if __name__ == "__main__":
    _, port, seed = sys.argv
    print(json.dumps([astuple(one) for one in asyncio.run(main(int(port), int(seed)))]))
