"""A worker's reaction to each signal: idle, at work, waiting in C, and stuck there with the interpreter's lock."""

import os
import re
import signal
from pathlib import Path

import pytest

from support.address import Address
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.processes import gone, sleeps
from support.seats import seats
from support.server import Serve, Server
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("the process tree is stanchion's")

QUICK = [signal.SIGINT, signal.SIGQUIT]
DUMP = 62
"""The signal number of crates/stanchion-sys/src/signal.rs."""

HOOKS = """\
from rendezvous import announce
def worker_int(worker): announce(f"int {worker.nr} {worker.alive} {worker.aborted}")
def worker_abort(worker): announce(f"abort {worker.nr} {worker.alive} {worker.aborted}")
def worker_exit(server, worker): announce(f"exit {worker.nr}")
"""


@pytest.fixture
def hooked(serve: Serve, gate: Gate, tmp_path: Path):
    """A server whose workers announce how they leave."""
    config = tmp_path / "hooks.conf.py"
    config.write_text(HOOKS)

    def start(app: str, *arguments: str) -> Server:
        return serve(app, "-c", str(config), *arguments, env=gate.environment)

    return start


def ask(server: Server, target: str, timeout_s: float = PATIENCE_S) -> Wire:
    wire = server.connect(timeout_s)
    wire.send(request("GET", target))
    return wire


def pid_of(server: Server) -> int:
    with server.connect() as wire:
        return int(wire.get("/pid").text.split()[0])


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("number", QUICK)
def test_int_and_quit_let_an_idle_worker_leave_at_once(
    hooked, gate: Gate, number: signal.Signals, threads: str
) -> None:
    server = hooked("waiting:stuck", "--threads", threads)
    with server.connect() as wire:
        assert wire.get("/at-exit").status == 200
    pid = pid_of(server)
    mark = server.log.mark()
    os.kill(pid, number)
    assert gate.announcements(3) == ["int 0 False False", "exit 0", "atexit"]
    gone(pid)
    server.log.wait("worker leaves at once", mark)
    assert pid_of(server) != pid


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("number", QUICK)
def test_int_and_quit_give_up_what_runs(hooked, gate: Gate, number: signal.Signals, threads: str) -> None:
    server = hooked("waiting:stuck", "--threads", threads)
    with ask(server, "/wait?held") as held:
        pid = int(gate.announcement().split()[0])
        os.kill(pid, number)
        assert gate.announcements(2) == ["int 0 False False", "exit 0"]
        assert held.response().status == 502
    gone(pid)
    assert pid_of(server) != pid


@pytest.mark.parametrize("number", [*QUICK, signal.SIGABRT])
def test_a_signal_that_does_not_end_the_wait_is_heard_as_well(hooked, gate: Gate, number: signal.Signals) -> None:
    """It may come just before the main thread begins to wait, or, as here, to another thread."""
    server = hooked("waiting:stuck")
    with ask(server, "/deaf?held") as held:
        pid = int(gate.announcement().split()[0])
        eventually(lambda: sleeps(pid), "it waits")
        os.kill(pid, number)
        [hook, left] = gate.announcements(2)
        assert (hook.split()[0], left) == ("abort" if number == signal.SIGABRT else "int", "exit 0")
        assert held.response().status == 502
    gone(pid)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_busy_python_is_given_up_as_well(hooked, gate: Gate, threads: str) -> None:
    server = hooked("waiting:app", "--threads", threads)
    with ask(server, "/busy") as busy:
        pid = int(gate.announcement())
        os.kill(pid, signal.SIGQUIT)
        assert gate.announcements(2) == ["int 0 False False", "exit 0"]
        assert busy.response().status == 502


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_worker_that_writes_to_a_client_who_does_not_read_leaves_at_once(hooked, gate: Gate, threads: str) -> None:
    server = hooked("waiting:stuck", "--threads", threads, "--response-spool", "1M")
    with ask(server, "/flood") as flooded:
        pid = int(gate.announcement().split()[0])
        eventually(lambda: sleeps(pid), "all buffers are full")
        os.kill(pid, signal.SIGINT)
        assert gate.announcements(2) == ["int 0 False False", "exit 0"]
        gone(pid)
        with pytest.raises(BrokenOff):
            flooded.response()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_worker_that_is_stuck_in_c_with_the_lock_leaves_nevertheless(hooked, gate: Gate, threads: str) -> None:
    server = hooked("waiting:stuck", "--threads", threads, "--timeout", "0")
    # The limit of crates/stanchion-sys/src/signal/asked.rs is part of it: 5 s.
    with ask(server, "/c", 2 * PATIENCE_S) as stuck:
        pid = int(gate.announcement().split()[0])
        eventually(lambda: sleeps(pid), "it is in C")
        mark = server.log.mark()
        os.kill(pid, signal.SIGINT)
        assert stuck.response().status == 502
        server.log.wait(rf"\b{pid}\b.*exited with code 1", mark)
    assert gate.announced() == [], "no hook can run"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_abrt_runs_its_hook_and_ends_with_1(hooked, gate: Gate, threads: str) -> None:
    server = hooked("waiting:stuck", "--threads", threads)
    with ask(server, "/wait?held") as held:
        pid = int(gate.announcement().split()[0])
        mark = server.log.mark()
        os.kill(pid, signal.SIGABRT)
        assert gate.announcements(2) == ["abort 0 False True", "exit 0"]
        assert held.response().status == 502
        server.log.wait(rf"\b{pid}\b.*exited with code 1", mark)


