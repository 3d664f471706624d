"""Control groups of a test's own, with a memory limit or a freezer. Only root can make one."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from support import missing
from support.patience import eventually

HIERARCHIES = Path("/sys/fs/cgroup")
JOIN = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'


def _place() -> tuple[Path, str] | None:
    """Where groups are made, and which file has the limit: by version 1, or 2.

    A host has the memory controller in one of them only (cgroups(7)), so it tests that one, though it may mount both.
    """
    if (HIERARCHIES / "memory/cgroup.procs").exists():
        return HIERARCHIES / "memory", "memory.limit_in_bytes"
    controllers = HIERARCHIES / "cgroup.subtree_control"
    if controllers.exists():
        # Only a group whose children are to have limits gives them the controller's files.
        with contextlib.suppress(OSError):
            controllers.write_text("+memory")
        if "memory" in controllers.read_text().split():
            return HIERARCHIES, "memory.max"
    return None


def why_not() -> str:
    place = _place()
    if place is None or not os.access(place[0], os.W_OK):
        return "no control group can be made here"
    return ""


NEEDS_CONTROL_GROUPS = pytest.mark.skipif(bool(missing.allowed(why_not())), reason=why_not())


class MemoryGroup:
    """A group that may have so much memory."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        place = _place()
        assert place
        parent, limit_file = place
        self.folder = parent / f"stanchion-test-{os.getpid()}-{name}"
        self.folder.mkdir()
        self._limit = self.folder / limit_file
        self.limit(limit_bytes)

    def limit(self, limit_bytes: int) -> None:
        self._limit.write_text(str(limit_bytes))

    def taken(self) -> int:
        """How many bytes its processes have, without pages of files that they have not read of late."""
        current, inactive = (
            ("memory.current", "inactive_file")
            if self._limit.name == "memory.max"
            else ("memory.usage_in_bytes", "total_inactive_file")
        )
        pairs = (line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return int((self.folder / current).read_text()) - int(dict(pairs)[inactive])

    @property
    def prefix(self) -> list[str]:
        """The words before a command that has it run in the group."""
        return ["sh", "-c", JOIN, "sh", str(self.folder)]

    def close(self) -> None:
        eventually(lambda: not (self.folder / "cgroup.procs").read_text(), "the control group is empty")
        self.folder.rmdir()


FREEZER = HIERARCHIES / "freezer"
"""The freezer of version 1."""
NEEDS_FREEZER = pytest.mark.skipif(
    not os.access(FREEZER / "cgroup.procs", os.W_OK), reason="NOT TESTED: no freezer of control groups can be had here"
)


@contextlib.contextmanager
def frozen(pids: Iterable[int]) -> Iterator[None]:
    """These processes stand as long as the `with` lasts."""
    group = FREEZER / f"stanchion-test-{os.getpid()}"
    group.mkdir()
    try:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        eventually(lambda: (group / "freezer.state").read_text().strip() == "FROZEN", "all of them stand")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (FREEZER / "cgroup.procs").write_text(pid)
        eventually(lambda: not (group / "cgroup.procs").read_text(), "the control group is empty")
        group.rmdir()
