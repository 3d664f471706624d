"""The end of a process of the server: threads that are not daemons have a moment, then it leaves without them.

Python waits for such threads as long as they run (`threading._shutdown`), before it calls what `atexit` has. A thread
that waits for something that never comes would hold its process until the master kills it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import time

from stanchion._stanchion import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import NoReturn

# asyncio and uvloop give this name to the thread that waits for the executor's (`shutdown_default_executor`).
_OF_THE_LOOP = "(_do_shutdown)"

# Threads have so long once requests, lifespan and tasks are over,
THREADS_S = 2.0

# and at least so long after the hook worker_exit, which may have them end.
_AFTER_HOOKS_S = 0.5

# The log has the stacks of so many threads at most, and so many frames of each.
_SHOWN_MAX = 16
_FRAMES_MAX = 40

_WARNING = 30


# Tasks that an event loop has begun and cannot finish: to let go of one would be to wait for it.
unfinished: list[object] = []


@functools.cache
def _until_s() -> float:
    return time.monotonic() + THREADS_S


def seconds_for_threads() -> float:
    """How long threads may still go on. The first call begins to count, whatever it waits for."""
    return max(0.0, _until_s() - time.monotonic())


def others() -> list[threading.Thread]:
    """The threads beside the main one for which Python would wait."""
    # Imported here, as in the rest of this file: a process without threads has no need of it.
    import threading

    main = threading.main_thread()
    # Python waits for threads of executors even if they are daemons, which each is if the thread that made it is
    # (`_python_exit` in concurrent/futures/thread.py).
    executors = sys.modules.get("concurrent.futures.thread")
    joined: set[object] = set()
    # An executor that begins a thread meanwhile changes what is gone through.
    with contextlib.suppress(RuntimeError):
        joined.update(getattr(executors, "_threads_queues", ()))
    alive = [thread for thread in threading.enumerate() if thread is not main]
    return [thread for thread in alive if not thread.daemon or thread in joined]


def leave_in_time(code: int) -> None:
    """Have this process end with `code` though threads stay: to be called last of all, before Python itself ends."""
    if others():
        _Watch(code).begin()


class _Watch:
    """A thread that ends the process unless Python has waited for all threads, after which it comes to `atexit`."""

    def __init__(self, code: int) -> None:
        import threading

        self._code = code
        self._is_through = threading.Event()
        # The end of the process is the main thread's, or the watch's.
        self._end = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="stanchion-leaving", daemon=True)

    def begin(self) -> None:
        # Python calls first what is registered last.
        atexit.register(self._through)
        self._thread.start()

    def _through(self) -> None:
        if sys.modules["threading"].current_thread() is self._thread:
            return  # it calls what the app wants done, and ends the process itself
        self._is_through.set()
        # Held for ever by a watch that ends the process.
        self._end.acquire()

    def _watch(self) -> None:
        if self._is_through.wait(max(seconds_for_threads(), _AFTER_HOOKS_S)):
            return
        if not self._end.acquire(blocking=False):
            return
        left = others()
        if not left:
            # The last of them has just ended.
            self._end.release()
            return
        try:
            log(_WARNING, _described(left))
        finally:
            # The main thread may wait for this one's end of the process.
            end_now(self._code)


def end_now(code: int) -> NoReturn:
    """End the process without waiting for a thread, once what the app wants done at its end is done."""
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            # A stream that is closed, or whose reader has left, holds up no end.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    finally:
        os._exit(code)


def _described(threads: list[threading.Thread]) -> str:
    # Imported here, as most processes end without it.
    import traceback

    left = [thread for thread in threads if not thread.name.endswith(_OF_THE_LOOP)]
    frames = sys._current_frames()
    count = f"{len(left)} thread{'' if len(left) == 1 else 's'}"
    lines = [
        f"the process leaves without {count} of the app, still there {THREADS_S:g} s after all else has ended: start "
        "such a thread as a daemon, or end it in lifespan.shutdown or worker_exit",
    ]
    for thread in left[:_SHOWN_MAX]:
        lines.append(f"thread {thread.name!r}:")
        frame = None if thread.ident is None else frames.get(thread.ident)
        stack = "" if frame is None else "".join(traceback.format_stack(frame, limit=_FRAMES_MAX)).rstrip()
        lines.append(stack or "  its stack cannot be seen")
    if len(left) > _SHOWN_MAX:
        lines.append(f"{len(left) - _SHOWN_MAX} more")
    return "\n".join(lines)
