"""The lines a server writes to one of its pipes, as they come."""

import fcntl
import os
import re
import select
import sys
import termios
import threading
import time
from typing import IO

from support.patience import PATIENCE_S


class Log:
    """Collects lines in a thread, so that a test can wait for the one that means "ready"."""

    def __init__(self, pipe: IO[bytes], begin: bool = True) -> None:
        self._lines: list[str] = []
        self._unfinished = b""
        self._ended = False
        self._changed = threading.Condition()
        self._pipe = pipe
        self._reader = threading.Thread(target=self._collect, daemon=True)
        if begin:
            self.begin()

    def begin(self) -> None:
        """Begin to read, if it has not begun."""
        if not self._reader.ident:
            self._reader.start()

    def _collect(self) -> None:
        while not self._ended:
            select.select([self._pipe], [], [])
            with self._changed:
                self._take_in()

    def _take_in(self) -> None:
        """Take in what the pipe holds by now; the caller holds the lock."""
        if self._ended or not select.select([self._pipe], [], [], 0)[0]:
            return
        count = int.from_bytes(fcntl.ioctl(self._pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        # None are left, and yet there is something to read: the end.
        data = os.read(self._pipe.fileno(), max(count, 1))
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if not data:
            self._ended = True
            lines = [self._unfinished] if self._unfinished else []
        self._lines += [line.decode("utf-8", "backslashreplace") for line in lines]
        self._changed.notify_all()

    def lines(self) -> list[str]:
        """All that has been written, also if the thread has not come to it yet."""
        with self._changed:
            if self._reader.ident:
                self._take_in()
            return list(self._lines)

    def text(self) -> str:
        return "\n".join(self.lines())

    def entries(self) -> list[list[str]]:
        """The lines, those that begin with no time with the line that they follow: a traceback is one entry."""
        entries: list[list[str]] = []
        for line in self.lines():
            if entries and not re.match(r"\[\d{4}-", line):
                entries[-1].append(line)
            else:
                entries.append([line])
        return entries

    def mark(self) -> int:
        """A position to search from, so that a test does not find what an earlier step logged."""
        return len(self.lines())

    def matches(self, pattern: str, since: int = 0) -> list[re.Match[str]]:
        return [found for line in self.lines()[since:] if (found := re.search(pattern, line))]

    def wait(self, pattern: str, since: int = 0, within_s: float = PATIENCE_S) -> re.Match[str]:
        """The first line that matches; an AssertionError if the pipe ends or the time is over before."""
        return self.wait_for(pattern, 1, since, within_s)[0]

    def wait_for(self, pattern: str, count: int, since: int = 0, within_s: float = PATIENCE_S) -> list[re.Match[str]]:
        """Wait for at least `count` lines that match."""
        deadline = time.monotonic() + within_s
        while True:
            with self._changed:
                found = [match for line in self._lines[since:] if (match := re.search(pattern, line))]
                if len(found) >= count:
                    return found
                left_s = deadline - time.monotonic()
                if self._ended or left_s <= 0:
                    why = "the pipe ended" if self._ended else f"{within_s:.0f} s went by"
                    raise AssertionError(f"{why} with {len(found)} of {count} lines like {pattern!r}")
                self._changed.wait(left_s)

    def only(self, pattern: str, since: int = 0) -> re.Match[str]:
        """The line that matches, and no other by now. The acceptor's come from a thread, perhaps after its answers."""
        self.wait(pattern, since)
        [found] = self.matches(pattern, since)
        return found

    def wait_end(self, within_s: float = PATIENCE_S) -> None:
        """Wait until every process that could write here is gone."""
        self._reader.join(within_s)
        assert not self._reader.is_alive(), f"somebody still holds the pipe after {within_s:.0f} s"

    def close(self) -> None:
        self._reader.join(PATIENCE_S)
        self._pipe.close()
