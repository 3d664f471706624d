"""An application under its usual server and under ours, each with a copy of the same prepared folder."""

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bigapps import memory
from bigapps.application import Application, Ask
from bigapps.client import ASK_WITHIN_S, Answer, Client
from bigapps.compare import Own
from support.address import Address
from support.neighbour import accepts
from support.patience import eventually
from support.ports import LOOPBACK, row_of_ports
from support.server import GUNICORN, STANCHION, Kind, Server
from support.wire import BrokenOff, Wire, request

PREPARE_WITHIN_S = 600
"""One command may take so long, such as the migrations of a large database."""
LATENCIES = 60
"""Answers of which the median is shown; no test judges it."""


class NotReady(Exception):
    """A server that does not answer, with its log."""


@dataclass
class Side:
    """A server of a pair, with its client and the answers."""

    application: Application
    server: Server
    client: Client = field(init=False)
    answers: dict[str, Answer] = field(default_factory=dict)
    """The answer to each ask, by the ask's name."""
    ready_after_s: float = 0.0

    @property
    def port(self) -> int:
        return self.server.address.port

    @property
    def own(self) -> Own:
        return Own(self.port, str(self.server.home))

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        began = time.monotonic()
        within_s = self.application.start_within_s
        self.server.launch()
        try:
            if self.server.addresses:
                eventually(self._listens, f"it listens at {self.server.address}", within_s)
            else:
                self.server.log.wait(self.server.kind.ready, within_s=within_s)
                self.server.wait_until_ready()
            self.client = Client(self.server.address, self.server.home)
            answer = self.client.one(Ask("the first answer", self.application.ready))
        except AssertionError as error:
            raise NotReady(f"{self.server.kind.name}: {error}\n{self.log_end()}") from None
        if answer.status != 200:
            said = answer.trouble or f"{answer.status} {answer.body[:300]!r}"
            raise NotReady(f"{self.server.kind.name}: {self.application.ready} answers {said}\n{self.log_end()}")
        self.ready_after_s = time.monotonic() - began

    def _listens(self) -> bool:
        assert self.server.process.poll() is None, f"it has ended with {self.server.process.returncode}"
        return accepts(self.server.address)()

    def log_end(self) -> str:
        return "\n".join(self.server.log.lines()[-40:])

    def visit(self) -> None:
        """Ask everything of the application's file, in its order."""
        for ask in self.application.ask:
            self.answers[ask.what] = self.client.one(ask)

    def median_ms(self) -> float:
        """The median time of answers on one connection, where the server keeps it."""
        took = []
        wire: Wire | None = None
        host = f"{LOOPBACK}:{self.port}"
        for _ in range(LATENCIES):
            wire = wire or Wire.connect(self.server.address, ASK_WITHIN_S)
            began = time.monotonic()
            try:
                wire.send(request("GET", self.application.ready, host=host))
                closes = wire.response().closes()
            except (OSError, BrokenOff):
                # A server may close a connection that it has kept (RFC 9112 section 9.5).
                wire.close()
                wire = None
                continue
            took.append(time.monotonic() - began)
            if closes:
                wire.close()
                wire = None
        if wire:
            wire.close()
        return 1000 * statistics.median(took)

    def memory_bytes(self) -> int:
        return memory.memory_bytes(self.server.processes())

    def leave(self, within_s: float) -> float:
        """TERM, until no process is left: how long that took. A TimeoutExpired names those that are left."""
        began = time.monotonic()
        self.server.signal(signal.SIGTERM)
        self.server.exit_code(within_s)
        left_s = max(within_s - (time.monotonic() - began), 1.0)
        eventually(lambda: not self.server.processes(), "every process of the server has left", left_s)
        return time.monotonic() - began

    def end(self) -> None:
        """The server ends here, if it has not. How servers leave is a test of its own, so nothing is asserted."""
        if not self.server.launched:
            return
        with contextlib.suppress(AssertionError):
            self.server.stop()


@dataclass
class Pair:
    """Both of them; what was found out about them is for the report."""

    application: Application
    usual: Side
    ours: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.usual, self.ours

    def visited(self) -> None:
        """Both have been asked everything, once."""
        for side in self.sides:
            if not side.answers:
                side.visit()


def uvicorn(application: Application, port: int) -> tuple[Kind, list[str]]:
    made = application.app.endswith("()")
    words = ["--host", LOOPBACK, "--port", str(port), *(["--factory"] if made else [])]
    words += ["--workers", str(application.workers)] if application.workers > 1 else []
    command = (str(application.venv / "bin/python"), "-m", "uvicorn", *application.usual[1:])
    # It says where it listens by a logger that an application may silence, so nothing is read from there.
    kind = Kind("uvicorn", command, "", "")
    return kind, [*words, application.app.removesuffix("()")]


def gunicorn(application: Application, port: int) -> tuple[Kind, list[str]]:
    command = (str(application.venv / "bin/python"), *GUNICORN.command[1:], *application.usual[1:])
    kind = Kind("gunicorn", command, "", "")
    return kind, ["--bind", f"{LOOPBACK}:{port}", "--workers", str(application.workers), application.app]


def stanchion(application: Application) -> tuple[Kind, list[str]]:
    command = (str(application.venv / "bin/python"), *STANCHION.command[1:], *STANCHION.arguments)
    kind = Kind("stanchion", command, STANCHION.listening, STANCHION.ready)
    words = ["--bind", f"{LOOPBACK}:0", "--workers", str(application.workers), *application.ours]
    return kind, [*words, application.app]


USUAL = {"gunicorn": gunicorn, "uvicorn": uvicorn}


def environment(application: Application, home: Path) -> dict[str, str]:
    """Every command of an application has these variables. Servers and apps write where a test removes it."""
    scratch = home / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    given = {name: value.replace("{home}", str(home)) for name, value in application.environment.items()}
    path = f"{application.venv / 'bin'}:{os.environ['PATH']}"
    # Sets of strings then have the same order under both.
    seed = {"PYTHONHASHSEED": "0"}
    return {"PATH": path, "HOME": str(home), "TMPDIR": str(scratch), "PYTHONPATH": str(home), **seed, **given}


def prepared(application: Application, home: Path) -> None:
    """The application's own files, and what its commands make of them."""
    shutil.copytree(application.folder, home, ignore=shutil.ignore_patterns("__pycache__"))
    for command in application.prepare:
        done = subprocess.run(
            [str(application.venv / "bin" / command[0]), *command[1:]],
            cwd=home,
            env=environment(application, home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PREPARE_WITHIN_S,
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            raise NotReady(f"{' '.join(command)} ends with {done.returncode}\n{said}")


@contextlib.contextmanager
def served(application: Application, home: Path) -> Iterator[Pair]:
    """Both servers, ready."""
    prepared(application, home / "prepared")
    with row_of_ports(1) as port:
        usual = side_in(home / "usual", application, *USUAL[application.usual[0]](application, port))
        usual.server.addresses = [Address(LOOPBACK, port)]
        pair = Pair(application, usual, side_in(home / "ours", application, *stanchion(application)))
        try:
            for side in pair.sides:
                side.start()
            yield pair
        finally:
            for side in pair.sides:
                side.end()


def side_in(place: Path, application: Application, kind: Kind, words: list[str]) -> Side:
    """A server that is to run in a copy of the prepared folder."""
    shutil.copytree(place.parent / "prepared", place, symlinks=True)
    return Side(application, Server(kind, words, place, environment(application, place)))
