"""Processes are killed and replaced, memory is written over, while WebSockets are open beside requests: each session
ends in one way, which its client learns, and nothing leaks."""

import collections
import contextlib
import functools
import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.counts import Counts
from support.gate import Gate
from support.havoc import DURATION_S, Account, Load, at_random, seed
from support.load import run_all
from support.patience import PATIENCE_S, eventually
from support.server import Serve
from support.talk import Talk
from support.victim import (
    WORKERS,
    Deeds,
    Victim,
    nothing_leaks,
    on_workers,
    one_of,
    replace_generation,
    rise,
    whats_held,
)
from support.websocket import WebSocket, sessions

CLIENTS = 6
TALKERS = 12
LEAVERS = 4
CONCURRENCY = 4
SESSIONS = 8
"""The limit of sessions of each worker."""
MEMORY_BYTES = 4 << 20
"""The limit of all partly received messages together: more than all clients send at once."""
ENDS = ("closed_by_app", "closed_by_client", "closed_by_server", "cut")

pytestmark = [
    pytest.mark.own("gunicorn resets the clients of a killed worker"),
    pytest.mark.timeout(60 + 4 * DURATION_S + 6 * PATIENCE_S),
]


@pytest.fixture
def victim(serve: Serve, gate: Gate, tmp_path: Path) -> Victim:
    counts = Counts(tmp_path / "ctl")
    server = serve(
        *("chaotic:asgi", "--interface", "asgi", "--loop", "asyncio", "--pathsend", "-w", str(WORKERS)),
        *("--worker-concurrency", str(CONCURRENCY), "--worker-sessions", str(SESSIONS)),
        *("--session-grace", "0.5", "--max-ws-memory", str(MEMORY_BYTES)),
        *("--keep-alive", "60", "--timeout", "20", "--body-memory", "100000"),
        *counts.arguments,
        env=gate.environment,
    )
    return Victim(server, gate, counts, WORKERS * CONCURRENCY)


@contextlib.contextmanager
def no_place_leaks(victim: Victim) -> Iterator[None]:
    """Assert that the block leaves the server as it was, with room for as many sessions as before."""
    with nothing_leaks(victim):
        yield
        ended = sessions(victim.counts)
        assert ended.get("begun", 0) == sum(ended.get(end, 0) for end in ENDS)
        eventually(victim.has_workers_that_stay, "all workers are back")
        eventually(lambda: has_all_places(victim), "there is a place for each session")
        has_all_memory(victim)


def has_all_places(victim: Victim) -> bool:
    """Whether as many sessions as are to have room have it, and no more."""
    with contextlib.ExitStack() as stack:

        def status() -> int:
            client = WebSocket(victim.server)
            stack.callback(client.drop)
            return client.status

        return [status() for _ in range(WORKERS * SESSIONS + 1)] == [101] * WORKERS * SESSIONS + [503]


def has_all_memory(victim: Victim) -> None:
    """A client may send nearly all that clients together may."""

    def is_echoed() -> bool:
        client = WebSocket(victim.server)
        try:
            if client.status != 101:
                return False
            message = bytes(MEMORY_BYTES - (64 << 10))
            client.bytes(message)
            return bool(client.hear() == message)
        finally:
            client.drop()

    eventually(is_echoed, "no memory is held for messages")


def run(load: Load, talk: Talk, havoc: Deeds, leavers: int = 0, until: Callable[[], object] = lambda: True) -> None:
    """Requests and sessions, while each deed is done now and then, and until this holds."""
    clients: list[Callable[[], None]] = [functools.partial(load.client, number) for number in range(CLIENTS)]
    clients += [functools.partial(talk.client, number) for number in range(TALKERS)]
    clients += [functools.partial(talk.leaver, TALKERS + number) for number in range(leavers)]
    dice = random.Random(load.seed)
    deeds = [functools.partial(at_random, random.Random(dice.random()), load.over, until, *deed) for deed in havoc]
    run_all([*clients, *deeds])
    print(f"clients saw {dict(load.account.ends)}, and of sessions {dict(talk.requests.ends)}")
    print(f"sessions: {dict(talk.sessions)}, {talk.heard} messages, and {talk.requests.aborted} left")
    assert talk.heard > 0


def right(*accounts: Account) -> None:
    wrong = [one for account in accounts for one in account.wrong]
    assert not wrong, wrong[:5]


def began(victim: Victim, may_lose_requests: bool = False, may_lose: bool = False) -> tuple[Load, Talk]:
    load = Load(victim.server, seed(), may_lose or may_lose_requests)
    return load, Talk(victim.server, load.seed, load.over, may_lose)


Counted = tuple[dict[str, int], dict[str, int]]


def settled(victim: Victim) -> Counted:
    """The outcomes of requests, and of sessions, once all have ended."""
    return victim.counts.settled(), sessions(victim.counts)


def risen(victim: Victim, before: Counted) -> Counted:
    both = zip(before, settled(victim), strict=True)
    requests, ended = (rise(dict.fromkeys(now, 0) | then, now) for then, now in both)
    print(f"the server counted {requests}, and of sessions {ended}")
    return requests, ended