def test_abort_in_c_is_still_an_abort(hooked, gate: Gate) -> None:
    server = hooked("waiting:stuck")
    mark = server.log.mark()
    with ask(server, "/abort") as wire:
        assert wire.response().status == 502
    server.log.wait("was killed by SIGABRT", mark)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_term_finishes_first_and_a_later_int_does_not_wait(hooked, gate: Gate, threads: str) -> None:
    server = hooked("waiting:stuck", "--threads", threads)
    with ask(server, "/wait?held") as held:
        pid = int(gate.announcement().split()[0])
        os.kill(pid, signal.SIGTERM)
        assert held.silent(0.5)
        os.kill(pid, signal.SIGINT)
        assert held.response().status == 502
    assert gate.announcements(2) == ["int 0 False False", "exit 0"]


def test_term_runs_worker_exit_and_no_other_hook(hooked, gate: Gate) -> None:
    server = hooked("waiting:stuck")
    os.kill(pid_of(server), signal.SIGTERM)
    assert gate.announcement() == "exit 0"


def test_a_child_of_the_app_ends_by_the_signals_that_end_others(hooked) -> None:
    server = hooked("waiting:stuck")
    with server.connect() as wire:
        assert wire.get("/fork").text == f"{-signal.SIGTERM}"


@pytest.mark.parametrize("threads", ["1", "3"])
def test_usr1_opens_the_log_anew_while_a_request_runs(build: Serve, gate: Gate, tmp_path: Path, threads: str) -> None:
    log, renamed = tmp_path / "error.log", tmp_path / "error.log.1"
    server = build("waiting:stuck", "--threads", threads, "--error-logfile", str(log), env=gate.environment).launch()
    eventually(lambda: log.exists() and "worker ready" in log.read_text(), "a worker is ready", 2 * PATIENCE_S)
    server.addresses = [Address.parse(re.search(r"listening at (\S+)", log.read_text())[1])]
    pid = pid_of(server)
    with ask(server, "/wait?held") as held:
        gate.announcement()
        log.rename(renamed)
        os.kill(pid, signal.SIGUSR1)
        # In C, waiting, its thread may come to a safe point only when the request ends; with several, one is free.
        if threads == "1":
            gate.let_pass(1)
            assert held.response().status == 200
        eventually(lambda: log.exists() and "is reopened" in log.read_text(), "it is reopened")
        with server.connect() as wire:
            assert wire.get("/write?to-the-new-one").status == 200
        eventually(lambda: "to-the-new-one" in log.read_text(), "and written to")
        gate.open()
    assert "to-the-new-one" not in renamed.read_text()
    assert pid_of(server) == pid


def dumps_of(server: Server) -> Path:
    """The memory to which workers write their stacks; the master has it open."""
    for fd in Path(f"/proc/{server.pid}/fd").iterdir():
        if "stanchion-dumps" in os.readlink(fd):
            return fd
    raise AssertionError("the master has no place for stacks")


def test_a_worker_that_is_stuck_in_c_with_the_lock_writes_its_stacks(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:stuck", "--threads", "3", "--timeout", "0", env=gate.environment)
    dumps = dumps_of(server)
    with ask(server, "/wait?held"):
        _, waiting_thread, _ = gate.announcement().split()
        with ask(server, "/c"):
            pid, stuck_thread, _ = gate.announcement().split()
            eventually(lambda: sleeps(int(pid)), "it is in C")
            os.kill(int(pid), DUMP)
            # The table of seats is written after the stacks. A third seat may not have sat down before the lock went.
            eventually(lambda: len(seated(dumps.read_text())) >= 2, "it writes")
            text = dumps.read_text()
            os.kill(int(pid), signal.SIGKILL)
    by_thread = dict(re.findall(r"[Tt]hread (0x[0-9a-f]+).* \(most recent call first\):\n((?:  .*\n)+)", text))
    assert "in lock_in_c" in by_thread[f"0x{int(stuck_thread):016x}"]
    assert "in sleep_in_python" in by_thread[f"0x{int(waiting_thread):016x}"]
    assert {f"0x{int(stuck_thread):016x}", f"0x{int(waiting_thread):016x}"} <= set(seated(text).values())


def seated(text: str) -> dict[str, str]:
    """The thread of each seat, as a dump has it."""
    return dict(re.findall(r"^seat (\d+) is thread (0x[0-9a-f]+)$", text, re.MULTILINE))


def test_a_worker_that_is_asked_for_its_stacks_goes_on(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:stuck", env=gate.environment)
    dumps = dumps_of(server)
    with ask(server, "/wait?held") as held:
        pid = int(gate.announcement().split()[0])
        for count in (1, 2):
            os.kill(pid, DUMP)
            eventually(lambda count=count: dumps.read_text().count("seat 0 is thread") == count, "it writes")
        gate.let_pass(1)
        assert held.response().status == 200
    assert pid_of(server) == pid


def test_a_killed_worker_writes_nothing_and_its_successor_does(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    [seat] = seats(server, gate, 1)
    os.kill(seat.pid, signal.SIGKILL)
    [seat] = seats(server, gate, 1)
    os.kill(seat.pid, DUMP)
    eventually(lambda: "seat 0 is thread" in dumps_of(server).read_text(), "it writes")
