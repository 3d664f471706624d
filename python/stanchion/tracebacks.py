"""Tracebacks that show the user's code and not ours."""

import importlib
import os
import traceback

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_IMPORT_MACHINERY = ("<frozen importlib", "<frozen runpy", os.path.dirname(importlib.__file__) + os.sep)


def user_traceback(error: BaseException) -> str:
    """The traceback of an error and of its causes, without this package and the import machinery."""
    shown = traceback.TracebackException.from_exception(error)
    _trim(shown)
    return "".join(shown.format()).rstrip()


def last_user_frame(error: BaseException) -> str | None:
    """`file:line` of the user's code that was running, if any was."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _trim(shown: traceback.TracebackException) -> None:
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if _is_users(frame)])
    for inner in (shown.__cause__, shown.__context__):
        if inner is not None:
            _trim(inner)


def _is_users(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((_OURS, *_IMPORT_MACHINERY))
