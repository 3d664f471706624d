"""Answers by their heads and bodies: in pieces, long, compressible, of files."""

import array
import functools
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, BinaryIO
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

OK = "200 OK"
KIND = ("Content-Type", "text/plain")
NAME, VALUE = "X-By", "the app"
BY = (NAME, VALUE)
USUAL = [KIND, BY]


class Text(str):
    """A str of the app's own class."""


HEADS: dict[str, tuple[str, list[Any]]] = {
    "usual": (OK, USUAL),
    "equal": ("200 " + "OK"[:], [KIND, (NAME, VALUE)]),
    "other-status": ("404 Not Here", USUAL),
    "other-name": (OK, [KIND, ("X-For", VALUE)]),
    "other-value": (OK, [KIND, (NAME, "another app")]),
    "other-order": (OK, [BY, KIND]),
    "fewer": (OK, [KIND]),
    "more": (OK, [*USUAL, BY]),
    "none": (OK, []),
    "told": (OK, [*USUAL, ("Content-Length", "4")]),
    "of-the-connection": (OK, [KIND, ("Connection", "close"), BY]),
    "of-own-class": (OK, [KIND, (NAME, Text(VALUE))]),
    "long": (OK, [*USUAL, ("X-Long", "a" * 8192)]),
    "many": (OK, [BY] * 40),
    "no-content": ("204 No Content", USUAL),
    "half-a-pair": (OK, [KIND, (NAME,)]),
    "three-of-a-pair": (OK, [KIND, (NAME, VALUE, VALUE)]),
    "a-list-for-a-pair": (OK, [KIND, [NAME, VALUE]]),
    "not-a-name": (OK, [KIND, ("X By", VALUE)]),
    "not-a-length": (OK, [*USUAL, ("Content-Length", "four")]),
}
growing: list[tuple[str, str]] = [KIND]
"""The very list that was given before, with more in it each time."""


