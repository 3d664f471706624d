"""A rendezvous between a test and the app it serves: requests announce themselves, and the test lets them go on.

Two FIFOs carry it, because they need no port and end with the test's directory. The other half is apps/rendezvous.py.
"""

import fcntl
import os
import select
import termios
import time
from array import array
from pathlib import Path

from support.patience import PATIENCE_S


class Gate:
    """Apps announce lines and wait for passes; the test reads the lines and hands out the passes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        for name in ("announcements", "passes"):
            os.mkfifo(directory / name)
        # Opened for both directions, so that neither side's open ever blocks or sees an end (fifo(7)).
        self._announcements = os.open(directory / "announcements", os.O_RDWR | os.O_NONBLOCK)
        self._passes = os.open(directory / "passes", os.O_RDWR | os.O_NONBLOCK)
        self._unread = b""

    @property
    def environment(self) -> dict[str, str]:
        return {"GATE": str(self._directory)}

    def announcements(self, count: int, within_s: float = PATIENCE_S) -> list[str]:
        """The next `count` lines."""
        deadline = time.monotonic() + within_s
        while (complete := self._unread.count(b"\n")) < count:
            ready, _, _ = select.select([self._announcements], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{complete} of {count} announcements within {within_s:.0f} s: {self._unread!r}")
            self._unread += os.read(self._announcements, 65536)
        *lines, self._unread = self._unread.split(b"\n", count)
        return [line.decode() for line in lines]

    def announcement(self, within_s: float = PATIENCE_S) -> str:
        return self.announcements(1, within_s)[0]

    def announced(self) -> list[str]:
        """All lines that have come by now."""
        while select.select([self._announcements], [], [], 0)[0]:
            self._unread += os.read(self._announcements, 65536)
        *lines, self._unread = self._unread.split(b"\n")
        return [line.decode() for line in lines]

    def let_pass(self, count: int) -> None:
        os.write(self._passes, b"." * count)

    def is_passed(self) -> bool:
        """Whether every pass that was handed out has been taken: a later comer could have it else."""
        waiting = array("i", [0])
        fcntl.ioctl(self._passes, termios.FIONREAD, waiting)
        return waiting[0] == 0

    def open(self) -> None:
        """Let everyone pass, from now on."""
        self.let_pass(60_000)

    def close(self) -> None:
        os.close(self._announcements)
        os.close(self._passes)
