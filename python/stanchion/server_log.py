"""Loggers that write to the server's logs: that of hooks, and those which apps borrow under gunicorn's names.

Nothing imports this before somebody imports `logging`, so a process that does not log has neither in its memory.
"""

import logging
import os
import sys
from typing import Any

from stanchion import _stanchion
from stanchion.configuration import Configuration

ERROR_LOGS = ("gunicorn.error", "stanchion.error")
ACCESS_LOGS = ("gunicorn.access", "stanchion.access")


class _OfServer(logging.Handler):
    """One that a configuration of logging, or a class of gunicorn's, replaces, as it would gunicorn's own."""

    _gunicorn = True


class _ErrorLog(_OfServer):
    """Writes to the error log, as the server's own lines are written. As in gunicorn the logger's level decides."""

    def emit(self, record: logging.LogRecord) -> None:
        # As the handlers of `logging` do: a line that cannot be written is no reason to fail.
        try:
            text = self.format(record)
            if self.formatter is None:
                _stanchion.log(record.levelno, text)
            else:
                # Whoever gave it a format wants that and no other.
                _stanchion.log_as_it_is(f"{text}\n".encode(errors="backslashreplace"))
        except (KeyError, TypeError, ValueError):
            self.handleError(record)


class _AccessLog(_OfServer):
    """Adds lines to the access log's file, if there is one. The server's own lines are the acceptor's to write."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        self._configuration = configuration

    def emit(self, record: logging.LogRecord) -> None:
        path = self._configuration.effective.values["accesslog"]
        if path is None:
            return
        try:
            line = f"{self.format(record)}\n"
            if path == "-":
                sys.stdout.write(line)
                sys.stdout.flush()
                return
            # Opened for each line: it may have been renamed, and few apps write here.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(path, flags, 0o644)
            try:
                os.write(file, line.encode(errors="backslashreplace"))
            finally:
                os.close(file)
        except (KeyError, OSError, TypeError, ValueError):
            self.handleError(record)


# Of its own, so that nothing that the app does to its loggers touches the hooks'.
LOGGER: Any = logging.Logger("stanchion.hooks")
LOGGER.addHandler(_ErrorLog())


def lend(configuration: Configuration) -> None:
    """Give the loggers that apps know from gunicorn a level and a handler, as gunicorn does."""
    level = configuration.effective.values["loglevel"].upper()
    LOGGER.setLevel(level)
    for name in ERROR_LOGS:
        _set_up(name, level, _ErrorLog())
    for name in ACCESS_LOGS:
        _set_up(name, "INFO", _AccessLog(configuration))


def _set_up(name: str, level: str, handler: logging.Handler) -> None:
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.propagate = False
    logger.addHandler(handler)
