"""The memory of clients, as the admin listener reports it."""

import json
import time
from typing import Any

from support.address import Address
from support.patience import eventually
from support.wire import Wire

SMALL_BYTES = 100 << 10
"""Tables grow with the first connections, and keep their memory."""


def memory(admin: Address) -> dict[str, Any]:
    """The memory of this moment: to frequent questions the server answers with an older status."""
    now_us = time.monotonic_ns() // 1000

    def fresh() -> dict[str, Any] | None:
        with Wire(admin.connect()) as wire:
            status = json.loads(wire.get("/status").body)
        said: dict[str, Any] = status["memory"]
        return said if status["now_us"] >= now_us else None

    said = eventually(fresh, "the status is told anew")
    assert said is not None
    return said
