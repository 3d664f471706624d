"""A load that never pauses, for what must not be noticed: deploys.

Each client is strict. It sends on a connection that the server has not closed by then; from the first byte it has
sent, anything but a whole answer of 200 is a failure. It obeys `Connection: close`.
"""

import select
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType

from support.address import Address
from support.patience import PATIENCE_S, eventually
from support.wire import BrokenOff, Malformed, Wire, request

PAUSE_S = 0.002
"""Between two requests of a client, so that a server on the same two cores has time to deploy."""

FAILURES_KEPT_MAX = 20

CLIENTS_PATIENCE_S = 3 * PATIENCE_S
"""The patience of clients, which may wait for one server to end and for the next one to start."""


def _connect(address: Address) -> Wire:
    return Wire.connect(address, CLIENTS_PATIENCE_S)


@dataclass
class Tally:
    """The outcomes of the requests."""

    answers: Counter[str] = field(default_factory=Counter)
    """Fine answers by their text."""
    statuses: Counter[int] = field(default_factory=Counter)
    answered: int = 0
    connections: int = 0
    failures: list[str] = field(default_factory=list)
    """The first of them, in words."""
    failed: int = 0

    def fail(self, why: str) -> None:
        self.failed += 1
        if len(self.failures) < FAILURES_KEPT_MAX:
            self.failures.append(why)


class Steady:
    """Clients on every address: by default half of them with keep-alive and half with a connection for each request,
    and any answer but 200 is a failure."""

    def __init__(
        self,
        addresses: Iterable[Address],
        each: int = 2,
        keep_alive: tuple[bool, ...] = (True, False),
        fine: tuple[int, ...] = (200,),
        connect: Callable[[Address], Wire] = _connect,
        path: str = "/",
        host: str = "test",
    ) -> None:
        self._path, self._host = path, host
        self._stop = threading.Event()
        self._fine = fine
        self._connect = connect
        kinds = [(address, keeps) for address in addresses for keeps in keep_alive]
        self._tallies: dict[str, list[Tally]] = {}
        self._threads = []
        for address, keep_alive in kinds:
            name = f"{'unix' if address.path else 'TCP'}, {'keep-alive' if keep_alive else 'a connection each'}"
            for _ in range(each):
                tally = Tally()
                self._tallies.setdefault(name, []).append(tally)
                self._threads.append(threading.Thread(target=self._client, args=(address, keep_alive, tally)))

    def __enter__(self) -> "Steady":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def clients(self) -> int:
        """How many; each has one request under way at a time."""
        return len(self._threads)

    def failed(self) -> int:
        return sum(tally.failed for tallies in self._tallies.values() for tally in tallies)

    def answers(self) -> Counter[str]:
        """Fine answers of all clients by their text."""
        return sum((tally.answers for tallies in self._tallies.values() for tally in tallies), Counter())

    def statuses(self) -> Counter[int]:
        """How many answers of each status that counts as fine."""
        return sum((tally.statuses for tallies in self._tallies.values() for tally in tallies), Counter())

    def more(self, count: int = 10, within_s: float = CLIENTS_PATIENCE_S) -> None:
        """Wait until each client has been answered so many times more."""
        tallies = [tally for tallies in self._tallies.values() for tally in tallies]
        wanted = [tally.answered + count for tally in tallies]
        eventually(
            lambda: all(tally.answered >= least for tally, least in zip(tallies, wanted, strict=True)),
            f"{count} more answers for each client; failed so far: {self.failed()}",
            within_s,
        )

    def all_wait(self) -> None:
        """Wait until each client without keep-alive has connected, and has no answer yet."""
        tallies = [tally for tallies in self._tallies.values() for tally in tallies]
        eventually(
            lambda: all(tally.connections == tally.answered + tally.failed + 1 for tally in tallies),
            f"each client has connected and waits; failed so far: {self.failed()}",
        )

    def assert_no_failure(self) -> None:
        """Assert that each client was served all the time, and nothing failed; print the figures."""
        for name, tallies in self._tallies.items():
            answered, connections = sum(one.answered for one in tallies), sum(one.connections for one in tallies)
            failed = sum(one.failed for one in tallies)
            print(f"{name}: {answered} answered on {connections} connections, {failed} failed")
            assert all(one.answered for one in tallies), f"a client ({name}) was never answered"
        failures = [
            f"{name}: {why}" for name, tallies in self._tallies.items() for one in tallies for why in one.failures
        ]
        assert not failures, f"{self.failed()} requests failed: {failures[:FAILURES_KEPT_MAX]}"

    def _client(self, address: Address, keep_alive: bool, tally: Tally) -> None:
        wire: Wire | None = None
        while not self._stop.wait(PAUSE_S):
            try:
                wire = self._exchange(address, wire, keep_alive, tally)
            except (OSError, BrokenOff, Malformed) as problem:
                tally.fail(repr(problem))
                wire = None
        if wire:
            wire.close()

    def _exchange(self, address: Address, wire: Wire | None, keep_alive: bool, tally: Tally) -> Wire | None:
        """One request, and the connection if there may be another one on it."""
        data = request("GET", self._path, [] if keep_alive else ["Connection: close"], host=self._host)
        if wire and not _sent_first(wire, data):
            wire.close()
            wire = None
        if wire is None:
            wire = self._connect(address)
            tally.connections += 1
            wire.send(data)
        try:
            response = wire.response()
        except (OSError, BrokenOff, Malformed):
            wire.close()
            raise
        if response.status in self._fine:
            tally.answers[response.text] += 1
            tally.statuses[response.status] += 1
            tally.answered += 1
        else:
            tally.fail(f"{response.status} {response.text[:100]}")
        if not keep_alive or response.closes():
            wire.close()
            return None
        return wire


def _sent_first(wire: Wire, data: bytes) -> bool:
    """Send on a connection that was used before; False if the server had closed it before the first byte."""
    # Not by MSG_DONTWAIT: Python waits before recv on a socket with a timeout, whatever the flags.
    if select.select([wire.sock], [], [], 0)[0]:
        try:
            unasked = wire.sock.recv(1)
        except ConnectionResetError:
            return False
        if unasked:
            raise Malformed("bytes that nobody asked for")
        return False
    try:
        wire.send(data)
    except BrokenPipeError:
        # The kernel took none of it: so short a request is sent whole or not at all.
        return False
    return True
