"""Logs that nobody reads, or that are full, hold up nobody, and say afterwards what they lost."""

import re
import signal
from pathlib import Path

import pytest

from support.address import Address
from support.counts import Counts
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn's workers and its arbiter wait for whoever reads their logs")

REQUESTS = 10_000
BATCH = 500
DROPPED = re.compile(r"the access log: (\d+) lines were dropped")


def answer(address: Address) -> bytes | None:
    try:
        with Wire.connect(address) as wire:
            return wire.get("/pid").body
    except (OSError, BrokenOff):
        return None


def stuffed(build: Serve, tmp_path: Path, *arguments: str) -> Server:
    """A server none of whose lines is read, from its first one on."""
    address = f"unix:{tmp_path}/s"
    server = build("waiting:app", "--access-logfile", "-", *arguments, bind=address).launch(stuffed=True)
    server.addresses = [Address.parse(address)]
    eventually(lambda: answer(server.address), "it serves", 2 * PATIENCE_S)
    return server


def ask(server: Server, requests: int) -> None:
    with server.connect() as wire:
        for _ in range(requests // BATCH):
            wire.send(request("GET", "/pid?" + "a" * 200) * BATCH)
            for _ in range(BATCH):
                assert wire.response().status == 200


def test_nobody_reads_stdout_and_stderr(build: Serve, tmp_path: Path) -> None:
    server = stuffed(build, tmp_path)
    ask(server, REQUESTS)

    before = answer(server.address)
    server.signal(signal.SIGHUP)
    eventually(lambda: answer(server.address) not in (before, None), "another worker answers")

    # The client's faults go to the error log; more of them than its buffer holds.
    for _ in range(50):
        with server.connect() as wire:
            wire.send(b"nonsense\r\n\r\n")
            assert wire.response().status == 400
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


def test_what_was_dropped_is_counted_and_said_once_it_is_read_again(build: Serve, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = stuffed(build, tmp_path, *counts.arguments)
    ask(server, REQUESTS)
    eventually(lambda: counts.events()["log_lines_dropped"] > 1000, "they are counted")
    counted = counts.events()["log_lines_dropped"]
    server.log.begin()
    # The master's own, from when it could not say a word.
    begun = server.log.wait("the access log does not take its lines")
    assert "nobody reads it" in begun.string
    mark = server.stdout.mark()
    server.stdout.begin()
    said = server.log.wait(DROPPED.pattern)
    server.signal(signal.SIGTERM)
    server.exit_code()
    server.stdout.wait_end()
    server.log.wait_end()
    notes = server.log.matches(DROPPED.pattern)
    assert len(notes) == 1 and int(said[1]) >= counted
    logged = len([line for line in server.stdout.lines()[mark:] if "GET /pid?aaa" in line])
    assert logged + int(said[1]) == REQUESTS
    # The processes that have no thread for it count too.
    assert server.log.matches(r"\[WARNING\] \d+ lines were dropped: the log did not take them")


def test_a_full_disk(serve: Serve) -> None:
    # ENOSPC whatever is written (full(4)).
    server = serve("waiting:app", "--access-logfile", "/dev/full")
    ask(server, REQUESTS)
    begun = server.log.wait("the access log does not take its lines, they are dropped: /dev/full: ")
    assert "No space left" in begun.string
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    [lost] = server.log.matches(DROPPED.pattern)
    assert int(lost[1]) == REQUESTS


@pytest.mark.privileges
def test_a_full_disk_under_the_error_log(build: Serve, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    server = build("waiting:app", "--error-logfile", "/dev/full", bind=address).launch()
    server.addresses = [Address.parse(address)]
    before = eventually(lambda: answer(server.address), "it serves", 2 * PATIENCE_S)
    server.signal(signal.SIGHUP)
    eventually(lambda: answer(server.address) not in (before, None), "another worker answers")
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


@pytest.mark.privileges
def test_a_pipe_that_was_full_gets_every_line_that_the_buffer_held(build: Serve, tmp_path: Path) -> None:
    server = stuffed(build, tmp_path)
    ask(server, BATCH)
    server.stdout.begin()
    server.stdout.wait_for("GET /pid.aaa", BATCH)
    assert not server.log.matches(DROPPED.pattern)
