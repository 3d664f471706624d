"""X-Request-Start: what a proxy says that is believed, else the moment at which the request joined the line."""

import ast
import json
import re
import time
from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn leaves it to proxies")

ASGI = ("--lifespan", "off")
UNTRUSTED = ("--forwarded-allow-ips", "10.9.8.7")
FORGED = ("X-Request-Start: t=1", "x-request-start: t=2", "X_Request_Start: t=3")


def start_of_environ(wire: Wire, *fields: str) -> str:
    wire.send(request("GET", "/", fields))
    start = wire.response().json()["environ"]["HTTP_X_REQUEST_START"]
    assert isinstance(start, str)
    return start


def starts_of_scope(wire: Wire, *fields: str) -> list[str]:
    wire.send(request("GET", "/scope", fields))
    headers = ast.literal_eval(json.loads(wire.response().body)["headers"])
    return [value.decode() for name, value in headers if name == b"x-request-start"]


def moment_s(start: str) -> float:
    assert re.fullmatch("t=[0-9]{16}", start), "microseconds, in the form that middleware knows"
    return int(start[2:]) / 1e6


@pytest.mark.parametrize("arguments", [(), UNTRUSTED], ids=["trusted", "untrusted"])
def test_a_request_without_it_gets_it(serve: Serve, arguments: tuple[str, ...]) -> None:
    with serve("echo:app", *arguments).connect() as wsgi, serve("asgi_cases:app", *ASGI, *arguments).connect() as asgi:
        last_s = time.time()
        # Hosts keep what they made for a head that comes again.
        for _ in range(4):
            [scopes] = starts_of_scope(asgi)
            for start in (start_of_environ(wsgi), scopes):
                assert last_s <= moment_s(start) <= time.time()
            last_s = moment_s(scopes)


def test_it_is_when_the_request_joined_the_line(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "ctl")
    server = serve("waiting:app", *counts.arguments, env=gate.environment)
    with server.connect() as first, server.connect() as second:
        first.send(request("GET", "/wait?first"))
        gate.announcement()
        sent_s = time.time()
        second.send(request("GET", "/start"))
        eventually(lambda: counts.requests()["arrived"] == 2, "it waits")
        waits_s = time.time()
        gate.let_pass(1)
        first.response()
        second.response()
    start, ran_s = gate.announcement().split()
    assert sent_s <= moment_s(start) <= waits_s <= float(ran_s)


def test_what_a_proxy_says_stays(serve: Serve) -> None:
    with serve("echo:app").connect() as wsgi, serve("asgi_cases:app", *ASGI).connect() as asgi:
        for said in ("t=1764371234.567", "soon"):
            assert start_of_environ(wsgi, f"X-Request-Start: {said}") == said
            assert starts_of_scope(asgi, f"X-Request-Start: {said}") == [said]


def test_what_any_other_client_says_is_replaced(serve: Serve) -> None:
    """It could make an autoscaler add machines else."""
    began_s = time.time()
    with serve("echo:app", *UNTRUSTED, "--header-map", "dangerous").connect() as wire:
        for _ in range(3):
            assert moment_s(start_of_environ(wire, *FORGED)) >= began_s
    with serve("asgi_cases:app", *ASGI, *UNTRUSTED).connect() as wire:
        for _ in range(3):
            [start] = starts_of_scope(wire, *FORGED)
            assert moment_s(start) >= began_s
