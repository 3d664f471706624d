"""Processes, their limits and their cgroups, as /proc and /sys/fs/cgroup show them to this user.

Everything here may vanish or be forbidden between two lines: what cannot be read is not known.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stanchion.doctor.facts import Cgroup, Owner, Pressure

RESOURCES = ("cpu", "io", "memory")


def read(path: Path) -> str | None:
    """A whole file, or None if it is not there or not for us."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The number in a file; None for `max`, which is no limit."""
    text = (read(path) or "").strip()
    return int(text) if text.isdigit() else None


def link(path: Path) -> str:
    """Where a link of /proc leads; nowhere if it is gone meanwhile."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def pids(proc: Path) -> Iterator[int]:
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


class Owners:
    """Which process has which socket open, as far as we may know."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self.unseen: set[int] = set()
        """Processes whose descriptors are not for us."""
        self._by_inode: dict[int, list[int]] = {}
        self._known: dict[int, Owner | None] = {}
        for pid in sorted(pids(proc)):
            self._collect(pid)

    def _collect(self, pid: int) -> None:
        try:
            targets = [link(entry) for entry in (self._proc / str(pid) / "fd").iterdir()]
        except PermissionError:
            # To list them and to read them are two rights (proc_pid_fd(5)). Kernel threads and zombies, which have no
            # command line, have none open.
            if read(self._proc / str(pid) / "cmdline"):
                self.unseen.add(pid)
            return
        except (FileNotFoundError, ProcessLookupError):
            return
        for target in set(targets):
            if target.startswith("socket:["):
                self._by_inode.setdefault(int(target[8:-1]), []).append(pid)

    def of(self, inode: int) -> tuple[Owner, ...]:
        """Parents before their children: workers may have lower pids than their master, since the kernel counts to
        pid_max and begins again (proc_sys_kernel(5))."""
        holders = set(self._by_inode.get(inode, ()))
        in_order = sorted(holders, key=lambda pid: (self._depth(pid, holders), pid))
        found = (self._owner(pid) for pid in in_order)
        return tuple(owner for owner in found if owner is not None)

    def _depth(self, pid: int, holders: set[int]) -> int:
        """How many holders are above it in the tree of processes."""
        depth, above = 0, _parent(self._proc, pid)
        while above in holders and depth < len(holders):
            depth, above = depth + 1, _parent(self._proc, above)
        return depth

    def _owner(self, pid: int) -> Owner | None:
        if pid not in self._known:
            self._known[pid] = owner(self._proc, pid)
        return self._known[pid]


def _parent(proc: Path, pid: int | None) -> int | None:
    fields = _stat(proc, pid)
    return int(fields[1]) if fields else None


def state(proc: Path, pid: int) -> str:
    """The letter of the process's state; empty if the process is gone."""
    return next(iter(_stat(proc, pid)), "")


def _stat(proc: Path, pid: int | None) -> list[str]:
    """The fields of /proc/PID/stat from the third on; the second, a name, may hold anything (proc_pid_stat(5))."""
    _, _, fields = (read(proc / str(pid) / "stat") or "").rpartition(") ")
    return fields.split()


def owner(proc: Path, pid: int) -> Owner | None:
    home = proc / str(pid)
    name = read(home / "comm")
    if name is None:
        return None
    command = (read(home / "cmdline") or "").replace("\0", " ").strip()
    try:
        fds = sum(1 for _ in (home / "fd").iterdir())
    except OSError:
        fds = None
    return Owner(pid, name.strip(), command, fds, _nofile(read(home / "limits") or ""), read(home / "cgroup"))


def worker_fds_max(proc: Path, master: int) -> int | None:
    """The files that a worker of a stanchion may have open, by the limit of the first worker found."""
    for task in proc.glob(f"{master}/task/*/children"):
        for child in (read(task) or "").split():
            if (read(proc / child / "cmdline") or "").startswith("stanchion: worker"):
                return _nofile(read(proc / child / "limits") or "")
    return None


def _nofile(limits: str) -> int | None:
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            soft = line.removeprefix("Max open files").split()[0]
            return int(soft) if soft.isdigit() else None
    return None


def cgroups(root: Path, memberships: Iterable[str]) -> list[Cgroup]:
    """Each cgroup that limits something or has cost something, once."""
    found = {}
    for membership in memberships:
        for cgroup in _of_membership(root, membership):
            found[cgroup.path] = cgroup
    return [found[path] for path in sorted(found)]


def _of_membership(root: Path, membership: str) -> Iterator[Cgroup]:
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if not controllers:
            for base in (root, root / "unified"):
                # The root of all has no type (cgroup-v2 of the kernel), no limits, and the pressure of the whole host;
                # the root that a container sees is its own.
                if (base / "cgroup.controllers").exists() and (base / below / "cgroup.type").exists():
                    yield _unified(base / below)
        elif {"memory", "pids", "cpu"} & set(controllers.split(",")):
            home = root / controllers / below
            if home.is_dir():
                yield _legacy(home)


def _unified(home: Path) -> Cgroup:
    return Cgroup(
        str(home),
        number(home / "memory.max"),
        number(home / "memory.current"),
        _keyed(home / "memory.events", "oom_kill"),
        number(home / "pids.max"),
        number(home / "pids.current"),
        _keyed(home / "pids.events", "max"),
        _keyed(home / "cpu.stat", "nr_periods"),
        _keyed(home / "cpu.stat", "nr_throttled"),
        {name: found for name in RESOURCES if (found := pressure(home / f"{name}.pressure"))},
    )


# "No limit" of the memory controller of cgroup v1 is a page less than 2^63.
_NO_LIMIT_BYTES = 1 << 60


def _legacy(home: Path) -> Cgroup:
    limit = number(home / "memory.limit_in_bytes")
    return Cgroup(
        str(home),
        None if limit is None or limit > _NO_LIMIT_BYTES else limit,
        number(home / "memory.usage_in_bytes"),
        _keyed(home / "memory.oom_control", "oom_kill"),
        number(home / "pids.max"),
        number(home / "pids.current"),
        _keyed(home / "pids.events", "max"),
        _keyed(home / "cpu.stat", "nr_periods"),
        _keyed(home / "cpu.stat", "nr_throttled"),
    )


def _keyed(path: Path, key: str) -> int | None:
    for line in (read(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return None


def pressure(path: Path) -> Pressure | None:
    """`some avg10=0.00 avg60=… total=…` and the same with `full` (the kernel's accounting/psi.rst)."""
    averages = {}
    for line in (read(path) or "").splitlines():
        kind, average, *_ = line.split()
        averages[kind] = float(average.removeprefix("avg10="))
    return Pressure(averages["some"], averages.get("full", 0.0)) if "some" in averages else None
