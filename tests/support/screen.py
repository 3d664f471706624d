"""A program on a terminal of its own, as in front of a person."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import Any

from support.patience import PATIENCE_S, eventually

# Control sequences that place text: the cursor to a line, and any other sequence (ECMA-48 section 5.4).
_TO_LINE = re.compile(r"\x1b\[(\d+);1H")
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Screen:
    """A child with a pseudoterminal as its controlling one, and what it has written there."""

    def __init__(self, *command: str, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self._master, self.tty = pty.openpty()
        self.resize(columns, lines)
        self.found = termios.tcgetattr(self.tty)
        self.written = ""
        self.process = subprocess.Popen(
            command,
            stdin=self.tty,
            stdout=self.tty,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
            preexec_fn=self._control,
            start_new_session=True,
        )

    @staticmethod
    def _control() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def rows(self) -> list[str]:
        """The screen now: the latest text that was written to each line."""
        self._read(0)
        found: dict[int, str] = {}
        last = self.written.rpartition("\x1b[2J")[2]
        parts = _TO_LINE.split(last)
        for number, text in zip(parts[1::2], parts[2::2], strict=True):
            found[int(number)] = _SEQUENCE.sub("", text).rstrip()
        return [found.get(number, "") for number in range(1, max(found, default=0) + 1)]

    def wait(self, pattern: str) -> str:
        """The first row that matches, once there is one."""

        def look() -> str | None:
            self._read(0.01)
            return next((row for row in self.rows() if re.search(pattern, row)), None)

        try:
            found = eventually(look, f"the screen shows {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n" + "\n".join(self.rows())) from error
        assert found is not None
        return found

    def wait_written(self, text: str, since: int) -> None:
        """Wait until this has come to the terminal, whatever it means there."""
        eventually(lambda: self._read(0.01) or text in self.written[since:], f"{text!r} is written")

    def _read(self, within_s: float) -> None:
        while select.select([self._master], [], [], within_s)[0]:
            try:
                self.written += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                return  # The last one that had the terminal open is gone (pty(7)).

    def exit_code(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end; it shows:\n" + "\n".join(self.rows())
            self._read(0.01)
        self._read(0)
        return self.process.returncode

    def errors(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read().decode()

    def state(self) -> list[Any]:
        """The terminal's settings, as stty(1) shows them."""
        return termios.tcgetattr(self.tty)

    def hang_up(self) -> None:
        """Close our end, as when the window is closed or the connection is lost."""
        os.close(self.tty)
        os.close(self._master)
        self._master = self.tty = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        if self.process.stderr:
            self.process.stderr.close()
        if self._master >= 0:
            self.hang_up()
