"""The admin listener: its status is true, and a request for it never waits in the line."""

import json
import os
import signal
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.address import Address
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Response, Wire, request

pytestmark = pytest.mark.own("gunicorn has no such listener")

OPENMETRICS = "Accept: application/openmetrics-text;version=1.0.0"


def ask(admin: str, target: str, *fields: str, method: str = "GET") -> Response:
    with Wire.connect(Address.parse(admin)) as wire:
        wire.send(request(method, target, list(fields)))
        return wire.response(method)


def status(admin: str) -> dict[str, Any]:
    response = ask(admin, "/status")
    assert (response.status, response.header("Content-Type")) == (200, "application/json")
    told = json.loads(response.body)
    assert isinstance(told, dict)
    return told


def samples(admin: str, *fields: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse = parse_openmetrics if fields else parse_prometheus
    families = parse(ask(admin, "/metrics", *fields).text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def hold(server: Server, gate: Gate) -> Wire:
    wire = server.connect()
    wire.send(request("GET", "/wait?held"))
    gate.announcement()
    return wire


@pytest.mark.privileges
def test_it_tells_of_the_line_and_the_seats_while_all_of_them_are_taken(serve: Serve, gate: Gate, admin: str) -> None:
    server = serve("waiting:app", "--admin", admin, "--max-waiting", "3", env=gate.environment)
    held = hold(server, gate)
    waiting = [server.connect() for _ in range(3)]
    for wire in waiting:
        wire.send(request("GET", "/pid?x"))
    # The acceptor hands out one of them ahead.
    eventually(lambda: status(admin)["line"]["waiting"] == 2, "two wait in the line")
    # A snapshot is good for a moment; the next one is of a later one.
    eventually(lambda: status(admin)["line"]["oldest_wait_us"] > 0, "they have waited")
    told = status(admin)
    assert (told["state"], told["ready"], told["pid"]) == ("serving", True, server.process.pid)
    assert told["line"]["waiting_max"] == 3
    assert told["line"]["lanes"][0]["name"] == "default"
    assert told["line"]["lanes"][0]["in_exchange"] == 2
    (seat,) = told["seats"]
    assert (seat["state"], seat["method"], seat["path"]) == ("busy", "GET", "/wait")
    assert seat["running_us"] > 0
    (worker,) = told["workers"]
    assert worker["pid"] == seat["pid"] and worker["memory_bytes"] > 1 << 20
    assert told["requests"]["arrived"] == told["requests"]["in_flight"] == 4
    assert told["connections"]["busy"] == 4
    (listener,) = told["listeners"]
    assert listener["queued"] == 0 and 0 < listener["backlog"] <= listener["backlog_asked"]
    gate.let_pass(1)
    for wire in [held, *waiting]:
        assert wire.response().status == 200
        wire.close()
    eventually(lambda: status(admin)["requests"]["answered"] == 4, "all are answered")
    told = status(admin)
    assert told["wait_us"]["count"] == told["service_us"]["count"] == 4
    assert told["wait_us"]["buckets"][-1][1] == 4
    assert told["requests"]["in_flight"] == 0


def test_both_forms_of_metrics_say_what_status_says(serve: Serve, admin: str) -> None:
    server = serve("hello:app", "--admin", admin, "--lane", "health=/healthz priority=0 waiting=7 seats_max=1")
    for _ in range(5):
        with server.connect() as wire:
            assert wire.get("/").status == 200
    eventually(lambda: status(admin)["requests"]["answered"] == 5, "all are counted")
    # The client has its answer before the seat has been left.
    eventually(lambda: [seat["state"] for seat in status(admin)["seats"]] == ["idle"], "the seat is idle")
    for fields in ([], [OPENMETRICS]):
        seen = samples(admin, *fields)
        assert seen["stanchion_requests_total", (("outcome", "answered"),)] == 5
        assert seen["stanchion_requests_arrived_total", ()] == 5
        assert seen["stanchion_service_seconds_count", ()] == 5
        assert seen["stanchion_service_seconds_bucket", (("le", "+Inf"),)] == 5
        assert seen["stanchion_line_waiting", (("lane", "health"),)] == 0
        assert seen["stanchion_line_in_exchange", (("lane", "default"),)] == 0
        assert seen["stanchion_line_seats_max", (("lane", "health"),)] == 1
        assert ("stanchion_line_seats_max", (("lane", "default"),)) not in seen
        assert seen["stanchion_seats", (("state", "idle"),)] == 1
        assert seen["stanchion_ready", ()] == 1
    assert ask(admin, "/metrics", OPENMETRICS).text.endswith("# EOF\n")


def test_every_byte_of_clients_is_counted(serve: Serve, admin: str) -> None:
    server = serve("hello:app", "--admin", admin, "--limit-request-body", "1000")
    sent = received = 0
    # An answer of the app's, one of ours to a head that is none, and one before the body is read, which is thrown away.
    big = request("POST", "/", ["Content-Length: 5000"]) + b"x" * 5000
    for message in (request("GET", "/", ["Connection: close"]), b"nonsense\r\n\r\n", big):
        with server.connect() as wire:
            wire.send(message)
            sent += len(message)
            received += len(wire.rest())
    expected = {"received": sent, "sent": received}
    eventually(lambda: status(admin)["bytes"] == expected, f"the bytes are {expected}")
    for fields in ([], [OPENMETRICS]):
        seen = samples(admin, *fields)
        assert seen["stanchion_received_bytes_total", ()] == sent
        assert seen["stanchion_sent_bytes_total", ()] == received


@pytest.mark.privileges
def test_counts_never_go_back_through_a_reload_and_causes_are_told(serve: Serve, admin: str) -> None:
    server = serve("waiting:app", "--admin", admin)
    for _ in range(3):
        with server.connect() as wire:
            assert wire.get("/pid?x").status == 200
    generation = status(admin)["generation"]
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: status(admin)["generation"] > generation, "another generation serves")
    # The master counts after the first answer of the new generation, and a snapshot is good for a moment.
    eventually(lambda: status(admin)["server"]["reloads"]["done"] == 1, "the reload is counted")
    told = status(admin)
    assert told["requests"]["answered"] == 3
    assert told["server"]["reloads"]["failed"] == 0
    (worker,) = told["workers"]
    os.kill(worker["pid"], signal.SIGKILL)
    eventually(lambda: status(admin)["server"]["restarts"]["killed"] == 1, "the death is counted")
    with server.connect() as wire:
        assert wire.get("/pid?x").status == 200
    eventually(lambda: status(admin)["requests"]["answered"] == 4, "and it goes on from there")


def test_a_long_line_is_not_ready_and_lives_all_the_same(serve: Serve, gate: Gate, admin: str) -> None:
    arguments = ("--admin", admin, "--ready-waiting-max", "1", "--health-path", "/-")
    server = serve("waiting:app", *arguments, env=gate.environment)

    def probes(what: str) -> list[Response]:
        with server.connect() as wire:
            return [ask(admin, f"/{what}"), wire.get(f"/-/{what}")]

    assert [probe.status for probe in probes("ready")] == [200, 200]
    held = hold(server, gate)
    waiting = [server.connect() for _ in range(3)]
    for wire in waiting:
        wire.send(request("GET", "/pid?x"))
    eventually(lambda: probes("ready")[0].status == 503, "it is not ready")
    assert all("2 requests wait, more than 1" in probe.text for probe in probes("ready"))
    assert [probe.status for probe in probes("live")] == [200, 200]
    gate.let_pass(1)
    for wire in [held, *waiting]:
        assert wire.response().status == 200
        wire.close()
    eventually(lambda: probes("ready")[0].status == 200, "it is ready again")
    assert status(admin)["requests"]["probed"] > 0


def test_while_it_drains_it_tells_so(serve: Serve, gate: Gate, admin: str) -> None:
    server = serve("waiting:app", "--admin", admin, "--graceful-timeout", "30", env=gate.environment)
    held = hold(server, gate)
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: ask(admin, "/ready").status == 503, "it is not ready")
    assert "shutting down" in ask(admin, "/ready").text
    assert ask(admin, "/live").status == 200
    assert status(admin)["state"] == "draining"
    gate.let_pass(1)
    assert held.response().status == 200
    held.close()
    assert server.exit_code() == 0


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [("GET", "/", 200), ("HEAD", "/", 200), ("GET", "/live?x=1", 200), ("POST", "/status", 405), ("GET", "/x", 404)],
)
def test_targets(shared_admin: str, method: str, target: str, expected: int) -> None:
    response = ask(shared_admin, target, method=method)
    assert response.status == expected
    assert response.header("Cache-Control") == "no-store"


