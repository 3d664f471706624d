"""An app that does the worst, as the path says; the query is the request's own, and comes back.

/fine /echo /stream /file /nap answer. /exit /os-exit /segv /stop end their process or hold it up. /fork /threads
/close-fds /allocate do their harm and answer. /garbage writes into the memory that it shares with the acceptor, as a
wild pointer would.
"""

import hashlib
import os
import re
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

CHUNK = b"x" * 16_384
CHUNKS = 20
NAP_S = 0.02
PLAIN = [("Content-Type", "text/plain")]

SEARCHED_BYTES = 65_536
"""The part of the shared memory, from its start, with the scoreboard and the words of all slots."""
SEATS_AT, SEAT_BYTES = 640, 128
ANSWERING, NO_PHASE = 4, 9


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    query = environ["QUERY_STRING"].encode()
    match environ["PATH_INFO"]:
        case "/wait":
            announce(f"{os.getpid()} {threading.get_ident()} {query.decode()}")
            wait_for_pass()
        case "/echo":
            body = environ["wsgi.input"].read()
            start_response("200 OK", PLAIN)
            return [hashlib.sha256(body).hexdigest().encode(), b" ", query]
        case "/stream":
            start_response("200 OK", PLAIN)
            return stream(query)
        case "/file":
            start_response("200 OK", PLAIN)
            answer: Iterable[bytes] = environ["wsgi.file_wrapper"](open(__file__, "rb"))
            return answer
        case "/nap":
            time.sleep(NAP_S)
        case "/exit":
            sys.exit(3)
        case "/os-exit":
            os._exit(4)
        case "/segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "/fork":
            fork()
        case "/close-fds":
            os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        case "/threads":
            for _ in range(5):
                threading.Thread(target=time.sleep, args=(NAP_S,)).start()
        case "/allocate":
            allocate()
        case "/garbage":
            start_response("200 OK", PLAIN)
            return garbage(query)
    start_response("200 OK", PLAIN)
    return [query]


def stream(last: bytes) -> Iterator[bytes]:
    for _ in range(CHUNKS):
        yield CHUNK
    yield last


def fork() -> None:
    """A child that outlives the request, and perhaps its parent."""
    if os.fork() == 0:
        time.sleep(10 * NAP_S)
        os._exit(0)


def allocate() -> None:
    """Allocate until there is no more memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), hard))
    kept = []
    try:
        while True:
            kept.append(bytearray(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def garbage(last: bytes) -> Iterator[bytes]:
    yield b"begun"
    spoil_own_slot()
    yield from stream(last)


def spoil_own_slot() -> None:
    """Give our word, `turn:32 | epoch:12 | seat:16 | phase:4`, an impossible phase; of a loop, one of its words."""
    found = re.search(r"^([0-9a-f]+)-.*stanchion-exchange", Path("/proc/self/maps").read_text(), re.MULTILINE)
    assert found, "the shared memory has another name"
    start = int(found[1], 16)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        data = memory.read(SEARCHED_BYTES)
        ours = set()
        for place in range(SEATS_AT, len(data), SEAT_BYTES):
            pid, epoch = struct.unpack_from("=II", data, place)
            if pid == os.getpid():
                ours.add((epoch & 0xFFF) << 20 | (place - SEATS_AT) // SEAT_BYTES << 4 | ANSWERING)
        assert ours, "we have no seat"
        words = [word for (word,) in struct.iter_unpack("=Q", data)]
        places = [place for place, word in enumerate(words) if word & 0xFFFFFFFF in ours and word >> 32]
        assert 0 < len(places) <= len(ours), f"the layout is another: {places}"
        memory.seek(start + places[0] * 8)
        memory.write(struct.pack("=Q", words[places[0]] & ~0xF | NO_PHASE))
