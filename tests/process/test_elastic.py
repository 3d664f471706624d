"""A number of workers that the line chooses: `--workers 1..4`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import processes
from support.address import Address
from support.clock import Clock
from support.control_group import NEEDS_CONTROL_GROUPS, MemoryGroup
from support.ctl import ctl
from support.gate import Gate
from support.log import Log
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, ask, request

pytestmark = pytest.mark.own("gunicorn keeps as many workers as it is told")

EXIT_USAGE = 2
MIB = 1 << 20
ON_ONE_CORE = (
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execvp(sys.argv[1], sys.argv[1:])"
)


@dataclass
class Elastic:
    """A server of one to four workers, whose requests wait until the test lets them go."""

    server: Server
    control: Path
    admin: str
    gate: Gate
    open: ExitStack
    """The connections of the requests."""
    held: list[Wire] = field(default_factory=list)
    passed: int = 0
    """So many of them were let go."""

    @property
    def log(self) -> Log:
        return self.server.log

    def hold(self, count: int = 1) -> None:
        """Send as many requests more."""
        for _ in range(count):
            wire = self.open.enter_context(self.server.connect())
            wire.send(request("GET", "/wait"))
            self.held.append(wire)

    def runs(self, count: int = 1) -> None:
        """Wait until as many more have a seat."""
        self.gate.announcements(count)

    def let_one_go(self) -> None:
        self.gate.let_pass(1)
        self.passed += 1

    def release(self) -> None:
        """Let all of them go: none is lost."""
        self.gate.let_pass(len(self.held) - self.passed)
        assert [wire.response().status for wire in self.held] == [200] * len(self.held)
        # A generation that retires waits for its clients.
        self.open.close()
        self.held.clear()
        self.passed = 0

    def status(self) -> dict[str, Any]:
        with Wire.connect(Address.parse(self.admin)) as wire:
            told: dict[str, Any] = json.loads(wire.get("/status").text)
        return told

    def shows(self, **expected: object) -> bool:
        """Whether `/status` says this of the number of workers."""
        elastic = self.status()["elastic"]
        return all(elastic[name] == value for name, value in expected.items())

    def workers(self) -> int:
        return len(self.server.of_name("stanchion-work"))

    def ctl(self, *words: str) -> None:
        done = ctl(self.control, *words)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def elastic(serve: Serve, gate: Gate, clock: Clock, tmp_path: Path) -> Iterator[Callable[..., Elastic]]:
    with ExitStack() as connections:

        def start(
            *arguments: str, workers: tuple[str, ...] = ("--workers", "1..4"), prefix: Sequence[str] = ()
        ) -> Elastic:
            control, admin = tmp_path / "control", f"unix:{tmp_path}/admin"
            words = (*workers, "--control", f"unix:{control}", "--admin", admin, *arguments)
            # A template that is killed, and a clock that jumps, take their time.
            more = ("--timeout", "0", "--queue-timeout", "0")
            server = serve(
                "waiting:app", *words, *more, env={**gate.environment, **clock.environment}, prefix=list(prefix)
            )
            return Elastic(server, control, admin, gate, connections)

        yield start


def test_workers_come_while_requests_wait_and_leave_when_they_were_not_needed(
    elastic: Callable[..., Elastic], clock: Clock
) -> None:
    it = elastic()
    assert it.shows(min=1, max=4, wanted=1, pinned=False, held_back=None)
    it.hold(2)
    it.runs(2)
    it.log.only(r"workers 1 → 2: a request waits \(\d+ ms by now\)")
    it.hold(2)
    # All that run are held, so no more workers than twice those before are tried.
    eventually(lambda: it.shows(wanted=2, held_back="stall"), "it is held back")
    assert it.workers() == 2
    it.let_one_go()
    it.runs(2)
    it.log.only(r"workers 2 → 3: ")
    assert it.workers() == 3
    it.release()
    clock.advance(61)
    it.log.wait(r"workers 3 → 1: number 2 was last needed 6\d(\.\d)? s ago")
    eventually(lambda: it.workers() == 1, "the others leave")
    it.hold()
    it.runs()
    it.release()


def test_a_number_by_command_stays_until_it_is_freed(elastic: Callable[..., Elastic]) -> None:
    it = elastic()
    it.ctl("scale", "2")
    eventually(lambda: it.shows(wanted=2, pinned=True), "it is pinned")
    it.hold(7)
    it.runs(2)
    eventually(
        lambda: it.status()["line"]["oldest_wait_us"] > 100_000, "requests wait, the first of them in the exchange"
    )
    it.let_one_go()
    it.runs()
    assert not it.log.matches("workers . → .")
    it.ctl("scale", "auto")
    it.runs(2)
    # As many at once as there are cores, as it is not known yet how long a worker takes.
    it.log.wait(r"workers 2 → [34]: \d requests wait, the oldest \d+ ms")
    it.release()
    it.server.signal(signal.SIGTTOU)
    eventually(lambda: it.shows(wanted=3, pinned=True), "it is pinned again")


def test_a_reload_and_an_upgrade_keep_the_number(elastic: Callable[..., Elastic]) -> None:
    it = elastic()
    it.hold(2)
    it.runs(2)
    it.release()
    it.ctl("reload")
    assert it.status()["generation"] == 2
    assert it.shows(wanted=2, pinned=False)
    eventually(lambda: it.workers() == 2, "the workers before are gone")
    it.ctl("scale", "3")
    it.ctl("reload")
    eventually(lambda: it.shows(wanted=3, pinned=True), "it is pinned in the next generation")
    old = it.server.pid
    it.ctl("upgrade")
    told = it.log.wait(r"upgraded: the new master (\d+) serves")
    it.server.follow(int(told[1]))
    processes.gone(old)
    eventually(lambda: it.shows(wanted=3, pinned=True), "it is pinned in the new master")
    eventually(lambda: it.workers() == 3, "they are there")


def test_an_upgrade_into_a_fixed_number_takes_that(elastic: Callable[..., Elastic], tmp_path: Path) -> None:
    config = tmp_path / "workers.py"
    config.write_text('workers = "1..4"\n')
    it = elastic("--config", str(config), workers=())
    it.hold(2)
    it.runs(2)
    it.release()
    config.write_text("workers = 1\n")
    old = it.server.pid
    it.ctl("upgrade")
    told = it.log.wait(r"upgraded: the new master (\d+) serves")
    it.server.follow(int(told[1]))
    processes.gone(old)
    assert it.status()["elastic"] is None
    assert it.workers() == 1


def test_no_request_is_lost_if_the_template_dies_while_workers_are_added(elastic: Callable[..., Elastic]) -> None:
    it = elastic()
    it.hold()
    it.runs()
    [template] = it.server.of_name("stanchion-tmpl")
    os.kill(template.pid, signal.SIGSTOP)
    it.hold()
    it.log.wait(r"workers 1 → 2: ")
    os.kill(template.pid, signal.SIGKILL)
    it.runs()
    assert it.workers() == 2
    it.release()


def test_a_range_is_for_workers_with_threads(build: Serve) -> None:
    for arguments in (("--interface", "asgi"), ()):
        server = build("api:app", "--workers", "2..4", *arguments).launch()
        server.log.wait("setting `workers`.*: a range is for workers with threads")
        assert server.exit_code() == EXIT_USAGE


def test_the_machine_says_the_range_of_auto(elastic: Callable[..., Elastic]) -> None:
    it = elastic(workers=("--workers", "auto"), prefix=[sys.executable, "-c", ON_ONE_CORE])
    it.log.only(r"`workers` auto is 1 to 10, as many as keep the cores busy \(cores: 1 by affinity, ")
    assert it.shows(min=1, max=10, wanted=1)
    it.hold(2)
    it.runs(2)
    it.log.only(r"workers 1 → 2: ")
    it.release()


def test_auto_is_an_event_loop_for_each_core(serve: Serve, admin: str) -> None:
    prefix = [sys.executable, "-c", ON_ONE_CORE]
    serve("asgi_cases:app", "--workers", "auto", "--admin", admin, prefix=prefix).log.wait(
        "`workers` auto is 1, an event loop for each core"
    )
    # The server logs that before a worker is there.
    told = eventually(lambda: (said := json.loads(ask(admin, "/status").body))["workers"] and said, "a worker is there")
    assert (told["elastic"], len(told["workers"])) == (None, 1)


@pytest.fixture
def container() -> Iterator[MemoryGroup]:
    """A group whose limit is as high as a test wants: a process in it has most of what it may have."""
    holds = f"ballast = b'x' * {300 * MIB}; print(flush=True); input()"
    with closing(MemoryGroup("elastic", 1024 * MIB)) as group:
        command = [*group.prefix, sys.executable, "-c", holds]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ballast:
            assert ballast.stdout and ballast.stdout.readline()
            yield group
            ballast.communicate(b"\n")


@NEEDS_CONTROL_GROUPS
def test_no_worker_is_added_for_which_there_is_no_memory(
    container: MemoryGroup, elastic: Callable[..., Elastic]
) -> None:
    it = elastic(prefix=container.prefix)
    # Less than a tenth is left, which stays for the workers that are there.
    container.limit(container.taken() + 20 * MIB)
    it.hold(2)
    it.runs()
    eventually(lambda: it.shows(wanted=1, held_back="memory"), "it is held back")
    eventually(lambda: it.status()["demand"]["oldest_untaken_us"] > 2_000_000, "more readings have come")
    assert it.shows(wanted=1, held_back="memory")
    assert it.workers() == 1
    container.limit(1024 * MIB)
    it.runs()
    it.log.only(r"workers 1 → 2: a request waits")
    it.release()
    assert not it.log.matches("was killed")
