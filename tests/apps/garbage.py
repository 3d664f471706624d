"""An app that writes anything anywhere into the memory it shares with the acceptor, and announces begin and end."""

import os
import random
import struct
import time
from collections.abc import Iterable
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce
from shared_memory import Mapping, exchange

HEADER_BYTES = 1024
"""Positions of the ready ring, the bell, and which seats sleep."""
FIGURES_BYTES = 64 << 10
"""The part of the memory, from its start, with all but the requests and their answers."""
WORD = struct.Struct("=Q")


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
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
