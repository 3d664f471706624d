"""The interface by which an app is called, as far as its code shows it without a call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

# By WSGI what it returns is iterated over, by ASGI awaited.
App: TypeAlias = "Callable[..., Any]"

WSGI, ASGI = "wsgi", "asgi"

# Flags of the code of a function with *args, and of a function defined by `async def`, as in `inspect`.
_CO_VARARGS, _CO_COROUTINE = 0x04, 0x80

# The attributes that mark an app (not its class) as a coroutine function have names that begin so.
_MARK = "_is_coroutine"


def interfaces_of(app: App) -> list[str]:
    """By which the app can be called, first the one that it most likely means; none if by neither."""
    takes_scope = _takes(app, {}, print, print)
    if is_coroutine_function(app):
        return [ASGI] if takes_scope else []
    takes_environ = _takes(app, {}, print)
    # Some coroutine functions do not show that they are: those behind a decorator, or compiled.
    return [name for name, fits in ((WSGI, takes_environ), (ASGI, takes_scope)) if fits]


def apps_in(module: ModuleType) -> list[str]:
    """The names of what this module has that can be called as an app is. Known by the code alone: a proxy, such as
    Flask's `request`, is not asked anything.
    """
    names = []
    for name, value in vars(module).items():
        is_function = type(value) is FunctionType
        call = value if is_function else instance_call(type(value))
        is_imported = is_function and value.__module__ != module.__name__
        if name.startswith("_") or is_imported or not isinstance(call, FunctionType):
            continue
        own = () if is_function else (value,)
        if any(call_mismatch(call, *own, {}, *rest) is None for rest in ((print,), (print, print))):
            names.append(name)
    return names


def is_double_callable(app: App) -> bool:
    """Whether it looks like an app of ASGI 2: called with the scope, it gives what is called with the rest."""
    if call_mismatch(app, {}) is not None:
        return False
    if isinstance(app, type) and is_coroutine_function(instance_call(app)):
        return True
    import inspect

    try:
        names = list(inspect.signature(app).parameters)
    except (TypeError, ValueError):
        return False  # some callables written in C have no signature
    return names[:1] == ["scope"]


def _takes(app: App, *args: object) -> bool:
    if isinstance(app, FunctionType) and not app.__defaults__:
        code = app.__code__
        if not code.co_kwonlyargcount and not code.co_flags & _CO_VARARGS:
            # So are most apps that are functions: for them `inspect` need not be imported.
            return code.co_argcount == len(args)
    return call_mismatch(app, *args) is None


def is_coroutine_function(app: object) -> bool:
    """Whether what it returns is to be awaited: it is a coroutine function, or its `__call__` is one."""
    while isinstance(app, partial):
        app = app.func
    if _is_marked(app):
        return True
    function = app if isinstance(app, FunctionType) else instance_call(type(app))
    if isinstance(function, FunctionType) and not vars(function):
        # It has no mark, so its code decides. `inspect`, which is slow to import, is needed only to read a mark.
        return bool(function.__code__.co_flags & _CO_COROUTINE)
    import inspect

    return inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(function)


def _is_marked(app: object) -> bool:
    """Whether a mark says that the app is a coroutine function though its code is none, such as a plain function that
    returns an awaitable. `inspect.markcoroutinefunction` sets that mark, or asgiref's function for Pythons before 3.12.
    """
    # It may be a method.
    app = getattr(app, "__func__", app)
    if not any(name.startswith(_MARK) for name in getattr(app, "__dict__", ())):
        return False
    import inspect

    # Code that sets asyncio's mark has imported this module for it.
    marks = vars(sys.modules.get("asyncio.coroutines", inspect))
    return inspect.iscoroutinefunction(app) or (_MARK in marks and getattr(app, _MARK, None) is marks[_MARK])


def instance_call(kind: type) -> object:
    """The `__call__` of a class's instances."""
    return next((vars(one)["__call__"] for one in kind.__mro__ if "__call__" in vars(one)), None)


def call_mismatch(function: Callable[..., object], *args: object, **kwargs: object) -> str | None:
    """Why these arguments do not fit, or None if they do or nothing is known about it."""
    if isinstance(function, FunctionType) and not kwargs:
        code = function.__code__
        if code.co_argcount == len(args) and not code.co_kwonlyargcount:
            return None  # as most factories
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # some callables written in C have no signature
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None
