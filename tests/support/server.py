"""A server process, started for real and stopped without a trace."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import pytest

from support import processes
from support.address import Address
from support.log import Log
from support.patience import PATIENCE_S, eventually
from support.wire import Wire

APPS = Path(__file__).parent.parent / "apps"


@dataclass(frozen=True)
class Kind:
    """How one server is started, and how it says where it listens and that it is ready."""

    name: str
    command: tuple[str, ...]
    listening: str
    """Its first group is one address, or several with commas between."""
    ready: str
    arguments: tuple[str, ...] = ()
    """Every test gives it these first, so that a test's own words count."""


STANCHION = Kind(
    "stanchion",
    (sys.executable, "-m", "stanchion", "serve"),
    r"listening at (\S+)",
    r"ready: \d+ worker",
    # A connection may idle for 2 s by default, and the client that is to ask again may get no core for longer.
    ("--keep-alive", "60"),
)
GUNICORN = Kind(
    # The control socket would be one well-known path for every test at once.
    "gunicorn",
    (sys.executable, "-m", "gunicorn", "--no-control-socket"),
    r"Listening at: (\S+)",
    r"Listening at",
)
GTHREAD = Kind("gunicorn-gthread", (*GUNICORN.command, "--worker-class", "gthread"), GUNICORN.listening, GUNICORN.ready)
KINDS = {kind.name: kind for kind in (STANCHION, GUNICORN, GTHREAD)}

UNHURRIED = ("--min-body-rate", "0")
"""Arguments for clients that pause in a body: by default a stanchion waits 5 s for its first bytes."""


@dataclass
class Server:
    """One server of some kind; `start` returns when it is ready, `stop` when nothing of it is left."""

    kind: Kind
    arguments: list[str]
    home: Path
    """Its directory: where it runs, and where its temporary files go (`home/tmp`)."""
    environment: dict[str, str] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    """Words before the command, such as `ip netns exec NAME`."""
    pass_fds: tuple[int, ...] = ()
    addresses: list[Address] = field(default_factory=list)
    heir: psutil.Process | None = None
    """The master that has followed, if one has: a child of this process as well."""

    def launch(self, stuffed: bool = False) -> "Server":
        """Start without waiting, for what is not meant to come up.

        With `stuffed`, its stdout and stderr are pipes that are full, and stay so until their logs `begin`.
        """
        self.tmp = self.home / "tmp"
        self.tmp.mkdir(parents=True, exist_ok=True)
        pipes = [full_pipe(), full_pipe()] if stuffed else []
        stdout, stderr = [writer for _, writer in pipes] or [subprocess.PIPE, subprocess.PIPE]
        self.process = subprocess.Popen(
            [*self.prefix, *self.kind.command, *self.arguments],
            cwd=self.home,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            pass_fds=self.pass_fds,
        )
        if stuffed:
            for _, writer in pipes:
                os.close(writer)
            readers: list[IO[bytes] | None] = [os.fdopen(reader, "rb") for reader, _ in pipes]
        else:
            readers = [self.process.stdout, self.process.stderr]
        self.stdout, self.log = [Log(reader, begin=not stuffed) for reader in readers if reader]
        return self

    def start(self) -> "Server":
        return self.launch().wait_until_ready()

    def wait_until_ready(self) -> "Server":
        """Wait, and learn where it listens."""
        self.log.wait(self.kind.ready, within_s=2 * PATIENCE_S)
        self.addresses = [
            Address.parse(text)
            for found in self.log.matches(self.kind.listening)
            for text in found[1].rstrip(",").split(",")
        ]
        return self

    def _environment(self) -> dict[str, str]:
        """Written out, not inherited: PORT or WEB_CONCURRENCY of the caller must not reach a server under test."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "PYTHONPATH": str(APPS),
            # A module changed within one second and of the same size would be taken from its stale .pyc.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "RUST_BACKTRACE": "1",
            **self.environment,
        }

    @property
    def launched(self) -> bool:
        return hasattr(self, "process")

    @property
    def pid(self) -> int:
        """The master's."""
        return self.heir.pid if self.heir else self.process.pid

    def follow(self, pid: int) -> None:
        """Another master has taken over: from now on that one is meant."""
        self.heir = psutil.Process(pid)

    @property
    def address(self) -> Address:
        return self.addresses[0]

    def connect(self, timeout_s: float = PATIENCE_S) -> Wire:
        return Wire.connect(self.address, timeout_s)

    def signal(self, number: signal.Signals) -> None:
        if self.heir:
            self.heir.send_signal(number)
        else:
            self.process.send_signal(number)

    def exit_code(self, within_s: float = PATIENCE_S) -> int:
        return self.process.wait(within_s)

    def processes(self) -> list[psutil.Process]:
        return processes.of_session(self.process.pid)

    def names(self) -> list[str]:
        """The names of its processes, sorted."""
        return sorted(name for name, _ in self.named())

    def of_name(self, name: str) -> list[psutil.Process]:
        return [process for found, process in self.named() if found == name]

    def named(self) -> Iterator[tuple[str, psutil.Process]]:
        """Its processes with their names; one that ends meanwhile is left out."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                yield process.name(), process

    def acceptor_by_name(self) -> psutil.Process:
        """Without a connection to it, which it might count, and of unix sockets, too."""
        [found] = self.of_name("stanchion-acpt")
        return found

    def acceptor(self) -> psutil.Process:
        return processes.holder_of_connections(self.processes(), self.address)

    def spooled(self) -> list[str]:
        """The files in its temporary directory, and those that are open there and have no name (any more)."""
        if self.kind.name == "stanchion" and os.geteuid() != 0:
            pytest.skip("the acceptor shows its open files to nobody but root")
        named = [str(path) for path in self.tmp.rglob("*") if path.is_file()]
        # psutil leaves out what has no name.
        opened = [path for process in self.processes() for path in processes.open_paths(process)]
        return named + [path for path in opened if path.startswith(str(self.tmp))]

    def stop(self) -> None:
        """INT, a bounded wait, KILL; and then an error if the KILL was needed or something is left."""
        patient = True
        for log in (self.log, self.stdout):
            log.begin()
        if self.heir:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.heir.send_signal(signal.SIGINT)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
            self.log.wait_end()
        except (subprocess.TimeoutExpired, AssertionError):
            patient = False
        # A worker that was being forked when the master left notices by itself.
        with contextlib.suppress(AssertionError):
            eventually(lambda: not self.processes(), "the last process leaves")
        left = self.processes()
        described = [f"{process.pid} {' '.join(process.cmdline())}" for process in left]
        for process in left:
            processes.kill(process)
        self.process.wait(PATIENCE_S)
        processes.reap_of_session(self.process.pid)
        for log in (self.log, self.stdout):
            log.close()
        assert patient and not left, f"INT did not end the server; left: {described}"
        spool = sorted(str(path.relative_to(self.tmp)) for path in self.tmp.rglob("*"))
        assert not spool, f"left in its temporary directory: {spool}"
        # Only of our own server: a peer that is stopped may drop connections it has open.
        signs = ("panicked at", "garbage collected without being closed") if self.kind.name == STANCHION.name else ()
        for sign in signs:
            assert sign not in self.log.text(), f"the log says {sign!r}"


def full_pipe() -> tuple[int, int]:
    """A pipe that has no room: a process that writes to it waits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 1023 + b"\n")
    os.set_blocking(writer, True)
    return reader, writer


Serve = Callable[..., Server]
"""The fixtures `serve` and `build` of conftest.py."""
