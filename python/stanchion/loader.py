"""From the words `module:attr` to the app and how it is called, and from a failure to words that help.

The app is named as in gunicorn: `module:attr`, `module:attr.attr`, `module:factory()` and
`module:factory('a', k=1)` with literal arguments. `module` alone means its `application`, or
its `app` where it has no `application`.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
from collections.abc import Iterable
from keyword import iskeyword
from types import ModuleType

from stanchion.configuration import Configuration, working_directory
from stanchion.effective import UsageError, import_app, of_logging
from stanchion.facades import Listen, server_log
from stanchion.hooks import HookError, Hooks
from stanchion.interfaces import (
    ASGI,
    WSGI,
    App,
    apps_in,
    call_mismatch,
    interfaces_of,
    is_double_callable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from typing import Any

    from stanchion.scribe import Scribe

# The event loop for WSGI apps.
_GEVENT = "gevent"

_CALLED = {WSGI: "a WSGI app", ASGI: "asynchronous (ASGI)"}

_DEFAULT_NAMES = ("application", "app")
# If a module has no such name, the error names so many apps in it.
_APPS_NAMED_MAX = 5

# For the master alone, which has taken them from the environment; but `os.environ` is a copy from
# before that, from which the app's subprocesses may get theirs.
_MASTERS_OWN = ("STANCHION_HANDOVER", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


class AppLoadError(Exception):
    """The app cannot be served. `advice` says on one line what to do about it."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class OtherInterfaceError(Exception):
    """The app has another interface than the server was built for; the server may start again for that one."""


