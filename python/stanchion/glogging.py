"""Python's logging as the settings of gunicorn have it, in the processes that run the app.

`Logger` has the methods that classes derived from gunicorn's override. Nothing imports this unless one of `logconfig`,
`logconfig_dict`, `logconfig_json` and `logger_class` is set. The access log, and what the server itself has to say, are
written in Rust and do not pass here.
"""

import importlib
import json
import logging
import os
import time
from collections.abc import Mapping
from logging.config import dictConfig, fileConfig
from typing import Any

from stanchion import server_log
from stanchion.config import Effective, UsageError, of_logging
from stanchion.configuration import Configuration
from stanchion.facades import Config

# What a dictionary leaves out is as in gunicorn.
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


class Logger:
    """Sets logging up and writes to `gunicorn.error`: what hooks have as `server.log` and `worker.log`."""

    LOG_LEVELS: Mapping[str, int] = {
        "critical": logging.CRITICAL,
        "error": logging.ERROR,
        "warning": logging.WARNING,
        "info": logging.INFO,
        "debug": logging.DEBUG,
    }

    def __init__(self, cfg: Any) -> None:
        self.error_log = logging.getLogger("gunicorn.error")
        self.access_log = logging.getLogger("gunicorn.access")
        self.cfg = cfg
        self.setup(cfg)

    def setup(self, cfg: Any) -> None:
        """Apply what the settings say. The first of these that is set counts."""
        # Both have the server's own handlers by now, which stay on loggers that the configuration does not name.
        self.cfg = cfg
        self.loglevel = self.LOG_LEVELS.get(cfg.loglevel.lower(), logging.INFO)
        self.error_log.setLevel(self.loglevel)
        self.access_log.setLevel(logging.INFO)
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
        return time.strftime("[%d/%b/%Y:%H:%M:%S %z]")


class _Cfg(Config):
    """The settings as a class of gunicorn's reads them."""

    def __init__(self, effective: Effective) -> None:
        # An ordinary user may give a file to nobody else: the process is by now whoever it is to be.
        own = {
            "user": os.geteuid(),
            "group": os.getegid(),
            "proc_name": effective.values["proc_name"] or effective.values["wsgi_app"],
        }
        super().__init__({**effective.values, **own, **effective.objects})


def set_up(configuration: Configuration) -> None:
    """In a process that is going to load the app; UsageError says what is wrong with the settings."""
    effective = configuration.effective
    try:
        logger = _class_of(effective)(_Cfg(effective))
    except UsageError:
        raise
    # Whatever a class of the operator's, or a handler that it makes, raises.
    except Exception as error:
        given = of_logging(effective.values)
        because = error.__cause__ or error.__context__
        detail = f": {because}" if because is not None else ""
        raise UsageError(
            f"logging cannot be set up by {' and '.join(f'`{name}`' for name in given)}: "
            f"{type(error).__name__}: {error}{detail}"
        ) from error
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
