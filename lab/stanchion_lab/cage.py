"""A trial runs as pid 1 of its own namespaces, so that every process it started ends with it, however it ends.

It has its own processes (pid_namespaces(7): when pid 1 ends, the kernel kills the rest), its own network with one
loopback device (network_namespaces(7)), and its own view of the directories where servers keep pid files and logs.
Without root the trial gets the same in a user namespace (user_namespaces(7)).
"""

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from stanchion_lab.scenario import Mistake

TRY_S = 10.0

# netdevice(7), with the numbers of linux/sockios.h and linux/if.h.
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
IFF_RUNNING = 0x40

# Where a server that is configured for the host would write, or find what is the host's.
PRIVATE = ("/run", "/var/log/nginx", "/var/lib/nginx")
# There the programs themselves are below /run.
PROGRAMS_IN_RUN = Path("/run/current-system")


def prefix() -> list[str]:
    """Words before a command that is to be pid 1 of a new cage. It is killed when `unshare` is."""
    namespaces = ["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    rootless = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rootless, *namespaces]


def unavailable() -> str:
    """Why no cage can be made here, or "" if one can: it is tried."""
    if shutil.which("unshare") is None:
        return "there is no unshare(1); Debian and Ubuntu have it in the package util-linux"
    made = subprocess.run([*prefix(), "true"], capture_output=True, text=True, timeout=TRY_S)
    if made.returncode == 0:
        return ""
    why = made.stderr.strip().removeprefix("unshare: ")
    if os.geteuid() == 0:
        return f"the kernel lets root make no namespaces here ({why}); in a container it wants --privileged"
    return (
        f"the kernel lets you make no user namespaces ({why}): run it as root, or see user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
    )


def furnish(outside: str, sysctl: Mapping[str, int]) -> dict[str, int]:
    """Inside: bring the loopback up, hide the host's directories, and set the kernel's settings; as they are read
    back. `outside` is the host's network namespace, by `network()`."""
    if network() == outside:
        raise Mistake("this is the host's own network: a trial changes kernel settings, and must not run here")
    _loopback_up()
    for path in PRIVATE:
        if Path(path).is_dir() and not (path == "/run" and PROGRAMS_IN_RUN.exists()):
            _tmpfs(path)
    return {name: _set(name, value) for name, value in sysctl.items()}


def network() -> str:
    """The identity of the network namespace we are in."""
    return os.readlink("/proc/self/ns/net")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING))


def _tmpfs(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", path.encode(), b"tmpfs", 0, b"mode=755") != 0:
        raise OSError(ctypes.get_errno(), f"mount a tmpfs at {path}")


def _set(name: str, value: int) -> int:
    path = Path("/proc/sys", *name.split("."))
    try:
        path.write_text(str(value))
        return int(path.read_text().split()[0])
    except OSError as error:
        raise Mistake(f"sysctl {name} = {value}: {error.strerror}") from error
