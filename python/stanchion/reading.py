"""The settings of `serve`, read so that nothing of the reading stays in the memory of a master.

The modules that read settings (command_line.py and its imports: `argparse`, `json`, `re`, `typing`) are needed for a
moment, but the master would have them for life. So a child process reads, and passes the values to this one. If there
is a config file, this process reads it itself: the file may change the process that runs it, and hooks are functions
in it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
from _signal import SIG_BLOCK, SIG_SETMASK, pthread_sigmask, valid_signals  # type: ignore[import-not-found]
from collections.abc import Sequence

from stanchion.effective import Effective, import_first

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def read(arguments: Sequence[str]) -> Effective:
    """The settings of `serve` with these arguments. UsageError if they are wrong, Answered if they ask for help."""
    effective = _from_child(arguments)
    if effective is not None:
        import_first(os.getcwd())
        return effective
    from stanchion import command_line

    return command_line.servable(arguments)


def _from_child(arguments: Sequence[str]) -> Effective | None:
    """The same, or None where it is to be read here: a config file, mistakes, words."""
    receiver, sender = os.pipe()
    # At a reload the child would pass on its signals (Ctrl-C comes to both) to the pipe that it shares with the master.
    before = pthread_sigmask(SIG_BLOCK, valid_signals())
    try:
        child = os.fork()
        if child == 0:
            _tell(sender, arguments)
    finally:
        pthread_sigmask(SIG_SETMASK, before)
        os.close(sender)
    with open(receiver, "rb") as pipe:
        told = pipe.read()
    # If this process has inherited an ignored SIGCHLD, waitpid(2) fails: the kernel keeps no child's status.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    try:
        return Effective(*marshal.loads(told))
    except (EOFError, TypeError, ValueError):
        # The child wrote nothing, or was killed while it wrote.
        return None


def _tell(receiver: int, arguments: Sequence[str]) -> NoReturn:
    """In the child, which ends here without any message: the parent reads again, and then reports what is wrong."""
    try:
        from stanchion import command_line

        effective = command_line.servable_without_file(arguments)
        if effective is not None:
            told = (dict(effective.values), dict(effective.origins), effective.json, effective.warnings)
            with open(receiver, "wb") as pipe:
                pipe.write(marshal.dumps(told))
    finally:
        os._exit(0)
