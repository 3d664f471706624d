"""An app that writes where it should not: into the memory it shares with the acceptor."""

import os
import signal
import struct
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from shared_memory import exchange

SEARCHED_BYTES = 65536
"""Of the shared memory, from its start: the words of all slots lie there."""
TAKEN, ANSWERING, NO_PHASE = 3, 4, 9


def spoil_own_slot(phase: int) -> None:
    """Give the word of the one slot in this phase, `turn:32 | tenure:16 | seat:12 | phase:4`, an impossible phase."""
    with exchange() as memory:
        words = list(struct.iter_unpack("=Q", memory.read(0, SEARCHED_BYTES)))
        # The first tenures of the only seat.
        ours = [tenure << 16 | phase for tenure in range(1, 20)]
        places = [place for place, (word,) in enumerate(words) if word & 0xFFFFFFFF in ours and word >> 32]
        assert len(places) == 1, f"the layout is another: {places}"
        memory.write(places[0] * 8, struct.pack("=Q", words[places[0]][0] & ~0xF | NO_PHASE))


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
