"""The seats that requests want, as autoscalers read them: in /line and /metrics, through reloads, upgrades and kills.

The clock of the server is set forward, so that seconds pass at once: counts are asserted, and no times.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import ask, request

pytestmark = pytest.mark.own("gunicorn knows nothing of the kind")

REQUESTS = 120
NAP_MS = 20


def line(admin: str) -> dict[str, Any]:
    answer = ask(admin, "/line")
    assert answer.status == 200 and answer.header("content-type") == "application/json"
    figures: dict[str, Any] = json.loads(answer.body)
    assert all(isinstance(value, int | float) for value in figures.values())
    return figures


def demand(admin: str) -> dict[str, float]:
    told: dict[str, float] = json.loads(ask(admin, "/status").body)["demand"]
    return told


def metric(admin: str, name: str) -> float:
    [value] = [text.split()[-1] for text in ask(admin, "/metrics").text.splitlines() if text.startswith(f"{name} ")]
    return float(value)


def naps(server: Server, count: int = REQUESTS, *fields: str, ms: int = NAP_MS) -> None:
    with server.connect() as wire:
        for number in range(count):
            assert wire.get(f"/nap?{ms}-{number}", "Connection: keep-alive", *fields).status == 200


def pass_seconds(admin: str, clock: Clock) -> None:
    """All that was counted by now is in a second that is over: the acceptor notes it when it keeps a sample."""
    for _ in range(2):
        before_us = json.loads(ask(admin, "/status").body)["now_us"]
        clock.advance(1)

        def is_noted(before_us: int = before_us) -> bool:
            return bool(json.loads(ask(admin, f"/history?since_us={before_us}").body)["samples"])

        eventually(is_noted, "the acceptor keeps a sample")


def reload(server: Server) -> None:
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves")


def kill_the_acceptor(server: Server) -> None:
    mark = server.log.mark()
    os.kill(server.acceptor_by_name().pid, signal.SIGKILL)
    server.log.wait("acceptor confined", mark)


def upgrade(server: Server) -> None:
    server.signal(signal.SIGUSR2)
    [heir] = server.log.wait(r"upgraded: the new master (\d+) serves").groups()
    eventually(lambda: server.process.poll() == 0, "the first master has left")
    server.follow(int(heir))


@pytest.mark.parametrize("replace", [reload, kill_the_acceptor, upgrade])
def test_the_rate_times_the_service_time_is_wanted_and_outlives(
    serve: Serve, admin: str, clock: Clock, replace: Callable[[Server], None]
) -> None:
    server = serve("waiting:app", "--admin", admin, "--workers", "2", env=clock.environment)
    eventually(lambda: line(admin)["seats"] == 2, "both workers are counted")
    assert line(admin)["seats_wanted"] == 0
    naps(server)
    pass_seconds(admin, clock)
    peak = demand(admin)["seats_wanted_peak60s"]
    # A request sleeps for so long at least, and longer on a busy machine, where requests may come in several seconds.
    service_us = demand(admin)["service_us"]
    assert service_us >= NAP_MS * 1000
    most = REQUESTS / 6 * service_us / 1e6
    assert most / 10 <= peak <= 1.01 * most
    assert metric(admin, 'stanchion_seats_wanted{window="peak60s"}') == pytest.approx(peak)
    assert metric(admin, "stanchion_seats_total") == 2
    replace(server)

    eventually(lambda: line(admin)["ready"] == 1, "the new process serves")
    assert demand(admin)["seats_wanted_peak60s"] == pytest.approx(peak, rel=0.01)
    clock.advance(90)
    assert line(admin)["seats_wanted"] == 0


def test_requests_that_wait_here_and_in_front_count(serve: Serve, gate: Gate, admin: str, clock: Clock) -> None:
    environment = gate.environment | clock.environment
    server = serve("waiting:app", "--admin", admin, "--timeout", "0", "--queue-timeout", "0", env=environment)
    now_us = time.time_ns() // 1000
    for age_us in (-30_000_000, 90_000_000):
        naps(server, 1, f"X-Request-Start: t={now_us - age_us}")
    naps(server, 100, f"X-Request-Start: t={now_us - 2_000_000}", ms=1)
    pass_seconds(admin, clock)
    figures = line(admin)
    dropped = json.loads(ask(admin, "/status").body)["events"]["proxy_times_dropped"]
    assert dropped == 2
    # The server's clock was set forward, not the one on the wall; the requests took a moment.
    assert figures["front_wait_ms"] >= 1900
    assert metric(admin, "stanchion_front_wait_seconds_count") == 100
    quiet = figures["seats_wanted_10s"]
    with ThreadPoolExecutor(20) as pool, server.connect() as held:
        held.send(request("GET", "/wait?held"))
        gate.announcement()
        waiting = [pool.submit(naps, server, 1) for _ in range(20)]
        full = eventually(lambda: (told := line(admin))["waiting"] == 20 and told, "20 wait")
        assert full["busy"] == 1 and full["in_flight"] == 21
        assert full["seats_wanted_10s"] > quiet
        clock.advance(20)
        # The request has had its seat for so long that it wants one for itself.
        stuck = eventually(lambda: (told := line(admin))["seats_wanted_10s"] >= 1 and told, "it wants its seat")
        assert stuck["oldest_wait_ms"] >= 20_000
        gate.let_pass(1)
        for one in waiting:
            one.result()


LEAVING = 200


def test_clients_that_leave_at_once_want_no_seat(serve: Serve, gate: Gate, admin: str, clock: Clock) -> None:
    environment = gate.environment | clock.environment
    server = serve("waiting:app", "--admin", admin, "--timeout", "0", "--queue-timeout", "0", env=environment)

    def left() -> int:
        counts = json.loads(ask(admin, "/status").body)["requests"]
        return int(counts["abandoned_waiting"] + counts["abandoned_handed_out"])

    with server.connect() as held:
        held.send(request("GET", "/wait?held"))
        gate.announcement()
        for _ in range(LEAVING):
            with server.connect() as wire:
                wire.send(request("GET", "/wait?not"))
        eventually(lambda: left() == LEAVING, "all have left")
        pass_seconds(admin, clock)
        # The acceptor may have added some to a second before they left: one at each look.
        assert line(admin)["arrivals_per_s"] * 10 <= LEAVING / 2
        gate.let_pass(1)
        assert held.response().status == 200


def test_a_client_that_is_no_proxy_is_not_believed(serve: Serve, admin: str) -> None:
    server = serve("hello:app", "--admin", admin, "--forwarded-allow-ips", "192.0.2.1")
    with server.connect() as wire:
        assert wire.get("/", "X-Request-Start: t=1").status == 200
    assert metric(admin, "stanchion_front_wait_seconds_count") == 0
    assert json.loads(ask(admin, "/status").body)["events"]["proxy_times_dropped"] == 0


def test_an_event_loop_wants_the_share_of_its_seats_that_its_core_is_busy(
    serve: Serve, admin: str, clock: Clock
) -> None:
    server = serve("asgi_cases:app", "--admin", admin, "--worker-connections", "100", env=clock.environment)
    assert line(admin)["seats"] == 100
    with server.connect() as wire:
        # The acceptor has to have looked at the worker before, as it does every second.
        for count in (1, REQUESTS):
            for _ in range(count):
                assert wire.get("/burns?10", "Connection: keep-alive").status == 200
            pass_seconds(admin, clock)
    figures = line(admin)
    # Its thread had a core for 10 ms of each request, whatever else the machine did.
    least = REQUESTS / 10 * 0.010 * 100
    assert figures["seats_wanted_10s"] >= 0.9 * least
    assert 0.1 <= figures["utilization"] <= 1
