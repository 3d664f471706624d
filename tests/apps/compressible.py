"""Answers for compression to look at: each path is one, and what is asked for is in the query.

/TYPE?...: a whole body of that many bytes (len), with these fields (field), of this status (status), and with its
length or not (told). /stream: pieces, for each of which it waits for a pass. /long: as many bytes as asked for, in
pieces of 64 KiB. /file: by wsgi.file_wrapper.
"""

import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

WORDS = ["line", "queue", "seat", "worker", "lane", "ticket", "answer", "request", "head", "body", "door", "porter"]
PIECE_BYTES = 65_536
PIECES = [b"first piece, ", b"second piece, ", b"third piece\n"]


def text(length: int, seed: int = 1) -> bytes:
    """Words that compress as prose does, and are the same each time."""
    chosen = random.Random(seed).choices(WORDS, k=length // 4 + 1)
    return " ".join(chosen).encode()[:length]


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    asked = parse_qs(environ["QUERY_STRING"])
    length = int(asked.get("len", ["20000"])[0])
    fields = [tuple(field.split(": ", 1)) for field in asked.get("field", [])]
    if path == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain"), *fields])
        return stream()
    if path == "/broken":
        start_response("200 OK", [("Content-Type", "text/plain"), *fields])
        return broken()
    if path == "/file":
        told = [("Content-Length", str(length))] if "told" in asked else []
        file = tempfile.TemporaryFile()
        file.write(text(length))
        file.seek(0)
        start_response("200 OK", [("Content-Type", "text/plain"), *told, *fields])
        wrapped: Iterable[bytes] = environ["wsgi.file_wrapper"](file)
        return wrapped
    if path == "/long":
        told = [("Content-Length", str(length))] if "told" in asked else []
        start_response("200 OK", [("Content-Type", "text/plain"), *told, *fields])
        return long(length)
    body = text(length)
    if "told" in asked:
        fields.append(("Content-Length", str(length)))
    start_response(asked.get("status", ["200 OK"])[0], [("Content-Type", path[1:]), *fields])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def stream() -> Iterator[bytes]:
    announce(str(os.getpid()))
    for piece in PIECES:
        yield piece
        wait_for_pass()


def broken() -> Iterator[bytes]:
    yield PIECES[0]
    raise RuntimeError("the app fails in the middle")


def long(length: int) -> Iterator[bytes]:
    """Digits by chance, of which no coding makes less than half: what is left is longer than a socket's buffers."""
    chance = random.Random(length)
    for start in range(0, length, PIECE_BYTES):
        yield chance.randbytes(PIECE_BYTES // 2).hex().encode()[: length - start]


async def asgi(
    scope: MutableMapping[str, Any], receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    """Such a stream of an asynchronous app."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for piece in PIECES:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        wait_for_pass()
    await send({"type": "http.response.body"})
