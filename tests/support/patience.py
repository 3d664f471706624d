"""How long a test waits for something that should come at once."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 20.0 * float(os.environ.get("STANCHION_TEST_PATIENCE", "1"))
"""Bound of every wait. Generous: it is only ever spent in full by a test that fails."""


def eventually(probe: Callable[[], T], what: str, within_s: float = PATIENCE_S, every_s: float = 0.01) -> T:
    """The first true answer of `probe`; for facts that the kernel shows but never announces (a file, a pid)."""
    deadline = time.monotonic() + within_s
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(every_s)
    return answer
