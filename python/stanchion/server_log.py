"""Loggers that write to the server's logs: the hooks' logger, and the loggers that apps borrow under gunicorn's names.

The server imports this only after some other code has imported `logging`: a process that does not log has neither in
its memory.

Both logs are written in Rust. If anything imports Python's `logging`, a loader that `standard.py` puts behind that
import gives the loggers which apps borrow a handler for the error log, from here.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from stanchion import _stanchion
from stanchion.configuration import Configuration

ERROR_LOGS = ("gunicorn.error", "stanchion.error")
ACCESS_LOGS = ("gunicorn.access", "stanchion.access")

_TELL_EVERY_S = 10.0
"""How often it is said that the access log does not take lines."""


class _Moment:
    """In the scribe: which process has logged what is being written, and when. In any other process: nothing."""

    pid: int | None = None
    """None if it was no process, as for a request that no worker had."""
    created: float | None = None
    """Seconds since the epoch; None at all other moments."""
    _thread: int | None = None

    @contextlib.contextmanager
    def be(self, pid: int, created: float) -> Iterator[None]:
        """Give this thread's log lines meanwhile another process's pid, and the time at which it logged them."""
        self.pid, self.created, self._thread = pid or None, created, threading.get_ident()
        try:
            yield
        finally:
            self.pid = self.created = self._thread = None

    def is_mine(self) -> bool:
        """Whether the calling thread has set the moment."""
        return self._thread == threading.get_ident()


MOMENT = _Moment()


class _OfServer(logging.Handler):
    """A handler that a configuration of logging, or a class of gunicorn's, replaces, as it would gunicorn's own."""

    _gunicorn = True


class _ErrorLog(_OfServer):
    """Writes to the error log, as the server's own lines are written. As in gunicorn the logger's level decides."""

    def emit(self, record: logging.LogRecord) -> None:
        # As the handlers of `logging` do: a line that cannot be written is no reason to fail.
        try:
            text = self.format(record)
            if self.formatter is None and MOMENT.created is not None:
                _stanchion.log_for(record.process or 0, int(record.created * 1e6), record.levelno, text)
            elif self.formatter is None:
                _stanchion.log(record.levelno, text)
            else:
                # The operator has given it a format: write only that.
                _stanchion.log_as_it_is(f"{text}\n".encode(errors="backslashreplace"))
        except (KeyError, TypeError, ValueError):
            self.handleError(record)


class _AccessLog(_OfServer):
    """Adds lines to the access log's file, if there is one. The server's own lines are the acceptor's to write."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        self._configuration = configuration
        self._lost = 0
        self._tell_at = 0.0

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
        except OSError as error:
            self._lose(path, error)
        except (KeyError, TypeError, ValueError):
            self.handleError(record)

    def _lose(self, path: str, error: OSError) -> None:
        """Count a line that the file did not take, and say so now and then: one request comes after another."""
        self._lost += 1
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + _TELL_EVERY_S
            lost, self._lost = self._lost, 0
            why = error.strerror or error
            text = f"the access log does not take its lines, they are lost: {path}: {why} lines={lost}"
            _stanchion.log(logging.ERROR, text)


# Not in Python's tree of loggers, so that nothing that the app does to its loggers touches the hooks'.
LOGGER: Any = logging.Logger("stanchion.hooks")
LOGGER.addHandler(_ErrorLog())


def reopen_files() -> None:
    """Open the files of all handlers again, in the way of the operator's class if there is one."""
    reopen = getattr(LOGGER, "reopen_files", reopen_each_file)
    reopen()


def reopen_each_file() -> None:
    """The same, for a logger whose class has no way of its own."""
    for handler in _file_handlers():
        with handler.lock or contextlib.nullcontext():
            if handler.stream is not None:
                try:
                    handler.flush()
                    opened = handler._open()
                    handler.close()
                    handler.stream = opened
                except (OSError, ValueError) as error:
                    text = f"a log handler cannot open its file again: {handler.baseFilename}: {error}"
                    _stanchion.log(logging.ERROR, text)


def _file_handlers() -> Iterator[logging.FileHandler]:
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    seen = set()
    for logger in (logging.root, *loggers):
        for handler in logger.handlers:
            # One handler may have several loggers.
            if isinstance(handler, logging.FileHandler) and handler not in seen:
                seen.add(handler)
                yield handler


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
