"""A port for each worker (`--worker-port-base`): its requests are that worker's, and pass by the line of all."""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.address import Address
from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.processes import gone
from support.server import Serve, Server
from support.unread import until_read
from support.wire import Response, Wire, request
from support.witness import acceptor_has_seen

WORKERS = 4
SEED = 20261121

pytestmark = pytest.mark.own("gunicorn's workers share every listener")


@dataclass(frozen=True)
class Ports:
    base: int

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("-w", str(WORKERS), "--worker-port-base", str(self.base))

    def connect(self, worker: int) -> Wire:
        return Wire.connect(Address(LOOPBACK, self.base + worker))

    def pid(self, worker: int) -> int:
        with self.connect(worker) as wire:
            return pid_in(wire.get("/pid?x"))

    def seen_by_the_acceptor(self) -> None:
        """Wait until the acceptor has seen all that was sent to the ports, or closed, before."""
        acceptor_has_seen(Address(LOOPBACK, self.base))

    def hold(self, worker: int, gate: Gate) -> Wire:
        """Occupy a worker by its port."""
        wire = self.connect(worker)
        wire.send(request("GET", "/wait?held"))
        assert gate.announcement().endswith("held")
        return wire

    def ask(self, worker: int, target: str, count: int) -> list[Wire]:
        """Send requests, each on a connection of its own, without waiting for the answers."""
        wires = [self.connect(worker) for _ in range(count)]
        for wire in wires:
            wire.send(request("GET", target))
        return wires


@pytest.fixture
def ports() -> Iterator[Ports]:
    with row_of_ports(WORKERS) as base:
        yield Ports(base)


def pid_in(response: Response) -> int:
    assert response.status == 200, response
    return int(response.text.split()[0])


def assert_told(response: Response, why: str) -> None:
    assert response.status == 503
    assert why in response.text
    retry_after = response.header("Retry-After")
    assert retry_after is not None and 1 <= int(retry_after) <= 3600


def ask_all(server: Server, count: int) -> set[int]:
    """Ask at the port of all workers; the pid of the worker that answered."""
    with server.connect() as wire:
        return {pid_in(wire.get("/pid?shared")) for _ in range(count)}


def test_each_port_is_served_by_its_own_worker_always(serve: Serve, ports: Ports) -> None:
    server = serve("waiting:app", *ports.arguments)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    assert len(set(pids)) == WORKERS
    # Many at once at every port, and at the one for all.
    shared = [server.connect() for _ in range(8)]
    own = {worker: [ports.connect(worker) for _ in range(8)] for worker in range(WORKERS)}
    everybody = [*shared, *itertools.chain.from_iterable(own.values())]
    for _ in range(10):
        for wire in everybody:
            wire.send(request("GET", "/nap?1-x"))
        for worker, wires in own.items():
            assert {pid_in(wire.response()) for wire in wires} == {pids[worker]}
        assert {pid_in(wire.response()) for wire in shared} <= set(pids)
    for wire in everybody:
        wire.close()


def test_requests_to_a_busy_workers_port_wait_while_the_others_serve_the_shared_line(
    serve: Serve, ports: Ports, gate: Gate
) -> None:
    server = serve("waiting:app", *ports.arguments, env=gate.environment)
    pid = ports.pid(1)
    held = ports.hold(1, gate)
    waiting = ports.ask(1, "/pid?waiting", 5)
    assert waiting[0].silent(0.3), "the others are idle, but it is not theirs"
    served_by = ask_all(server, 50)
    assert served_by and pid not in served_by
    assert all(wire.silent(0.01) for wire in waiting)
    gate.let_pass(1)
    for wire in [held, *waiting]:
        assert pid_in(wire.response()) == pid
        wire.close()