class AppHost:
    """The Python side of the server: the app, the files that it came from, the hooks, the configuration."""

    # How this process was started, for a master that is to follow it; an app may change both.
    started_as = (list(sys.orig_argv), working_directory())

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        # The app, if it was imported and has the other interface: a generation for that one may take this process over.
        self._imported: App | None = None

    @property
    def spec(self) -> str:
        """The name of the app, or of the PasteDeploy file that names it."""
        values = self.configuration.effective.values
        spec: str = values["paste"] or values["wsgi_app"]
        return spec

    def load(self, expected: str | None = None) -> App:
        """Import the app. AppLoadError if it is broken; OtherInterfaceError if `interface` is `auto` and the app has
        another interface than the expected one. The next call, with the right one, does not import it again.
        """
        if self._imported is None:
            self._imported = self._import()
        app = self._imported
        self._check(app, expected)
        self.configuration.hooks.loaded(app)
        self._imported = None
        if not self.configuration.effective.values["spew"]:
            return app
        # Imported here, as all that only some servers need.
        from stanchion import spew

        return spew.traced(app)

    def _import(self) -> App:
        for name in _MASTERS_OWN:
            os.environ.pop(name, None)
        effective = self.configuration.effective
        if effective.values["loop"] == _GEVENT:
            # Imported here, so that no other server needs it.
            from stanchion import greenlets

            greenlets.patch(effective.origins["loop"])
        import_app(effective)
        self._set_up_logging()
        if effective.values["spew"]:
            # Imported here, as all that only some servers need.
            from stanchion import spew

            spew.begin()
        return self.find_app()

    def _check(self, app: App, expected: str | None) -> None:
        interfaces = interfaces_of(app)
        effective = self.configuration.effective
        asked = effective.values["interface"]
        if effective.values["loop"] == _GEVENT and WSGI not in interfaces:
            raise AppLoadError(
                f"the app is {_CALLED[interfaces[0]]}, and the setting `loop` from {effective.origins['loop']} says "
                f"{_GEVENT}, which runs WSGI apps",
                "leave that out",
            )
        if effective.values["loop"] == _GEVENT:
            return
        if asked in (WSGI, ASGI) and asked not in interfaces:
            raise AppLoadError(
                f"the app is {_CALLED[interfaces[0]]}, and the setting `interface` from "
                f"{effective.origins['interface']} says {asked}",
                f"leave that out, or say {interfaces[0]}",
            )
        if asked == "auto" and interfaces[0] == ASGI and effective.values["warm_up"]:
            raise AppLoadError(
                f"the app is {_CALLED[ASGI]}, and the setting `warm_up` from {effective.origins['warm_up']} has the "
                "template answer requests, where no event loop runs",
                "leave that out, and warm the app up at lifespan.startup",
            )
        if asked == "auto" and expected not in (None, interfaces[0]):
            raise OtherInterfaceError(interfaces[0])

    def find_app(self) -> App:
        """The app that the settings name."""
        values = self.configuration.effective.values
        if values["paste"] is not None:
            return load_paste_app(values["paste"], values["raw_paste_global_conf"])
        return load_app(values["wsgi_app"])

    def _set_up_logging(self) -> None:
        if of_logging(self.configuration.effective.values):
            # Imported here, so that no process has `logging` in its memory for nothing; and that first, since its
            # import brings in `server_log`, which the other needs whole.
            import logging  # noqa: F401

            from stanchion import glogging

            glogging.set_up(self.configuration)

    @property
    def has_scribe(self) -> bool:
        """Whether the server's own logs go by Python's logging, which then has a process of its own."""
        return bool(of_logging(self.configuration.effective.values))

    def set_up_scribe(self) -> Scribe:
        """In that process: the object that writes the logs; UsageError if the settings are wrong."""
        for name in _MASTERS_OWN:
            os.environ.pop(name, None)
        import_app(self.configuration.effective)
        # First, since its import brings in `server_log`, which the other needs whole.
        import logging  # noqa: F401

        from stanchion.scribe import Scribe

        return Scribe(self.configuration)

    def reopen_logs(self) -> None:
        """Open the files of Python's handlers again, if this process has any."""
        if "logging" in sys.modules:
            from stanchion.server_log import reopen_files

            reopen_files()

    def watched_files(self) -> list[str]:
        """The files whose change calls for a reload, once the app is loaded."""
        # Imported here, as all that only some servers need: else each process would have it in its memory.
        from stanchion.reload import watched_files

        return watched_files(self.configuration.effective.values["reload_extra_files"])

    @property
    def has_hooks(self) -> bool:
        """Whether there is any to run."""
        return bool(self.configuration.effective.hooks)

    def hook(self, name: str, *facts: int) -> None:
        """Run a hook; HookError if it raises."""
        self.configuration.hooks.run(name, *facts)

    def request_hooks(self) -> Hooks | None:
        """The hooks that run for each request, or None."""
        hooks = self.configuration.hooks
        return hooks if hooks.of_requests else None

    def enter(self, listen: Listen) -> None:
        """In a worker that has hooks: give them the function by which they listen."""
        self.configuration.hooks.entered(listen)

    def event_loop(self, app: Any, puller: Any) -> Any:
        """In a worker whose app is an ASGI one: the object that runs its event loop."""
        # Imported here, so that no other worker has asyncio in its memory.
        from stanchion.asgi import EventLoop
        from stanchion.asgi_hooks import between

        return EventLoop(between(app, self.request_hooks()), puller, self.configuration.effective.values)

    def gevent_loop(self, puller: Any) -> Any:
        """In a worker under gevent: what runs its hub."""
        from stanchion.greenlets import HubLoop

        return HubLoop(puller)

    def write_stacks_to(self, dump_signal: int, dumps: int) -> None:
        """At this signal, write where all threads are, wherever Python is."""
        faulthandler.register(dump_signal, file=dumps, all_threads=True)

    def reconfigure(self) -> str:
        """Read the configuration again, and return the settings as JSON. A reading that raises changes nothing."""
        self.configuration.reread()
        effective = self.configuration.effective
        for warning in effective.warnings:
            server_log().warning("%s", warning)
        return effective.json

    def thread_names(self) -> dict[int, str]:
        """Python's names of the threads of this process, by the kernel's ids."""
        threading = sys.modules.get("threading")
        if threading is None:
            return {}  # no code has started a thread through it
        return {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id is not None}

    def revert(self) -> None:
        """Back to the configuration before the last one."""
        self.configuration.revert()


