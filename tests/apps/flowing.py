"""Answers in pieces: /long?BYTES without an announced length, /told?BYTES with one; /broken breaks off."""

from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

PIECE = bytes(range(256)) * 256


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path, length = environ["PATH_INFO"], int(environ["QUERY_STRING"] or 0)
    told = [("Content-Length", str(length))] if path == "/told" else []
    start_response("200 OK", [("Content-Type", "application/octet-stream"), *told])
    return broken() if path == "/broken" else pieces(length)


def pieces(length: int) -> Iterator[bytes]:
    while length > 0:
        yield PIECE[:length]
        length -= len(PIECE)


def broken() -> Iterator[bytes]:
    yield b"a part"
    raise RuntimeError("it breaks off")
