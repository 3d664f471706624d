"""Python's logging in the scribe, a process of its own: it writes what the others have to log.

Nothing imports this where the settings do not ask for a scribe.
"""

import atexit
import json
import logging
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from stanchion import glogging, server_log
from stanchion.configuration import Configuration
from stanchion.facades import Answer, Request, add_field
from stanchion.server_log import MOMENT

_LEVELS = {10: "debug", 20: "info", 30: "warning", 40: "error", 50: "critical"}


class Scribe:
    """Gives what was logged elsewhere to the logger of the settings, as gunicorn would there."""

    def __init__(self, configuration: Configuration) -> None:
        """Set logging up; UsageError says what is wrong with the settings."""
        glogging.set_up(configuration)
        self._logger: Any = server_log.LOGGER
        logging.setLogRecordFactory(_as_logged(logging.getLogRecordFactory()))

    def error(self, pid: int, time_us: int, level: int, text: str) -> None:
        """A line for the error log."""
        with MOMENT.be(pid, time_us / 1e6):
            # Without arguments, so that nothing in it is taken for a format.
            getattr(self._logger, _LEVELS.get(level, "info"))(text)

    def access(self, line: str) -> bool:
        """A line for the access log: what the acceptor says of a request that is over. False if it makes no sense."""
        # Only these lines are in the `try`: an error of the operator's code below is no malformed line.
        try:
            said = json.loads(line)["access"]
            environ = _environ(said)
            sent = [(name.lower(), value) for name, value in said["answer"]]
            answer = Answer(said["status"], said["reason"], sent, said["bytes"])
            took = timedelta(microseconds=said["took_us"])
            pid, created = said["pid"], said["time_us"] / 1e6
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return False
        with MOMENT.be(pid, created):
            self._logger.access(answer, Request(environ), environ, took)
        return True

    def reopen(self) -> None:
        """Open the handlers' files again."""
        server_log.reopen_files()

    def finish(self) -> None:
        """Write what handlers hold back, as at the end of any program; `logging` itself has asked for that."""
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()


def _as_logged(factory: Any) -> Any:
    """A factory of records that have the process id and the time of the process that logged them."""

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made: logging.LogRecord = factory(*args, **kwargs)
        if MOMENT.created is not None and MOMENT.is_mine():
            made.relativeCreated += (MOMENT.created - made.created) * 1000
            made.created = MOMENT.created
            made.msecs = int(MOMENT.created * 1000) % 1000
            if MOMENT.pid:
                made.process = MOMENT.pid
        return made

    return record


def _environ(said: Mapping[str, Any]) -> dict[str, Any]:
    """The environ that the app has for such a request, and what only the acceptor knows."""
    environ = {
        "REQUEST_METHOD": said["method"],
        "RAW_URI": said["target"],
        "SCRIPT_NAME": "",
        "PATH_INFO": said["path"],
        "QUERY_STRING": said["query"],
        "SERVER_PROTOCOL": said["protocol"],
        "SERVER_NAME": said["server_name"],
        "SERVER_PORT": said["server_port"],
        "REMOTE_ADDR": said["remote_addr"],
        "wsgi.url_scheme": said["scheme"],
        "stanchion.atoms": said["atoms"],
    }
    if said["remote_port"]:
        environ["REMOTE_PORT"] = str(said["remote_port"])
    if "line" in said:
        environ["stanchion.json_line"] = said["line"]
    for name, value in said["fields"]:
        add_field(environ, name, value)
    return environ
