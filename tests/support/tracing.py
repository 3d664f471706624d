"""Has another process do what no bug of it does yet: ptrace(2) stops it, and its next instruction is replaced."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ATTACH, DETACH, GETREGS = 16, 17, 12
"""Numbers from sys/ptrace.h."""
WALL = 0x40000000
"""`__WALL` of waitpid(2): also a thread that is not the first of its process."""
RIP = 16
"""Where that is in `struct user_regs_struct` (sys/user.h), counted in words."""

SPIN = b"\xeb\xfe"
"""jmp to itself."""
# xor edi, edi; xor esi, esi; xor edx, edx; xor r10d, r10d; mov eax, 271 (ppoll); syscall; jmp to the start
BLOCK = b"\x31\xff\x31\xf6\x31\xd2\x45\x31\xd2\xb8\x0f\x01\x00\x00\x0f\x05\xeb\xee"
"""A wait for nothing that has no end."""

HERE = platform.machine() == "x86_64" and os.geteuid() == 0

_libc = ctypes.CDLL(None, use_errno=True)


def ptrace(what: int, thread: int, data: object = None) -> None:
    if _libc.ptrace(ctypes.c_long(what), ctypes.c_long(thread), None, data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def go_on_with(pid: int, code: bytes) -> None:
    """Has the main thread of a process run `code` from now on."""
    with traced(pid):
        registers = (ctypes.c_ulong * 27)()
        ptrace(GETREGS, pid, ctypes.byref(registers))
        with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(registers[RIP])
            memory.write(code)


@contextmanager
def traced(pid: int) -> Iterator[None]:
    """A debugger has stopped the main thread of a process, as long as the `with` lasts."""
    ptrace(ATTACH, pid)
    os.waitpid(pid, WALL)
    try:
        yield
    finally:
        ptrace(DETACH, pid)
