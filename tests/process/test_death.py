"""Any process of the tree may be killed with -9: what its clients see, and that the rest goes on."""

import os
import signal

import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.processes import gone
from support.seats import seats
from support.server import Serve
from support.tree import tree
from support.wire import request

pytestmark = pytest.mark.own("the process tree is stanchion's")


def test_the_client_of_a_killed_worker_gets_a_502_and_the_others_their_answers(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    with server.connect() as victim, server.connect() as other, server.connect() as behind:
        victim.send(request("GET", "/wait?victim"))
        pid = int(gate.announcement().split()[0])
        other.send(request("GET", "/wait?other"))
        gate.announcement()
        behind.send(request("GET", "/pid?behind"))
        mark = server.log.mark()
        os.kill(pid, signal.SIGKILL)
        response = victim.response()
        assert response.status == 502
        assert 0 < len(response.body) < 1000
        assert behind.response().text != f"{pid} behind", "the one behind is served by another worker"
        gate.let_pass(1)
        assert other.response().text.endswith("other")
        server.log.wait(rf"\b{pid}\b", mark)
        server.log.wait("worker ready", mark)
        assert victim.get("/pid").status == 200, "the connection of the victim goes on"
    assert pid not in {seat.pid for seat in seats(server, gate, 2)}


def test_a_response_that_was_under_way_when_its_worker_was_killed_is_broken_off(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/hold-stream"))
        pid = int(gate.announcement().split()[0])
        os.kill(pid, signal.SIGKILL)
        assert wire.torn_response().body == b"first"
    seats(server, gate, 1)


@pytest.mark.privileges
def test_an_idle_worker_that_is_killed_is_replaced(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    before = {seat.pid for seat in seats(server, gate, 2)}
    mark = server.log.mark()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    server.log.wait_for("worker ready", 2, mark)
    assert not before & {seat.pid for seat in seats(server, gate, 2)}


def test_all_threads_of_a_killed_worker_are_answered(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--threads", "4", env=gate.environment)
    wires = [server.connect() for _ in range(4)]
    for wire in wires:
        wire.send(request("GET", "/wait?x"))
    pids = {int(line.split()[0]) for line in gate.announcements(4)}
    [pid] = pids
    os.kill(pid, signal.SIGKILL)
    for wire in wires:
        assert wire.response().status == 502
        wire.close()
    seats(server, gate, 4)


def test_a_worker_that_exits_by_itself_is_replaced(serve: Serve, gate: Gate) -> None:
    """An abort in a C extension looks like this."""
    server = serve("waiting:app", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?x"))
        pid = int(gate.announcement().split()[0])
        os.kill(pid, signal.SIGABRT)
        assert wire.response().status == 502
    assert pid not in {seat.pid for seat in seats(server, gate, 1)}


@pytest.mark.privileges
def test_a_killed_template_is_replaced_and_workers_can_still_be(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    before = tree(server, gate, 2)
    old, workers = before.template, {process.pid for process in before.workers()}
    mark = server.log.mark()
    old.kill()
    gone(old.pid)
    seats(server, gate, 2)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    server.log.wait_for("worker ready", 2, mark)
    assert not workers & {seat.pid for seat in seats(server, gate, 2)}
    assert tree(server, gate, 2).template.pid != old.pid


@pytest.mark.privileges
def test_a_killed_acceptor_is_restarted_and_new_connections_are_served(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    acceptor = server.acceptor()
    with server.connect() as idle, server.connect() as busy:
        assert idle.get("/pid").status == 200
        busy.send(request("GET", "/wait?busy"))
        gate.announcement()
        acceptor.kill()
        assert idle.closed(), "its connections end with it"
        assert busy.closed()
    gate.let_pass(1)
    eventually(gate.is_passed, "the worker goes on, though nobody hears it")
    with server.connect() as wire:
        assert wire.get("/pid").status == 200, "no connect is refused: the master holds the listening sockets"
    seats(server, gate, 2)
    assert server.acceptor().pid != acceptor.pid


def test_a_killed_acceptor_leaves_no_spool_of_its_uploads(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    acceptor = server.acceptor()
    with server.connect() as wire:
        wire.send(request("POST", "/pid", ["Content-Length: 1000000"]) + b"u" * 500_000)
        eventually(server.spooled, "the upload is being spooled")
        acceptor.kill()
        assert wire.closed()
    eventually(lambda: not server.spooled(), "its files are removed")
    with server.connect() as wire:
        assert wire.get("/pid").status == 200


@pytest.mark.privileges
def test_after_the_masters_death_what_is_in_flight_is_answered_and_everyone_leaves(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?orphan"))
        gate.announcement()
        os.kill(server.pid, signal.SIGKILL)
        gone(server.pid)
        assert wire.silent(0.5), "the others notice, and still wait for the app"
        gate.let_pass(1)
        response = wire.response()
        assert (response.status, response.text.split()[-1]) == (200, "orphan")
    eventually(lambda: not server.processes(), "everyone leaves")


def test_the_masters_death_while_it_drains_is_noticed_too(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    with server.connect() as idle, server.connect() as held, server.connect() as waits:
        assert idle.get("/pid").status == 200
        held.send(request("GET", "/wait?orphan"))
        gate.announcement()
        waits.send(request("GET", "/pid?waits"))
        server.signal(signal.SIGTERM)
        assert idle.closed(), "the acceptor drains"
        os.kill(server.pid, signal.SIGKILL)
        gone(server.pid)
        assert waits.response().status == 503, "no worker is left to take it"
        assert held.silent(0.5)
        gate.let_pass(1)
        assert held.response().status == 200
    eventually(lambda: not server.processes(), "everyone leaves")


@pytest.mark.parametrize("target", ["/wait?stuck", "/busy"])
def test_a_worker_that_is_stuck_is_killed_and_its_client_gets_a_504(
    serve: Serve, gate: Gate, clock: Clock, target: str
) -> None:
    """/wait is stuck in a system call, /busy in Python without ever giving up the interpreter's lock for long."""
    times = ("--timeout", "100", "--queue-timeout", "0")
    server = serve("waiting:app", *times, env=gate.environment | clock.environment)
    with server.connect() as stuck, server.connect() as behind:
        mark = server.log.mark()
        stuck.send(request("GET", target))
        pid = int(gate.announcement().split()[0])
        behind.send(request("GET", "/pid?behind"))
        clock.advance(101)
        response = stuck.response()
        assert response.status == 504
        assert 0 < len(response.body) < 1000
        assert behind.response().text.endswith("behind"), "served by the replacement"
        server.log.wait(rf"(?i)time.*\b{pid}\b|\b{pid}\b.*time", mark)
    gone(pid)


def test_timeout_zero_means_never(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--timeout", "0", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?patient"))
        gate.announcement()
        assert wire.silent(2)
        gate.let_pass(1)
        assert wire.response().status == 200


def test_an_idle_worker_does_not_run_into_the_timeout(serve: Serve, gate: Gate, clock: Clock) -> None:
    times = ("--timeout", "100", "--keep-alive", "1000")
    server = serve("waiting:app", *times, env=gate.environment | clock.environment)
    with server.connect() as wire:
        before = wire.get("/pid").text
        clock.advance(300)
        assert wire.silent(0.5)
    with server.connect() as wire:
        assert wire.get("/pid").text == before
