"""The master believes a worker only about itself: an app that turns against the server harms itself."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support import open_house
from support.clock import Clock
from support.patience import eventually
from support.server import STANCHION, Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("the process tree is stanchion's")

WORKERS = 3


def ask(server: Server, path: str, body: bytes = b"") -> int:
    with server.connect() as wire:
        wire.send(request("POST", path, body=body))
        response = wire.response()
        assert response.status == 200, response.text
        pid: int = json.loads(response.body)
        return pid


def workers(server: Server) -> list[int]:
    """The pids of the workers by index, as the log has them."""
    ready = server.log.matches(r"worker ready worker=(\d+) pid=(\d+)")
    latest = {int(found[1]): int(found[2]) for found in ready}
    return [latest[index] for index in sorted(latest)]


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is none of the server's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def withstand(server: Server, stranger: int, stop: Path) -> None:
    others = [process.pid for process in server.processes()]
    order = {"pids": [stranger, *others], "workers": WORKERS, "until": str(stop)}
    mark = server.log.mark()
    hostile = ask(server, "/attack", json.dumps(order).encode())
    assert hostile in workers(server)
    server.log.wait("a report of worker", mark)
    # While it floods, the dead are replaced, what runs too long is ended, and signals are heard.
    victim = next(pid for pid in workers(server) if pid != hostile)
    mark = server.log.mark()
    os.kill(victim, signal.SIGKILL)
    server.log.wait("worker ready", mark)
    mark = server.log.mark()
    server.signal(signal.SIGTTIN)
    server.log.wait("worker ready", mark)
    stop.touch()
    alive = {process.pid for process in server.processes()}
    assert set(others) - {victim} <= alive, "processes of the tree are as they were"
    assert psutil.Process(stranger).status() != psutil.STATUS_ZOMBIE
    log = server.log.text()
    assert "generation=2" not in log, "nobody has reloaded"
    assert len(re.findall("worker ready", log)) == WORKERS + 2, "nobody else was replaced"
    assert {ask(server, "/") for _ in range(8)} <= alive


@pytest.mark.privileges
def test_a_worker_speaks_for_itself_alone_and_a_flood_of_it_keeps_the_master_from_nothing(
    serve: Serve, stranger: int, tmp_path: Path
) -> None:
    server = serve("hostile:reporting", "-w", str(WORKERS))
    withstand(server, stranger, tmp_path / "stop")


@pytest.mark.skipif(bool(open_house.unavailable()), reason=open_house.unavailable())
def test_a_master_that_is_root_harms_no_process_on_the_word_of_an_app_that_is_not(stranger: int, home: Path) -> None:
    """The process that it names is root's, as others are on the host."""
    words = ["--bind", "127.0.0.1:0", "--user", "nobody", "-w", str(WORKERS), "hostile:reporting"]
    server = Server(STANCHION, words, home, prefix=open_house.prefix()).start()
    try:
        withstand(server, stranger, home / "stop")
    finally:
        server.stop()


def test_a_request_past_its_timeout_is_ended_during_a_flood(
    serve: Serve, stranger: int, tmp_path: Path, clock: Clock
) -> None:
    server = serve("hostile:reporting", "-w", "2", "--timeout", "100", env=clock.environment)
    stop = tmp_path / "stop"
    ask(server, "/attack", json.dumps({"pids": [stranger], "workers": 2, "until": str(stop)}).encode())
    with server.connect() as wire:
        wire.send(request("GET", "/sleep?600"))

        def is_told() -> bool:
            # The clock jumps again and again, since no message says when the request has begun to run.
            clock.advance(101)
            return not wire.silent(0.1)

        eventually(is_told, "its client is told")
        assert wire.response().status == 504
    stop.touch()


def test_a_worker_that_closes_what_it_was_given_is_replaced(serve: Serve) -> None:
    """A library that makes a daemon of its process does so; the worker would go on without a channel to the master."""
    server = serve("hostile:reporting")
    mark = server.log.mark()
    with server.connect() as wire:
        # Its answer may have to wait for the acceptor's next look, since it cannot wake the acceptor either.
        wire.send(request("GET", "/close-everything"))
        server.log.wait("it has closed the descriptors that it was given", mark)
        server.log.wait("worker ready", mark)
    successor = workers(server)[-1]
    eventually(lambda: ask(server, "/") == successor, "its successor serves")
