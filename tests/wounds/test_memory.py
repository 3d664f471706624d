"""Bodies in memory are counted from their first byte, not from their last."""

import contextlib

import pytest

from support.patience import PATIENCE_S, eventually
from support.server import UNHURRIED, Serve
from support.wire import request

BODIES = 900
BODY_BYTES = 100_000
"""Each body alone would stay in memory."""
IN_MEMORY_BYTES_MAX = 64 << 20
"""The limit of all bodies together."""
OVER = BODIES - IN_MEMORY_BYTES_MAX // BODY_BYTES


@pytest.mark.own("gunicorn's workers read bodies only as the app does")
def test_unfinished_bodies_that_are_too_much_together_go_to_the_spool(serve: Serve) -> None:
    server = serve("hello:app", *UNHURRIED)
    unfinished = request("POST", "/", [f"Content-Length: {BODY_BYTES + 1}"]) + b"x" * BODY_BYTES
    with contextlib.ExitStack() as wires_end:
        for _ in range(BODIES):
            wires_end.enter_context(server.connect()).send(unfinished)
        what = f"{OVER} of {BODIES} bodies are in files"
        eventually(lambda: len(server.spooled()) >= OVER, what, 3 * PATIENCE_S)
