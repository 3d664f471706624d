"""The lines a server writes to one of its pipes, as they come."""

import re
import threading
import time
from typing import IO

from support.patience import PATIENCE_S


class Log:
    """Collects lines in a thread, so that a test can wait for the one that means "ready"."""

    def __init__(self, pipe: IO[bytes], begin: bool = True) -> None:
        self._lines: list[str] = []
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
        for line in self._pipe:
            with self._changed:
                self._lines.append(line.decode("utf-8", "backslashreplace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def lines(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def text(self) -> str:
        return "\n".join(self.lines())

    def mark(self) -> int:
        """A position to search from, so that a test does not find what an earlier step logged."""
        with self._changed:
            return len(self._lines)

    def matches(self, pattern: str, since: int = 0) -> list[re.Match[str]]:
        return [found for line in self.lines()[since:] if (found := re.search(pattern, line))]

    def wait(self, pattern: str, since: int = 0, within_s: float = PATIENCE_S) -> re.Match[str]:
        """The first line that matches; an AssertionError if the pipe ends or the time is over before."""
        return self.wait_for(pattern, 1, since, within_s)[0]

    def wait_for(self, pattern: str, count: int, since: int = 0, within_s: float = PATIENCE_S) -> list[re.Match[str]]:
        """At least `count` lines that match."""
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

    def wait_end(self, within_s: float = PATIENCE_S) -> None:
        """Until every process that could write here is gone."""
        self._reader.join(within_s)
        assert not self._reader.is_alive(), f"somebody still holds the pipe after {within_s:.0f} s"

    def close(self) -> None:
        self._reader.join(PATIENCE_S)
        self._pipe.close()
