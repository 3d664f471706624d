"""How much processor time each server took, and each of its workers, also of those that died."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from stanchion_lab.witness.sampler import Sampler
from stanchion_lab.workers import Member, members

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
EVERY_S = 0.1
"""CPU time that a process used after the last look before its end is not counted."""


class Cpu:
    """`trees`: name of a server -> its processes, now."""

    def __init__(self, trees: Mapping[str, Callable[[], list[int]]]) -> None:
        self._trees = {name: _Tree(pids) for name, pids in trees.items()}
        self._sampler = Sampler(self._look, EVERY_S)

    def start(self) -> None:
        self._sampler.start()

    def stop(self) -> tuple[dict[str, float], dict[str, float]]:
        """`cpu_s.NAME`, `cpu_s` of them all, and the CPU seconds of each worker, by its place from 0: oldest first, and
        with the name of the server, as NAME.0, where there are several."""
        self._sampler.stop()
        figures = {f"cpu_s.{name}": sum(tree.spent_s().values()) for name, tree in self._trees.items()}
        figures["cpu_s"] = sum(figures.values())
        prefixes = {name: f"{name}." if len(self._trees) > 1 else "" for name in self._trees}
        shares = {
            f"{prefixes[name]}{place}": spent_s
            for name, tree in self._trees.items()
            for place, spent_s in enumerate(tree.workers_s())
        }
        return figures, shares

    def _look(self) -> None:
        for tree in self._trees.values():
            tree.look()


class _Tree:
    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._first_s: dict[Identity, float] = {}
        self._last_s: dict[Identity, float] = {}
        self._parents: set[int] = set()
        self._helpers: dict[Identity, bool] = {}
        self._looks = 0

    def look(self) -> None:
        tree = members(self._pids())
        self._parents |= {one.parent for one in tree}
        for one in tree:
            spent_s = cpu_s(one.pid)
            if spent_s is not None:
                who = identity(one)
                # A process that was not there at the first look began at 0.
                self._first_s.setdefault(who, spent_s if self._looks == 0 else 0.0)
                self._last_s[who] = max(spent_s, self._last_s.get(who, 0.0))
                # By its name in the end: stanchion's workers are forked from a template.
                self._helpers[who] = one.helper
        self._looks += 1

    def spent_s(self) -> dict["Identity", float]:
        return {who: last_s - self._first_s[who] for who, last_s in self._last_s.items()}

    def workers_s(self) -> list[float]:
        spent_s = self.spent_s()
        workers = [who for who in spent_s if who[1] not in self._parents and not self._helpers[who]]
        return [spent_s[who] for who in sorted(workers)]


Identity = tuple[float, int]
"""When it began, and its pid, which may be used again."""


def identity(one: Member) -> Identity:
    return (one.began_s, one.pid)


def cpu_s(pid: int) -> float | None:
    """The scheduler's own count, in ns, of the threads that live (Documentation/scheduler/sched-stats.rst); where some
    have ended the coarser count of all, in ticks, is greater (proc(5), /proc/pid/stat, fields 14 and 15)."""
    try:
        threads = [task.joinpath("schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    alive_s = sum(int(line.split()[0]) for line in threads) / 1e9
    return max(alive_s, (int(fields[11]) + int(fields[12])) * TICK_S)
