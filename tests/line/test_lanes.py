"""Lanes of the line: which lane overtakes, which has seats and room of its own; and no request waits for ever."""

import pytest

from support.gate import Gate
from support.server import Serve, Server
from support.wire import Wire, request
from support.witness import acceptor_has_seen

pytestmark = pytest.mark.own("gunicorn has one queue, the kernel's")

FAST = "X-Fast: 1"


def fill(server: Server, target: str, *headers: str) -> list[Wire]:
    """Send requests on connections of their own until there is no room for one; give those that wait."""
    wires: list[Wire] = []
    while True:
        wire = server.connect()
        wire.send(request("GET", target.format(len(wires) + 1), headers))
        acceptor_has_seen(server.address)
        if not wire.silent(0.05):
            break
        wires.append(wire)
        assert len(wires) < 100, "there is always room"
    response = wire.response()
    assert response.status == 503, response
    assert "the line is full" in response.text
    assert response.header("Retry-After") is not None
    wire.close()
    return wires


@pytest.mark.parametrize("seats", [("-w", "2", "--threads", "2"), ("-w", "4"), ("--threads", "4")])
def test_health_checks_are_answered_when_every_other_seat_is_taken_and_the_line_full(
    serve: Serve, gate: Gate, seats: tuple[str, ...]
) -> None:
    lane = "health=/pid priority=0 seats=1 waiting=8"
    server = serve("waiting:app", *seats, "--max-waiting", "5", "--lane", lane, env=gate.environment)
    wires = fill(server, "/wait?{}")
    assert len(wires) == 3 + 5, "one seat of four is kept, nothing is handed out ahead, and five wait"
    gate.announcements(3)
    with server.connect() as health:
        for _ in range(20):
            assert health.get("/pid?health").status == 200
            assert health.get("/pid/db?health").status == 200
    with server.connect() as other:
        assert other.get("/pidx").status == 503, "that is another path"
    assert gate.announced() == []
    gate.let_pass(len(wires))
    for wire in wires:
        assert wire.response().status == 200
        wire.close()


def test_a_worker_that_dies_takes_no_kept_seat_with_it(serve: Serve, gate: Gate) -> None:
    lane = "health=/pid seats=1"
    server = serve("waiting:app", "-w", "2", "--max-waiting", "5", "--lane", lane, env=gate.environment)
    for _ in range(3):
        victim = server.connect()
        victim.send(request("GET", "/wait?victim"))
        pid = int(gate.announcement().split()[0])
        next(process for process in server.processes() if process.pid == pid).kill()
        assert victim.response().status == 502
        victim.close()
    server.log.wait_for("worker ready", 2 + 3)
    wires = fill(server, "/wait?{}")
    gate.announcement()
    with server.connect() as health:
        assert health.get("/pid").status == 200
    assert len(wires) == 1 + 5
    assert gate.announced() == []
    gate.let_pass(len(wires))
    for wire in wires:
        assert wire.response().status == 200
        wire.close()


def test_a_lane_overtakes_and_the_others_still_get_their_turns(serve: Serve, gate: Gate) -> None:
    lanes = ("--lane", "never=/never", "--lane", "fast header=X-Fast priority=0 waiting=20", "--max-waiting", "6")
    server = serve("waiting:app", *lanes, env=gate.environment)
    held = server.connect()
    held.send(request("GET", "/wait?held"))
    gate.announcement()
    slow = fill(server, "/served?slow-{}")
    assert len(slow) == 1 + 6, "one is handed out ahead, six wait"
    fast = fill(server, "/served?fast-{}", FAST)
    assert len(fast) == 20, "its room is its own"
    gate.let_pass(1)
    for wire in [held, *slow, *fast]:
        assert wire.response().status == 200
        wire.close()
    served = [line.split("-")[0] for line in gate.announcements(len(slow) + len(fast))]
    # The request that was handed out ahead; then eight fast ones overtake before a slow one has its turn.
    assert served == ["slow", *["fast"] * 8, "slow", *["fast"] * 8, "slow", *["fast"] * 4, *["slow"] * 4]


def test_a_refusal_tells_the_lane_in_the_log(serve: Serve, gate: Gate) -> None:
    lanes = ("--lane", "fast header=X-Fast waiting=1")
    server = serve("waiting:app", *lanes, env=gate.environment)
    held = server.connect()
    held.send(request("GET", "/wait?held"))
    gate.announcement()
    wires = fill(server, "/wait?{}", FAST)
    server.log.wait(r"503 GET /wait\?\d+ .*: the line is full .*lane=fast")
    gate.let_pass(1 + len(wires))
    for wire in [held, *wires]:
        assert wire.response().status == 200
        wire.close()
