"""The end of a process of the server: threads that are not daemons have a moment, then it leaves without them.

Python waits for such threads as long as they run (`threading._shutdown`), before it calls what `atexit` has. A thread
that waits for something that never comes would hold its process until the master kills it.

A worker ends once `atexit` has been called. Python would then take every module and object apart (`Py_FinalizeEx`):
a fork writes to each page that it shares until then, and so copies the app just before it leaves. LiteLLM's worker
took 0.5 s of CPU time and 110 MB for that. `multiprocessing` ends its forks in the same way.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import gc
import io
import os
import sys
import time
import weakref

from stanchion._stanchion import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
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
    _End(code).begin()


class _End:
    """The end of the process, once Python has waited for all threads and comes to `atexit`; a watch waits no longer."""

    def __init__(self, code: int) -> None:
        self._code = code
        # The thread that ends the process.
        self._by: int | None = None
        self._watch: _Watch | None = None

    def begin(self) -> None:
        # Python calls first what is registered last.
        atexit.register(self._at_exit)
        if others():
            self._watch = _Watch(self._leave_threads)
            self._watch.begin()

    def _at_exit(self) -> None:
        if self._by == _thread.get_ident():
            return  # `end_now` calls all that is registered, this function among it
        if self._watch is not None:
            self._watch.give_up()
        self._by = _thread.get_ident()
        end_now(self._code, is_in_order=True)

    def _leave_threads(self, left: list[threading.Thread]) -> None:
        self._by = _thread.get_ident()
        try:
            count, stacks = _described(left)
            log(
                _WARNING,
                f"the process leaves without {count} of the app, still there {THREADS_S:g} s after all else has ended: "
                f"start such a thread as a daemon, or end it in lifespan.shutdown or worker_exit\n{stacks}",
            )
        finally:
            # The main thread may wait for this one's end of the process.
            end_now(self._code)


class _Watch:
    """A thread that ends the process by `leave`, unless the main thread has waited for all others in time."""

    def __init__(self, leave: Callable[[list[threading.Thread]], None]) -> None:
        import threading

        self._leave = leave
        self._is_through = threading.Event()
        # The end of the process is the main thread's, or the watch's.
        self._end = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stanchion-leaving", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def give_up(self) -> None:
        """The main thread is through. It does not return from here if the watch ends the process."""
        self._is_through.set()
        self._end.acquire()

    def _run(self) -> None:
        if self._is_through.wait(max(seconds_for_threads(), _AFTER_HOOKS_S)):
            return
        if not self._end.acquire(blocking=False):
            return
        left = others()
        if left:
            self._leave(left)
        else:
            # The last of them has just ended.
            self._end.release()


def end_now(code: int, *, is_in_order: bool = False) -> NoReturn:
    """End the process without waiting for a thread, once what the app wants done at its end is done.

    In order, it writes what open files hold back. Else a thread that stays may have the lock of such a file.
    """
    try:
        atexit._run_exitfuncs()
        if is_in_order:
            _flush_files()
        for stream in (sys.stdout, sys.stderr):
            # A stream that is closed, or whose reader has left, holds up no end.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    finally:
        os._exit(code)


_KINDS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
"""Files that hold back what is written to them."""

# Of the files that were open before a fork. `gc.freeze` hides them from this process's look at its objects.
_inherited: list[weakref.ref[io.IOBase]] = []


def note_files() -> None:
    """Have workers flush the files that are open now: to be called before the process hides its objects and forks."""
    # A worker that becomes the template has those from before, which it does not see any more.
    _inherited.extend(map(weakref.ref, _files()))


def _flush_files() -> None:
    """Write what open files hold back, as Python does when it takes them apart."""
    inherited = [reference() for reference in _inherited]
    for file in [*inherited, *_files()]:
        # The file may be closed or on a full disk, and a class of the app's may raise anything.
        with contextlib.suppress(Exception):
            if file is not None:
                file.flush()


def _files() -> list[io.IOBase]:
    # By the type: to ask an object for its class may run code of the app's, such as a proxy's.
    return [found for found in gc.get_objects() if issubclass(type(found), _KINDS)]


def _described(threads: list[threading.Thread]) -> tuple[str, str]:
    """How many they are, and their stacks."""
    # Imported here, as most processes end without it.
    import traceback

    left = [thread for thread in threads if not thread.name.endswith(_OF_THE_LOOP)]
    frames = sys._current_frames()
    count = f"{len(left)} thread{'' if len(left) == 1 else 's'}"
    lines = []
    for thread in left[:_SHOWN_MAX]:
        lines.append(f"thread {thread.name!r}:")
        frame = None if thread.ident is None else frames.get(thread.ident)
        stack = "" if frame is None else "".join(traceback.format_stack(frame, limit=_FRAMES_MAX)).rstrip()
        lines.append(stack or "  its stack cannot be seen")
    if len(left) > _SHOWN_MAX:
        lines.append(f"{len(left) - _SHOWN_MAX} more")
    return count, "\n".join(lines)
