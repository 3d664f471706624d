"""One client's requests may be but so many of those that wait."""

import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request
from support.witness import acceptor_has_seen

pytestmark = pytest.mark.own("gunicorn has no such limit")

ONE = "X-Forwarded-For: 198.51.100.7"
ONE_WITH_A_LIE = "X-Forwarded-For: 192.0.2.9, 198.51.100.7"
OTHER = "X-Forwarded-For: 198.51.100.8"


def hold(server: Server, gate: Gate, *headers: str) -> list[Wire]:
    """Occupy the only seat, and the one place ahead of it."""
    held = [server.connect(), server.connect()]
    held[0].send(request("GET", "/wait?held", headers))
    gate.announcement()
    held[1].send(request("GET", "/pid?ahead", headers))
    acceptor_has_seen(server.address)
    assert held[1].silent(0.1)
    return held


def waits(server: Server, *headers: str) -> Wire | None:
    """A request that waits in the line; None if there is no room for it."""
    wire = server.connect()
    wire.send(request("GET", "/pid", headers))
    acceptor_has_seen(server.address)
    if wire.silent(0.05):
        return wire
    response = wire.response()
    assert response.status == 429
    retry_after = response.header("Retry-After")
    assert retry_after is not None and 1 <= int(retry_after) <= 60
    assert not response.closes() and wire.silent(0.05), "nothing is wrong with the connection"
    wire.close()
    return None


def wait(server: Server, *headers: str) -> Wire:
    wire = waits(server, *headers)
    assert wire is not None
    return wire


def test_more_than_so_many_of_one_client_are_refused_and_others_wait(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--max-waiting-per-client", "2", env=gate.environment)
    # Requests that a worker has do not count.
    held = hold(server, gate, ONE)
    waiting = [wait(server, ONE), wait(server, ONE_WITH_A_LIE)]
    assert waits(server, ONE) is None
    assert waits(server, ONE_WITH_A_LIE) is None
    # Another one, and the proxy itself.
    waiting += [wait(server, OTHER), wait(server, OTHER), wait(server), wait(server)]
    assert waits(server, OTHER) is None
    assert waits(server) is None

    # A client that leaves makes room.
    waiting.pop(0).close()

    def let_in() -> bool:
        wire = waits(server, ONE)
        if wire is not None:
            waiting.append(wire)
        return wire is not None

    eventually(let_in, "there is room again")
    assert waits(server, ONE) is None

    gate.let_pass(1)
    for wire in [*held, *waiting]:
        assert wire.response().status == 200
    # So does a client that was served.
    held += hold(server, gate)
    waiting += [wait(server, ONE), wait(server, ONE)]
    assert waits(server, ONE) is None
    gate.let_pass(1)
    for wire in [*held[2:], *waiting[-2:]]:
        assert wire.response().status == 200
    for wire in [*held, *waiting]:
        wire.close()


def test_whose_time_is_over_makes_room(serve: Serve, gate: Gate, clock: Clock) -> None:
    limits = ("--max-waiting-per-client", "1", "--queue-timeout", "100", "--timeout", "0")
    server = serve("waiting:app", *limits, env=gate.environment | clock.environment)
    held = hold(server, gate)
    for _ in range(2):
        waiting = wait(server, ONE)
        clock.advance(101)
        assert waiting.response().status == 503
        waiting.close()
    gate.let_pass(1)
    assert held[0].response().status == 200
    for wire in held:
        wire.close()


def test_over_a_unix_socket_only_who_is_named_is_limited(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--max-waiting-per-client", "1", bind="unix:s.sock", env=gate.environment)
    held = hold(server, gate)
    waiting = [wait(server), wait(server), wait(server, ONE)]
    assert waits(server, ONE) is None
    gate.let_pass(1)
    for wire in [*held, *waiting]:
        assert wire.response().status == 200
        wire.close()


def test_a_client_that_is_not_believed_counts_by_its_own_address(serve: Serve, gate: Gate) -> None:
    limits = ("--max-waiting-per-client", "1", "--forwarded-allow-ips", "192.0.2.1")
    server = serve("waiting:app", *limits, env=gate.environment)
    held = hold(server, gate)
    waiting = wait(server, ONE)
    assert waits(server, OTHER) is None
    gate.let_pass(1)
    for wire in [*held, waiting]:
        assert wire.response().status == 200
        wire.close()


def test_a_lane_with_room_of_its_own_is_bounded_by_that_alone(serve: Serve, gate: Gate) -> None:
    limits = ("--max-waiting-per-client", "1", "--lane", "own=/served waiting=2")
    server = serve("waiting:app", *limits, env=gate.environment)
    held = hold(server, gate)
    waiting = [wait(server, ONE)]
    assert waits(server, ONE) is None
    for number in range(2):
        wire = server.connect()
        wire.send(request("GET", f"/served?{number}", [ONE]))
        acceptor_has_seen(server.address)
        assert wire.silent(0.1), "it waits"
        waiting.append(wire)
    gate.let_pass(1)
    for wire in [*held, *waiting]:
        assert wire.response().status == 200
        wire.close()