class _Spec:
    """`module:path` or `module:path(args, **kwargs)`, taken apart."""

    def __init__(self, text: str, module: str, path: str | None, call: tuple[list[Any], dict[str, Any]] | None) -> None:
        self.text = text
        self.module = module
        self.path = path
        self.call = call


def load_app(spec: str) -> App:
    """The app that `spec` names; AppLoadError if there is none."""
    parts = _parse(spec)
    module = _import(parts)
    found = _find(module, parts)
    if parts.call is not None:
        found = _call_factory(found, parts)
    return _checked(found, parts)


def product(app: object, factory: str) -> App:
    """The object that a function of the program has returned, if it is an app; else AppLoadError."""
    return _checked(app, _Spec(factory, "", None, ([], {})))


def load_paste_app(location: str, variables: Iterable[str]) -> App:
    """The app that PasteDeploy makes of `FILE` or `FILE#NAME`; AppLoadError if there is none."""
    try:
        from paste.deploy import loadapp  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        if error.name not in ("paste", "paste.deploy"):
            raise AppLoadError(
                f"PasteDeploy imports {error.name!r}, which this Python does not have",
                f"install it for {sys.executable}",
            ) from error
        raise AppLoadError(
            "the setting `paste` needs PasteDeploy, which this Python does not have",
            f"install it: {sys.executable} -m pip install PasteDeploy",
        ) from None
    try:
        app = loadapp(f"config:{location}", relative_to=os.getcwd(), global_conf=dict(map(_variable, variables)))
    # As a module that is imported may, what PasteDeploy imports and calls may raise anything.
    except (Exception, SystemExit) as error:
        raise AppLoadError(
            f"PasteDeploy loads no app from {location!r}: {_first_line(error)}",
            f"correct the file or the app{_at(error)}",
        ) from error
    return _checked(app, _Spec(location, "", None, ([], {})))


def _variable(text: str) -> tuple[str, str]:
    """The two sides of the first `=` that has no backslash before it, as gunicorn takes it apart."""
    end = next(at for at, one in enumerate(text) if one == "=" and text[at - 1 : at] != "\\")
    return text[:end].replace("\\=", "="), text[end + 1 :].replace("\\=", "=")


def describe_failure(error: BaseException) -> str:
    """The text of a failure for the log: the user's traceback, then one line of advice."""
    match error:
        case AppLoadError():
            shown, line = error.__cause__, f"cannot load the app: {error.message}; {error.advice}"
        case HookError(__cause__=BaseException() as cause):
            shown, line = cause, f"the hook {error.name} raised {_first_line(cause)}{_at(cause)}"
        case UsageError():
            return "\n".join((*([error.traceback] if error.traceback else []), *error.reasons))
        case _:
            shown, line = error, f"cannot load the app: {_first_line(error)}"
    if shown is None:
        return line
    from stanchion.tracebacks import user_traceback

    return f"{user_traceback(shown)}\n{line}"


