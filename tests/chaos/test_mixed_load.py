"""Whatever is killed, stopped or written over, under mixed load: every request is accounted for, and nothing leaks."""

import contextlib
import functools
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from support.counts import Counts
from support.gate import Gate
from support.havoc import DURATION_S, Account, Holding, Load, at_random, nap, seed
from support.load import run_all
from support.patience import PATIENCE_S, eventually
from support.processes import open_paths
from support.seats import seats
from support.server import Serve, Server
from support.wire import request

WORKERS = 4
CLIENTS = 16
ABORTERS = 6
CONCURRENCY = 4
"""Of each event loop."""
NAP_MAX_S = 0.3
"""Shorter than `--timeout`."""

KINDS = {
    "threads": ("chaotic:app", "--interface", "wsgi"),
    "loops": (
        *("chaotic_asgi:app", "--interface", "asgi", "--loop", "asyncio"),
        *("--worker-concurrency", str(CONCURRENCY), "--worker-sessions", "1"),
    ),
}
"""Of workers: how to start a server of them."""

Deeds = list[tuple[float, Callable[[], object]]]
"""How often a second, and what."""

pytestmark = [
    pytest.mark.own("gunicorn resets the clients of a killed worker"),
    pytest.mark.slow,
    pytest.mark.timeout(60 + 4 * DURATION_S + 6 * PATIENCE_S),
]


@dataclass
class Victim:
    """A server under test, and how to find who plays which part of it now."""

    server: Server
    gate: Gate
    counts: Counts
    seats: int

    def acceptor(self) -> psutil.Process:
        """There is none for a moment while another one is started. Not by its connections, which end with it."""
        return eventually(self._acceptor, "there is an acceptor")  # type: ignore[return-value]

    def _acceptor(self) -> psutil.Process | None:
        for process in self.server.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == "stanchion-acpt" and process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None

    def workers(self) -> list[psutil.Process]:
        """As the master knows them."""
        pids = {worker["pid"] for worker in self.counts.workers()}
        return [process for process in self.server.processes() if process.pid in pids]

    def has_workers_that_stay(self) -> bool:
        """As many as there are to be, and none that will be replaced, which would be beside its successor for a while.

        That happens a second after an app has closed all descriptors, its worker's channel to the master with them.
        """
        stages = [worker["stage"] for worker in self.counts.workers()]
        return stages == ["ready"] * WORKERS and sum(map(has_socket, self.workers())) == WORKERS

    def template(self) -> psutil.Process | None:
        """The child of the master who is left, if it is there."""
        known = {self.acceptor().pid, *(worker.pid for worker in self.workers())}
        children = psutil.Process(self.server.pid).children()
        return next((child for child in children if child.pid not in known), None)


def has_socket(process: psutil.Process) -> bool:
    return any(path.startswith("socket:") for path in open_paths(process))


@pytest.fixture(params=KINDS)
def victim(request: pytest.FixtureRequest, serve: Serve, gate: Gate, tmp_path: Path) -> Victim:
    counts = Counts(tmp_path / "ctl")
    arguments = ["-w", str(WORKERS), "--keep-alive", "60", "--timeout", "20", "--body-memory", "100000"]
    server = serve(*KINDS[request.param], *arguments, *counts.arguments, env=gate.environment)
    return Victim(server, gate, counts, WORKERS * (CONCURRENCY if request.param == "loops" else 1))


@contextlib.contextmanager
def nothing_leaks(victim: Victim) -> Iterator[None]:
    """What happens in here leaves the server as it was."""
    server, counts = victim.server, victim.counts
    seats(server, victim.gate, victim.seats)
    held = whats_held(victim)
    yield
    counts.settled()
    eventually(victim.has_workers_that_stay, "all workers are back")
    seats(server, victim.gate, victim.seats)
    for name, before in held.items():
        # The connection by which we ask for counts is one of the master's for a moment.
        eventually(lambda name=name, before=before: whats_held(victim)[name].is_within(before), f"{name}: {before}")
    eventually(lambda: server.spooled() == [], "no spool file is left")
    # A seat or a slot that was lost would show here, once each has had its turns.
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(20 * WORKERS)]
        for number, wire in enumerate(wires):
            wire.send(request("GET", f"/fine?{number}"))
        assert [wire.response().text for wire in wires] == [str(number) for number in range(20 * WORKERS)]
    assert not server.log.matches("(?i)leak|panic|is lost: no worker|do not add up")