def test_a_worker_that_is_busy_for_the_shared_line_serves_its_port_next(serve: Serve, ports: Ports, gate: Gate) -> None:
    """All workers are busy and the line of all is long: a port does not wait for the line, nor the line for a port."""
    server = serve("waiting:app", *ports.arguments, env=gate.environment)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    line = [server.connect() for _ in range(WORKERS * 5)]
    for wire in line:
        wire.send(request("GET", "/wait?line"))
    ran = {int(text.split()[0]): ["line"] for text in gate.announcements(WORKERS)}
    assert sorted(ran) == sorted(pids)
    own = [wire for worker in range(WORKERS) for wire in ports.ask(worker, "/wait?own", 2)]
    ports.seen_by_the_acceptor()
    assert own[0].silent(0.1)
    for _ in range(WORKERS * 3):
        gate.let_pass(1)
        pid, _, query = gate.announcement().split()
        ran[int(pid)].append(query)
    for queries in ran.values():
        turns = ["line", "own", "line", "own", *["line"] * len(line)]
        assert queries == turns[: len(queries)], (
            "its own line and the shared one take turns, so that neither shuts out the other"
        )
    gate.open()
    assert [pid_in(wire.response()) for wire in own] == [pid for pid in pids for _ in range(2)]
    assert {pid_in(wire.response()) for wire in line} <= set(pids)
    for wire in [*own, *line]:
        wire.close()


def test_every_thread_of_the_worker_serves_its_port(serve: Serve, ports: Ports, gate: Gate) -> None:
    serve("waiting:app", *ports.arguments, "--threads", "3", env=gate.environment)
    wires = ports.ask(2, "/wait?own", 5)
    running = [line.split() for line in gate.announcements(3)]
    assert len({pid for pid, _, _ in running}) == 1, "one worker"
    assert len({thread for _, thread, _ in running}) == 3, "all its threads"
    assert wires[-1].silent(0.2)
    assert gate.announced() == []
    gate.let_pass(5)
    assert {pid_in(wire.response()) for wire in wires} == {int(running[0][0])}
    for wire in wires:
        wire.close()


def test_the_port_of_a_killed_worker_is_its_successors(serve: Serve, ports: Ports, gate: Gate) -> None:
    serve("waiting:app", *ports.arguments, env=gate.environment)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    held = ports.hold(2, gate)
    waiting = ports.ask(2, "/pid?waiting", 5)
    ports.seen_by_the_acceptor()
    os.kill(pids[2], signal.SIGKILL)
    assert held.response().status == 502
    served_by = {pid_in(wire.response()) for wire in waiting}
    assert len(served_by) == 1 and not served_by & set(pids), "a new one, and the same for all"
    assert {ports.pid(2) for _ in range(10)} == served_by
    assert [ports.pid(worker) for worker in (0, 1, 3)] == [pids[0], pids[1], pids[3]], "the others keep theirs"
    for wire in [held, *waiting]:
        wire.close()


def test_killing_workers_strands_no_client_at_their_ports(serve: Serve, ports: Ports) -> None:
    server = serve("waiting:app", *ports.arguments)
    dice = random.Random(SEED)
    answered = killed = 0
    for _ in range(40):
        victim = ports.pid(dice.randrange(WORKERS))
        wires = [wire for worker in range(WORKERS) for wire in ports.ask(worker, "/nap?1-x", 4)]
        shared = server.connect()
        shared.send(request("GET", "/nap?1-x"))
        time.sleep(dice.random() / 200)
        os.kill(victim, signal.SIGKILL)
        statuses = [wire.response().status for wire in [*wires, shared]]
        assert set(statuses) <= {200, 502}
        answered += statuses.count(200)
        killed += statuses.count(502)
        for wire in [*wires, shared]:
            wire.close()
    assert killed <= 40, "a worker has one request in hand"
    assert answered >= 40 * 16


