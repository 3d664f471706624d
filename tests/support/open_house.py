"""A mount namespace in which every user may read the interpreter, wherever it is installed."""

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

from support.server import APPS

NOBODY = 65_534
OTHERS = 65_533

CHECK = f"import os; os.setgid({OTHERS}); os.setuid({NOBODY}); import json, surroundings, stanchion"


def prefix() -> list[str]:
    """Words before a command, which keeps its pid (unshare(1) becomes it by exec).

    Of a directory that others may not enter, such as root's own, only what is needed stays in sight: bind mounts on a
    file system of its own, which goes with the last process of the namespace.
    """
    needed = [Path(sys.prefix), Path(sys.base_prefix), APPS.parent]
    hidden = sorted({found for path in needed if (found := first_closed(path.resolve()))})
    if not hidden:
        return []
    steps = ["set -e"]
    for number, closed in enumerate(hidden):
        held = [path.resolve() for path in needed if path.resolve().is_relative_to(closed)]
        # Descriptors keep in reach what is about to be covered.
        steps += [f"exec {index + 3}<{shlex.quote(str(path))}" for index, path in enumerate(held)]
        steps.append(f"mount -t tmpfs -o mode=755 stanchion-{number} {shlex.quote(str(closed))}")
        for index, path in enumerate(held):
            steps.append(f"mkdir -p {shlex.quote(str(path))}")
            steps.append(f"mount -c --bind /proc/self/fd/{index + 3} {shlex.quote(str(path))}")
        steps += [f"exec {index + 3}<&-" for index in range(len(held))]
    return ["unshare", "--mount", "sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh"]


def first_closed(path: Path) -> Path | None:
    """The uppermost directory on the way that others may not enter."""
    for directory in [*reversed(path.parents), path]:
        if not directory.stat().st_mode & stat.S_IXOTH:
            return directory
    return None


def unavailable() -> str:
    """Why the user `nobody` could not run a server here, or "" if it could."""
    if os.geteuid() != 0:
        return "only root can become somebody else"
    command = [*prefix(), sys.executable, "-c", CHECK]
    try:
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(APPS)}, capture_output=True, text=True)
    except OSError as error:
        return f"cannot make a mount namespace: {error}"
    return f"nobody cannot read the interpreter: {done.stderr.strip()[-200:]}" if done.returncode else ""
