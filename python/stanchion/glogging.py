"""Python's logging as the settings of gunicorn have it, in the processes that run the app and in the scribe.

`Logger` has the methods that classes derived from gunicorn's override. Nothing imports this unless one of `logconfig`,
`logconfig_dict`, `logconfig_json` and `logger_class` is set.

The scribe is a log process that exists only for these settings: the other processes send it their lines as JSON, and
`scribe.py` gives them to Python's loggers. A process without `logging` has none of this in its memory.
"""

import importlib
import json
import logging
import os
import time
from collections.abc import Mapping
from logging.config import dictConfig, fileConfig
from typing import TYPE_CHECKING, Any

from stanchion import server_log
from stanchion.configuration import Configuration
from stanchion.effective import Effective, UsageError, of_logging
from stanchion.facades import Config
from stanchion.server_log import MOMENT

if TYPE_CHECKING:
    from datetime import timedelta

# gunicorn's defaults, for keys that a dictionary leaves out.
CONFIG_DEFAULTS: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "root": {"level": "INFO", "handlers": ["console"]},
    "loggers": {
        "gunicorn.error": {
            "level": "INFO",
            "handlers": ["error_console"],
            "propagate": True,
            "qualname": "gunicorn.error",
        },
        "gunicorn.access": {
            "level": "INFO",
            "handlers": ["console"],
            "propagate": True,
            "qualname": "gunicorn.access",
        },
    },
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "generic", "stream": "ext://sys.stdout"},
        "error_console": {"class": "logging.StreamHandler", "formatter": "generic", "stream": "ext://sys.stderr"},
    },
    "formatters": {
        "generic": {
            "format": "%(asctime)s [%(process)d] [%(levelname)s] %(message)s",
            "datefmt": "[%Y-%m-%d %H:%M:%S %z]",
            "class": "logging.Formatter",
        }
    },
}


class SafeAtoms(dict[str, Any]):
    """The values that a format may name; `-` for any other name. A value from the client cannot begin a new line."""

    def __init__(self, atoms: Mapping[str, Any]) -> None:
        super().__init__({name: _quotable(value) for name, value in atoms.items()})

    def __getitem__(self, name: str) -> Any:
        return self.get(name.lower() if name.startswith("{") else name, "-")


