"""Where the time of requests goes: the parts are there, they add up to the whole, and each request has its own."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.patience import eventually
from support.server import Serve
from support.wire import ask

pytestmark = pytest.mark.own("gunicorn measures nothing of the kind")

REQUESTS = 4
CPU_MS, SLEEP_MS = 3, 5
ON = {"line", "core", "gil", "cpu", "elsewhere", "unmeasured"}
SPENT = "stanchion_request_spent_seconds_total"


def status(admin: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(ask(admin, "/status").body)
    return told


@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_parts_of_each_lane_are_there_and_add_up(serve: Serve, admin: str, threads: str) -> None:
    log = ("--access-logfile", "-", "--access-log-json")
    server = serve("causes:app", "--admin", admin, "--threads", threads, "--lane", "slow=/slow", *log)
    with server.connect() as wire:
        for path in ("/", "/slow"):
            for _ in range(REQUESTS):
                what = f"cpu_ms={CPU_MS}" if path == "/" else f"sleep_ms={SLEEP_MS}"
                assert wire.get(f"{path}?{what}", "Connection: keep-alive").status == 200
    eventually(lambda: status(admin)["service_us"]["count"] == 2 * REQUESTS, "all are counted")
    told = status(admin)
    spent = {lane["name"]: lane["spent_us"] for lane in told["causes"]["lanes"]}
    assert spent.keys() == {"default", "slow"} and all(parts.keys() == ON for parts in spent.values())
    assert sum(sum(parts.values()) for parts in spent.values()) == (
        told["wait_us"]["sum_us"] + told["service_us"]["sum_us"]
    )
    assert spent["default"]["cpu"] >= REQUESTS * CPU_MS * 1000
    # A thread that sleeps has no core; it may wait for one when it wakes up.
    at_seat = {cause: us for cause, us in spent["slow"].items() if cause not in ("line", "cpu")}
    assert sum(at_seat.values()) >= REQUESTS * SLEEP_MS * 1000
    assert spent["default"]["unmeasured"] == spent["slow"]["unmeasured"] == 0
    eventually(lambda: status(admin)["causes"]["verdict"] != "unknown", "a second is over, and so there is a verdict")
    seen = {
        (one.labels["lane"], one.labels["on"]): one.value
        for family in text_string_to_metric_families(ask(admin, "/metrics").text)
        for one in family.samples
        if one.name == SPENT
    }
    assert seen == {(lane, on): pytest.approx(us / 1e6) for lane, parts in spent.items() for on, us in parts.items()}
    line = json.loads(server.stdout.wait(f"cpu_ms={CPU_MS}").string)
    assert line["cpu_us"] >= CPU_MS * 1000
    assert line["cpu_us"] + (line["core_us"] or 0) + (line["gil_us"] or 0) <= line["service_us"]
    if threads == "1":
        # A thread that is alone in its worker waits for no other.
        assert line["gil_us"] is None and "gil" not in told["causes"]["not_measured"]


def test_a_thread_is_seen_that_waits_for_the_gil(serve: Serve, admin: str) -> None:
    server = serve("causes:app", "--admin", admin, "--threads", "2")
    done = threading.Event()

    def computes() -> None:
        with server.connect() as wire:
            while not done.is_set():
                assert wire.get("/?cpu_ms=50", "Connection: keep-alive").status == 200

    def gil_us() -> int:
        (lane,) = status(admin)["causes"]["lanes"]
        return int(lane["spent_us"]["gil"])

    with ThreadPoolExecutor(2) as clients:
        both = [clients.submit(computes) for _ in range(2)]
        try:
            eventually(lambda: gil_us() > 0 or status(admin)["causes"]["not_measured"], "a look has seen one wait")
        finally:
            done.set()
        for client in both:
            client.result()
    assert gil_us() > 0 or "gil" in status(admin)["causes"]["not_measured"]


def test_a_server_without_requests_says_that_it_knows_nothing(serve: Serve, admin: str) -> None:
    serve("causes:app", "--admin", admin)
    causes = status(admin)["causes"]
    assert causes["verdict"] == "unknown"
    assert set(causes["recent_us"].values()) == {0}
    assert causes["not_measured"] == []


def test_event_loops_say_that_they_measure_no_requests(serve: Serve, admin: str) -> None:
    server = serve("asgi_cases:app", "--interface", "asgi", "--admin", admin)
    with server.connect() as wire:
        assert wire.get("/").status in (200, 404)
    eventually(lambda: status(admin)["service_us"]["count"] == 1, "it is counted")
    told = status(admin)
    (lane,) = told["causes"]["lanes"]
    assert lane["spent_us"]["unmeasured"] == told["service_us"]["sum_us"]
    assert told["causes"]["not_measured"] == ["cpu", "core", "gil"]
    eventually(lambda: status(admin)["causes"]["verdict"] == "loops_free", "a second is over")
