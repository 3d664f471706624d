"""Processes are killed and stopped, memory is written over, under mixed load: no request is lost, nothing leaks."""

import functools
import random
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support import streams
from support.counts import Counts
from support.gate import Gate
from support.havoc import DURATION_S, Account, Load, at_random, seed
from support.load import run_all
from support.patience import PATIENCE_S
from support.server import Serve
from support.victim import WORKERS, Deeds, Victim, nothing_leaks, on_workers, one_of, replace_generation, rise

CLIENTS = 16
CARRIERS = 4
"""Clients of HTTP/2."""
ABORTERS = 6
CONCURRENCY = 4
"""The requests that each event loop runs at once."""

KINDS = {
    "threads": ("chaotic:app", "--interface", "wsgi"),
    "loops": (
        *("chaotic:asgi", "--interface", "asgi", "--loop", "asyncio", "--pathsend"),
        *("--worker-concurrency", str(CONCURRENCY), "--worker-sessions", "1"),
    ),
}
"""How to start a server with each kind of workers."""

pytestmark = [
    pytest.mark.own("gunicorn resets the clients of a killed worker"),
    pytest.mark.timeout(60 + 4 * DURATION_S + 6 * PATIENCE_S),
]


@pytest.fixture(params=KINDS)
def victim(request: pytest.FixtureRequest, serve: Serve, gate: Gate, tmp_path: Path) -> Victim:
    counts = Counts(tmp_path / "ctl")
    arguments = ["-w", str(WORKERS), "--keep-alive", "60", "--timeout", "20", "--body-memory", "100000"]
    arguments += ["--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge"]
    server = serve(*KINDS[request.param], *arguments, *counts.arguments, env=gate.environment)
    return Victim(server, gate, counts, WORKERS * (CONCURRENCY if request.param == "loops" else 1))


def run(load: Load, havoc: Deeds, aborters: int = 0, until: Callable[[Account], object] = lambda _: True) -> Account:
    """The load, while each deed is done now and then, and until this holds of what clients have seen."""
    clients = [functools.partial(load.client, number) for number in range(CLIENTS)]
    clients += [functools.partial(streams.client, load, number) for number in range(-CARRIERS, 0)]
    leaving = [functools.partial(load.aborter, CLIENTS + number) for number in range(aborters)]
    leaving += [functools.partial(streams.leaver, load, -100 - number) for number in range(aborters // 2)]
    dice = random.Random(load.seed)
    enough = functools.partial(until, load.account)
    deeds = [functools.partial(at_random, random.Random(dice.random()), load.over, enough, *deed) for deed in havoc]
    run_all([*clients, *leaving, *deeds])
    print(f"clients saw {dict(load.account.ends)}, and {load.account.aborted} left")
    return load.account


def test_what_each_client_is_told_is_what_the_server_counts_while_workers_and_templates_die(victim: Victim) -> None:
    load = Load(victim.server, seed())
    with nothing_leaks(victim):
        before = victim.counts.settled()
        havoc = on_workers(victim, random.Random(load.seed))
        account = run(load, havoc, until=lambda seen: seen.ends["refused_worker_died"])
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        # The acceptor never read requests pipelined behind an answer that was broken off, so they did not arrive.
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
        lost = victim.lost_with_acceptors()
        account = run(
            load,
            [kill_acceptor, *on_workers(victim, random.Random(load.seed))],
            ABORTERS,
            until=lambda _: victim.lost_with_acceptors() > lost,
        )
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        assert rose["lost_with_acceptor"] > 0, "no acceptor was hit: this is no test"
        assert account.ends["answered"] > 0


def test_no_client_loses_an_answer_while_generations_are_replaced_and_workers_terminated(victim: Victim) -> None:
    """Except clients whose connection the old acceptor had closed before it read the request."""
    load = Load(victim.server, seed(), may_lose=True)
    replace_generation(victim)
    with nothing_leaks(victim):
        before = victim.counts.settled()
        mark = victim.server.log.mark()
        dice = random.Random(load.seed)
        reload = (2, lambda: psutil.Process(victim.server.pid).send_signal(signal.SIGHUP))
        terminate = (1, lambda: one_of(victim.workers(), dice).terminate())
        havoc = [reload, terminate, *on_workers(victim, dice)]
        account = run(load, havoc, until=lambda _: victim.server.log.matches("reloaded", mark))
        rose = rise(before, victim.counts.settled())
        print(f"the server counted {rose}")
        assert not account.wrong, account.wrong[:5]
        account.ends.pop("lost", 0)
        assert rose.pop("arrived") == account.ends.total()
        assert rose == dict(account.ends)
        assert victim.server.log.matches("reloaded", mark), "it was not reloaded: this is no test"
        replace_generation(victim)
