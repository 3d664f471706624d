"""One thread of another process that is held still while the others go on (ptrace(2))."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path

from support import missing
from support.patience import PATIENCE_S

PTRACE_SEIZE = 0x4206
PTRACE_INTERRUPT = 0x4207
PTRACE_DETACH = 17
"""Numbers from linux/ptrace.h and sys/ptrace.h."""
WALL = 0x40000000
"""`__WALL` of waitpid(2): also a thread that is not the first of its process."""
CAP_SYS_PTRACE = 1 << 19


@contextlib.contextmanager
def held(thread: int) -> Iterator[None]:
    """Stop a thread, by the number that gettid(2) gives it, until the block is left."""
    _ptrace(PTRACE_SEIZE, thread)
    try:
        _ptrace(PTRACE_INTERRUPT, thread)
        deadline = time.monotonic() + PATIENCE_S
        while os.waitpid(thread, WALL | os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, f"thread {thread} does not stop"
            time.sleep(0.001)
        yield
    finally:
        _ptrace(PTRACE_DETACH, thread)


def _ptrace(request: int, thread: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_long(request), ctypes.c_long(thread), None, None)
    if libc.ptrace(*words) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request:#x} of thread {thread}")


def unavailable() -> str:
    """Why no thread of an acceptor could be held here, or "": its memory is hidden, so it takes a capability."""
    status = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    return "" if int(effective, 16) & CAP_SYS_PTRACE else missing.allowed("no CAP_SYS_PTRACE")
