"""The limit on a request of the warm-up, which the template answers in its main thread.

A signal raises in the code of the app, as SIGINT does. Code in C that does not come back to Python does not notice: a
moment later the process ends, with the stacks of its threads on standard error, as a start must not hang for ever.
"""

from __future__ import annotations

import faulthandler
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

# After its limit a request has so long to end.
END_S = 5.0

_AGAIN_S = 1.0
_STDERR = 2


class Overdue(BaseException):
    """The request has run for too long. Not an Exception, which apps catch and go on."""


class Timer:
    """Raises `Overdue` in the main thread once the time is over."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        # A library in C may have set a handler that Python does not know, and that must not get a signal of ours.
        self._handler_before = signal.getsignal(signal.SIGALRM) or signal.SIG_DFL

    def start(self) -> None:
        signal.signal(signal.SIGALRM, _raise)
        faulthandler.dump_traceback_later(self._limit_s + END_S, exit=True, file=_STDERR)
        # Again each second: Python drops what is raised in a destructor, and an app may drop it.
        signal.setitimer(signal.ITIMER_REAL, self._limit_s, _AGAIN_S)

    def stop(self) -> None:
        """The signal may have come just before: then this raises, once all is as it was."""
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            try:
                faulthandler.cancel_dump_traceback_later()
            finally:
                signal.signal(signal.SIGALRM, self._handler_before)


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Overdue
