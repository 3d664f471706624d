"""The master's reaction to each signal, gunicorn's way and Unicorn's (docs/reference/command-line.md, a test per row).

HUP and USR2 have their own tests, in tests/deploy.
"""

import signal
from pathlib import Path

import psutil
import pytest

from support.address import Address
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.processes import gone
from support.seats import seats
from support.server import Serve, Server
from support.wire import Wire, request
from support.witness import acceptor_has_seen

GUNICORN = ("--signals", "gunicorn")
UNICORN = ("--signals", "unicorn")

pytestmark = pytest.mark.own("two servers' meanings in one")


def hold(server: Server, gate: Gate) -> Wire:
    wire = server.connect()
    wire.send(request("GET", "/wait?held"))
    gate.announcement()
    return wire


@pytest.mark.parametrize(("style", "number"), [(GUNICORN, signal.SIGTERM), (UNICORN, signal.SIGQUIT)])
def test_a_graceful_stop_serves_who_is_here(
    serve: Serve, gate: Gate, style: tuple[str, str], number: signal.Signals
) -> None:
    server = serve("waiting:app", *style, env=gate.environment)
    held = hold(server, gate)
    with server.connect() as waits:
        waits.send(request("GET", "/pid?waits"))
        server.signal(number)
        assert held.silent(0.5)
        gate.open()
        assert held.response().status == 200
        assert waits.response().status == 200
    held.close()
    assert server.exit_code() == 0


QUICK = [
    (GUNICORN, signal.SIGQUIT),
    (GUNICORN, signal.SIGINT),
    (UNICORN, signal.SIGTERM),
    (UNICORN, signal.SIGINT),
]


@pytest.mark.parametrize(("style", "number"), QUICK)
def test_a_quick_stop_answers_waiting_clients(
    serve: Serve, gate: Gate, style: tuple[str, str], number: signal.Signals
) -> None:
    server = serve("waiting:app", *style, env=gate.environment)
    held = hold(server, gate)
    with server.connect() as waits:
        waits.send(request("GET", "/pid?waits"))
        acceptor_has_seen(server.address)
        server.signal(number)
        assert waits.response().status == 503
        assert held.response().status in (502, 503)
    held.close()
    assert server.exit_code() == 0


@pytest.mark.parametrize(
    ("style", "graceful", "second"),
    [
        (GUNICORN, signal.SIGTERM, signal.SIGINT),
        (GUNICORN, signal.SIGTERM, signal.SIGQUIT),
        (UNICORN, signal.SIGQUIT, signal.SIGINT),
        (UNICORN, signal.SIGQUIT, signal.SIGTERM),
    ],
)
def test_a_quick_one_makes_a_graceful_stop_quick(
    serve: Serve, gate: Gate, style: tuple[str, str], graceful: signal.Signals, second: signal.Signals
) -> None:
    server = serve("waiting:app", *style, env=gate.environment)
    held = hold(server, gate)
    mark = server.log.mark()
    server.signal(graceful)
    server.log.wait("draining, then leaving", mark)
    server.signal(second)
    assert held.response().status in (502, 503)
    held.close()
    assert server.exit_code() == 0


@pytest.mark.privileges
def test_usr1_opens_the_access_log_anew(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    accesses = tmp_path / "access.log"
    server = serve("waiting:app", "--access-logfile", str(accesses), env=gate.environment)
    with server.connect() as wire:
        assert wire.get("/pid?before").status == 200
        eventually(lambda: "before" in accesses.read_text(), "it is logged")
        accesses.rename(tmp_path / "access.log.1")
        server.signal(signal.SIGUSR1)
        eventually(accesses.exists, "there is a new one")
        assert wire.get("/pid?after").status == 200
        eventually(lambda: "after" in accesses.read_text(), "it is logged in the new one")
    assert "after" not in (tmp_path / "access.log.1").read_text()


@pytest.mark.privileges
def test_usr1_opens_the_error_log_anew_for_master_acceptor_and_workers(
    build: Serve, gate: Gate, tmp_path: Path
) -> None:
    path, renamed, address = tmp_path / "log", tmp_path / "log.1", f"unix:{tmp_path}/s"
    arguments = ["--preload", "--error-logfile", str(path), "--bind", address]
    server = build("waiting:app", *arguments, env=gate.environment).launch()
    # The line that the test otherwise awaits on stderr is in the file.
    eventually(lambda: path.exists() and "ready: 1 worker" in path.read_text(), "it is ready", 2 * PATIENCE_S)
    server.addresses = [Address.parse(address)]
    with server.connect() as wire:
        assert wire.get("/pid").status == 200
        path.rename(renamed)
        server.signal(signal.SIGUSR1)
        eventually(path.exists, "there is a new one")
        # Master, acceptor, template, worker.
        eventually(lambda: path.read_text().count("is reopened") == 4, "each process says so in the new one")


def reload(server: Server) -> None:
    """Reload, and wait until new clients reach the new generation only."""
    before = server.acceptor()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded")
    gone(before.pid)


def paused(serve: Serve, gate: Gate, *style: str) -> tuple[Server, set[int]]:
    """A server whose two workers WINCH has sent away, and their pids."""
    server = serve("waiting:app", "-w", "2", *style, env=gate.environment)
    workers = {seat.pid for seat in seats(server, gate, 2)}
    server.signal(signal.SIGWINCH)
    for pid in workers:
        gone(pid)
    return server, workers


@pytest.mark.parametrize("style", [GUNICORN, UNICORN])
def test_winch_pauses_and_ttin_goes_on(serve: Serve, gate: Gate, style: tuple[str, str]) -> None:
    server, workers = paused(serve, gate, *style)
    with server.connect() as wire:
        wire.send(request("GET", "/pid?patient"))
        assert wire.silent(0.5), "it waits in the line"
        server.signal(signal.SIGTTIN)
        response = wire.response()
        assert response.status == 200
        assert int(response.text.split()[0]) not in workers
    seats(server, gate, 1)
    reload(server)
    seats(server, gate, 1)


def test_hup_ends_a_pause(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    server.signal(signal.SIGWINCH)
    server.log.wait("WINCH: 0 workers")
    reload(server)
    seats(server, gate, 2)


@pytest.mark.parametrize("end", [signal.SIGHUP, signal.SIGTERM])
def test_who_waits_while_all_workers_are_away_is_served_when_the_pause_ends(
    serve: Serve, gate: Gate, end: signal.Signals
) -> None:
    server, _ = paused(serve, gate)
    with server.connect() as wire:
        wire.send(request("GET", "/pid?patient"))
        assert wire.silent(0.3), "it waits in the line"
        server.signal(end)
        assert wire.response().status == 200


def test_ttou_goes_down_to_none_in_unicorns_way(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", *UNICORN, env=gate.environment)
    server.signal(signal.SIGTTOU)
    server.log.wait("TTOU: 0 workers")
    left = ["stanchion", "stanchion-acpt", "stanchion-tmpl"]
    eventually(lambda: server.names() == left, "the template waits in its place")
    with server.connect() as wire:
        wire.send(request("GET", "/pid?patient"))
        assert wire.silent(0.3)
        server.signal(signal.SIGTTIN)
        assert wire.response().status == 200


def test_when_the_master_is_killed_all_finish_what_they_hold_and_leave(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    held = hold(server, gate)
    family: list[psutil.Process] = server.processes()
    server.process.kill()
    gate.open()
    assert held.response().status == 200
    held.close()
    for process in family:
        gone(process.pid)
