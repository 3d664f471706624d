"""The settings in force, and what they make of a process.

Every process of a server has this module and those that it imports: none of them imports what only reading settings
takes (`argparse`, `json`, `re`), nor `typing`, which is for those who check types.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from stanchion import standard, trust

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stanchion.hooks import Function

_NONE: Mapping[str, Any] = MappingProxyType({})


EXIT_USAGE = 2
"""The exit code of a command that ends with a UsageError."""


class UsageError(Exception):
    """The server cannot do what the user asked for: one line for each reason, and a traceback if Python has one."""

    def __init__(self, *reasons: str, traceback: str | None = None) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons
        self.traceback = traceback


class Answered(SystemExit):
    """The arguments asked for words only, which were printed: the program ends well."""


class Effective:
    """One checked value for each setting, with the place it came from; the hooks; and what there is to warn of."""

    def __init__(
        self,
        values: Mapping[str, Any],
        origins: Mapping[str, str],
        json: str,
        warnings: Sequence[str] = (),
        hooks: Mapping[str, Function] = _NONE,
        objects: Mapping[str, Any] = _NONE,
    ) -> None:
        self.values = MappingProxyType(dict(values))
        self.origins = MappingProxyType(dict(origins))
        self.json = json
        """The values for the server: only those that are set somewhere, as the others have the table's defaults."""
        self.warnings = tuple(warnings)
        self.hooks = MappingProxyType(dict(hooks))
        self.objects = MappingProxyType(dict(objects))
        """The Python objects in a config file, for settings that may be more than a text."""


# Classes that ask for nothing beyond what the server does by itself.
_PLAIN_LOGGERS = ("gunicorn.glogging.Logger", "gunicorn.instrument.statsd.Statsd", "stanchion.glogging.Logger")


def of_logging(values: Mapping[str, Any]) -> list[str]:
    """The settings of Python's logging that ask for something."""
    names = ("logconfig", "logconfig_dict", "logconfig_json", "logger_class")
    return [name for name in names if values[name] and values[name] not in _PLAIN_LOGGERS]


def apply(effective: Effective) -> None:
    """Give this process the surroundings that the app is to find: directory, import path, variables."""
    values = effective.values
    if values["chdir"] is not None:
        os.chdir(values["chdir"])
    for directory in _of_app(effective):
        import_first(directory)
    for assignment in values["raw_env"]:
        key, _, value = assignment.partition("=")
        os.environ[key] = value


def import_app(effective: Effective) -> None:
    """In the process that loads the app, as the user it is to run as: let imports look also where root's must not."""
    trust.GUARD.leave()
    for directory in _of_app(effective):
        if directory not in sys.path:
            standard.put_first(directory)


def _of_app(effective: Effective) -> list[str]:
    """Where the app's modules are, each before the last."""
    named = (effective.values["pythonpath"] or "").split(",")
    return [os.getcwd(), *(os.path.abspath(path.strip()) for path in named if path.strip())]


def import_first(directory: str) -> None:
    """Let imports look here before anywhere else, unless they look here already, or root would run others' code."""
    if directory not in sys.path and trust.may_import_from(directory):
        trust.GUARD.watch(directory)
        standard.put_first(directory)
