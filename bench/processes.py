"""A process tree that was started here: ready, pinned, measured and ended, each within a bound."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

READY_S = 30.0
STOP_S = 5.0
POLL_S = 0.01
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class ServerError(Exception):
    """A server that did not start, or did not answer as it must."""


@dataclass(frozen=True)
class Cpu:
    """CPU time of processes: all of it as the scheduler counts it, and how it divides by the ticks of the clock."""

    all_ns: int = 0
    user_ns: int = 0
    kernel_ns: int = 0

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.all_ns + other.all_ns, self.user_ns + other.user_ns, self.kernel_ns + other.kernel_ns)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.all_ns - other.all_ns, self.user_ns - other.user_ns, self.kernel_ns - other.kernel_ns)

    def parts_us(self, requests: float) -> tuple[float, float]:
        """User's and kernel's part of what a request costs. Where there was no tick, all is the user's."""
        ticked_ns = self.user_ns + self.kernel_ns
        kernel_share = self.kernel_ns / ticked_ns if ticked_ns else 0.0
        each_us = self.all_ns / 1e3 / requests
        return each_us * (1 - kernel_share), each_us * kernel_share


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

    def cpu(self) -> dict[str, Cpu]:
        """The same by what the processes are called."""
        found: defaultdict[str, Cpu] = defaultdict(Cpu)
        for pid in self.pids():
            name, cpu = process_cpu(pid)
            found[name] += cpu
        return dict(found)

    def pss_bytes(self) -> int:
        """Proportional set size: what is shared counts once, split among those who share it (proc(5), smaps_rollup)."""
        return sum(process_pss_bytes(pid) for pid in self.pids())

    def anonymous_bytes(self) -> int:
        """The part of it that is no file's: heaps and stacks, not programs and libraries (proc(5), Pss_Anon)."""
        return sum(process_pss_bytes(pid, "Pss_Anon") for pid in self.pids())

    def pids(self) -> list[int]:
        return [member.pid for member in self.members()]

    def command(self) -> str:
        assert isinstance(self.root.args, list)
        return shlex.join(self.root.args)

    def complaint(self, what: str) -> ServerError:
        tail = self.log.read_text(errors="replace").strip().splitlines()[-3:]
        return ServerError(f"{what}: {' / '.join(tail) or 'its log is empty'}")

    def stop(self) -> None:
        """TERM, and after STOP_S a KILL for those that are left. Pids are safe: psutil compares their start times."""
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
    return process_cpu(pid)[1].all_ns


def process_cpu(pid: int) -> tuple[str, Cpu]:
    """The name of a process, and the scheduler's own count of its threads, in ns; if some threads have ended, the
    coarser sum in ticks is greater.

    Neither counts too much, so the greater is the better: proc(5), /proc/pid/stat, fields 14 to 17; and
    Documentation/scheduler/sched-stats.rst for schedstat.
    """
    try:
        head, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        threads = [task.joinpath("schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return "", Cpu()  # It ended between the two looks; its parent has its time once it has waited for it.
    user, kernel, children_user, children_kernel = (int(ticks) * TICK_NS for ticks in rest.split()[11:15])
    alive_ns = sum(int(line.split()[0]) for line in threads)
    all_ns = max(alive_ns, user + kernel) + children_user + children_kernel
    return head.partition("(")[2], Cpu(all_ns, user + children_user, kernel + children_kernel)


def process_pss_bytes(pid: int, field: str = "Pss") -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


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
    # The same hashes in all, or some have luckier dicts than others.
    environment = {**os.environ, "PYTHONPATH": "bench/apps", "PYTHONHASHSEED": "0"}
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
