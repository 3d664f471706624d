"""Open-loop load: requests are sent when they are due, whatever has become of the ones before."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.address import Address
from support.wire import BrokenOff, Wire, request


@dataclass(frozen=True)
class Arrival:
    """A request of a schedule."""

    at_s: float
    """When it is due, counted from the start."""
    target: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request; status 0 means that no whole response came, and `error` says why."""

    arrival: Arrival
    sent_s: float
    """On the machine's monotonic clock, like `started_s` of `waiting:sleepy`."""
    latency_s: float
    """The time since it was due, so that a late client does not make the server look quick."""
    status: int
    body: bytes
    error: str = ""


def offer(
    address: Address, schedule: Sequence[Arrival], connections: int, keep_alive: bool, patience_s: float
) -> list[Outcome]:
    """Send a schedule over this many connections at most, the next request on whichever is free; in its order."""
    due = iter(schedule)
    taking = threading.Lock()
    outcomes: list[Outcome] = []
    start_s = time.monotonic() + 0.1

    def client() -> None:
        wire: Wire | None = None
        while True:
            with taking:
                arrival = next(due, None)
            if arrival is None:
                break
            time.sleep(max(0.0, start_s + arrival.at_s - time.monotonic()))
            outcome, wire = _exchange(address, arrival, wire, start_s, keep_alive, patience_s)
            outcomes.append(outcome)
        if wire:
            wire.close()

    run_all([client] * connections)
    return outcomes


def _exchange(
    address: Address, arrival: Arrival, wire: Wire | None, start_s: float, keep_alive: bool, patience_s: float
) -> tuple[Outcome, Wire | None]:
    sent_s = time.monotonic()
    status, body, error = 0, b"", ""
    options = [] if keep_alive else ["Connection: close"]
    try:
        wire = wire or Wire.connect(address, patience_s)
        wire.send(request("GET", arrival.target, options))
        response = wire.response()
        status, body = response.status, response.body
        if not keep_alive or response.closes():
            wire.close()
            wire = None
    except (OSError, BrokenOff) as problem:
        error = repr(problem)
        if wire:
            wire.close()
        wire = None
    return Outcome(arrival, sent_s, time.monotonic() - start_s - arrival.at_s, status, body, error), wire


def run_all(functions: Sequence[Callable[[], None]]) -> None:
    """Each in a thread of its own; an error in one of them is raised here."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; share 0.99 is p99."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
