"""Each line of the app that runs, printed: gunicorn's --spew."""

import linecache
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any


def begin() -> None:
    """From now on, in this thread."""
    sys.settrace(_tracer)


def traced(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """The app, traced in whichever thread it is called: each has a trace function of its own."""

    def spewing(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        begin()
        return app(environ, start_response)

    return spewing


def _tracer(frame: FrameType, event: str, argument: Any) -> Any:
    """The interpreter calls this at each line (sys.settrace), and does not trace it."""
    if event == "line":
        name = frame.f_globals.get("__name__", "[unknown]")
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
        # In one piece, as other threads print too.
        sys.stdout.write(f"{name}:{frame.f_lineno}: {line.rstrip()}\n")
        sys.stdout.flush()
    return _tracer
