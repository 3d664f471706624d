"""A server of a trial: started, ready, sent signals, ended; each within a bound."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

READY_S = 60.0
STOP_S = 5.0
END_S = 5.0
"""How long a server may take to end that is to be started again."""
POLL_S = 0.02
TAIL_LINES = 40


class NotServing(Exception):
    """A server that did not start, or does not answer."""


class NotSupported(Exception):
    """A server that ended with EX_UNAVAILABLE (sysexits.h): the machine has not what it needs. In its last words."""


class Process:
    """A server and whatever it started."""

    def __init__(self, name: str, argv: list[str], environment: Mapping[str, str], directory: Path) -> None:
        self.name = name
        self.argv = argv
        self.log = directory / f"{name}.log"
        with self.log.open("ab") as output:
            self.root = subprocess.Popen(
                argv,
                cwd=directory,
                # The trial's directory, so that temporary files are removed with it, however it ends.
                env={**os.environ, "TMPDIR": str(directory), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def pids(self) -> list[int]:
        """The living processes of the tree. In a cage, a process that lost its parent is ours, and not counted."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.root.pid)
            return [one.pid for one in [root, *root.children(recursive=True)] if one.is_running()]
        return []

    def wait_until(self, serves: Callable[[], bool]) -> None:
        """Until it does. NotServing, with the end of its log, if it ends before, or the bound passes."""
        deadline = time.monotonic() + READY_S
        while not serves():
            if self.root.poll() == os.EX_UNAVAILABLE:
                raise NotSupported(self.tail())
            if self.root.returncode is not None:
                raise NotServing(f"{self.name} ended with {self.root.returncode} before it served: {self.tail()}")
            if time.monotonic() > deadline:
                raise NotServing(f"{self.name} did not serve within {READY_S:.0f} s: {self.tail()}")
            time.sleep(POLL_S)  # Other people's servers have no readiness message that all of them share.

    def has_ended(self, within_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.root.wait(within_s)
        return self.root.returncode is not None

    def ask_to_end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.root.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """TERM to the root, and KILL to the processes of the tree that are left after STOP_S."""
        members = self.pids()
        self.ask_to_end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.root.wait(STOP_S)
        # No pid is used again so soon: the cage has all numbers for itself.
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.root.wait()

    def tail(self) -> str:
        return tail(self.log)


def tail(log: Path, without: re.Pattern[str] | None = None) -> str:
    """Its last lines, or that there are none; without those that match."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [line for line in lines if without is None or not without.search(line)]
    return "\n".join(told[-TAIL_LINES:]) or "(its log is empty)"