def repeating(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Gives heads that have strings, pairs and lists in common: the very same objects, time and again."""
    name = environ["PATH_INFO"].removeprefix("/")
    if name == "growing":
        growing.append(BY)
        start_response(OK, growing)
    else:
        start_response(*HEADS[name])
    return [environ["QUERY_STRING"].encode() or b"four"]


RAMP = bytes(range(256)) * 256


def flowing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """An answer in pieces: /long?BYTES without an announced length, /told?BYTES with one; /broken breaks off."""
    path, length = environ["PATH_INFO"], int(environ["QUERY_STRING"] or 0)
    told = [("Content-Length", str(length))] if path == "/told" else []
    start_response("200 OK", [("Content-Type", "application/octet-stream"), *told])
    return break_off() if path == "/broken" else flow(length)


def flow(length: int) -> Iterator[bytes]:
    while length > 0:
        yield RAMP[:length]
        length -= len(RAMP)


def break_off() -> Iterator[bytes]:
    yield b"a part"
    raise RuntimeError("it breaks off")


@functools.cache
def pattern() -> bytes:
    """Numbers of four bytes each, 4 MiB of them. A worker makes them when it is first asked."""
    numbers = array.array("I", range(1 << 20))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def slices(length: int, each: int) -> Iterator[bytes]:
    for start in range(0, length, each):
        yield pattern()[start : min(start + each, length)]


def patterned(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Long answers whose bytes show at which offset they stand, as the path says; with ?wait it waits for a pass.

    /whole/BYTES comes in one piece, with its length in the head, /iterated/BYTES/EACH in pieces without it,
    /measured/BYTES/EACH in pieces with it.
    """
    kind, length, *each = environ["PATH_INFO"].strip("/").split("/")
    fields = [("Content-Type", "application/octet-stream")]
    if kind != "iterated":
        fields.append(("Content-Length", length))
    if environ["QUERY_STRING"] == "wait":
        announce(str(os.getpid()))
        wait_for_pass()
    start_response("200 OK", fields)
    if kind == "whole":
        return [pattern()[: int(length)]]
    return slices(int(length), int(each[0]))


WORDS = ["line", "queue", "seat", "worker", "lane", "ticket", "answer", "request", "head", "body", "door", "porter"]
PIECE_BYTES = 65_536
PIECES = [b"first piece, ", b"second piece, ", b"third piece\n"]


def prose(length: int, seed: int = 1) -> bytes:
    """Words that compress as prose does, and are the same each time."""
    chosen = random.Random(seed).choices(WORDS, k=length // 4 + 1)
    return " ".join(chosen).encode()[:length]


def compressible(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers for compression to look at: each path is one, and what is asked for is in the query.

    /TYPE?...: a whole body of that many bytes (len), with these fields (field), of this status (status), and with its
    length or not (told). /stream: pieces, for each of which it waits for a pass. /long: as many bytes as asked for, in
    pieces of 64 KiB. /file: by wsgi.file_wrapper.
    """
    path = environ["PATH_INFO"]
    asked = parse_qs(environ["QUERY_STRING"])
    length = int(asked.get("len", ["20000"])[0])
    fields = [tuple(field.split(": ", 1)) for field in asked.get("field", [])]
    if path == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain"), *fields])
        return step_by_step()
    if path == "/broken":
        start_response("200 OK", [("Content-Type", "text/plain"), *fields])
        return fail_midway()
    if path == "/file":
        told = [("Content-Length", str(length))] if "told" in asked else []
        # Few tests ask for files, and this import is the longest.
        import tempfile

        file = tempfile.TemporaryFile()
        file.write(prose(length))
        file.seek(0)
        start_response("200 OK", [("Content-Type", "text/plain"), *told, *fields])
        wrapped: Iterable[bytes] = environ["wsgi.file_wrapper"](file)
        return wrapped
    if path == "/long":
        told = [("Content-Length", str(length))] if "told" in asked else []
        start_response("200 OK", [("Content-Type", "text/plain"), *told, *fields])
        return digits(length)
    body = prose(length)
    if "told" in asked:
        fields.append(("Content-Length", str(length)))
    start_response(asked.get("status", ["200 OK"])[0], [("Content-Type", path[1:]), *fields])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def step_by_step() -> Iterator[bytes]:
    announce(str(os.getpid()))
    for piece in PIECES:
        yield piece
        wait_for_pass()


def fail_midway() -> Iterator[bytes]:
    yield PIECES[0]
    raise RuntimeError("the app fails in the middle")


def digits(length: int) -> Iterator[bytes]:
    """Digits by chance, of which no coding makes less than half: what is left is longer than a socket's buffers."""
    chance = random.Random(length)
    for start in range(0, length, PIECE_BYTES):
        yield chance.randbytes(PIECE_BYTES // 2).hex().encode()[: length - start]


async def compressible_asgi(
    scope: MutableMapping[str, Any], receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]
) -> None:
    """The stream of `compressible`, sent by an asynchronous app."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for piece in PIECES:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        wait_for_pass()
    await send({"type": "http.response.body"})


class Announcing:
    """A file with a descriptor, a seek position and a close() that can be seen."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self.read = inner.read
        self.fileno = inner.fileno
        self.seek = inner.seek
        self.tell = inner.tell

    def close(self) -> None:
        self._inner.close()
        announce("file closed")


def unpacked_files(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The content of a gzip file, whose descriptor leads to other bytes: the packed ones."""
    start_response("200 OK", [("Content-Type", "application/octet-stream")])
    import gzip

    answer: Iterable[bytes] = environ["wsgi.file_wrapper"](gzip.open(os.environ["FILE"]))
    return answer


def files(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """wsgi.file_wrapper in all its ways; the file is $FILE.

    Not under the validator, which hides the wrapper from the server.
    """
    query = {key: int(value[0]) for key, value in parse_qs(environ["QUERY_STRING"]).items()}
    file = Announcing(open(os.environ["FILE"], "rb"))
    file.seek(query.get("offset", 0))
    if "read" in query:
        file.read(query["read"])
    headers = [("Content-Type", "application/octet-stream")]
    if "length" in query:
        headers.append(("Content-Length", str(query["length"])))
    start_response("200 OK", headers)
    answer: Iterable[bytes] = environ["wsgi.file_wrapper"](file, query.get("block", 8192))
    return answer
