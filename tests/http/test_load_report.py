"""Answers tell trusted proxies how busy the server is, if asked to, and no other peer."""

import re
from contextlib import ExitStack

import pytest

from support.clock import Clock
from support.gate import Gate
from support.http2 import Talk
from support.patience import eventually
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has no load reports")

FIELD = "endpoint-load-metrics"
ORCA = ("--load-report", "orca")
NUMBER = r"(\d+\.\d+)"
REPORT = re.compile(f"TEXT application_utilization={NUMBER},rps_fractional={NUMBER},eps={NUMBER}")
IDLE = (0.01, 0.01, 0.0)
LONG_S = 30


def report(said: str | None) -> tuple[float, ...]:
    assert said
    found = REPORT.fullmatch(said)
    assert found, said
    return tuple(map(float, found.groups()))


def told(server: Server, path: str = "/") -> tuple[float, ...]:
    with server.connect() as wire:
        return report(wire.get(path).header(FIELD))


def test_it_is_off_by_default_and_for_trusted_peers_only(serve: Serve) -> None:
    untrusted = ("--forwarded-allow-ips", "10.9.8.7")
    for arguments in ((), untrusted, (*ORCA, *untrusted)):
        with serve("answers:app", *arguments).connect() as wire:
            assert wire.get("/with-length").header(FIELD) is None
            assert wire.get("/raises").header(FIELD) is None


def test_a_server_without_load_never_says_0(serve: Serve, clock: Clock) -> None:
    server = serve("hello:app", *ORCA, env=clock.environment)
    assert told(server) == IDLE
    # A minute with two requests, of which each took next to nothing.
    clock.advance(LONG_S)
    eventually(lambda: told(server)[1] > 0.01, "it knows what it could do")
    clock.advance(LONG_S)
    utilization, per_s, failed_per_s = told(server)
    assert utilization == 0.01 and per_s >= 0.01 and failed_per_s == 0


def test_http2_has_it_too(serve: Serve) -> None:
    http2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")
    server = serve("hello:app", *ORCA, *http2)
    with Talk(server.address) as talk:
        assert report(dict(talk.get("/").fields)[FIELD]) == IDLE


def test_requests_that_run_and_wait_are_utilization(serve: Serve, gate: Gate, clock: Clock) -> None:
    patient = ("--timeout", "0", "--queue-timeout", "1000", "--threads", "4")
    server = serve("waiting:app", *ORCA, *patient, env=gate.environment | clock.environment)
    with ExitStack() as stack:
        held = [stack.enter_context(server.connect()) for _ in range(3)]
        for wire in held:
            wire.send(request("GET", "/wait?held"))
        gate.announcements(3)
        clock.advance(LONG_S)

        def has_settled() -> bool:
            """Seconds in which the three had no seat yet, or in which the probes wait for a core, pass."""
            clock.advance(1)
            return 0.7 < told(server, "/pid")[0] < 0.8

        eventually(has_settled, "three of four seats are busy")
        _, per_s, failed_per_s = told(server, "/pid")
        assert 0.01 <= per_s < 5 and failed_per_s == 0
        gate.open()


def test_failures_of_app_and_server_are_counted(serve: Serve, clock: Clock) -> None:
    server = serve("answers:app", *ORCA, env=clock.environment)
    with server.connect() as wire:
        for _ in range(5):
            failed = wire.get("/raises")
            assert failed.status == 500
            report(failed.header(FIELD))
        assert wire.get("/with-length").status == 200
    clock.advance(5)
    eventually(lambda: told(server, "/with-length")[2] > 0, "they are counted")
    _, _, failed_per_s = told(server, "/with-length")
    assert 0.3 < failed_per_s <= 1
