"""The privileges of a process, as the kernel shows them (proc_pid_status(5))."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

NET_BIND_SERVICE = 1 << 10
"""Bits of capability sets (linux/capability.h)."""
DAC_OVERRIDE = 1 << 1
SETPCAP = 1 << 8


@dataclass(frozen=True)
class Privileges:
    uids: tuple[int, ...]
    no_new_privs: bool
    seccomp: int
    """2 is a filter."""
    filters: int
    inheritable: int
    permitted: int
    effective: int
    bounding: int
    ambient: int
    dumpable: bool
    """The files of one that is not belong to root (proc(5), `/proc/pid`)."""


def privileges(process: psutil.Process) -> Privileges:
    home = Path(f"/proc/{process.pid}")
    lines = (line.partition(":") for line in (home / "status").read_text().splitlines())
    status = {name: value.strip() for name, _, value in lines}
    uids = tuple(int(uid) for uid in status["Uid"].split())
    sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    return Privileges(
        uids,
        status["NoNewPrivs"] == "1",
        int(status["Seccomp"]),
        int(status["Seccomp_filters"]),
        sets["CapInh"],
        sets["CapPrm"],
        sets["CapEff"],
        sets["CapBnd"],
        sets["CapAmb"],
        os.stat(home / "environ").st_uid == uids[1] or uids[1] == 0,
    )


def by_role(found: list[psutil.Process]) -> dict[str, Privileges]:
    """The privileges of one process of each role, under the name that `ps -o comm` shows; without those gone by now."""
    roles = {}
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            roles[process.name()] = privileges(process)
    return roles


def mine() -> Privileges:
    return privileges(psutil.Process())
