"""The controlling terminal, taken over for a screen and given back as it was."""

import contextlib
import os
import select
import termios
import time
from collections.abc import Sequence
from types import TracebackType

from stanchion.top.source import Failed
from stanchion.top.words import encodable

# The alternate screen, without cursor, and without going on in the next line after the last column (xterm's ctlseqs).
_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

# To show all of a frame at once, by those who know it; the others ignore it.
_BEGIN, _END = b"\x1b[?2026h", b"\x1b[?2026l"

# Seconds to get the last bytes out to a terminal that takes none.
_LAST_WORDS_S = 0.5

_READ_BYTES = 4096


class Closed(Exception):
    """The terminal has hung up."""


class Terminal:
    """A screen of lines. Nothing here blocks: a terminal that takes no output misses frames."""

    def __init__(self, encoding: str) -> None:
        """Failed if the process has no terminal."""
        try:
            # A description of our own: O_NONBLOCK must not come over the shell, which shares the one of our stdout.
            self.fd = os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise Failed("there is no terminal here; --once and --json need none") from error
        self._encoding = encoding
        self._found = termios.tcgetattr(self.fd)
        self._pending = b""
        self._shown: list[str] = []

    def __enter__(self) -> "Terminal":
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.leave()
        finally:
            os.close(self.fd)

    def enter(self) -> None:
        """Keys come one by one, unechoed and without signals (termios(3)). Closed if it hung up."""
        try:
            ours = termios.tcgetattr(self.fd)
            ours[0] &= ~(termios.IXON | termios.ICRNL)
            ours[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
            termios.tcsetattr(self.fd, termios.TCSANOW, ours)
        except termios.error as error:
            raise Closed from error
        self._pending += _ENTER
        self.forget()

    def leave(self) -> None:
        """Give the terminal back as it was found. If it has hung up, there is no screen to give back."""
        with contextlib.suppress(OSError, termios.error):
            self._last(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.fd, termios.TCSANOW, self._found)

    def size(self) -> tuple[int, int]:
        """Columns and lines; a terminal that does not know has 80 and 24. Closed if it hung up."""
        try:
            found = os.get_terminal_size(self.fd)
        except OSError as error:
            raise Closed from error
        return found.columns or 80, found.lines or 24

    def forget(self) -> None:
        """Draw everything the next time, not only changed lines."""
        self._shown = []

    @property
    def behind(self) -> bool:
        """Whether output waits for the terminal."""
        return bool(self._pending)

    def draw(self, lines: Sequence[str]) -> None:
        """Lines as wide as the screen, with their colours; only those that changed are sent."""
        if self._pending and self._shown:
            return
        parts = [] if self._shown else ["\x1b[0m\x1b[2J"]
        for row, line in enumerate(lines):
            if row >= len(self._shown) or self._shown[row] != line:
                parts.append(f"\x1b[{row + 1};1H{line}")
        self._shown = list(lines)
        if parts:
            self._pending += _BEGIN + encodable("".join(parts), self._encoding) + _END
        self.send()

    def send(self) -> None:
        """As much of the output as the terminal takes. Closed if it hung up."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self.fd, self._pending) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise Closed from error

    def typed(self) -> str:
        """The keys typed since the last call. Closed if the terminal hung up."""
        try:
            read = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return ""
        except OSError as error:
            raise Closed from error
        if not read:
            raise Closed
        return read.decode(errors="replace")

    def _last(self, words: bytes) -> None:
        """Send the waiting output, then these words. If the terminal is too slow, drop it and send only these."""
        waiting, self._pending = self._pending, b""
        if not self._sent(waiting + words):
            termios.tcflush(self.fd, termios.TCOFLUSH)
            self._sent(words)

    def _sent(self, words: bytes) -> bool:
        deadline = time.monotonic() + _LAST_WORDS_S
        while words and select.select([], [self.fd], [], max(0.0, deadline - time.monotonic()))[1]:
            with contextlib.suppress(BlockingIOError):
                words = words[os.write(self.fd, words) :]
        return not words
