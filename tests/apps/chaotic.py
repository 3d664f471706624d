"""Apps that do the worst, as the path says; the query is the request's own, and comes back.

/fine /echo /stream /file /nap answer. /exit /os-exit /segv end their process. /fork /threads
/close-fds /allocate do their harm and answer. /garbage writes into the memory that it shares with the acceptor, as a
wild pointer would.
"""

import asyncio
import concurrent.futures
import functools
import hashlib
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass
from shared_memory import exchange

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
        case "/garbage":
            start_response("200 OK", PLAIN)
            return garbage(query)
        case harmful:
            harm(harmful)
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
    with exchange() as memory:
        data = memory.read(0, SEARCHED_BYTES)
        ours = set()
        for place in range(SEATS_AT, len(data), SEAT_BYTES):
            pid, epoch = struct.unpack_from("=II", data, place)
            if pid == os.getpid():
                ours.add((epoch & 0xFFF) << 20 | (place - SEATS_AT) // SEAT_BYTES << 4 | ANSWERING)
        assert ours, "we have no seat"
        words = [word for (word,) in struct.iter_unpack("=Q", data)]
        places = [place for place, word in enumerate(words) if word & 0xFFFFFFFF in ours and word >> 32]
        assert 0 < len(places) <= len(ours), f"the layout is another: {places}"
        memory.write(places[0] * 8, struct.pack("=Q", words[places[0]] & ~0xF | NO_PHASE))


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CONCURRENCY_MAX = 16
"""Requests that wait to be let pass, each with a thread that looks for it."""


@functools.cache
def pool() -> concurrent.futures.Executor:
    """The pool of this process, which is made after the fork."""
    return concurrent.futures.ThreadPoolExecutor(CONCURRENCY_MAX)


async def begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})


async def stream_asgi(send: Send, last: bytes) -> None:
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": last})


async def digest(receive: Receive) -> bytes | None:
    """The digest of the body; None if the client leaves before it is whole."""
    digest = hashlib.sha256()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        digest.update(event["body"])
        if not event["more_body"]:
            return digest.hexdigest().encode()


def harm(path: str) -> None:
    match path:
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


async def talk(receive: Receive, send: Send) -> None:
    """Say again what is said, but for words that end it, and paths that do harm: these are said again if we live."""
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        match event.get("text"):
            case "close":
                await send({"type": "websocket.close", "code": 4001, "reason": "as asked"})
                continue
            case "return":
                return
            case "raise":
                raise ValueError("asked to")
            case "/garbage":
                spoil_own_slot()
            case str() as path if path.startswith("/"):
                harm(path)
        await send({**event, "type": "websocket.send"})


async def asgi(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """As `app`, asynchronous: a request that ends its process, or holds it up, also hits the others there."""
    if scope["type"] == "websocket":
        await talk(receive, send)
        return
    if scope["type"] != "http":
        raise NotImplementedError
    query, body = scope["query_string"], scope["query_string"]
    match scope["path"]:
        case "/wait":
            announce(f"{os.getpid()} {id(asyncio.current_task())} {query.decode()}")
            await asyncio.get_running_loop().run_in_executor(pool(), wait_for_pass)
        case "/echo":
            found = await digest(receive)
            if found is None:
                return
            body = found + b" " + query
        case "/stream":
            await begin(send)
            await stream_asgi(send, query)
            return
        case "/file":
            await begin(send)
            await send({"type": "http.response.pathsend", "path": __file__})
            return
        case "/nap":
            await asyncio.sleep(NAP_S)
        case "/garbage":
            await begin(send)
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            spoil_own_slot()
            await stream_asgi(send, query)
            return
        case harmful:
            harm(harmful)
    await begin(send)
    await send({"type": "http.response.body", "body": body})
