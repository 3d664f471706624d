"""The settings of a unit, as systemd shows them."""

import re
import subprocess
from collections.abc import Sequence

PATIENCE_S = 2.0

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def unit(cgroup: str) -> str | None:
    """The system's unit that a process belongs to, by its /proc/PID/cgroup; None of a user's own."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        names = path.split("/")
        if controllers in ("", "name=systemd") and names[-1].endswith(".service"):
            return None if any(name.startswith("user@") for name in names) else names[-1]
    return None


def stop_timeout_s(unit: str, program: Sequence[str] = ("systemctl",)) -> float | None:
    """The time that systemd waits at a stop before it kills. None if it waits for ever, or does not answer."""
    command = [*program, "show", "--property=TimeoutStopUSec", "--value", "--", unit]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return seconds(done.stdout.strip()) if done.returncode == 0 else None


def seconds(text: str) -> float | None:
    """A time as systemd shows it: `1min 30s`, `500ms`, `infinity`."""
    found = re.findall(r"(\d+(?:\.\d+)?)(us|ms|s|min|h|d|w)(?:\s|$)", text)
    if not found or "".join(number + name for number, name in found) != re.sub(r"\s", "", text):
        return None
    return sum(float(number) * _UNITS_S[name] for number, name in found)
