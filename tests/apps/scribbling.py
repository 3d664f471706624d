"""An app that writes where it should not: into the memory it shares with the acceptor."""

import os
import signal
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from shared_memory import exchange

SEARCHED_BYTES = 65536
"""The part of the shared memory, from its start, with the words of all slots."""
SEATS = 2
"""Threads of the worker that is asked to close."""
CLOSED_OFFSET = 24
"""The offset of the word that says that no process is left to hand out requests."""
TAKEN, ANSWERING, NO_PHASE = 3, 4, 9
EPOCH_SHIFT, SEAT_SHIFT = 20, 4
NOBODY = 7 << EPOCH_SHIFT | 5 << SEAT_SHIFT | TAKEN
"""The lower half of a word: taken by a seat at which no worker has ever sat."""
EPOCH_MASK, ANOTHER_EPOCH = 0xFFF << EPOCH_SHIFT, 70 << EPOCH_SHIFT


def spoil_own_slot(phase: int, how: Callable[[int], int] = lambda word: word & ~0xF | NO_PHASE) -> None:
    """Write over the word of the one slot in this phase, `turn:32 | epoch:12 | seat:16 | phase:4`."""
    with exchange() as memory:
        words = list(struct.iter_unpack("=Q", memory.read(0, SEARCHED_BYTES)))
        # The first epochs of the only worker's seat, and of that of a worker which replaces it before it is dead.
        ours = [epoch << EPOCH_SHIFT | seat << SEAT_SHIFT | phase for epoch in range(1, 20) for seat in (0, 1)]
        places = [place for place, (word,) in enumerate(words) if word & 0xFFFFFFFF in ours and word >> 32]
        assert len(places) == 1, f"the layout is another: {places}"
        memory.write(places[0] * 8, struct.pack("=Q", how(words[places[0]][0])))


def give_away_own_slot() -> None:
    spoil_own_slot(TAKEN, lambda word: word & ~0xFFFFFFFF | NOBODY)


def close_until_another_seat_has_left() -> None:
    """Say so for as long as that takes, whatever the acceptor says."""

    def seats() -> int:
        return sum(thread.name.startswith("stanchion-seat-") for thread in threading.enumerate())

    while seats() < SEATS:
        """The last of them may not have started."""
    with exchange() as memory:
        announce("closed")
        while seats() == SEATS:
            memory.write(CLOSED_OFFSET, struct.pack("=I", 1))
        memory.write(CLOSED_OFFSET, struct.pack("=I", 0))


def given_away() -> int:
    with exchange() as memory:
        words = struct.iter_unpack("=Q", memory.read(0, SEARCHED_BYTES))
        return sum(word & 0xFFFFFFFF == NOBODY and word >> 32 > 0 for (word,) in words)


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [])
    if environ["PATH_INFO"] == "/spoil":
        return spoiling()
    if environ["PATH_INFO"] == "/spoil-and-die":
        spoil_own_slot(TAKEN)
        os.kill(os.getpid(), signal.SIGKILL)
    if environ["PATH_INFO"] == "/give-away-and-die":
        announce("asked")
        wait_for_pass()
        give_away_own_slot()
        os.kill(os.getpid(), signal.SIGKILL)
    if environ["PATH_INFO"] == "/close":
        close_until_another_seat_has_left()
    if environ["PATH_INFO"] == "/under-another-name":
        spoil_own_slot(TAKEN, lambda word: word & ~EPOCH_MASK | ANOTHER_EPOCH)
        announce(f"{os.getpid()}")
        wait_for_pass()
    if environ["PATH_INFO"] == "/given-away":
        return [str(given_away()).encode()]
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