def test_the_port_of_a_worker_that_dies_is_that_of_the_one_with_its_number(
    serve: Serve, ports: Ports, gate: Gate
) -> None:
    server = serve("waiting:app", *ports.arguments, env=gate.environment)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    server.signal(signal.SIGTTIN)
    other = int(server.log.wait(r"worker ready worker=4 pid=(\d+)")[1])
    busy = [server.connect() for _ in range(WORKERS + 1)]
    for wire in busy:
        wire.send(request("GET", "/wait?busy"))
    assert sorted(int(text.split()[0]) for text in gate.announcements(WORKERS + 1)) == sorted([*pids, other])
    waiting = []
    for number in range(5):
        waiting += ports.ask(2, f"/wait?{number}", 1)
        ports.seen_by_the_acceptor()
    mark = server.log.mark()
    os.kill(pids[2], signal.SIGKILL)
    heir = int(server.log.wait(r"worker ready worker=2 pid=(\d+)", mark)[1])
    gate.open()
    ran = [(query, int(pid)) for pid, _, query in map(str.split, gate.announcements(5))]
    assert ran == [(str(number), heir) for number in range(5)], "the worker without a port has none of them"
    assert [pid_in(wire.response()) for wire in waiting] == [heir] * 5
    assert sorted(wire.response().status for wire in busy) == [200] * WORKERS + [502]
    assert [ports.pid(worker) for worker in range(WORKERS)] == [pids[0], pids[1], heir, pids[3]]
    for wire in [*busy, *waiting]:
        wire.close()


def test_a_successor_has_the_port_while_its_predecessor_finishes(serve: Serve, ports: Ports, gate: Gate) -> None:
    server = serve("waiting:app", *ports.arguments, env=gate.environment)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    held = ports.hold(2, gate)
    mark = server.log.mark()
    os.kill(pids[2], signal.SIGTERM)
    passed = server.log.wait(rf"port {ports.base + 2} passes to worker 2 \((\d+)\)", mark)
    assert ports.pid(2) == int(passed[1]) not in pids
    gate.let_pass(1)
    assert pid_in(held.response()) == pids[2]
    held.close()


def test_workers_that_are_replaced_in_turn_keep_their_ports_served(serve: Serve, ports: Ports) -> None:
    serve("waiting:app", *ports.arguments, "--max-requests", "7")
    wires = [ports.connect(2) for _ in range(5)]
    seen = set()

    def again() -> int:
        for wire in wires:
            wire.send(request("GET", "/pid?x"))
        answered = [wire.response() for wire in wires]
        seen.update(pid_in(response) for response in answered)
        return len(seen)

    # A worker goes on until its successor is there, so how many requests each has is not exact.
    eventually(lambda: again() >= 4, "one worker after the other has the port", 3 * PATIENCE_S)
    for wire in wires:
        wire.close()


def test_the_ports_outlive_the_acceptor(serve: Serve, ports: Ports, gate: Gate) -> None:
    server = serve("waiting:app", *ports.arguments, env=gate.environment)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    acceptor = server.acceptor()
    acceptor.kill()
    gone(acceptor.pid)
    assert [ports.pid(worker) for worker in range(WORKERS)] == pids


def test_what_waits_at_a_port_is_bounded_and_leaves_the_line_to_the_others(
    serve: Serve, ports: Ports, gate: Gate
) -> None:
    server = serve("waiting:app", *ports.arguments, "--max-waiting", "12", env=gate.environment)
    pid = ports.pid(0)
    held = ports.hold(0, gate)
    wires = ports.ask(0, "/pid?x", 20)
    ports.seen_by_the_acceptor()
    refused = [wire for wire in wires if not wire.silent(0.05)]
    # Its share of 12 among 4 workers, and one that is handed ahead.
    assert len(refused) == 20 - 12 // WORKERS - 1
    for wire in refused:
        assert_told(wire.response(), "the line is full")
    assert pid not in ask_all(server, 10)
    gate.let_pass(1)
    for wire in [held, *wires]:
        if wire not in refused:
            assert pid_in(wire.response()) == pid
        wire.close()


