"""Signals that other code has blocked or handled: the process that started the server, the app's import, a hook."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.clock import Clock
from support.patience import eventually
from support.processes import gone, kill, sleeps
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("it is about stanchion's own processes")

APP = """
import os, signal, subprocess, sys

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/run":
        code = subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(3)"]).returncode
        return [f"exited with {code}".encode()]
    if environ["PATH_INFO"] == "/stuck":
        open("stuck", "w").close()
        signal.sigwait([signal.SIGRTMIN])
    return [str(os.getpid()).encode()]

"""

ALL_BLOCKED = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"

Start = Callable[..., Server]


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Start:
    """A server whose app does this at its import."""

    def start(at_import: str = "", *arguments: str, **options: Any) -> Server:
        (tmp_path / "signalling.py").write_text(APP + at_import + "\n")
        return serve("signalling:app", "--pythonpath", str(tmp_path), *arguments, **options)

    return start


def worker_of(server: Server) -> psutil.Process:
    with server.connect() as wire:
        return psutil.Process(int(wire.get("/").body))


def replace(server: Server) -> None:
    """Kill a worker: the master says how it ended, and another one follows."""
    mark = server.log.mark()
    worker = worker_of(server)
    kill(worker)
    server.log.wait(rf"worker \d \({worker.pid}\) was killed by SIGKILL", mark)
    server.log.wait("worker ready", mark)
    assert worker_of(server).pid != worker.pid


class TestAnAppThatIgnoresSigchld:
    """The kernel then collects the template's children itself, and waitpid(2) answers ECHILD."""

    AT_IMPORT = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"

    @pytest.mark.parametrize("arguments", [[], ["--no-preload"]])
    def test_every_fork_of_a_worker_counts(self, start: Start, arguments: list[str]) -> None:
        server = start(self.AT_IMPORT, "-w", "3", *arguments)
        assert len(server.log.matches("worker ready")) == 3
        assert not server.log.matches("fork"), server.log.text()

    @pytest.mark.parametrize("arguments", [[], ["--preload"]])
    def test_a_dead_worker_is_replaced(self, start: Start, arguments: list[str]) -> None:
        server = start(self.AT_IMPORT, *arguments)
        replace(server)
        assert not server.log.matches("fork"), server.log.text()

    def test_its_subprocesses_still_say_how_they_ended(self, start: Start) -> None:
        with start(self.AT_IMPORT).connect() as wire:
            assert wire.get("/run").text == "exited with 3"


class TestAnAppThatBlocksSignals:
    """A mask is inherited by every fork (pthread_sigmask(3))."""

    def test_its_worker_leaves_on_sigterm(self, start: Start) -> None:
        server = start(ALL_BLOCKED)
        mark = server.log.mark()
        worker = worker_of(server)
        worker.terminate()
        server.log.wait("worker ready", mark)
        gone(worker.pid)

    @pytest.mark.parametrize("arguments", [[], ["--threads", "2"]])
    def test_its_workers_leave_in_time_with_the_server(self, start: Start, arguments: list[str]) -> None:
        server = start(ALL_BLOCKED, *arguments)
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert not server.log.matches("did not leave in time")

    def test_a_stuck_worker_writes_its_stacks_down(self, start: Start, clock: Clock) -> None:
        server = start(ALL_BLOCKED, "--timeout", "100", env=clock.environment)
        worker = worker_of(server)
        with server.connect() as wire:
            wire.send(request("GET", "/stuck"))
            eventually(lambda: (server.home / "stuck").exists() and sleeps(worker.pid), "it is stuck")
            clock.advance(101)
            assert wire.response().status == 504
        server.log.wait("the stacks of worker 0")
        server.log.wait(r"in app$")


class TestAnAppThatTakesSigcont:
    """By which the kernel tells workers that the master has ended."""

    ASGI = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})

"""

    @pytest.mark.parametrize(
        "act",
        [
            "signal.signal(signal.SIGCONT, lambda *_: None)",
            "signal.signal(signal.SIGCONT, signal.SIG_IGN)",
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])",
        ],
        ids=["caught", "ignored", "blocked"],
    )
    @pytest.mark.parametrize(
        ("before", "arguments"),
        [
            ("", []),
            ("", ["--threads", "2"]),
            ("", ["--worker-class", "gevent"]),
            (ASGI, ["--interface", "asgi", "--lifespan", "off"]),
        ],
        ids=["wsgi", "threads", "gevent", "asgi"],
    )
    def test_leaves_all_the_same_once_the_master_is_killed(
        self, start: Start, before: str, arguments: list[str], act: str
    ) -> None:
        # Imported in the worker, which catches signals before.
        server = start(before + act, "--no-preload", "-w", "2", *arguments)
        worker_of(server)
        server.signal(signal.SIGKILL)
        eventually(lambda: not server.processes(), "all have left")


def test_an_app_with_a_timer_that_ticks_all_the_time(start: Start) -> None:
    ticking = "signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)"
    server = start(ticking, "-w", "3")
    for _ in range(3):
        replace(server)
    assert not server.log.matches("fork"), server.log.text()


class TestWhoeverStartedTheServer:
    """Ignored signals and the mask of blocked ones outlive execve(2)."""

    LAUNCHER = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"{ALL_BLOCKED}\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )

    def test_had_sigchld_ignored_and_all_signals_blocked(self, start: Start) -> None:
        server = start(prefix=[sys.executable, "-c", self.LAUNCHER])
        replace(server)
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        server.log.wait("reloaded: generation 2 serves", mark)
        with server.connect() as wire:
            assert wire.get("/run").text == "exited with 3"
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0


class TestAHookInTheMaster:
    """It runs in the process that reaps and takes commands."""

    def start(self, start: Start, tmp_path: Path, text: str) -> Server:
        config = tmp_path / "signals.conf.py"
        config.write_text(f"import os, signal, subprocess\n{text}\n")
        return start("", "-c", str(config))

    @pytest.mark.parametrize(
        ("act", "which"),
        [
            ("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "CHLD"),
            ("signal.signal(signal.SIGTERM, signal.SIG_DFL)", "TERM"),
            ("signal.signal(signal.SIGHUP, print)", "HUP"),
            ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])", "TERM, CHLD"),
        ],
    )
    def test_may_not_take_its_signals(self, start: Start, tmp_path: Path, act: str, which: str) -> None:
        server = self.start(start, tmp_path, f"def when_ready(server): {act}")
        server.log.wait(f"WARNING.*the hook when_ready has changed what becomes of {which} in the master")
        replace(server)
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0

    def test_that_collects_the_masters_children_hides_no_death(self, start: Start, tmp_path: Path) -> None:
        server = self.start(
            start,
            tmp_path,
            "def nworkers_changed(server, new, old):\n"
            "    if new == 2 and old == 1:\n"
            "        with open('pid') as file:\n"
            "            pid = int(file.read())\n"
            "        os.kill(pid, signal.SIGKILL)\n"
            "        os.waitpid(pid, 0)\n",
        )
        worker = worker_of(server)
        (server.home / "pid").write_text(str(worker.pid))
        mark = server.log.mark()
        server.signal(signal.SIGTTIN)
        server.log.wait(rf"worker 0 \({worker.pid}\) ended, and other code in the master took its exit status", mark)
        server.log.wait("worker ready worker=0", mark)
