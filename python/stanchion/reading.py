"""The settings of `serve`, read so that nothing of the reading stays in the memory of a master.

What reads them (command_line.py and what it imports: `argparse`, `json`, `re`, `typing`) is needed for a moment, but
the master would have it for life. So a child process reads, and this one gets the values. A config file may change
whatever it likes of the process that runs it, and has hooks for it: where there is one, all is read here.
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
    """What `serve` has by these arguments. UsageError if that cannot be, Answered if they ask for words only."""
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
    # Who has inherited that SIGCHLD is ignored learns nothing of how a child ends (waitpid(2)).
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    try:
        return Effective(*marshal.loads(told))
    except (EOFError, TypeError, ValueError):
        # It was killed, if it is not nothing at all.
        return None


def _tell(receiver: int, arguments: Sequence[str]) -> NoReturn:
    """In the child, which ends here, and without a word: what is wrong is said where it is read again."""
    try:
        from stanchion import command_line

        effective = command_line.servable_without_file(arguments)
        if effective is not None:
            told = (dict(effective.values), dict(effective.origins), effective.json, effective.warnings)
            with open(receiver, "wb") as pipe:
                pipe.write(marshal.dumps(told))
    finally:
        os._exit(0)
