"""An app that writes where it should not: into the memory it shares with the acceptor, as a wild pointer would."""

import os
import re
import signal
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

SEARCHED_BYTES = 65536
"""Of the shared memory, from its start: the words of all slots lie there."""
TAKEN, ANSWERING, NO_PHASE = 3, 4, 9


def spoil_own_slot(phase: int) -> None:
    """Give the word of the one slot in this phase, `turn:32 | tenure:16 | seat:12 | phase:4`, an impossible phase."""
    maps = Path("/proc/self/maps").read_text()
    found = re.search(r"^([0-9a-f]+)-.*stanchion-exchange", maps, re.MULTILINE)
    assert found, "the shared memory has another name"
    start = int(found[1], 16)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        words = list(struct.iter_unpack("=Q", memory.read(SEARCHED_BYTES)))
        # The first tenures of the only seat.
        ours = [tenure << 16 | phase for tenure in range(1, 20)]
        places = [place for place, (word,) in enumerate(words) if word & 0xFFFFFFFF in ours and word >> 32]
        assert len(places) == 1, f"the layout is another: {places}"
        memory.seek(start + places[0] * 8)
        memory.write(struct.pack("=Q", words[places[0]][0] & ~0xF | NO_PHASE))


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [])
    if environ["PATH_INFO"] == "/spoil":
        return spoiling()
    if environ["PATH_INFO"] == "/spoil-and-die":
        spoil_own_slot(TAKEN)
        os.kill(os.getpid(), signal.SIGKILL)
    return [f"{os.getpid()} {environ['QUERY_STRING']}".encode()]


def spoiling() -> Iterator[bytes]:
    yield b"begun"
    announce(f"{os.getpid()}")
    wait_for_pass()
    try:
        spoil_own_slot(ANSWERING)
    except (OSError, AssertionError) as error:
        announce(f"not spoilt: {error}")
        raise
    announce("spoilt")
    yield b"more"
    wait_for_pass()
