"""An asynchronous app whose worker writes over the inbox of another one's event loop, as a wild pointer would."""

import os
import struct
import time
from collections.abc import MutableMapping
from typing import Any

from looping import Receive, Send, answer
from looping import app as harmless
from rendezvous import announce, wait_for_pass
from shared_memory import Mapping, exchange

SEARCHED_BYTES = 1 << 20
"""The part of the shared memory, from its start, with all inboxes of a few workers with a few seats each."""
LINE_BYTES = 128
INBOX = struct.Struct("=IIIxxxxQQQQ10Q")
"""Whether the loop sleeps, its load, its sessions, when it turned last, how late it was: last, at most, all, counts."""
SLEEPS = struct.Struct("=II")
NO_ROOM = 0xFFFFFFFF
NOTICES_BYTES = 10 * LINE_BYTES
"""The length of what follows the used inboxes: the unused ones, and the notices of all."""
LOOKS_S = 0.1
"""A loop that has nothing to do turns once a second, and may announce a turn that is yet to come."""
DEAFENED_S = 1.0


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if scope.get("path") != "/deafen":
        await harmless(scope, receive, send)
        return
    with exchange() as memory:
        deafen(memory)
    announce(f"{os.getpid()} is through")
    # The whole loop waits: an answer meanwhile comes from the other one.
    wait_for_pass()
    await answer(send, str(os.getpid()))


def deafen(memory: Mapping) -> None:
    """Erase the word that says that the other loop sleeps, and all notices, whenever they are there."""
    before = inboxes(memory)
    turned: list[int] = []
    # Ours does not turn meanwhile.
    while not turned:
        time.sleep(LOOKS_S)
        turned = [place for place, beat_us in inboxes(memory).items() if beat_us != before.get(place)]
    (other,) = turned
    announce(f"{os.getpid()} deafens")
    last = max(other, *before) + LINE_BYTES
    until_s = time.monotonic() + DEAFENED_S
    while time.monotonic() < until_s:
        memory.write(other, SLEEPS.pack(0, NO_ROOM))
        memory.write(last, bytes(NOTICES_BYTES))


def inboxes(memory: Mapping) -> dict[int, int]:
    """The inboxes of loops that turn, each with the time of its loop's last turn."""
    data = memory.read(0, SEARCHED_BYTES)
    now_us = time.monotonic_ns() // 1000
    found = {}
    for place in range(0, len(data), LINE_BYTES):
        _, _, _, beat_us, last_us, most_us, all_us, *counts = INBOX.unpack_from(data, place)
        if (
            now_us - 5_000_000 < beat_us <= now_us + 1_000_000
            and last_us <= most_us <= all_us
            and 0 < sum(counts) < 1000
        ):
            found[place] = beat_us
    return found
