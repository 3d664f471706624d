"""Run as a program: has the kernel treat the process that borrows a template's memory as told, then becomes the rest
of the arguments. `refuse` answers its clone(2) with EPERM, `kill` ends whoever asks.
"""

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ACTIONS = {"refuse": 0x00050000 | 1, "kill": 0x80000000}
ALLOW = 0x7FFF0000
SYS_CLONE_X86_64 = 56
VM_AND_VFORK = 0x00000100 | 0x00004000
# linux/bpf_common.h
LOAD, AND, JUMP_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06


def program(action: int) -> bytes:
    """Of clone(2) with both flags; everything else passes (seccomp(2), struct seccomp_data)."""
    steps = (
        (LOAD, 0, 0, 0),
        (JUMP_EQUAL, 0, 4, SYS_CLONE_X86_64),
        (LOAD, 0, 0, 16),
        (AND, 0, 0, VM_AND_VFORK),
        (JUMP_EQUAL, 0, 1, VM_AND_VFORK),
        (RETURN, 0, 0, action),
        (RETURN, 0, 0, ALLOW),
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def main() -> None:
    code = program(ACTIONS[sys.argv[1]])
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: a count, and a pointer that is aligned.
    filters = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters)):
        if libc.prctl(*words, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {words[0]}")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
