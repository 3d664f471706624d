"""The configuration in force, the way to read it again (HUP), and the way back if that comes to nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable

from stanchion.effective import Effective, UsageError, apply
from stanchion.hooks import Hooks

_NOT_OF_THE_CONFIG = (
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    os.path.dirname(os.path.abspath(os.__file__)) + os.sep,
)
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class _Surroundings:
    """The state of this process that a reading may change."""

    def __init__(self) -> None:
        self.directory: str | None = None
        """None if it was removed: a deployment may have put another one in its place."""
        with contextlib.suppress(FileNotFoundError):
            self.directory = working_directory()
        self.path = list(sys.path)
        self.variables = dict(os.environ)
        self.modules = dict(sys.modules)

    def restore(self) -> None:
        if self.directory is not None:
            # If the directory is gone, the process stays where it is; the rest is taken back nevertheless.
            with contextlib.suppress(OSError):
                os.chdir(self.directory)
        sys.path[:] = self.path
        for name in os.environ.keys() - self.variables.keys():
            del os.environ[name]
        os.environ.update(self.variables)
        for name in _own(sys.modules.keys() - self.modules.keys()):
            del sys.modules[name]
        sys.modules.update(self.modules)


class _Reading:
    """One reading of the configuration, and its changes to this process."""

    def __init__(self, effective: Effective, bare: _Surroundings) -> None:
        self.effective = effective
        self.hooks = Hooks(effective.hooks, effective.values)
        self.bare = bare
        self.paths: frozenset[str] = frozenset()
        self.modules = frozenset(_own(sys.modules.keys() - bare.modules.keys()))


class Configuration:
    """The readings of one server's configuration, each replacing the last."""

    def __init__(self, read: Callable[[], Effective]) -> None:
        """Read it for the first time."""
        self._read = read
        # Where each reading begins, whatever chdir says. By the name that the operator gave it, if
        # we know it: a symlink may lead to the next release by then.
        self._home = working_directory()
        self._reading = self._next()
        self._before: tuple[_Reading, _Surroundings] | None = None

    @property
    def effective(self) -> Effective:
        return self._reading.effective

    @property
    def hooks(self) -> Hooks:
        return self._reading.hooks

    def apply(self) -> None:
        """Let it take effect in this process, and so in those that are forked from it."""
        apply(self.effective)
        self._reading.paths = frozenset(sys.path) - frozenset(self._reading.bare.path)

    def reread(self) -> None:
        """Read it again from where it came from, and apply it. A reading that raises changes nothing.

        The file runs again, and so does what it imports, unless that is installed.
        """
        self._before = None
        before = (self._reading, _Surroundings())
        try:
            self._undo()
            self._reading = self._next()
            self.apply()
        except BaseException:
            self._go_back(before)
            raise
        self._before = before

    def revert(self) -> None:
        """Back to what was in force before the last `reread`, if there was one."""
        if self._before is not None:
            self._go_back(self._before)
            self._before = None

    def _next(self) -> _Reading:
        bare = _Surroundings()
        return _Reading(self._read(), bare)

    def _undo(self) -> None:
        """Take back what the reading in force has changed, and nothing that a hook has."""
        reading = self._reading
        try:
            os.chdir(self._home)
        except OSError as error:
            raise UsageError(f"the directory in which the server was started cannot be entered: {error}") from error
        sys.path[:] = [path for path in sys.path if path not in reading.paths]
        for assignment in reading.effective.values["raw_env"]:
            name = assignment.partition("=")[0]
            if name in reading.bare.variables:
                os.environ[name] = reading.bare.variables[name]
            else:
                os.environ.pop(name, None)
        for name in reading.modules:
            sys.modules.pop(name, None)

    def _go_back(self, before: tuple[_Reading, _Surroundings]) -> None:
        self._reading, surroundings = before
        surroundings.restore()


def working_directory() -> str:
    """Where we are, by the name that the shell knows: a link such as /srv/current leads elsewhere after a deploy, while
    the real path, which os.getcwd() gives, stays with the release that was current once.
    """
    named = os.environ.get("PWD", "")
    with contextlib.suppress(OSError):
        if os.path.isabs(named) and os.path.samefile(named, os.curdir):
            return named
    return os.getcwd()


def _own(names: Iterable[str]) -> list[str]:
    """The modules among these that come from the operator's own files, not from what is installed.

    To load an installed one twice may break it, if part of it is written in C.
    """
    return [name for name in names if _is_own(getattr(sys.modules.get(name), "__file__", None))]


def _is_own(path: object) -> bool:
    return (
        isinstance(path, str)
        and path.endswith(".py")
        and not path.startswith(_NOT_OF_THE_CONFIG)
        and not any(part in path for part in INSTALLED)
    )
