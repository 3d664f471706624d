"""Retries for a client that must send its next bytes within a time that is a constant of the server's, no setting."""

import time
from collections.abc import Callable

from support.wire import BrokenOff

LINGERS_S = 2.0
"""The server waits so long for a client that pauses after the last answer
(crates/stanchion-connections/src/phase/leaving.rs)."""

ECHO_S = 2.0
"""The server waits so long for a client of HTTP/2 to hear of the end
(crates/stanchion-connections/src/phase/carrying.rs)."""

ATTEMPTS_MAX = 5


def in_haste(attempt: Callable[[], None], limit_s: float) -> None:
    """Make the attempt, and again if it fails and has taken so long: its client may have got no core for that time, and
    so it says nothing about the server."""
    for number in range(ATTEMPTS_MAX):
        began_s = time.monotonic()
        try:
            return attempt()
        except TimeoutError:
            raise
        except (AssertionError, OSError, BrokenOff):
            if time.monotonic() - began_s < limit_s or number == ATTEMPTS_MAX - 1:
                raise
    raise AssertionError("no attempt was made")
