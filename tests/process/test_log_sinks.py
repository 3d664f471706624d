"""Logs that no process reads, or that are full, hold up no request, and say afterwards how much they lost."""

import contextlib
import json
import os
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support import missing, unshare
from support.address import Address
from support.counts import Counts
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.server import Serve, Server
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn's workers and its arbiter wait for whoever reads their logs")

REQUESTS = 10_000
BATCH = 500
DROPPED = re.compile(r"the access log: (\d+) lines were dropped")


NO_DISK = missing.allowed("needs root" if os.geteuid() else unshare.unavailable(unshare.with_disk("/mnt")))


def asked_for(admin: str) -> dict[str, Any]:
    """The answer of `/status`."""
    with urllib.request.urlopen(f"http://{admin}/status", timeout=PATIENCE_S) as said:
        status: dict[str, Any] = json.load(said)
    return status


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


def test_no_process_reads_stdout_and_stderr(build: Serve, tmp_path: Path) -> None:
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
    assert "its reader takes nothing" in begun.string
    mark = server.stdout.mark()
    server.stdout.begin()
    said = server.log.wait(DROPPED.pattern)
    server.signal(signal.SIGTERM)
    server.exit_code()
    server.stdout.wait_end()
    server.log.wait_end()
    notes = server.log.matches(DROPPED.pattern)
    # Each process counts the lines of the error log that it has dropped, too.
    own = server.log.matches(r"\] (\d+) lines were dropped: the log did not take them")
    assert len(notes) == 1 and int(said[1]) + sum(int(note[1]) for note in own) >= counted
    logged = len([line for line in server.stdout.lines()[mark:] if "GET /pid?aaa" in line])
    assert logged + int(said[1]) == REQUESTS
    assert own


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


def test_a_full_disk_is_an_error_at_its_first_line(build: Serve, tmp_path: Path) -> None:
    """Finding N7 of an operator's first day: it was silent until 1 MiB had been lost to memory."""
    with row_of_ports(1) as port:
        admin = f"127.0.0.1:{port}"
        server = build("waiting:app", "--access-logfile", "/dev/full", "--admin", admin).start()
        assert asked_for(admin)["failing_logs"] == []
        ask(server, BATCH)
        server.log.wait(
            r"\[ERROR\] the access log cannot be written: /dev/full: No space left on device \(os error 28\); "
            r"up to 1 MiB of its lines wait, more are dropped: make room on its file system"
        )
        # An answer may be as old as the one before.
        [failing] = eventually(lambda: asked_for(admin)["failing_logs"], "/status names it")
        told = (failing["log"], failing["to"], failing["error"])
        assert told == ("the access log", "/dev/full", "No space left on device (os error 28)")
        eventually(lambda: asked_for(admin)["failing_logs"][0]["waiting_bytes"] > 0, "its lines wait")
        # It lasts, and is named once, though it is tried ten times a second.
        ask(server, BATCH)
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        server.log.wait_end()
        assert len(server.log.matches("cannot be written")) == 1
        [lost] = server.log.matches(DROPPED.pattern)
        assert int(lost[1]) == 2 * BATCH


def test_a_full_disk_under_the_error_log_is_an_error_at_standard_error(build: Serve, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    server = build("waiting:app", "--error-logfile", "/dev/full", bind=address).launch()
    server.addresses = [Address.parse(address)]
    eventually(lambda: answer(server.address), "it serves", 2 * PATIENCE_S)
    named = r"\[(\d+)\] \[ERROR\] the error log cannot be written: /dev/full: No space left on device"
    masters = server.log.wait(named)
    assert int(masters[1]) == server.pid
    # Each process says what it has found.
    with server.connect() as wire:
        wire.send(b"nonsense\r\n\r\n")
        assert wire.response().status == 400
    server.log.wait_for(named, 2)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    pids = [found[1] for found in server.log.matches(named)]
    assert len(pids) == len(set(pids)), "once each"


def is_said_at_a_reload(server: Server, pattern: str) -> bool:
    """Whether standard error has the line. Reloads make the master write lines, until the log's last page is full."""
    server.signal(signal.SIGHUP)
    return bool(server.log.matches(pattern))


@pytest.mark.skipif(bool(NO_DISK), reason=NO_DISK)
def test_a_small_disk_that_is_full_and_has_room_again(build: Serve, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    logs = ("--access-logfile", f"{disk}/access.log", "--error-logfile", f"{disk}/error.log")
    address = f"unix:{tmp_path}/s"
    server = build("waiting:app", *logs, bind=address, prefix=unshare.with_disk(str(disk), "640k")).launch()
    server.addresses = [Address.parse(address)]
    eventually(lambda: answer(server.address), "it serves", 2 * PATIENCE_S)
    inside = Path("/proc", str(server.pid), "root", *disk.parts[1:])
    filler = inside / "filler"
    with contextlib.suppress(OSError):
        filler.write_bytes(bytes(1 << 20))
    # The error log may have room still, in the page of its last line.
    said = lambda: (inside / "error.log").read_text() + server.log.text()  # noqa: E731
    named = r"\[ERROR\] the access log cannot be written: .*/access.log: No space left on device"
    ask(server, 2 * BATCH)
    eventually(lambda: re.search(named, said()), "it is named")
    masters = rf"\[{server.pid}\] \[%s\] the error log %s.*{disk}/error.log"
    eventually(
        lambda: is_said_at_a_reload(server, masters % ("ERROR", "cannot be written: ")), "the master names its own"
    )
    filler.unlink()
    # Before a reload: only the process that has named the trouble says that it is over.
    over = r"\[WARNING\] the access log takes lines again after \d+ s, 0 were dropped: "
    eventually(lambda: re.search(over, said()), "it is over")
    again = masters % ("WARNING", r"takes lines again after \d+ s, [1-9]\d* of this process were dropped: ")
    eventually(lambda: is_said_at_a_reload(server, again), "the master's own is over")
    logged = lambda: re.findall("GET /pid.aaa", (inside / "access.log").read_text())  # noqa: E731
    eventually(lambda: len(logged()) == 2 * BATCH, "no line is lost")