def _quotable(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isprintable() and "\\" not in value:
        return value.replace('"', '\\"')
    # As the server itself writes what clients send, so that a terminal obeys nothing of it.
    return "".join(map(_harmless, value))


def _harmless(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    return f"\\x{ord(char):02x}" if char <= "\xff" else f"\\u{ord(char):04x}"


class Logger:
    """Sets logging up and writes to `gunicorn.error`: what hooks have as `server.log` and `worker.log`.

    In the scribe `access` is called for each request, and `error` and its like for what the server has to say.
    `close_on_exec` is here for classes that call what they override.
    """

    LOG_LEVELS: Mapping[str, int] = {
        "critical": logging.CRITICAL,
        "error": logging.ERROR,
        "warning": logging.WARNING,
        "info": logging.INFO,
        "debug": logging.DEBUG,
    }

    error_fmt = "%(asctime)s [%(process)d] [%(levelname)s] %(message)s"
    datefmt = "[%Y-%m-%d %H:%M:%S %z]"
    access_fmt = "%(message)s"
    syslog_fmt = "[%(process)d] %(message)s"

    atoms_wrapper_class: Any = SafeAtoms

    def __init__(self, cfg: Any) -> None:
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")
        self.error_handlers: list[logging.Handler] = []
        self.access_handlers: list[logging.Handler] = []
        self.cfg = cfg
        self.setup(cfg)

    def setup(self, cfg: Any) -> None:
        """Apply what the settings say. The first of these that is set counts."""
        # Both have the server's own handlers by now, which stay on loggers that the configuration does not name.
        self.cfg = cfg
        self.loglevel = self.LOG_LEVELS.get(cfg.loglevel.lower(), logging.INFO)
        self.error_log.setLevel(self.loglevel)
        self.access_log.setLevel(logging.INFO)
        if (self.error_fmt, self.datefmt) != (Logger.error_fmt, Logger.datefmt):
            self._set_handler(self.error_log, cfg.errorlog, logging.Formatter(self.error_fmt, self.datefmt))
        if cfg.logconfig_dict:
            dictConfig({**CONFIG_DEFAULTS, **cfg.logconfig_dict})
        elif cfg.logconfig_json:
            with open(cfg.logconfig_json, encoding="utf-8") as file:
                dictConfig({**CONFIG_DEFAULTS, **json.load(file)})
        elif cfg.logconfig:
            if not os.path.exists(cfg.logconfig):
                raise FileNotFoundError(f"there is no file {cfg.logconfig!r}")
            here = os.path.dirname(cfg.logconfig)
            defaults = {**CONFIG_DEFAULTS, "__file__": cfg.logconfig, "here": here}
            fileConfig(cfg.logconfig, defaults=defaults, disable_existing_loggers=False)

    def critical(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.error_log.critical(msg, *args, **kwargs)

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.error_log.error(msg, *args, **kwargs)

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.error_log.warning(msg, *args, **kwargs)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.error_log.info(msg, *args, **kwargs)

    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.error_log.debug(msg, *args, **kwargs)

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        self.error_log.exception(msg, *args, **kwargs)

    def log(self, lvl: int | str, msg: object, *args: object, **kwargs: Any) -> None:
        level = self.LOG_LEVELS.get(lvl.lower(), logging.INFO) if isinstance(lvl, str) else lvl
        self.error_log.log(level, msg, *args, **kwargs)

    def now(self) -> str:
        """The time in Apache's common log format."""
        return time.strftime("[%d/%b/%Y:%H:%M:%S %z]", time.localtime(MOMENT.created))

    def atoms(self, resp: Any, req: Any, environ: Mapping[str, Any], request_time: "timedelta") -> dict[str, Any]:
        """The values of a request that a format may name."""
        status = resp.status.split(None, 1)[0] if isinstance(resp.status, str) else resp.status
        sent = getattr(resp, "sent", None)
        taken_us = (request_time.days * 86_400 + request_time.seconds) * 1_000_000 + request_time.microseconds
        atoms = {
            "h": environ.get("REMOTE_ADDR", "-"),
            "l": "-",
            "u": _user_of(environ) or "-",
            "t": self.now(),
            "r": f"{environ['REQUEST_METHOD']} {environ['RAW_URI']} {environ['SERVER_PROTOCOL']}",
            "s": status,
            "m": environ.get("REQUEST_METHOD"),
            "U": environ.get("PATH_INFO"),
            "q": environ.get("QUERY_STRING"),
            "H": environ.get("SERVER_PROTOCOL"),
            "b": "-" if sent is None else str(sent),
            "B": sent,
            "f": environ.get("HTTP_REFERER", "-"),
            "a": environ.get("HTTP_USER_AGENT", "-"),
            "T": taken_us // 1_000_000,
            "D": taken_us,
            "M": taken_us // 1000,
            "L": f"{taken_us // 1_000_000}.{taken_us % 1_000_000:06}",
            "p": f"<{os.getpid()}>",
        }
        of_letters: Mapping[str, Any] = {"i": getattr(req, "headers", req), "o": resp.headers, "e": environ}
        for letter, fields in of_letters.items():
            pairs = fields.items() if hasattr(fields, "items") else fields
            atoms.update({f"{{{name.lower()}}}{letter}": value for name, value in pairs})
        # In the scribe: what it cannot say by itself.
        atoms.update(environ.get("stanchion.atoms", {}))
        return atoms

    @property
    def access_log_enabled(self) -> bool:
        """Whether such lines are wanted."""
        cfg = self.cfg
        to_syslog = cfg.syslog and not cfg.disable_redirect_access_to_syslog
        return bool(cfg.accesslog or cfg.logconfig or cfg.logconfig_dict or cfg.logconfig_json or to_syslog)

    def access(self, resp: Any, req: Any, environ: Mapping[str, Any], request_time: "timedelta") -> None:
        """Write a line on a request to `gunicorn.access`."""
        if not self.access_log_enabled:
            return
        if "stanchion.json_line" in environ:
            # `access_log_json`. Without arguments, so that nothing in it is taken for a format.
            self.access_log.info(environ["stanchion.json_line"])
        else:
            atoms = self.atoms_wrapper_class(self.atoms(resp, req, environ, request_time))
            self.access_log.info(self.cfg.access_log_format, atoms)

    def reopen_files(self) -> None:
        """Open the files of Python's handlers again."""
        server_log.reopen_each_file()

    def close_on_exec(self) -> None:
        """Nothing to do: files that Python opens are not passed to other programs (PEP 446)."""

    def _get_gunicorn_handler(self, log: logging.Logger) -> logging.Handler | None:
        return next((handler for handler in log.handlers if getattr(handler, "_gunicorn", False)), None)

    def _set_handler(self, log: logging.Logger, output: str | None, fmt: logging.Formatter, stream: Any = None) -> None:
        """Give a logger this format, and this place to write to, instead of what it has from the server."""
        held = self._get_gunicorn_handler(log)
        if held is not None and output is not None and output in (self.cfg.errorlog, self.cfg.accesslog):
            # It writes there already, through the server, and so into the new file after USR1.
            held.setFormatter(fmt)
            return
        if held is not None:
            log.removeHandler(held)
        if output is not None:
            handler = logging.StreamHandler(stream) if output == "-" else logging.FileHandler(output)
            handler.setFormatter(fmt)
            vars(handler)["_gunicorn"] = True
            log.addHandler(handler)


def _user_of(environ: Mapping[str, Any]) -> str | None:
    """The name in Basic authentication (RFC 7617)."""
    scheme, _, credentials = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    import binascii

    try:
        return binascii.a2b_base64(credentials.strip()).partition(b":")[0].decode()
    except ValueError:
        return None


class _Cfg(Config):
    """The settings as a class of gunicorn's reads them."""

    def __init__(self, effective: Effective) -> None:
        # Only root may give a file to another user: name the user that this process runs as by now.
        own = {"user": os.geteuid(), "group": os.getegid()}
        super().__init__({**effective.values, **own, **effective.objects})


def set_up(configuration: Configuration) -> None:
    """In a process that is going to load the app; UsageError says what is wrong with the settings."""
    effective = configuration.effective
    try:
        logger = _class_of(effective)(_Cfg(effective))
    except UsageError:
        raise
    # A class of the operator's, or a handler that it makes, may raise anything.
    except Exception as error:
        given = of_logging(effective.values)
        because = error.__cause__ or error.__context__
        detail = f": {because}" if because is not None else ""
        # On one line: where the server leaves, the log repeats the last line of the reason.
        said = " ".join(f"{type(error).__name__}: {error}{detail}".split())
        names = " and ".join(f"`{name}`" for name in given)
        raise UsageError(f"logging cannot be set up by {names}: {said}") from error
    server_log.LOGGER = logger


def _class_of(effective: Effective) -> Any:
    named = effective.values["logger_class"]
    held = effective.objects.get("logger_class")
    if held is not None:
        return held
    if "logger_class" not in of_logging(effective.values):
        return Logger
    module, _, name = named.replace(":", ".").rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "gunicorn":
            raise UsageError(
                f"{named} needs gunicorn, which is not installed: install it, or derive the class from "
                "stanchion.glogging.Logger"
            ) from error
        raise
