"""SIGKILL of random workers, ten times a second, under load: every request is accounted for and nothing leaks."""

import collections
import contextlib
import functools
import random
import threading
from dataclasses import dataclass, field

import psutil
import pytest

from support.gate import Gate
from support.load import run_all
from support.patience import PATIENCE_S
from support.seats import seats
from support.server import Serve, Server
from support.tree import Tree, tree
from support.wire import BrokenOff, Wire, request

WORKERS = 4
CLIENTS = 16
DURATION_S = 20
KILLS_PER_S = 10
NAP_MAX_MS = 15
POST_SHARE = 0.1
POST_BODY = b"s" * 150_000
"""More than `--body-memory`: it goes through a spool file."""
SEED = 8

pytestmark = pytest.mark.own("gunicorn resets the clients of a killed worker")


@dataclass
class Account:
    """What became of every request."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    unaccounted: list[str] = field(default_factory=list)

    def settle(self, query: str, status: int, body: bytes) -> None:
        right = status == 200 and body.split()[-1:] == [query.encode()]
        told = status == 502 and 0 < len(body) < 1000
        self.counts["answered" if right else "told 502" if told else "unaccounted"] += 1
        if not (right or told):
            self.unaccounted.append(f"{query}: {status} {body[:100]!r}")

    def lose(self, query: str, error: Exception) -> None:
        self.counts["unaccounted"] += 1
        self.unaccounted.append(f"{query}: {error!r}")


def client(server: Server, account: Account, over: threading.Event, number: int) -> None:
    """One request after the other on a connection that stays."""
    dice = random.Random(SEED * 1000 + number)
    wire: Wire | None = None
    count = 0
    while not over.is_set():
        count += 1
        query = f"{dice.randrange(NAP_MAX_MS)}-{number}-{count}"
        body = POST_BODY if dice.random() < POST_SHARE else b""
        try:
            wire = wire or server.connect(timeout_s=2 * PATIENCE_S)
            wire.send(request("POST" if body else "GET", f"/nap?{query}", body=body))
            response = wire.response()
        except (OSError, BrokenOff) as error:
            account.lose(query, error)
            wire = None
            continue
        account.settle(query, response.status, response.body)
        if response.closes():
            wire.close()
            wire = None
    if wire:
        wire.close()


def killer(parts: Tree, killed: list[int], over: threading.Event) -> None:
    dice = random.Random(SEED)
    for _ in range(DURATION_S * KILLS_PER_S):
        if workers := parts.workers():
            victim = dice.choice(workers)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                killed.append(victim.pid)
        if over.wait(1 / KILLS_PER_S):
            break
    over.set()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_request_is_answered_or_told_502_while_workers_are_killed_and_no_seat_is_lost(
    serve: Serve, gate: Gate
) -> None:
    server = serve("waiting:app", "-w", str(WORKERS), "--keep-alive", "60", env=gate.environment)
    parts = tree(server, gate, WORKERS)
    descriptors = parts.acceptor.num_fds()
    account, killed, over = Account(), list[int](), threading.Event()

    clients = [functools.partial(client, server, account, over, number) for number in range(CLIENTS)]
    run_all([*clients, functools.partial(killer, parts, killed, over)])

    print(f"seed {SEED}: {len(killed)} workers killed; {dict(account.counts)}")
    assert not account.unaccounted, account.unaccounted[:5]
    assert account.counts["told 502"] > 0, "no worker was hit in the middle of a request: this proves nothing"
    assert account.counts["answered"] > 10 * account.counts["told 502"]
    unnamed = [pid for pid in killed if not server.log.matches(rf"\b{pid}\b")]
    assert not unnamed, f"{len(unnamed)} deaths are not in the log"

    seats(server, gate, WORKERS)
    assert not server.log.matches("(?i)leak|panic")
    assert parts.acceptor.is_running() and parts.template.is_running(), "only workers were killed"
    assert parts.acceptor.num_fds() <= descriptors + 5, "the acceptor holds no descriptor of the dead"