def _parse(spec: str) -> _Spec:
    module, colon, expression = spec.partition(":")
    if module.endswith(".py") or "/" in module:
        dotted = os.path.normpath(module).removesuffix(".py").replace("/", ".").strip(".")
        raise AppLoadError(
            f"{module!r} is a file, not a module",
            f"write {dotted}:{expression or 'app'}, with --chdir if it lies elsewhere",
        )
    if not all(part.isidentifier() for part in module.split(".")):
        raise AppLoadError(f"{module!r} is not the name of a module", "write MODULE:NAME")
    if not colon:
        return _Spec(spec, module, None, None)
    # Most apps are named by no more than this, which takes no parser.
    if all(part.isidentifier() and not iskeyword(part) for part in expression.split(".")):
        return _Spec(spec, module, expression, None)
    import ast

    try:
        node = ast.parse(expression, mode="eval").body
        if isinstance(node, ast.Call):
            args = [ast.literal_eval(argument) for argument in node.args]
            # literal_eval refuses `**more`, whose keyword has no name.
            kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
            if len(kwargs) == len(node.keywords):
                return _Spec(spec, module, _dotted(node.func), (args, kwargs))
        else:
            return _Spec(spec, module, _dotted(node), None)
    except (SyntaxError, ValueError):
        pass
    raise AppLoadError(
        f"{expression!r} names neither an object nor a call with literal arguments",
        "write MODULE:NAME or MODULE:FACTORY('text', number=1), in quotes for the shell",
    )


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of an expression that is nothing else; ValueError otherwise."""
    import ast

    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise ValueError(ast.unparse(node))


def _import(spec: _Spec) -> object:
    # The file may be newer than what this process remembers of its directory.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(spec.module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{spec.module}.".startswith(f"{missing}."):
            raise AppLoadError(
                f"there is no module {missing!r} in {os.getcwd()} or on Python's path",
                "check the spelling, or say where it is by --chdir or --pythonpath",
            ) from None
        raise AppLoadError(
            f"it imports {missing!r}, which this Python does not have",
            f"install it for {sys.executable}, or correct the import",
        ) from error
    # A module that calls sys.exit() is as broken as one that raises.
    except (Exception, SystemExit) as error:
        raise AppLoadError(
            f"importing {spec.module!r} raised {_first_line(error)}",
            f"correct the app{_at(error)}",
        ) from error


def _find(module: object, spec: _Spec) -> object:
    if spec.path is None:
        for name in _DEFAULT_NAMES:
            if hasattr(module, name):
                return getattr(module, name)
        raise AppLoadError(
            f"{spec.module!r} has neither {' nor '.join(map(repr, _DEFAULT_NAMES))}",
            f"name the app's object: {spec.module}:NAME",
        )
    found: object = module
    owner = spec.module
    for name in spec.path.split("."):
        if not hasattr(found, name):
            raise AppLoadError(f"{owner!r} has no {name!r}", _instead_of(name, found, spec))
        found = getattr(found, name)
        owner = f"{owner}.{name}"
    return found


def _instead_of(name: str, owner: object, spec: _Spec) -> str:
    """Advice for a name that is not there."""
    import difflib

    near = difflib.get_close_matches(name, dir(owner), n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    apps = apps_in(owner) if isinstance(owner, ModuleType) else []
    if not apps:
        return f"name the app's object: {spec.module}:NAME"
    listed = ", ".join(apps[:_APPS_NAMED_MAX])
    return f"{listed} {'is' if len(apps) == 1 else 'are'} there and callable: name {spec.module}:{apps[0]}"


def _call_factory(factory: object, spec: _Spec) -> object:
    args, kwargs = spec.call or ([], {})
    if not callable(factory):
        raise AppLoadError(
            f"{spec.path!r} is not a function but {_kind_of(factory)}",
            f"without parentheses it names an object: {spec.module}:{spec.path}",
        )
    mismatch = call_mismatch(factory, *args, **kwargs)
    if mismatch is not None:
        raise AppLoadError(
            f"the factory {spec.path!r} cannot be called so: {mismatch}", "give the arguments that it takes"
        )
    try:
        return factory(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise AppLoadError(
            f"the factory {spec.path!r} raised {_first_line(error)}",
            f"correct the app{_at(error)}",
        ) from error


def _checked(app: object, spec: _Spec) -> App:
    """The app, if it can be called as PEP 3333 or ASGI 3 call it."""
    is_product = spec.call is not None
    if not callable(app):
        what = "the factory returned" if is_product else f"{spec.text!r} is"
        raise AppLoadError(
            f"{what} {_kind_of(app)}, which cannot be called",
            "return the app from it" if is_product else "name the app, a callable",
        )
    if interfaces_of(app):
        return app
    if is_double_callable(app):
        raise AppLoadError(
            f"{spec.text!r} is called twice for each request, as ASGI 2 apps are",
            "only ASGI 3 and WSGI apps are served: asgiref.compatibility.guarantee_single_callable makes one of it",
        )
    raise AppLoadError(
        f"{spec.text!r} takes neither (environ, start_response) nor (scope, receive, send), so it is no app",
        "return the app from it" if is_product else f"if it makes the app, call it: '{spec.text}()'",
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _at(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    from stanchion.tracebacks import last_user_frame

    place = last_user_frame(error)
    return f" at {place}" if place else ""


def _kind_of(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