def whats_held(victim: Victim) -> dict[str, Holding]:
    """By whom, once no client is connected and nobody is on the way out."""
    server = victim.server
    eventually(lambda: victim.counts.open_connections() == 0, "no connection is kept")
    parts = WORKERS + len(("master", "acceptor", "template"))
    eventually(lambda: len(server.processes()) == parts, "there are as many processes as there should be")
    return {"the acceptor": Holding(victim.acceptor()), "the master": Holding(psutil.Process(server.pid))}


def run(load: Load, havoc: Deeds, aborters: int = 0) -> Account:
    """The load, while each deed is done now and then."""
    clients = [functools.partial(load.client, number) for number in range(CLIENTS)]
    leaving = [functools.partial(load.aborter, CLIENTS + number) for number in range(aborters)]
    dice = random.Random(load.seed)
    deeds = [functools.partial(at_random, random.Random(dice.random()), load.over, *deed) for deed in havoc]
    run_all([*clients, *leaving, *deeds])
    print(f"clients saw {dict(load.account.ends)}, and {load.account.aborted} left")
    return load.account


def on_workers(victim: Victim, dice: random.Random) -> Deeds:
    def one() -> psutil.Process:
        workers = victim.workers()
        if not workers:
            raise psutil.NoSuchProcess(0)
        return dice.choice(workers)

    def kill_template() -> None:
        found = victim.template()
        if found:
            found.kill()

    return [
        (5, lambda: one().kill()),
        (1, lambda: one().send_signal(signal.SIGSEGV)),
        (2, lambda: nap(one(), dice.uniform(0, NAP_MAX_S))),
        (0.3, kill_template),
    ]


def rise(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def test_what_each_client_is_told_is_what_the_server_counts_while_workers_and_templates_die(victim: Victim) -> None:
    load = Load(victim.server, seed())
    with nothing_leaks(victim):
        before = victim.counts.settled()
        account = run(load, on_workers(victim, random.Random(load.seed)))
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        # What was pipelined behind an answer that was broken off was never read, so it did not arrive.
        assert rose.pop("arrived") == account.ends.total()
        assert rose == dict(account.ends)
        assert account.ends["refused_worker_died"] > 0, "no worker was hit in the middle of a request: this is no test"


def test_clients_that_leave_at_any_byte_are_all_accounted_for_while_workers_die(victim: Victim) -> None:
    load = Load(victim.server, seed())
    with nothing_leaks(victim):
        before = victim.counts.settled()
        account = run(load, on_workers(victim, random.Random(load.seed)), ABORTERS)
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        assert account.ends.total() <= rose.pop("arrived") <= account.ends.total() + account.aborted
        for name, count in account.ends.items():
            assert rose[name] >= count, f"more were told than counted: {name}"
        assert any(name.startswith("abandoned") for name in rose), "nobody left in time: this is no test"


def test_what_is_lost_with_acceptors_is_accounted_for_and_the_server_serves_on(victim: Victim) -> None:
    load = Load(victim.server, seed(), may_lose=True)
    with nothing_leaks(victim):
        before = victim.counts.settled()
        kill_acceptor = (1.5, lambda: victim.acceptor().kill())
        account = run(load, [kill_acceptor, *on_workers(victim, random.Random(load.seed))], ABORTERS)
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        assert rose["lost_with_acceptor"] > 0, "no acceptor was hit: this is no test"
        assert account.ends["answered"] > 0


def replace_generation(victim: Victim) -> None:
    """Once those before it are gone: their counts are in one memory then, which the new acceptor has beside its own."""
    whats_held(victim)
    log = victim.server.log
    mark = log.mark()
    psutil.Process(victim.server.pid).send_signal(signal.SIGHUP)
    log.wait("reloaded", mark)


def test_nobody_loses_an_answer_while_generations_are_replaced_and_workers_terminated(victim: Victim) -> None:
    """But for those whose connection the old acceptor had closed before it read the request."""
    load = Load(victim.server, seed(), may_lose=True)
    replace_generation(victim)
    with nothing_leaks(victim):
        before = victim.counts.settled()
        mark = victim.server.log.mark()
        dice = random.Random(load.seed)
        reload = (2, lambda: psutil.Process(victim.server.pid).send_signal(signal.SIGHUP))
        terminate = (1, lambda: dice.choice(victim.workers()).terminate())
        account = run(load, [reload, terminate, *on_workers(victim, dice)])
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        account.ends.pop("lost", 0)
        assert rose.pop("arrived") == account.ends.total()
        assert rose == dict(account.ends)
        eventually(lambda: victim.server.log.matches("reloaded", mark), "it was reloaded, or this is no test")
        replace_generation(victim)
