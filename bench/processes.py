"""A process tree that was started here: ready, pinned, measured and ended, each within a bound."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

READY_S = 30.0
STOP_S = 5.0
POLL_S = 0.01
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class ServerError(Exception):
    """A server that did not start, or did not answer as it must."""


class Tree:
    """A process and all its descendants."""

    def __init__(self, root: subprocess.Popen[bytes], log: Path) -> None:
        self.root = root
        self.log = log

    def members(self) -> list[psutil.Process]:
        root = psutil.Process(self.root.pid)
        return [root, *root.children(recursive=True)]

    def cpu_ns(self) -> int:
        """User and system time of the tree so far, with that of the children that ended and were waited for."""
        return sum(map(process_cpu_ns, self.pids()))

    def pss_bytes(self) -> int:
        """Proportional set size: what is shared counts once, split among those who share it (proc(5), smaps_rollup)."""
        return sum(map(process_pss_bytes, self.pids()))

    def pids(self) -> list[int]:
        return [member.pid for member in self.members()]

    def command(self) -> str:
        assert isinstance(self.root.args, list)
        return shlex.join(self.root.args)

    def complaint(self, what: str) -> ServerError:
        tail = self.log.read_text(errors="replace").strip().splitlines()[-3:]
        return ServerError(f"{what}: {' / '.join(tail) or 'its log is empty'}")

    def stop(self) -> None:
        """TERM, and after STOP_S a KILL for whoever is left. Pids are safe: psutil compares their start times."""
        members = self.members() if self.root.poll() is None else []
        with contextlib.suppress(ProcessLookupError):
            self.root.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.root.wait(STOP_S)
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.root.wait(STOP_S)


def process_cpu_ns(pid: int) -> int:
    """The scheduler's own count of its threads, in ns; where some have ended, the coarser sum in ticks is greater.

    Neither counts too much, so the greater is the better: proc(5), /proc/pid/stat, fields 14 to 17; and
    Documentation/scheduler/sched-stats.rst for schedstat.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        threads = [task.joinpath("schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return 0  # It ended between the two looks; its parent has its time once it has waited for it.
    user, system, children_user, children_system = map(int, fields[11:15])
    alive_ns = sum(int(line.split()[0]) for line in threads)
    return max(alive_ns, (user + system) * TICK_NS) + (children_user + children_system) * TICK_NS


def process_pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(command: list[str], *, core: int | None, log: Path, ready: Callable[[], bool]) -> Iterator[Tree]:
    """Start a server on one core (or all), wait until `ready`, and end it and its children afterwards."""
    log.parent.mkdir(parents=True, exist_ok=True)
    pinned = [*(["taskset", "-c", str(core)] if core is not None else []), *command]
    environment = {**os.environ, "PYTHONPATH": "bench/apps"}
    with log.open("wb") as output:
        root = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    tree = Tree(root, log)
    try:
        deadline = time.monotonic() + READY_S
        while not ready():
            if root.poll() is not None:
                raise tree.complaint(f"ended with {root.returncode} before it was ready")
            if time.monotonic() > deadline:
                raise tree.complaint(f"not ready within {READY_S:.0f} s")
            time.sleep(POLL_S)  # Another's server has no readiness message that all of them share.
        yield tree
    finally:
        tree.stop()
