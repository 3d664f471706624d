"""`--daemon`: the server goes into the background, and the command waits for it there to say how its start went."""

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from stanchion import _stanchion
from stanchion.effective import Effective, UsageError
from stanchion.output import complain

if TYPE_CHECKING:
    from stanchion.loader import AppHost

_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}

_UMASK = 0o022
"""gunicorn's for daemons."""


def detach(effective: Effective, host: "AppHost") -> int | None:
    """Go on in the background, in a session of its own and without a terminal to control it (setsid(2)). Gives the pipe
    to which the server is to write a byte: 0 once it serves, or its exit code. None for one that follows another
    master, since that one is in the background already.

    The process that was called never returns from here: it ends with that exit code.
    """
    if "STANCHION_HANDOVER" in os.environ:
        return None
    _refuse_threads(host)
    _warn(effective)
    told, teller = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Until it is known what becomes of them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    if between := os.fork():
        os.close(teller)
        _wait(told, effective.values["errorlog"], between)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # The leader of a session may get a terminal, by opening one; its child may not.
    if os.fork():
        os._exit(0)
    os.close(told)
    os.umask(_UMASK)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.write(teller, b"%d\n" % os.getpid())
    return teller


def _refuse_threads(host: "AppHost") -> None:
    """Refuse to start if this process has other threads: fork(2) would silently leave them out of the daemon."""
    try:
        _stanchion.refuse_threads(host)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _warn(effective: Effective) -> None:
    values = effective.values
    if values["errorlog"] == "-" and not values["syslog"] and not _is_kept(values["enable_stdio_inheritance"]):
        complain(
            "stanchion: warning: once it serves, this daemon logs nothing: give --error-logfile FILE or --log-syslog"
        )
    if "NOTIFY_SOCKET" in os.environ:
        complain(
            "stanchion: warning: systemd's Type=notify does not find a daemon: leave --daemon out, or say Type=forking"
        )


def _is_kept(asked: bool) -> bool:
    return asked and not os.isatty(2)


def _wait(told: int, errorlog: str, between: int) -> NoReturn:
    """Until the server serves or has ended; Ctrl-C or TERM until then ends it too, as soon as its pid is known."""
    heard, interrupted, due = b"", False, False

    def pass_on() -> None:
        nonlocal due
        pid, known, _ = heard.partition(b"\n")
        if due and known:
            due = False
            # It may have ended by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGINT)

    def interrupt(*_: object) -> None:
        nonlocal interrupted, due
        interrupted = due = True
        pass_on()

    for number in _INTERRUPTS:
        signal.signal(number, interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    os.waitpid(between, 0)
    # Not to the end of the pipe: a process that a hook has forked may keep that from coming.
    while not heard.partition(b"\n")[2] and (piece := os.read(told, 64)):
        heard += piece
        pass_on()
    code = heard.partition(b"\n")[2]
    if interrupted:
        os._exit(128 + signal.SIGINT)
    if code == b"\0":
        os._exit(0)
    # A log that cannot be opened holds nothing; the reason is on standard error then.
    where = f"in {errorlog}" if errorlog != "-" and os.path.exists(errorlog) else "above"
    if code:
        complain(f"stanchion: the server has not started: the reason is {where}")
        os._exit(code[0])
    complain(f"stanchion: the server exited before it was ready, without giving a reason; its log is {where}")
    os._exit(1)
