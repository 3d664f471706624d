"""Tracebacks that show the user's code and not ours."""

import importlib
import os
import traceback

from stanchion.configuration import INSTALLED

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = ("<frozen ", os.path.dirname(os.__file__) + os.sep)
_IMPORT_MACHINERY = ("<frozen importlib", "<frozen runpy", os.path.dirname(importlib.__file__) + os.sep)


def user_traceback(error: BaseException) -> str:
    """The traceback of an error and of its causes, without this package and the import machinery."""
    shown = traceback.TracebackException.from_exception(error)
    _trim(shown)
    return "".join(shown.format()).rstrip()


def last_user_frame(error: BaseException) -> str | None:
    """`file:line` of the user's code that was running, of their own rather than of what is installed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
    installed = [frame for frame in frames if not frame.filename.startswith(_STANDARD)]
    own = [frame for frame in installed if not any(part in frame.filename for part in INSTALLED)]
    shown = own or installed or frames
    return f"{shown[-1].filename}:{shown[-1].lineno}" if shown else None


def _trim(shown: traceback.TracebackException) -> None:
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if _is_users(frame)])
    for inner in (shown.__cause__, shown.__context__):
        if inner is not None:
            _trim(inner)


def _is_users(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((_OURS, *_IMPORT_MACHINERY))
