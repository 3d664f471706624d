"""Apps that say what has arrived: the environ, the body, the target.

`raw` is the app itself, `app` the same under the validator of PEP 3333; so are `each_way` and `each_way_checked`.
"""

import functools
import hashlib
import io
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.validate import validator

from rendezvous import announce, wait_for_pass


def plain(value: Any) -> Any:
    """A value of the environ as JSON can carry it: text and flags as they are, objects by what they can do."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, tuple):
        return list(value)
    return "callable" if callable(value) else "object"


def raw(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The environ as JSON, and the body's length and hash. `?count=N` reads in pieces of N."""
    body, digest, length = environ["wsgi.input"], hashlib.sha256(), 0
    count = int(parse_qs(environ["QUERY_STRING"]).get("count", ["65536"])[0])
    while part := body.read(count):
        digest.update(part)
        length += len(part)
    answer = {
        "environ": {key: plain(value) for key, value in environ.items()},
        "types": {key: type(value).__name__ for key, value in environ.items()},
        "length": length,
        "sha256": digest.hexdigest(),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


app = validator(raw)


def pieces(body: Any, how: str, count: int) -> Iterator[bytes]:
    match how:
        case "/read-all":
            yield body.read()
        case "/read-negative":
            yield body.read(-1)
        case "/read-count":
            while piece := body.read(count):
                yield piece
        case "/readline":
            while piece := body.readline():
                yield piece
        case "/readline-count":
            while piece := body.readline(count):
                yield piece
        case "/readlines":
            yield from body.readlines()
        case "/readlines-hint":
            while lines := body.readlines(count):
                yield from lines
        case "/iterate":
            yield from body
        case "/mixed":
            yield body.read(1)
            yield body.readline()
            yield body.read(count)
            yield body.readline(count)
            yield b"".join(body)
            assert body.read(10) == b"", "at the end read gives nothing"
            assert body.readline() == b"", "at the end readline gives nothing"
            assert body.readlines() == [], "at the end readlines gives nothing"
        case "/nothing":
            pass


def each_way(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Reads wsgi.input in each way that PEP 3333 names; the path chooses."""
    how, count = environ["PATH_INFO"], int(environ["QUERY_STRING"] or "0")
    digest, sizes, ends_in_newline = hashlib.sha256(), [], 0
    for piece in pieces(environ["wsgi.input"], how, count):
        digest.update(piece)
        sizes.append(len(piece))
        ends_in_newline += piece.endswith(b"\n")
    answer = {
        "sha256": digest.hexdigest(),
        "length": sum(sizes),
        "pieces": len(sizes),
        "longest": max(sizes, default=0),
        "lines": ends_in_newline,
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


each_way_checked = validator(each_way)


def look_at_empty(way: str, body: Any) -> None:
    """Find it new, and leave it used."""
    assert not body.closed
    assert (body.tell(), body.getvalue()) == (0, b"")
    match way:
        case "file":
            assert (body.readable(), body.seekable(), body.readinto(bytearray(4)), body.read1()) == (True, True, 0, b"")
        case "lines":
            assert (body.read(), body.read(None), body.read(4), body.readline(), body.readline(9)) == (b"",) * 5
            assert (body.readlines(), body.readlines(9), list(body)) == ([], [], [])
        case "text":
            assert io.TextIOWrapper(io.BufferedReader(body)).read() == ""
        case "close":
            body.close()
            try:
                body.read()
            except ValueError:
                return
            raise AssertionError("it was closed")
        case "write":
            body.write(b"x\ny")
            body.seek(0)
            assert (body.readline(), body.read()) == (b"x\n", b"y")
        case "seek":
            body.seek(7)
            assert body.tell() == 7
        case "with":
            with body as file:
                assert file.read() == b""
            assert body.closed
        case "next":
            assert next(body, "the end") == "the end"
        case "set":
            body.note = "x"
            body.read = lambda _size: body.note
            assert body.read() == "x"
            del body.read, body.note
            assert (body.read(), hasattr(body, "note")) == (b"", False)
        case "copy":
            import copy
            import pickle

            body.write(b"x")
            assert (copy.copy(body).getvalue(), pickle.loads(pickle.dumps(body)).getvalue()) == (b"x", b"x")
        case "kind":
            assert (isinstance(body, io.BufferedIOBase), isinstance(body, io.IOBase)) == (True, True)
            body.seek(1)
        case "unknown":
            assert not hasattr(body, "no_such_attribute")


def empty_input(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Asks wsgi.input of a request without a body for more than PEP 3333 has."""
    look_at_empty(environ["PATH_INFO"].strip("/"), environ["wsgi.input"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"as it should be"]


def target(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Says what it sees of the target of a request, in hexadecimal digits, since any byte may be in it.

    A request with the field X-Hold announces itself and waits, one with X-Raise or X-Die ends so.
    """
    if "HTTP_X_HOLD" in environ:
        announce("holds")
        wait_for_pass()
    if "HTTP_X_RAISE" in environ:
        raise RuntimeError("asked for")
    if "HTTP_X_DIE" in environ:
        os._exit(9)
    start_response("200 OK", [("Content-Type", "application/json")])
    seen = {name: environ[name].encode("latin-1").hex() for name in ("RAW_URI", "PATH_INFO", "QUERY_STRING")}
    return [json.dumps(seen).encode()]


async def target_asgi(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """As `target`; it never holds."""
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    # Servers differ in what stands for bytes that are no UTF-8.
    path = scope["path"].encode("utf-8", "surrogateescape").hex()
    seen = {"path": path, "raw_path": scope["raw_path"].hex(), "query_string": scope["query_string"].hex()}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(seen).encode()})


@functools.cache
def notes() -> int:
    return os.open(os.environ["SAW"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)


def noting(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Says in a field of its answer, and in a line of the file $SAW, what request it saw: no HEAD has a body."""
    body, digest, length = environ["wsgi.input"], hashlib.sha256(), 0
    while part := body.read(65536):
        digest.update(part)
        length += len(part)
    target = environ["RAW_URI"].encode("latin-1").hex()
    meant = environ.get("HTTP_X_MEANT", "")
    saw = " ".join(
        [environ["REQUEST_METHOD"], target, str(length), digest.hexdigest(), meant.encode("latin-1").hex() or "-"]
    )
    os.write(notes(), saw.encode() + b"\n")
    start_response("200 OK", [("X-Saw", saw), ("Content-Length", "0")])
    return [b""]
