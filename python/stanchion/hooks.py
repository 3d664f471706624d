"""The operator's hooks: functions of the config file that run at certain moments of the server.

Names and arguments are gunicorn's, with two of Unicorn's as aliases. When each runs, and in which
process, is said in docs/reference/hooks.md and decided in Rust; here they are found, checked and
called.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from stanchion.facades import Answer, Config, Environ, Listen, Request, Server, Worker, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Function = Callable[..., object]
Told = tuple[int, str, list[tuple[str, str]], int]
"""An answer as Rust reports it: status, reason, headers, bytes of the body that were sent."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "on_starting": ("server",),
        "on_reload": ("server",),
        "when_ready": ("server",),
        "pre_fork": ("server", "worker"),
        "post_fork": ("server", "worker"),
        "post_worker_init": ("worker",),
        "worker_int": ("worker",),
        "worker_abort": ("worker",),
        "worker_exit": ("server", "worker"),
        "child_exit": ("server", "worker"),
        "nworkers_changed": ("server", "new_value", "old_value"),
        "pre_exec": ("server",),
        "pre_request": ("worker", "req"),
        "post_request": ("worker", "req", "environ", "resp"),
        "on_exit": ("server",),
    }
)
"""The names of each hook's arguments."""

# Unicorn's names.
ALIASES: Mapping[str, str] = MappingProxyType({"before_fork": "pre_fork", "after_fork": "post_fork"})

NAMES = frozenset(ARGUMENTS) | frozenset(ALIASES)

# post_request came into the world with two arguments, and gunicorn still takes it so.
_FEWEST_ARGUMENTS: Mapping[str, int] = MappingProxyType({"post_request": 2})


class HookError(Exception):
    """A hook has raised; what it raised is the cause."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def find(held: Mapping[str, Any]) -> tuple[dict[str, Function], list[str]]:
    """The hooks among the variables of a config file, and what is wrong with them.

    None means no hook. A text is `module.function`, as in gunicorn.
    """
    found: dict[str, Function] = {}
    complaints = []
    for name, value in held.items():
        if name not in NAMES or value is None:
            continue
        meant = ALIASES.get(name, name)
        if meant in found:
            both = " and ".join(sorted((meant, *(alias for alias, of in ALIASES.items() if of == meant))))
            complaints.append(f"the hooks {both} mean the same: keep one")
            continue
        try:
            found[meant] = _fitting(meant, _named(value) if isinstance(value, str) else value)
        except (TypeError, ValueError) as error:
            complaints.append(f"the hook {name} {error}")
    return found, complaints


def _named(text: str) -> object:
    module, _, attribute = text.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    # The module may raise anything, as it runs for the first time.
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"names {text!r}, which cannot be imported: {reason}") from error


def _fitting(name: str, function: object) -> Function:
    """A function that takes all arguments of this hook; TypeError if there is no way."""
    arguments = ARGUMENTS[name]
    wanted = ", ".join(arguments)
    if not callable(function):
        raise TypeError(f"must be a function of ({wanted}), not {type(function).__name__}")
    # Imported here, so that no process has it in its memory for nothing.
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function  # some callables written in C have no signature
    for count in range(len(arguments), _FEWEST_ARGUMENTS.get(name, len(arguments)) - 1, -1):
        try:
            signature.bind(*arguments[:count])
        except TypeError:
            continue
        return function if count == len(arguments) else functools.partial(_cut, function, count)
    raise TypeError(f"must take ({wanted}), but it is defined with {signature}")


def _cut(function: Function, count: int, *arguments: object) -> object:
    return function(*arguments[:count])


class Hooks:
    """The hooks of one configuration, run one at a time; those of requests in each seat's thread."""

    def __init__(self, functions: Mapping[str, Function], values: Mapping[str, Any]) -> None:
        self._functions = functions
        self._cfg = Config(values)
        # Made before any fork.
        self._server = Server(self._cfg, os.getpid())
        self._worker: Worker | None = None
        self._app: Callable[..., Any] | None = None
        self._listen: Listen | None = None

    def run(self, name: str, *facts: int) -> None:
        """Run the hook of this name, if there is one; HookError if it raises.

        The facts are those that Rust knows: (number, pid) of the worker, or its numbers before and after.
        """
        arguments = self._arguments(name, *facts)
        function = self._functions.get(name)
        if function is None:
            return
        try:
            function(*arguments)
        # Also what a hook's sys.exit() raises: none of them may end a process of the tree.
        except BaseException as error:
            raise HookError(name) from error

    def are_of_this_master(self) -> None:
        """Tell hooks of this process as the master: a daemon is not the one that has read the configuration."""
        self._server.pid = os.getpid()

    def entered(self, listen: Listen) -> None:
        """This process is a worker, which may listen by itself."""
        self._listen = listen

    def loaded(self, app: Callable[..., Any]) -> None:
        """The app is there: before the worker is, or without preloading after it."""
        self._app = app
        if self._worker is not None:
            self._worker.wsgi = app

    @property
    def of_requests(self) -> bool:
        """Whether any runs for each request."""
        return not self._functions.keys().isdisjoint(("pre_request", "post_request"))

    def request(self, environ: Environ) -> Request:
        """The `req` of both hooks."""
        return Request(environ)

    def before_request(self, req: Request, environ: Environ) -> list[tuple[str, str]]:
        """Run pre_request, and return the fields that it has added or changed. If it raises, the answer is a 500."""
        function = self._functions.get("pre_request")
        if function is None:
            return []
        before = list(req.headers)
        function(self._worker, req)
        changed = [one for one in req.headers if one not in before]
        environ.update((key_of(field), value) for field, value in changed)
        return changed

    def after_request(self, req: Request, environ: Environ, told: Told | None) -> None:
        """Run post_request, once the answer is out; without `resp` if nothing went out."""
        function = self._functions.get("post_request")
        if function is not None:
            function(self._worker, req, environ, None if told is None else Answer(*told))

    def _arguments(self, name: str, *facts: int) -> tuple[object, ...]:
        """The hook's arguments, with `server` and `worker` as they are at its moment."""
        server = self._server
        match name, facts:
            case "nworkers_changed", (new, old):
                server.num_workers = new
                return server, new, old
            case "child_exit", (nr, pid):
                gone = Worker(self._cfg, nr, pid, server.pid)
                gone.alive = False
                return server, gone
            case "pre_fork", (nr,):
                return server, Worker(self._cfg, nr, "[booting]", server.pid)
            case "post_fork", (nr,):
                self._worker = Worker(self._cfg, nr, os.getpid(), server.pid, self._listen)
                self._worker.wsgi = self._app
                return server, self._worker
        worker = self._worker
        if worker is not None and name in ("worker_int", "worker_abort", "worker_exit"):
            worker.alive = False
            worker.aborted = worker.aborted or name == "worker_abort"
        given: Mapping[str, object] = {"server": server, "worker": worker}
        return tuple(given[argument] for argument in ARGUMENTS[name])
