"""Namespaces that unshare(1) makes for one command."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# In a mount namespace that ends with the command. An ordinary user may do it in a user namespace of its own
# (user_namespaces(7)).
_MOUNTS = ("unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]))


def with_disk(place: str, size: str = "") -> list[str]:
    """Words before a command: at this place, which the shell expands, it finds an empty file system in memory."""
    options = f"-o size={size}" if size else ""
    return [*_MOUNTS, "sh", "-ec", f'mount -t tmpfs {options} none {place}; exec "$@"', "sh"]


def with_file(file: Path, place: str) -> list[str]:
    """Words before a command: it finds this file at that place."""
    return [*_MOUNTS, "sh", "-ec", f'mount --bind {file} {place}; exec "$@"', "sh"]


def unavailable(command: Sequence[str]) -> str:
    """Why such words before a command do not work here, or "" if they do."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is not installed"
    done = subprocess.run([*command, "true"], capture_output=True, text=True)
    return f"cannot make a namespace: {done.stderr.strip()}" if done.returncode else ""