def test_what_each_client_is_told_is_what_the_server_counts_while_workers_and_templates_die(victim: Victim) -> None:
    load, talk = began(victim)
    with no_place_leaks(victim):
        before = settled(victim)
        run(load, talk, on_workers(victim, random.Random(load.seed)))
        requests, ended = risen(victim, before)
        right(load.account, talk.requests)
        ends = load.account.ends + talk.requests.ends
        assert requests.pop("arrived") == ends.total()
        assert requests == dict(ends)
        assert ended == dict(talk.sessions)
        assert ended["closed_by_server"] > 0, "no worker was hit that had sessions: this is no test"


def test_sessions_whose_clients_leave_are_all_accounted_for_while_workers_die(victim: Victim) -> None:
    load, talk = began(victim)
    with no_place_leaks(victim):
        before = settled(victim)
        run(load, talk, on_workers(victim, random.Random(load.seed)), LEAVERS)
        requests, ended = risen(victim, before)
        right(load.account, talk.requests)
        ends = load.account.ends + talk.requests.ends
        assert ends.total() <= requests["arrived"] <= ends.total() + talk.requests.aborted
        for name, count in ends.items():
            assert requests[name] >= count, f"more were told than counted: {name}"
        for name, count in talk.sessions.items():
            assert ended[name] >= count, f"more were told than counted: {name}"
        assert ended["cut"] > 0, "nobody left in time: this is no test"


def test_sessions_that_are_lost_with_acceptors_are_accounted_for(victim: Victim) -> None:
    load, talk = began(victim, may_lose=True)
    with no_place_leaks(victim):
        before = settled(victim)
        kill_acceptor = (1.5, lambda: victim.acceptor().kill())
        lost = victim.lost_with_acceptors()
        run(
            load,
            talk,
            [kill_acceptor, *on_workers(victim, random.Random(load.seed))],
            LEAVERS,
            until=lambda: victim.lost_with_acceptors() > lost,
        )
        requests, ended = risen(victim, before)
        right(load.account, talk.requests)
        assert requests["lost_with_acceptor"] > 0, "no acceptor was hit: this is no test"
        assert ended["cut"] > 0
        assert talk.sessions["closed_by_client"] > 0


def test_sessions_are_told_to_come_again_while_generations_are_replaced_and_workers_terminated(victim: Victim) -> None:
    """Requests are lost whose connection the old acceptor had closed before it read them."""
    load, talk = began(victim, may_lose_requests=True)
    replace_generation(victim)
    with no_place_leaks(victim):
        before = settled(victim)
        dice = random.Random(load.seed)
        reload = (2, lambda: psutil.Process(victim.server.pid).send_signal(signal.SIGHUP))
        terminate = (1, lambda: one_of(victim.workers(), dice).terminate())
        run(
            load,
            talk,
            [reload, terminate, *on_workers(victim, dice)],
            until=lambda: talk.requests.ends["cut_at_shutdown"],
        )
        requests, ended = risen(victim, before)
        right(load.account, talk.requests)
        ends = load.account.ends + talk.requests.ends
        ends.pop("lost", 0)
        assert requests.pop("arrived") == ends.total()
        assert requests == dict(ends)
        assert ended == dict(talk.sessions)
        assert requests["cut_at_shutdown"] > 0, "no generation with sessions was replaced: this is no test"
        replace_generation(victim)


def logged(victim: Victim, mark: int) -> collections.Counter[str]:
    """The sum of the counts that acceptors have logged when they left since then."""
    sums: collections.Counter[str] = collections.Counter()
    for said in victim.server.log.matches(r"\] requests (arrived=.*)", mark):
        sums.update({name: int(count) for name, count in (one.split("=") for one in said[1].split())})
    return sums


def test_sessions_are_told_to_come_again_while_masters_are_replaced_and_workers_die(victim: Victim) -> None:
    """A new master starts its counts at zero, so the test adds up the counts that acceptors log when they leave."""
    load, talk = began(victim, may_lose_requests=True)
    dice = random.Random(load.seed)
    log = victim.server.log

    def upgraded(mark: int) -> list[re.Match[str]]:
        return log.matches("upgraded: the new master", mark)

    def upgrade() -> None:
        """Again if it fails, as it does when its template is killed at the wrong moment."""
        successor = None
        while not successor:
            mark = log.mark()
            victim.server.signal(signal.SIGUSR2)
            successor = log.wait(r"upgraded: the new master (\d+) serves|upgrade failed: ", mark)[1]
        victim.server.follow(int(successor))

    with no_place_leaks(victim):
        before = settled(victim)[0]
        mark = log.mark()
        deeds: Deeds = [
            (1, upgrade),
            (3, lambda: one_of(victim.named("stanchion-work"), dice).kill()),
            (0.3, lambda: one_of(victim.templates(), dice).kill()),
        ]
        # A worker whose app asks to exit cuts sessions at its shutdown too.
        run(load, talk, deeds, until=lambda: talk.requests.ends["cut_at_shutdown"] and upgraded(mark))
        upgrades = len(upgraded(mark))
        whats_held(victim)
        requests = logged(victim, mark)
        requests.update(victim.counts.settled())
        requests.subtract(before)
        print(f"the servers counted {dict(+requests)} in {upgrades} upgrades")
        right(load.account, talk.requests)
        ends = load.account.ends + talk.requests.ends
        ends.pop("lost", 0)
        assert requests.pop("arrived") == ends.total()
        assert +requests == ends
        assert upgrades > 0 and ends["cut_at_shutdown"] > 0, "no sessions were upgraded: this is no test"
