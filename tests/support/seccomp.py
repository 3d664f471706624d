"""A program that installs a filter of system calls, and then becomes the rest of its arguments. The kernel answers the
call of the given name with EPERM, whatever its arguments are.
"""

import ctypes
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
REFUSE = 0x00050000 | 1
ALLOW = 0x7FFF0000
# linux/bpf_common.h
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06

NUMBERS = {
    "accept4": 288,
    "bind": 49,
    "capget": 125,
    "capset": 126,
    "close_range": 436,
    "dup3": 292,
    "epoll_create1": 291,
    "epoll_ctl": 233,
    "epoll_pwait": 281,
    "epoll_pwait2": 441,
    "eventfd2": 290,
    "fallocate": 285,
    "ftruncate": 77,
    "getrandom": 318,
    "getsockname": 51,
    "kill": 62,
    "landlock_add_rule": 445,
    "landlock_create_ruleset": 444,
    "landlock_restrict_self": 446,
    "listen": 50,
    "madvise": 28,
    "memfd_create": 319,
    "mkdir": 83,
    "mkdirat": 258,
    "openat2": 437,
    "pidfd_open": 434,
    "pidfd_send_signal": 424,
    "pipe2": 293,
    "poll": 7,
    "ppoll": 271,
    "prctl": 157,
    "prlimit64": 302,
    "pwrite64": 18,
    "recvfrom": 45,
    "recvmsg": 47,
    "sched_setscheduler": 144,
    "seccomp": 317,
    "sendfile": 40,
    "sendmsg": 46,
    "sendto": 44,
    "setpriority": 141,
    "setsockopt": 54,
    "socket": 41,
    "socketpair": 53,
    "timer_create": 222,
    "timer_settime": 223,
    "unlinkat": 263,
    "waitid": 247,
    "wait4": 61,
}
"""The numbers on x86-64 (asm/unistd_64.h)."""


def unavailable() -> str:
    """Why no call can be refused by its name here, or ""."""
    return "" if platform.machine() == "x86_64" else "the numbers of system calls are those of x86-64"


def refusing(name: str) -> bytes:
    """The filter refuses one call, and everything else passes (seccomp(2), struct seccomp_data)."""
    steps = (LOAD, 0, 0, 0), (JUMP_EQUAL, 0, 1, NUMBERS[name]), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def main() -> None:
    code = refusing(sys.argv[1])
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
