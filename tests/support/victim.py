"""A server to be broken: the parts that its processes play, what they hold, and what is done to them meanwhile."""

import contextlib
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import psutil

from support.counts import Counts
from support.gate import Gate
from support.havoc import Holding, nap
from support.patience import eventually
from support.processes import open_paths
from support.seats import seats
from support.server import Server
from support.wire import request

WORKERS = 4
NAP_MAX_S = 0.3
"""Shorter than `--timeout`."""

Deeds = list[tuple[float, Callable[[], object]]]
"""How often a second, and what."""


@dataclass
class Victim:
    """A server under test, and how to find which process plays which part of it now."""

    server: Server
    gate: Gate
    counts: Counts
    seats: int

    def acceptor(self) -> psutil.Process:
        """There is none for a moment while another one is started. Not by its connections, which end with it."""
        return eventually(lambda: next(self.named("stanchion-acpt"), None), "there is an acceptor")  # type: ignore[return-value]

    def templates(self) -> Iterator[psutil.Process]:
        """A reload has two. A worker is called so too until it knows that it is one."""
        return self.named("stanchion-tmpl")

    def named(self, name: str) -> Iterator[psutil.Process]:
        """The processes with this name: the master reports only the pids of its workers."""
        for process in self.server.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == name and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def workers(self) -> list[psutil.Process]:
        """The workers that the master knows."""
        pids = {worker["pid"] for worker in self.counts.workers()}
        return [process for process in self.server.processes() if process.pid in pids]

    def lost_with_acceptors(self) -> int:
        """How many requests the server has counted as lost with an acceptor."""
        count: int = self.counts.status()["requests"].get("lost_with_acceptor", 0)
        return count

    def has_workers_that_stay(self) -> bool:
        """Whether there are as many workers as wanted, and none that will be replaced beside a successor.

        That happens a second after an app has closed all descriptors, its worker's channel to the master with them.
        """
        stages = [worker["stage"] for worker in self.counts.workers()]
        return stages == ["ready"] * WORKERS and sum(map(has_socket, self.workers())) == WORKERS


def has_socket(process: psutil.Process) -> bool:
    return any(path.startswith("socket:") for path in open_paths(process))


@contextlib.contextmanager
def nothing_leaks(victim: Victim) -> Iterator[None]:
    """Assert that the block leaves the server as it was."""
    server, counts = victim.server, victim.counts
    seats(server, victim.gate, victim.seats)
    held = whats_held(victim)
    yield
    counts.settled()
    eventually(victim.has_workers_that_stay, "all workers are back")
    seats(server, victim.gate, victim.seats)
    for name, before in held.items():
        holds_no_more_again(victim, name, before)
    eventually(lambda: server.spooled() == [], "no spool file is left")
    # A seat or a slot that was lost would show here, once each has had its turns.
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(20 * WORKERS)]
        for number, wire in enumerate(wires):
            wire.send(request("GET", f"/fine?{number}"))
        assert [wire.response().text for wire in wires] == [str(number) for number in range(20 * WORKERS)]
    assert not server.log.matches("(?i)leak|panic|is lost: no worker|do not add up")


def holds_no_more_again(victim: Victim, name: str, before: Holding) -> None:
    """Wait until it holds no more than before: for a moment the master has the connection that asks for counts."""
    after = before

    def is_within() -> bool:
        nonlocal after
        after = whats_held(victim)[name]
        return after.is_within(before)

    try:
        eventually(is_within, "it holds no more")
    except AssertionError as failure:
        raise AssertionError(f"{name} had {before}, and has {after}") from failure


def whats_held(victim: Victim) -> dict[str, Holding]:
    """Descriptors and mappings by process, once no client is connected and no process is leaving or starting."""
    server = victim.server
    eventually(lambda: serves_on(victim) and serves_on(victim), "no other generation is there or on the way")
    eventually(lambda: victim.counts.open_connections() == 0, "no connection is kept")
    parts = WORKERS + len(("master", "acceptor", "template"))
    eventually(lambda: len(server.processes()) == parts, "there are as many processes as there should be")
    return {"the acceptor": Holding(victim.acceptor()), "the master": Holding(psutil.Process(server.pid))}


def serves_on(victim: Victim) -> bool:
    """Whether the master knows of one generation alone, and makes no other.

    The master may answer in the very turn in which it takes a signal: so callers ask twice.
    """
    status = victim.counts.status()
    return status["phase"] == "serving" and status["retiring"] == []


def one_of(processes: Iterable[psutil.Process], dice: random.Random) -> psutil.Process:
    found = list(processes)
    if not found:
        raise psutil.NoSuchProcess(0)
    return dice.choice(found)


def on_workers(victim: Victim, dice: random.Random) -> Deeds:
    def one() -> psutil.Process:
        return one_of(victim.workers(), dice)

    return [
        (5, lambda: one().kill()),
        (1, lambda: one().send_signal(signal.SIGSEGV)),
        (2, lambda: nap(one(), dice.uniform(0, NAP_MAX_S))),
        (0.3, lambda: one_of(victim.templates(), dice).kill()),
    ]


def rise(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def replace_generation(victim: Victim) -> None:
    """Once those before it are gone: their counts are in one memory then, which the new acceptor has beside its own."""
    whats_held(victim)
    log = victim.server.log
    mark = log.mark()
    psutil.Process(victim.server.pid).send_signal(signal.SIGHUP)
    log.wait("reloaded", mark)
