"""A server that a program makes and runs, as with `gunicorn.app.base`.

The program derives a class from BaseApplication, sets its settings in `load_config`, returns the app from `load`, and
calls `run`. A reload calls `load_config` and `load` again, but keeps the program's own code as it was at the start; an
upgrade (USR2) starts the program again from its files.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stanchion.app.config import Config
from stanchion.configuration import Configuration
from stanchion.effective import EXIT_USAGE, Effective, UsageError
from stanchion.interfaces import App
from stanchion.loader import AppHost, product
from stanchion.serving import serve


class BaseApplication:
    """An app and the settings that it is served with."""

    def __init__(self, usage: str | None = None, prog: str | None = None) -> None:
        self.usage = usage
        self.prog = prog
        self.cfg: Config
        self.callable: App | None = None
        self.logger = None
        self.do_load_config()

    def do_load_config(self) -> None:
        """Load the settings, or end the program with the reason."""
        try:
            self.load_default_config()
            self.load_config()
        except Exception as error:
            _complain_of(error)
            raise SystemExit(EXIT_USAGE) from error

    def load_default_config(self) -> None:
        """Begin with the defaults, and what the environment says."""
        self.cfg = Config(self.usage, prog=self.prog)

    def load_config(self) -> None:
        """Say by `self.cfg.set(name, value)` what is to be set."""
        raise NotImplementedError

    def init(self, parser: argparse.ArgumentParser, opts: argparse.Namespace, args: Sequence[str]) -> Any:
        """For those that read the command line: settings, as a dict, below the config file and the command line."""
        raise NotImplementedError

    def load(self) -> App:
        """Give the app. It is called in the template, or in each worker without preloading."""
        raise NotImplementedError

    def reload(self) -> None:
        """Load the settings again, at HUP."""
        self.do_load_config()

    def wsgi(self) -> App:
        """The app, loaded when it is first asked for."""
        if self.callable is None:
            self.callable = self.load()
        return self.callable

    def run(self) -> NoReturn:
        """Serve. The program ends here, in the master and in each worker, with the exit code of that process."""
        sys.exit(self.serve())

    def serve(self) -> int:
        """Serve. Returns in the master and in each worker, with the exit code of that process."""
        try:
            configuration = Configuration(_Readings(self).next)
            return serve(configuration, _Host(configuration, self))
        except UsageError as error:
            _complain_of(error)
            return EXIT_USAGE


def _complain_of(error: BaseException) -> None:
    # Imported here, so that no process of the server has it in its memory.
    from stanchion.output import complain_of

    complain_of(_told(error))


def _told(error: BaseException) -> UsageError:
    """The error as a UsageError, which says in words what is wrong with the settings."""
    if isinstance(error, UsageError):
        return error
    from stanchion.tracebacks import user_traceback

    words = f"the program's settings cannot be loaded: {type(error).__name__}: {error}"
    return UsageError(words, traceback=user_traceback(error))


class _Readings:
    """The settings of an application, read again at each reload."""

    def __init__(self, application: BaseApplication) -> None:
        self._application = application
        self._is_first = True

    def next(self) -> Effective:
        if not self._is_first:
            try:
                self._application.reload()
            except SystemExit as error:
                # A daemon's standard error goes to no file: raise, so that the log has the reason, too.
                raise _told(error.__cause__ or error) from error
        self._is_first = False
        return self._application.cfg.effective()


class _Host(AppHost):
    """The Python side of a server whose app comes from the program's `load`."""

    def __init__(self, configuration: Configuration, application: BaseApplication) -> None:
        super().__init__(configuration)
        self._application = application

    def find_app(self) -> App:
        return product(self._application.wsgi(), "load()")


class Application(BaseApplication):
    """An application that reads the command line, the environment and a config file, as `stanchion serve` does."""

    def load_config(self) -> None:
        from stanchion import command_line

        self.cfg.take(*command_line.layers_of_program(sys.argv[1:], self.init))

    def chdir(self) -> None:
        """For programs that call it: `run` goes to `chdir`, since paths in the settings count from here until then."""

    def load_config_from_module_name_or_filename(self, location: str) -> Mapping[str, Any]:
        """Set what a config file says: PATH, file:PATH or python:MODULE. Gives its settings and hooks."""
        from stanchion import config

        file = config.read_file(location)
        if file.errors:
            raise UsageError(*file.errors)
        held = {**file.layer.values, **file.hooks, **file.objects}
        for name, value in held.items():
            self.cfg.set(name, value)
        self.cfg.warn(file.warnings)
        return held

    def load_config_from_file(self, filename: str) -> Mapping[str, Any]:
        """The same."""
        return self.load_config_from_module_name_or_filename(filename)
