"""The system calls of processes that run already, one by one (strace(1))."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support import held_thread, missing
from support.log import Log
from support.patience import PATIENCE_S

STRACE = shutil.which("strace")

CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\w+)(?: (\w+))?.*")
"""A call that has returned: its name, its arguments, what it gave and, after -1, the name of the error."""
NO_CALL = re.compile(r"(\+\+\+|---) ")
"""A thread's end, and a signal."""


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str
    """The arguments, with the path, or the kind, of each descriptor behind its number."""
    result: str
    error: str = ""


def unavailable() -> str:
    """Why an acceptor's calls could not be seen here, or ""."""
    if not STRACE:
        return missing.allowed("NOT COUNTED: strace is not installed")
    return held_thread.unavailable()


@contextlib.contextmanager
def tracing(pids: list[int], directory: Path) -> Iterator[None]:
    """Write down what these processes ask of the kernel until the block is left, each thread in a file of its own."""
    assert STRACE
    processes = [word for pid in pids for word in ("-p", str(pid))]
    # Each descriptor with what it stands for.
    command = [STRACE, "-ff", "-y", "-o", str(directory / "calls"), *processes]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert tracer.stderr
    log = Log(tracer.stderr)
    try:
        for pid in pids:
            log.wait(rf"Process {pid} attached")
        yield
    finally:
        # It lets go of them and ends.
        tracer.terminate()
        try:
            tracer.wait(PATIENCE_S)
        finally:
            tracer.kill()
            tracer.wait()
            log.close()


def calls(directory: Path) -> dict[int, list[Call]]:
    """The calls of each thread that have returned, in their order."""
    found = {}
    for path in directory.glob("calls.*"):
        found[int(path.suffix[1:])] = [call for line in path.read_text().splitlines() for call in parsed(line)]
    assert found, "strace has written nothing"
    return found


def parsed(line: str) -> list[Call]:
    """The call of a line; none if it did not return while strace watched, or began before."""
    if NO_CALL.match(line) or line.endswith("<detached ...>") or "<... resuming interrupted" in line:
        return []
    match = CALL.fullmatch(line)
    assert match, f"strace says what is not understood: {line!r}"
    return [Call(match[1], match[2], match[3], match[4] or "")]
