"""The verdict on apps whose answer is known: what is full, what would help, and where their requests' time goes."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.server import Serve, Server
from support.wire import ask

pytestmark = pytest.mark.own("gunicorn measures nothing of the kind")

RAMP = ((12, 6), (4, 3))
"""So many clients for so many seconds show what few busy seats bring. The first 16 requests of a seat do not count."""
LOAD_S = 14
"""The verdict is on 10 s of busy seats."""
POOLS = 8
"""Two workers have four connections each: tests/apps/causes.py."""
CORES = len(os.sched_getaffinity(0))
TWO_CORES = pytest.mark.skipif(CORES < 2, reason="a worker that computes has the only core")
POINTS = 0.10
CORE_WAIT = 0.25
"""crates/stanchion-line/src/verdict.rs"""


@contextmanager
def clients(server: Server, target: str, count: int) -> Iterator[None]:
    """So many clients, each of which asks again as soon as it has its answer."""
    done, failures = threading.Event(), []

    def asks() -> None:
        try:
            with server.connect() as wire:
                while not done.is_set():
                    assert wire.get(target, "Connection: keep-alive").status == 200
        except Exception as failure:  # noqa: BLE001 - the test raises it
            failures.append(failure)

    threads = [threading.Thread(target=asks) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def causes_under_load(server: Server, admin: str, target: str, seats: int) -> dict[str, Any]:
    with clients(server, target, seats + 2):
        # Time must pass: the figures are those of the seconds before.
        threading.Event().wait(LOAD_S)
        told: dict[str, Any] = json.loads(ask(admin, "/status").body)
    causes: dict[str, Any] = told["causes"]
    service = {cause: us for cause, us in causes["recent_us"].items() if cause != "line"}
    causes["shares"] = {cause: us / sum(service.values()) for cause, us in service.items()}
    causes["mean_s"] = told["service_us"]["sum_us"] / told["service_us"]["count"] / 1e6
    return causes


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("workers", "threads", "cpu_ms", "sleep_ms", "rounds", "verdict"),
    [
        pytest.param(1, 1, 20, 0, 1, "more_workers", id="one that computes", marks=TWO_CORES),
        pytest.param(2 * CORES, 1, 20, 0, 1, "cores_full", id="computing on all cores"),
        pytest.param(1, 4, 20, 0, 1, "gil_full", id="threads that compute", marks=TWO_CORES),
        pytest.param(1, 4, 0, 30, 1, "more_threads", id="sleeping"),
        pytest.param(1, 2, 2, 20, 3, "more_threads", id="mixed"),
    ],
)
def test_the_verdict_names_what_is_full(
    serve: Serve, admin: str, workers: int, threads: int, cpu_ms: int, sleep_ms: int, rounds: int, verdict: str
) -> None:
    server = serve("causes:app", "--admin", admin, "--workers", str(workers), "--threads", str(threads))
    target = f"/?cpu_ms={cpu_ms}&sleep_ms={sleep_ms}&rounds={rounds}"
    causes = causes_under_load(server, admin, target, workers * threads)
    print(causes["words"], causes["shares"], causes["mean_s"])
    shares, mean_ms = causes["shares"], causes["mean_s"] * 1000
    if verdict == "more_workers" and shares["core"] >= CORE_WAIT:
        verdict = "cores_full"  # Other processes of this machine have them.
    assert causes["verdict"] == verdict, causes
    assert shares["cpu"] == pytest.approx(rounds * cpu_ms / mean_ms, abs=POINTS), causes
    assert shares["elsewhere"] == pytest.approx(rounds * sleep_ms / mean_ms, abs=POINTS), causes


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("pool", "verdict"), [(1, "throughput_full"), (0, "more_threads")], ids=["a pool of 8", "none"]
)
def test_the_verdict_sees_where_throughput_stops_growing(serve: Serve, admin: str, pool: int, verdict: str) -> None:
    server = serve("causes:app", "--admin", admin, "--workers", "2", "--threads", "16")
    target = f"/?sleep_ms=50&pool={pool}"
    for count, seconds in RAMP:
        with clients(server, target, count):
            threading.Event().wait(seconds)
    causes = causes_under_load(server, admin, target, 32)
    print(causes["words"], causes["curve"], causes["shares"])
    assert causes["verdict"] == verdict, causes
    few, *_, many = causes["curve"]
    assert few["busy"] <= POOLS / 2 and many["busy"] > 2 * POOLS
    grown = many["per_s"] / few["per_s"]
    if pool:
        assert causes["plateau"] == 2 * POOLS, "it was seen with 12"
        assert causes["words"].startswith("something that all requests use, such as a database: beyond ")
        assert grown < many["busy"] / few["busy"] / 2
    else:
        assert causes["plateau"] is None
        assert grown > many["busy"] / few["busy"] / 2
