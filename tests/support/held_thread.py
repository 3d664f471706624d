"""One thread of another process that is held still while the others go on (ptrace(2))."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from support import missing
from support.patience import PATIENCE_S
from support.tracing import DETACH, WALL, ptrace

SEIZE, INTERRUPT = 0x4206, 0x4207
CAP_SYS_PTRACE = 1 << 19


@contextlib.contextmanager
def held(thread: int) -> Iterator[None]:
    """Stop a thread, by the number that gettid(2) gives it, until the block is left."""
    ptrace(SEIZE, thread)
    try:
        ptrace(INTERRUPT, thread)
        deadline = time.monotonic() + PATIENCE_S
        while os.waitpid(thread, WALL | os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, f"thread {thread} does not stop"
            time.sleep(0.001)
        yield
    finally:
        ptrace(DETACH, thread)


def unavailable() -> str:
    """Why no thread of an acceptor could be held here, or "": its memory is hidden, so it takes a capability."""
    status = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    return "" if int(effective, 16) & CAP_SYS_PTRACE else missing.allowed("no CAP_SYS_PTRACE")
