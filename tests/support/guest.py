"""A Debian that systemd has booted, in a container of its own (systemd-nspawn(1)), of which nothing stays behind."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from support import manager, missing, netns
from support.patience import PATIENCE_S, eventually

T = TypeVar("T")

HOME = Path(__file__).parents[2] / "target" / "guest"
"""`make target/guest/made` makes it, once."""
IMAGE = HOME / "debian"

PROPAGATED = Path("/run/systemd/nspawn/propagate")
"""Where systemd-nspawn keeps a directory for each guest."""

BOOT_S = 3 * PATIENCE_S
COMMAND_S = 6 * PATIENCE_S
"""Bound of one command inside: systemctl waits for what it has asked for."""


def hierarchies() -> list[Path]:
    """Our own place in each hierarchy of control groups that systemd can use: cgroup2, and its own of version 1."""
    of = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        of[controllers] = path
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        _, _, _, root, point, *_ = before.split()
        kind, _, options = after.split()
        name = "" if kind == "cgroup2" else "name=systemd"
        if (kind == "cgroup2" or (kind == "cgroup" and name in options.split(","))) and name in of:
            found.append(Path(point) / os.path.relpath(of[name], root))
    return found


def not_here() -> str:
    """Why no guest can be booted, or "" if one can."""
    return missing.allowed(_not_here())


def _not_here() -> str:
    if os.geteuid() != 0:
        return "needs root to boot a Debian guest"
    if missing := [name for name in ("systemd-nspawn", "nsenter", "setpriv") if not shutil.which(name)]:
        return f"{missing[0]} is not installed"
    if not (HOME / "made").exists():
        return "there is no Debian guest (`make target/guest/made`)"
    there = os.readlink(IMAGE / "usr/bin/python3")
    if there != f"python{sys.version_info.major}.{sys.version_info.minor}":
        return f"the server was built for Python {sys.version.split()[0]}, and the guest has {there}"
    if not hierarchies():
        return "no hierarchy of control groups is mounted that systemd could use"
    return ""


class Guest:
    """A booted guest. Its writes go to memory, its network is its own; it ends with the test, however the test ends."""

    def __init__(self, home: Path, binds: dict[Path, str]) -> None:
        home.mkdir()
        self._name = f"stanchion-{os.getpid()}-{time.monotonic_ns()}"
        self._groups = [place / self._name for place in hierarchies()]
        self._console = home / "console"
        for group in self._groups:
            group.mkdir()
        # Into its groups, before it becomes systemd-nspawn, which would make its own beside those of other guests. When
        # this process ends it is sent TERM, and kills what it has booted.
        enter = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
        command = [
            *["setpriv", "--pdeathsig", "TERM", "sh", "-ec", enter, "sh", *map(str, self._groups), "--"],
            *[
                "systemd-nspawn",
                "--quiet",
                "--register=no",
                "--keep-unit",
                "--boot",
                "--kill-signal=KILL",
                "--notify-ready=yes",
            ],
            *[f"--machine={self._name}", f"--directory={IMAGE}", "--volatile=overlay", "--private-network"],
            *["--link-journal=no", "--console=pipe", *(f"--bind-ro={here}:{there}" for here, there in binds.items())],
        ]
        with manager.listening(home, BOOT_S) as ear, self._console.open("wb") as console:
            self._process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": str(ear.path)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
            try:
                self._first = int(ear.wait("X_NSPAWN_LEADER_PID="))
                ear.wait("READY=1")
            except (AssertionError, OSError):
                self.stop()
                raise

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command inside, as root."""
        process = self.start(*command)
        try:
            stdout, stderr = process.communicate(timeout=COMMAND_S)
        finally:
            process.kill()
        assert not check or process.returncode == 0, f"{command}: {process.returncode} {stdout}{stderr}"
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """The same without waiting for it."""
        inside = ["nsenter", f"--target={self._first}", "--all", "--", "env", "-i", "PATH=/usr/sbin:/usr/bin"]
        pipe = subprocess.PIPE
        return subprocess.Popen([*inside, *command], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit (systemctl(1))."""
        return self.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()

    def journal(self, unit: str) -> str:
        """The lines that systemd and the unit itself have logged."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout

    def owners(self, command: str) -> list[str]:
        """The user of each process that has `command` in its command line."""
        uids = []
        for folder in self.path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if command in (folder / "cmdline").read_text().replace("\0", " "):
                    uids.append(folder.stat().st_uid)
        users = [line.split(":") for line in self.path("/etc/passwd").read_text().splitlines()]
        names = {int(user[2]): user[0] for user in users}
        return [names[uid] for uid in uids]

    def path(self, inside: str) -> Path:
        """A file of it, as seen from here."""
        return Path("/proc", str(self._first), "root", inside.lstrip("/"))

    def inside(self, function: Callable[[], T]) -> T:
        """Call a function in its network."""
        return netns.inside(Path(f"/proc/{self._first}/ns/net"), function)

    def stop(self) -> None:
        """Kill it at once: nothing in it needs an orderly end. It ends with its first process (pid_namespaces(7))."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        for group in self._groups:
            eventually(lambda group=group: remove(group), f"{group} is empty")  # type: ignore[misc]
        # systemd-nspawn does not dare to remove it where /run is on a disk.
        with contextlib.suppress(FileNotFoundError):
            (PROPAGATED / self._name).rmdir()
        # Shown by pytest only if the test fails.
        print(f"--- its console\n{self._console.read_text(errors='replace')}")


def remove(group: Path) -> bool:
    """A control group with all below it; False as long as there is a process in one."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(FileNotFoundError):
            try:
                os.rmdir(folder)
            except OSError:
                return False
    return True


@contextlib.contextmanager
def booted(home: Path, binds: dict[Path, str]) -> Iterator[Guest]:
    guest = Guest(home, binds)
    try:
        yield guest
    finally:
        guest.stop()
