"""Lanes of the line: which lane overtakes, which has seats and room of its own; and no request waits for ever."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.address import Address
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.websocket import WebSocket
from support.wire import Wire, request
from support.witness import acceptor_has_seen

pytestmark = pytest.mark.own("gunicorn has one queue, the kernel's")

FAST = "X-Fast: 1"


@pytest.fixture
def admin(tmp_path: Path) -> Address:
    return Address(path=str(tmp_path / "admin"))


def lane_named(admin: Address, name: str) -> dict[str, Any]:
    """The lane as /status shows it."""
    with Wire.connect(admin) as wire:
        [lane] = [lane for lane in wire.get("/status").json()["line"]["lanes"] if lane["name"] == name]
    assert isinstance(lane, dict)
    return lane


def has(admin: Address, lane: str, in_exchange: int, waiting: int) -> None:
    def is_so() -> bool:
        shown = lane_named(admin, lane)
        return (shown["in_exchange"], shown["waiting"]) == (in_exchange, waiting)

    eventually(is_so, f"{in_exchange} of {lane} are with workers, and {waiting} wait")


def ask(server: Server, wires: ExitStack, targets: list[str]) -> list[Wire]:
    """Send these requests one after the other, each on a connection of its own."""
    asking = []
    for target in targets:
        asking.append(wires.enter_context(server.connect()))
        asking[-1].send(request("GET", target))
        acceptor_has_seen(server.address)
    return asking


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


@pytest.mark.parametrize("seats", [("--threads", "3"), ("-w", "3")])
def test_a_lane_of_streams_leaves_two_of_three_threads_to_others(
    serve: Serve, gate: Gate, admin: Address, seats: tuple[str, ...]
) -> None:
    shown = ("--admin", f"unix:{admin.path}")
    lane = "streams=/hold-stream seats_max=1"
    server = serve("waiting:app", *seats, *shown, "--lane", lane, env=gate.environment)
    with ExitStack() as wires:
        streams = ask(server, wires, ["/hold-stream"] * 3)
        assert gate.announcement().endswith(" stream")
        has(admin, "streams", in_exchange=1, waiting=2)
        assert lane_named(admin, "streams")["seats_max"] == 1
        others = ask(server, wires, ["/wait?a", "/wait?b", "/pid?c"])
        # Both idle threads take one, and the third is handed out ahead.
        assert sorted(line.split()[-1] for line in gate.announcements(2)) == ["a", "b"]
        has(admin, "default", in_exchange=3, waiting=0)
        has(admin, "streams", in_exchange=1, waiting=2)
        assert gate.announced() == []
        gate.let_pass(len(streams) + 2)
        for wire in [*others, *streams]:
            assert wire.response().status == 200
        assert len(gate.announcements(2)) == 2, "each stream has had its turn"
        has(admin, "streams", in_exchange=0, waiting=0)


def test_a_stream_that_waits_takes_the_place_of_one_whose_worker_dies_or_whose_client_leaves(
    serve: Serve, gate: Gate, admin: Address
) -> None:
    shown = ("--admin", f"unix:{admin.path}")
    lane = "streams=/hold-stream,/wait seats_max=1 waiting=9"
    server = serve("waiting:app", "-w", "2", *shown, "--lane", lane, env=gate.environment)
    with ExitStack() as wires:
        killed, following, leaves, last = ask(server, wires, [f"/wait?{number}" for number in range(4)])
        pid, _, which = gate.announcement().split()
        assert which == "0"
        has(admin, "streams", in_exchange=1, waiting=3)
        leaves.close()
        has(admin, "streams", in_exchange=1, waiting=2)
        next(process for process in server.processes() if process.pid == int(pid)).kill()
        assert killed.response().status == 502
        assert gate.announcement().split()[-1] == "1", "the oldest of those that wait"
        has(admin, "streams", in_exchange=1, waiting=1)
        # A seat that runs a request whose client has gone is no free seat.
        following.close()
        acceptor_has_seen(server.address)
        has(admin, "streams", in_exchange=1, waiting=1)
        assert gate.announced() == []
        gate.let_pass(1)
        assert gate.announcement().split()[-1] == "3"
        gate.let_pass(1)
        assert last.response().status == 200


def test_streams_that_wait_leave_the_server_ready_and_one_client_has_its_limit_among_them(
    serve: Serve, gate: Gate, admin: Address
) -> None:
    lane = ("--lane", "streams=/wait seats_max=1", "--max-waiting-per-client", "2", "--ready-waiting-max", "2")
    server = serve("waiting:app", "--threads", "2", *lane, "--admin", f"unix:{admin.path}", env=gate.environment)
    with ExitStack() as wires:
        asked = ask(server, wires, [f"/wait?{number}" for number in range(4)])
        assert asked.pop().response().status == 429
        has(admin, "streams", in_exchange=1, waiting=2)
        with Wire.connect(admin) as wire:
            assert wire.get("/ready").status == 200
        gate.let_pass(len(asked))
        assert [wire.response().status for wire in asked] == [200] * 3


def test_waiting_streams_fill_only_the_room_of_their_own_lane(serve: Serve, gate: Gate) -> None:
    lane = ("--lane", "streams=/wait seats_max=1", "--max-waiting", "3")
    server = serve("waiting:app", "--threads", "2", *lane, env=gate.environment)
    wires = fill(server, "/wait?{}")
    assert len(wires) == 1 + 3, "one runs, none is handed out ahead, and three wait"
    server.log.wait(r"503 GET /wait\?\d+ .*: the line is full .*lane=streams")
    with server.connect() as other:
        assert other.get("/pid").status == 200
    gate.let_pass(len(wires))
    for wire in wires:
        assert wire.response().status == 200
        wire.close()


def test_seats_max_bounds_requests_of_event_loops_and_no_websockets(serve: Serve, gate: Gate, admin: Address) -> None:
    loops = ("--interface", "asgi", "-w", "2", "--admin", f"unix:{admin.path}")
    lane = "streams=/hold,/echo seats_max=1"
    server = serve("sockets:app", *loops, "--lane", lane, env=gate.environment)
    with ExitStack() as wires:
        # An accepted WebSocket has given its seat back.
        sessions = [WebSocket(server, "/echo") for _ in range(2)]
        assert [session.status for session in sessions] == [101, 101]
        has(admin, "streams", in_exchange=0, waiting=0)
        ask(server, wires, ["/hold", "/hold"])
        assert gate.announcement() == "holds"
        has(admin, "streams", in_exchange=1, waiting=1)
        [other] = ask(server, wires, ["/seen"])
        assert other.response().status == 200
        assert gate.announced() == []
        for session in sessions:
            session.drop()
