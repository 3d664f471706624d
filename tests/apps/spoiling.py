"""Apps that write into the memory they share with the acceptor."""

import json
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from shared_memory import Mapping, exchange


def lying(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Changes what its worker has put into the shared memory, before the acceptor looks at it."""
    if environ["PATH_INFO"] != "/lie":
        start_response("200 OK", [])
        return [str(os.getpid()).encode()]
    # In hexadecimal, or the request itself would hold what is looked for.
    lie = json.loads(bytes.fromhex(environ["wsgi.input"].read().decode()))
    announce("asked")
    wait_for_pass()
    mark = os.urandom(16).hex()
    start_response(lie["status"], [*((name, value) for name, value in lie["fields"]), ("X-Mark", mark)])
    return telling(lie, mark)


def telling(lie: dict[str, str], mark: str) -> Iterator[bytes]:
    yield lie["body"].encode()
    # The head and this piece are in the memory, and with a length of so many bytes the answer is over.
    try:
        with exchange() as memory:
            memory.replace(lie["old"].encode("latin-1"), lie["new"].encode("latin-1"), mark.encode())
    except (OSError, AssertionError) as error:
        announce(f"not told: {error}")
        raise
    announce("told")
    wait_for_pass()
    if more := lie["more"].encode():
        yield more


CLOSE, FAULT = 3, 5

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def lying_socket(scope: Message, receive: Receive, send: Send) -> None:
    """Changes a close of a WebSocket in the shared memory to one for which the client is blamed."""
    if scope["type"] == "lifespan":
        raise RuntimeError("it knows no lifespan")
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
        return
    await receive()
    await send({"type": "websocket.accept"})
    code = int((await receive())["text"])
    announce("asked")
    wait_for_pass()
    mark = os.urandom(16).hex()
    await send({"type": "websocket.close", "code": code, "reason": mark})
    rest = (2 + len(mark)).to_bytes(4, "little") + code.to_bytes(2, "little") + mark.encode()
    try:
        with exchange() as memory:
            memory.replace(bytes([CLOSE]) + rest, bytes([FAULT]) + rest, mark.encode())
    except (OSError, AssertionError) as error:
        announce(f"not told: {error}")
        raise
    announce("told")


SEARCHED_BYTES = 65536
"""The part of the shared memory, from its start, with the words of all slots."""
SEATS = 2
"""Threads of the worker that is asked to close."""
CLOSED_OFFSET = 8
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


def scribbling(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Writes over the words of slots, as the path says."""
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


HEADER_BYTES = 1024
"""Positions of the ready ring, the bell, and which seats sleep."""
FIGURES_BYTES = 64 << 10
"""The part of the memory, from its start, with all but the requests and their answers."""
WORD = struct.Struct("=Q")


def garbage(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Writes anything anywhere into the shared memory, and announces begin and end."""
    start_response("200 OK", [])
    query = parse_qs(environ["QUERY_STRING"])
    if environ["PATH_INFO"] != "/scribble":
        return [environ["QUERY_STRING"].encode()]
    announce(f"{os.getpid()}")
    rng = random.Random(int(query["seed"][0]))
    until = time.monotonic() + float(query["for_s"][0])
    with exchange() as memory:
        while time.monotonic() < until:
            scribble(rng, memory)
    announce("enough")
    return [b"enough"]


def scribble(rng: random.Random, memory: Mapping) -> None:
    """A word of the header, any figure, or anything: each as often, whatever the size of the areas."""
    reach = min(rng.choice([HEADER_BYTES, FIGURES_BYTES, memory.length]), memory.length)
    offset = rng.randrange(reach // WORD.size) * WORD.size
    (before,) = WORD.unpack(memory.read(offset, WORD.size))
    (elsewhere,) = WORD.unpack(memory.read(rng.randrange(FIGURES_BYTES // WORD.size) * WORD.size, WORD.size))
    value = rng.choice([0, (1 << 64) - 1, 1 << 63, rng.getrandbits(64), before + 1, before - 1, elsewhere])
    memory.write(offset, WORD.pack(value % (1 << 64)))