@pytest.fixture
def shared_admin(serve: Serve, admin: str) -> str:
    serve("hello:app", "--admin", admin)
    return admin


def test_the_page_asks_no_other_server(shared_admin: str) -> None:
    page = ask(shared_admin, "/")
    policy = page.header("Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "connect-src 'self'" in policy
    assert "http://" not in page.text and "https://" not in page.text


@pytest.mark.parametrize("target", ["/", "/metrics"])
def test_it_says_what_a_seat_is(shared_admin: str, target: str) -> None:
    text = ask(shared_admin, target).text
    assert "a seat runs one request at a time" in text.lower()


def test_nonsense_harms_no_client(shared_admin: str) -> None:
    address = Address.parse(shared_admin)
    with Wire.connect(address) as wire:
        wire.send(b"nonsense\r\n\r\n")
        assert wire.response().status == 400
    wires = [Wire.connect(address) for _ in range(70)]
    # The listener serves as many as it has places for and closes the others; and the places come back.
    for wire in wires:
        wire.close()
    eventually(lambda: ask_or_none(shared_admin) == 200, "it answers again")


def ask_or_none(admin: str) -> int | None:
    try:
        return ask(admin, "/live").status
    except (OSError, AssertionError, EOFError):
        return None


def test_an_address_of_bind_is_refused(build: Any) -> None:
    server = build("hello:app", "--bind", "127.0.0.1:8123", "--admin", "127.0.0.1:8123", bind=None).launch()
    assert server.exit_code() == 2
    server.log.wait("admin.*bind")