def test_who_waits_at_a_port_longer_than_the_queue_timeout_is_told_so(
    serve: Serve, ports: Ports, gate: Gate, clock: Clock, tmp_path: Path
) -> None:
    counts = Counts(tmp_path / "ctl")
    times = ("--queue-timeout", "100", "--timeout", "0", "--keep-alive", "10000")
    arguments = (*ports.arguments, *times, *counts.arguments)
    server = serve("waiting:app", *arguments, env=gate.environment | clock.environment)
    pid = ports.pid(3)
    held = ports.hold(3, gate)
    wires = ports.ask(3, "/wait?late", 4)
    until_read(*wires)
    clock.advance(90)
    assert all(wire.silent(0.1) for wire in wires)
    clock.advance(11)
    for wire in wires:
        assert_told(wire.response(), "waited too long")
    gate.let_pass(1)
    assert pid_in(held.response()) == pid
    assert gate.announced() == [], "the app never ran"

    # No worker at all: the answer names the worker that the client waits for, until there is one.
    server.signal(signal.SIGTTOU)
    gone(pid)
    eventually(lambda: len(counts.workers()) == WORKERS - 1, "the master knows")
    with ports.connect(3) as wire:
        wire.send(request("GET", "/pid?x"))
        until_read(wire)
        clock.advance(101)
        assert_told(wire.response(), "the worker of this port is not there")
        server.signal(signal.SIGTTIN)
        successor = pid_in(wire.get("/pid?x"))
    assert successor not in {ports.pid(worker) for worker in range(3)}
    for wire in [held, *wires]:
        wire.close()


def test_a_client_that_leaves_a_port_leaves_no_work(serve: Serve, ports: Ports, gate: Gate) -> None:
    serve("waiting:app", *ports.arguments, "--access-logfile", "-", env=gate.environment)
    held = ports.hold(1, gate)
    leaving = ports.ask(1, "/wait?left", 4)
    staying = ports.ask(1, "/wait?stayed", 1)
    for wire in leaving:
        assert wire.silent(0.05)
        wire.close()
    ports.seen_by_the_acceptor()
    gate.let_pass(1)
    assert gate.announcement().endswith("stayed")
    gate.let_pass(1)
    for wire in [held, *staying]:
        assert wire.response().status == 200
        wire.close()


def test_term_serves_what_waits_at_the_ports(serve: Serve, ports: Ports, gate: Gate) -> None:
    server = serve("waiting:app", *ports.arguments, env=gate.environment)
    pids = [ports.pid(worker) for worker in range(WORKERS)]
    held = [ports.hold(worker, gate) for worker in range(WORKERS)]
    waiting = [wire for worker in range(WORKERS) for wire in ports.ask(worker, "/pid?waiting", 4)]
    ports.seen_by_the_acceptor()
    server.signal(signal.SIGTERM)
    assert waiting[0].silent(0.3)
    gate.open()
    assert [pid_in(wire.response()) for wire in held] == pids
    assert [pid_in(wire.response()) for wire in waiting] == [pid for pid in pids for _ in range(4)]
    for wire in [*held, *waiting]:
        assert wire.closed()
        wire.close()
    assert server.exit_code() == 0
    with pytest.raises(ConnectionRefusedError):
        ports.connect(0)


def test_who_waits_at_a_port_when_the_time_for_leaving_is_over_is_told_so(
    serve: Serve, ports: Ports, gate: Gate
) -> None:
    server = serve("waiting:app", *ports.arguments, "--graceful-timeout", "1", env=gate.environment)
    ports.pid(0)
    held = ports.hold(0, gate)
    waiting = ports.ask(0, "/wait?late", 5)
    ports.seen_by_the_acceptor()
    server.signal(signal.SIGTERM)
    for wire in [held, *waiting]:
        response = wire.response()
        assert response.status == 503 and "shutting down" in response.text
        assert wire.closed()
        wire.close()
    assert server.exit_code() == 0
    assert gate.announced() == []
